package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Move asks the owner to hand the calls over to the replica with a name; empty: to any other one. It returns when
// the owner has been asked. The audit says so: the record has the actor, the way in and the reason.
func (m *Member) Move(ctx context.Context, to string, r scheduler.AuditRecord) error {
	s, _ := m.sight()
	switch found := s.named(to); {
	case s.Owner == "":
		return errors.New("no replica has the calls; one that waits will have them soon")
	case to == s.Name && s.living(to) > 1:
		return fmt.Errorf("%d replicas have the name %q, and one of them has the calls; give each a name of its own (fleet.name), or name none: the calls go to any other one", s.living(to), to)
	case to == s.Name && to != "":
		return fmt.Errorf("replica %q has the calls already", to)
	case to != "" && found == nil:
		return fmt.Errorf("no replica %q is in the registry; throttler fleet lists them", to)
	case to != "" && found.Silence > s.Lease:
		return fmt.Errorf("replica %q was not heard of for %v, longer than a lease; start it, or name another one", to, found.Silence.Round(time.Millisecond))
	case to == "" && len(s.Replicas) < 2:
		return errors.New("no other replica is in the registry; start one")
	}
	r.Action, r.Before, r.After = "move", s.Name, cmp.Or(to, "any other replica")
	done, err := m.recorded(ctx, r, "UPDATE lease SET next = $1, offered_at = clock_timestamp() WHERE epoch = $2 AND owner = $3", cmp.Or(to, anyReplica), s.Epoch, s.Owner)
	switch {
	case err != nil:
		return err
	case !done:
		return errors.New("the calls have another owner meanwhile; look again, and then move them")
	}
	m.notify(ctx)
	return nil
}

// anyReplica is the name of each replica but the owner.
const anyReplica = "*"

// Bury notes that the process of the replica with a name has ended, as an operator knows. If it has the calls, another
// replica takes them over at once, and does not hold limits back for attempts that it may still make. The life that has the
// calls is meant, also if the process has begun again under the name. One that beats, or is heard of, is not buried; one
// that was cut off, and lives, ends its term: its next beat is refused. The audit says so, as in [Member.Move].
func (m *Member) Bury(ctx context.Context, name string, r scheduler.AuditRecord) error {
	s, _ := m.sight()
	owns := s.Owner != "" && s.Name == name
	enough := max(s.Lease, m.o.Lease) / 2 // it would have beaten three times
	silence, found := s.silenceOf(name)
	if owns {
		silence, found = s.still, true
		if owner := s.Find(s.Owner); owner != nil {
			silence = min(silence, owner.Silence)
		}
	}
	switch {
	case s.err != nil:
		return fmt.Errorf("the server does not answer, so replica %q may live: %w", name, s.err)
	case !found:
		return fmt.Errorf("no replica %q is in the registry; throttler fleet lists them", name)
	case silence < enough:
		return fmt.Errorf("replica %q was heard of %v ago: its process has not ended; stop it, and bury it when it has been silent for %v", name, silence.Round(time.Millisecond), enough)
	}
	r.Action, r.Before, r.After = "bury", name, "its process has ended"
	const forget = "DELETE FROM replicas WHERE name = $1 AND id <> $2 AND seen_at < clock_timestamp() - $3 * interval '1 ms'"
	dead := []any{name, m.ID, enough.Milliseconds()}
	change, args := forget, dead
	if owns {
		r.Before += ", which has the calls"
		change, args = "UPDATE lease SET exited = true WHERE owner = $1 AND epoch = $2 AND beat = $3", []any{s.Owner, s.Epoch, s.row.beat}
	}
	done, err := m.recorded(ctx, r, change, args...)
	switch {
	case err != nil:
		return err
	case !done:
		return fmt.Errorf("replica %q was heard of, or the calls have another owner meanwhile; look again, and then bury it", name)
	case owns:
		_, _ = m.pool.Exec(ctx, forget, dead...) // else it is forgotten later
	}
	m.notify(ctx)
	return nil
}

// recorded makes a change of the lease or the registry, with its record in the audit; done reports whether there was
// something to change. The statements are one transaction and one trip, so that no broken connection leaves the fence locked.
// The fence keeps the owner from taking the number of the record. It may be held for long, as by a recovery, and the row of the
// lease is not locked for so long: the owner could not beat.
func (m *Member) recorded(ctx context.Context, r scheduler.AuditRecord, change string, args ...any) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	r.At = time.Now()
	for {
		if err := m.pool.QueryRow(ctx, nextRecord).Scan(&r.Seq); err != nil {
			return false, err
		}
		n := len(args)
		b := &pgx.Batch{}
		b.Queue("SELECT set_config('lock_timeout', $1, true)", (m.o.Lease / 8).String())
		b.Queue(fmt.Sprintf(`WITH changed AS (%s RETURNING 1), held AS (SELECT FROM fence WHERE EXISTS (SELECT FROM changed) FOR UPDATE)
			INSERT INTO audit SELECT %s FROM held`, change, placeholders(n+1, n+14)), append(args[:n:n], auditRow(m.codec, r)...)...).
			Exec(func(result pgconn.CommandTag) error { done = result.RowsAffected() > 0; return nil })
		switch err := m.pool.SendBatch(ctx, b).Close(); {
		case code(err) == uniqueViolation: // the number has been taken meanwhile
		case code(err) == lockNotAvailable && ctx.Err() == nil:
		case err != nil && code(err) == "":
			return false, fmt.Errorf("the server did not answer, so it may have been done; throttler fleet shows whether it was: %w", err)
		default:
			return done, err
		}
		done = false
	}
}

// silenceOf returns the longest silence of the lives under a name.
func (s *sight) silenceOf(name string) (longest time.Duration, found bool) {
	for _, r := range s.Replicas {
		if r.Name == name {
			longest, found = max(longest, r.Silence), true
		}
	}
	return longest, found
}

// living counts the lives under a name that were heard of in the last lease.
func (s *sight) living(name string) (n int) {
	for _, r := range s.Replicas {
		if r.Name == name && r.Silence <= s.Lease {
			n++
		}
	}
	return n
}

// named returns the replica with a name that was heard of last, nil if there is none.
func (s *sight) named(name string) (found *Replica) {
	for i := range s.Replicas {
		if r := &s.Replicas[i]; r.Name == name && (found == nil || r.Silence < found.Silence) {
			found = r
		}
	}
	return found
}
