package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Move asks the owner to hand the calls over to the replica with a name; empty: to any other one. It returns when
// the owner has been asked.
func (m *Member) Move(ctx context.Context, to string) error {
	s, _ := m.sight()
	switch found := s.named(to); {
	case s.Owner == "":
		return errors.New("no replica has the calls; one that waits will have them soon")
	case to == s.Name && to != "":
		return fmt.Errorf("replica %q has the calls already", to)
	case to != "" && found == nil:
		return fmt.Errorf("no replica %q is in the registry; throttler fleet lists them", to)
	case to != "" && found.Silence > s.Lease:
		return fmt.Errorf("replica %q was not heard of for %v, longer than a lease; start it, or name another one", to, found.Silence.Round(time.Millisecond))
	case to == "" && len(s.Replicas) < 2:
		return errors.New("no other replica is in the registry; start one")
	}
	if to == "" {
		to = anyReplica
	}
	done, err := m.pool.Exec(ctx, "UPDATE lease SET next = $1, offered_at = now() WHERE epoch = $2 AND owner = $3", to, s.Epoch, s.Owner)
	if err == nil && done.RowsAffected() == 0 {
		err = errors.New("the calls have another owner meanwhile; look again, and then move them")
	}
	if err == nil {
		_, err = m.pool.Exec(ctx, "SELECT pg_notify('throttler', $1)", termNotice)
	}
	return err
}

// anyReplica is the name of each replica but the owner.
const anyReplica = "*"

// Bury notes that the process of the replica with a name has ended, as an operator knows. If it has the
// calls, another replica takes them over at once, and does not hold limits back for attempts that it
// may still make. A replica that lives ends its term: its next beat is refused.
func (m *Member) Bury(ctx context.Context, name string) error {
	s, _ := m.sight()
	switch found := s.named(name); {
	case found == nil && name != s.Name:
		return fmt.Errorf("no replica %q is in the registry; throttler fleet lists them", name)
	case found != nil && found.Silence < s.Lease/2:
		return fmt.Errorf("replica %q was heard of %v ago: its process has not ended; stop it, and then bury it", name, found.Silence.Round(time.Millisecond))
	}
	if _, err := m.pool.Exec(ctx, "UPDATE lease SET exited = true WHERE name = $1 AND owner <> '' AND epoch = $2", name, s.Epoch); err != nil {
		return err
	}
	if _, err := m.pool.Exec(ctx, "DELETE FROM replicas WHERE name = $1 AND id <> $2", name, m.ID); err != nil {
		return err
	}
	_, err := m.pool.Exec(ctx, "SELECT pg_notify('throttler', $1)", termNotice)
	return err
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
