package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// SubmitTx hands a call over in a transaction of the caller's: it exists if, and only if, that commits. The
// program needs no store of its own, and its role no right but USAGE on the schema throttler and EXECUTE on
// throttler.submit, which programs in other languages call themselves.
//
//	tx, err := pool.Begin(ctx)
//	_, err = tx.Exec(ctx, "INSERT INTO orders …")
//	id, err := postgres.SubmitTx(ctx, tx, scheduler.Request{Upstream: "alipay", Method: "POST", Target: "/gateway.do", Body: body})
//	err = tx.Commit(ctx)
//
// The replica that has the calls takes it in some milliseconds later, and checks it then: one that it refuses ends as
// failed, with the reason. So does a repeat of an idempotency key, under its own id, though the first call stands for it.
// Until then it is in throttler.arrivals, in the clear also if the store is sealed.
//
// Calls for an upstream are taken in in the order in which they were handed over. Of transactions that run at the same
// time, one that commits late may have its calls behind later ones that have been taken in already; so may calls that
// were being taken in when the server went away.
//
// A request with a Client, an Origin or SubmittedBy loses them: the call is submitted by the role of the session.
func SubmitTx(ctx context.Context, tx pgx.Tx, r scheduler.Request) (id string, err error) {
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	headers := r.Header
	if headers == nil {
		headers = http.Header{}
	}
	at := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		return &t
	}
	err = tx.QueryRow(ctx, "SELECT throttler.submit($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
		r.Upstream, r.Method, r.Target, headers, r.Body, r.IdempotencyKey, at(r.NotBefore), at(r.Deadline), r.Priority, r.Callback).Scan(&id)
	if err != nil {
		return "", fmt.Errorf("postgres: the call was not handed over: %w", err)
	}
	return id, nil
}

// An inbox has the calls that have arrived by [SubmitTx]. It implements what the scheduler asks of a store for them.
type inbox struct {
	*reader
	member *Member
	writer *writer
	told   int64 // the last look that Arrived has told of
}

// Arrived waits until a notice tells of calls that have arrived by [SubmitTx], or a look at the fleet has shown some, each
// look once, or ctx ends: then it is false. One goroutine calls it.
func (i *inbox) Arrived(ctx context.Context) bool {
	for {
		s, next := i.member.sight()
		if s.arrived && s.err == nil && s.n != i.told {
			i.told = s.n
			return true
		}
		select {
		case <-next:
		case <-i.member.noticed:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// selectArrivals goes from upstream to upstream by the index arrivals_of, and reads no call of those that are left out; see
// https://wiki.postgresql.org/wiki/Loose_indexscan. Names that are not configured are refused, so that others follow.
const selectArrivals = `SELECT id, upstream, method, target, headers, body, idempotency_key, not_before, deadline, priority, callback, submitted_by
	FROM (SELECT *, sum(size) OVER (ORDER BY n) - size AS before
		FROM (WITH RECURSIVE names (name) AS (
				(SELECT left(upstream, 256) FROM arrivals WHERE NOT doubtful ORDER BY left(upstream, 256) LIMIT 1)
				UNION ALL
				SELECT (SELECT left(upstream, 256) FROM arrivals WHERE NOT doubtful AND left(upstream, 256) > name ORDER BY left(upstream, 256) LIMIT 1)
				FROM names WHERE name IS NOT NULL)
			SELECT first.*, octet_length(coalesce(body, '')) + octet_length(target) + octet_length(headers::text) AS size FROM (SELECT name FROM names LIMIT 1000) known,
				LATERAL (SELECT * FROM arrivals WHERE NOT doubtful AND left(upstream, 256) = name ORDER BY n LIMIT $3) first
			WHERE (name = ANY($1)) <> $2 ORDER BY n LIMIT $3) page) sized WHERE before < $4 ORDER BY n`

// Arrivals calls each with the first calls that have arrived, the oldest first, at most max, and not many more than
// pageBytes: of those for some upstreams, or, if others is true, of those for all others.
func (i *inbox) Arrivals(ctx context.Context, upstreams []string, others bool, max int, each func(id string, r scheduler.Request, fault error)) error {
	type arrival struct {
		id      string
		r       scheduler.Request
		headers []byte
	}
	if upstreams == nil {
		upstreams = []string{} // null is no list
	}
	all, err := once(ctx, i.reader, func(ctx context.Context) (all []arrival, err error) {
		rows, err := i.db.Query(ctx, selectArrivals, upstreams, others, max, pageBytes)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, func(row pgx.CollectableRow) (a arrival, err error) {
			var notBefore, deadline *time.Time
			if err = row.Scan(&a.id, &a.r.Upstream, &a.r.Method, &a.r.Target, &a.headers, &a.r.Body, &a.r.IdempotencyKey, &notBefore, &deadline, &a.r.Priority, &a.r.Callback, &a.r.SubmittedBy); err != nil {
				return a, err
			}
			if notBefore != nil {
				a.r.NotBefore = *notBefore
			}
			if deadline != nil {
				a.r.Deadline = *deadline
			}
			return a, nil
		})
	})
	for _, a := range all {
		var fault error
		a.r.Header, fault = parseHeaders(a.headers)
		each(a.id, a.r, fault)
	}
	return err
}

// parseHeaders reads headers whose values are texts, or lists of them.
func parseHeaders(text []byte) (http.Header, error) {
	var values map[string]any
	if err := json.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("headers: %w", err)
	}
	h := http.Header{}
	for name, value := range values {
		switch v := value.(type) {
		case string:
			h[name] = append(h[name], v)
		case []any:
			for _, item := range v {
				line, ok := item.(string)
				if !ok {
					return nil, fmt.Errorf("headers: a value of %q is no text", name)
				}
				h[name] = append(h[name], line)
			}
		default:
			return nil, fmt.Errorf("headers: the value of %q is no text and no list of texts", name)
		}
	}
	return h, nil
}

// RefuseArrival puts a call that is refused, and has ended, in the place of its arrival.
func (i *inbox) RefuseArrival(ctx context.Context, e *scheduler.Entry) error {
	waiting := *e
	call := *e.Call
	call.State, call.Attempts = scheduler.Waiting, nil
	waiting.Call, waiting.NoBody = &call, true
	row, _, err := i.writer.NewRow(&waiting, i.codec)
	if err != nil {
		return err
	}
	ended, _, err := i.writer.Changed(e.Call, i.codec)
	if err != nil {
		return err
	}
	return i.writer.do(ctx, &change{arrival: e.Call.ID, apply: func(t *txn) (refused, err error) {
		if !t.arrived[e.Call.ID] {
			return notArrived(e.Call.ID), nil
		}
		t.take(e.Call.ID)
		t.insert(row, nil)
		return t.update(e.Call, ended, nil, false, nil)
	}})
}
