package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Accept implements [scheduler.Store].
func (d *DB) Accept(ctx context.Context, e *scheduler.Entry) (existing *scheduler.Call, err error) {
	r, request, err := d.clock.NewRow(e, d.codec)
	if err != nil {
		return nil, err
	}
	keys, owner := columns.KeysOf(d.codec, e), ""
	c := &change{keys: keys, apply: func(t *txn) (refused, err error) {
		if e.Arrived && !t.arrived[e.Call.ID] {
			return notArrived(e.Call.ID), nil
		}
		if e.Notice != "" {
			t.exec("DELETE FROM untold WHERE notice = $1", e.Notice)
		}
		if owner, refused = t.claim(keys, e, r, d.keepKeys.Microseconds()); owner != "" || refused != nil {
			return refused, nil
		}
		if e.Arrived {
			t.take(e.Call.ID)
		}
		t.insert(r, request)
		return nil, nil
	}}
	if e.Arrived {
		c.arrival = e.Call.ID
	}
	if err := d.writer.do(ctx, c); err != nil || owner == "" {
		return nil, err
	}
	return d.Get(ctx, owner)
}

// End implements [scheduler.Store].
func (d *DB) End(ctx context.Context, identity, by string) error {
	k := columns.IdentityKey(d.codec, identity)
	return d.writer.do(ctx, &change{apply: func(t *txn) (refused, err error) {
		t.exec(`INSERT INTO keys VALUES ($1, '', 0, $2, $3)
			ON CONFLICT (key) DO UPDATE SET until = greatest(keys.until, excluded.until), ended_by = excluded.ended_by`,
			k.Hash, columns.Micros(time.Now().Add(d.keepKeys)), by)
		return nil, nil
	}})
}

// Intend implements [scheduler.Store].
func (d *DB) Intend(ctx context.Context, c *scheduler.Call, take []lease.Hold) error {
	var r *columns.Row
	if c != nil {
		var err error
		if r, err = d.clock.Row(c, d.codec); err != nil {
			return err
		}
	}
	return d.writer.do(ctx, &change{apply: func(t *txn) (refused, err error) {
		if r != nil {
			notWaiting := fmt.Errorf("%w: %s", scheduler.ErrNotWaiting, r.ID)
			flight := t.expect(notWaiting, r, insertFlight, r.Seq, r.ID, r.Async, t.generation, r.Due, r.Deadline, r.Attempts, r.Spent, r.Sum)
			if len(take) > 0 {
				if err := t.flush(); err != nil || flight.absent {
					return notWaiting, err
				}
			}
		}
		t.insertHolds(take)
		return nil, nil
	}})
}

// insertFlight stores an intent, if the call waits. The state is compared so that no index of calls that wait is scanned for it:
// the server plans the statement while the table is empty, when each index looks as good as another.
var insertFlight = newRowStatement(`INSERT INTO flights SELECT u.seq, u.async, u.epoch, u.due, u.deadline, u.attempts, u.spent, u.sum FROM {rows}
	CROSS JOIN LATERAL (SELECT FROM calls c WHERE c.seq = u.seq AND c.id = u.id AND c.state || '' = 'waiting' OFFSET 0) c ON CONFLICT DO NOTHING RETURNING seq`,
	"seq bigint, id text, async boolean, epoch bigint, due bigint, deadline bigint, attempts text, spent text, sum bigint")

// Record implements [scheduler.Store].
func (d *DB) Record(ctx context.Context, call *scheduler.Call) error {
	r, response, err := d.clock.Changed(call, d.codec)
	if err != nil {
		return err
	}
	finished := fmt.Errorf("%w, or it is finished: %s", scheduler.ErrNotFound, r.ID)
	return d.writer.do(ctx, &change{essential: true, apply: func(t *txn) (refused, err error) {
		return t.update(call, r, response, true, finished)
	}})
}

// Recover implements [scheduler.Durable].
func (d *DB) Recover(ctx context.Context, recent time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) (*scheduler.Recovered, error) {
	var state *scheduler.Recovered
	doubts := 0
	err := d.writer.do(ctx, &change{essential: true, recovery: true, apply: func(t *txn) (refused, err error) {
		r := &recovery{txn: t, bootedAt: d.clock.Boot(), now: time.Now(), repeat: repeat, log: d.writer.log}
		state, err = r.run(recent)
		doubts = r.doubts
		return nil, err
	}})
	if err != nil {
		return nil, err
	}
	state.Alive, d.after = d.after, time.Time{}
	d.lost, d.doubts = state.Restored, doubts
	if state.Restored { // its owners, of commits that are gone, are not known
		state.Alive = time.Now()
	}
	return state, nil
}

// Restate implements [scheduler.Durable].
func (d *DB) Restate(ctx context.Context, holds []lease.Hold) error {
	err := d.writer.do(ctx, &change{essential: true, apply: func(t *txn) (refused, err error) {
		t.exec("UPDATE fence SET lost = false WHERE lost") // one that was noted since Recover has ended the term
		return nil, t.replaceHolds(holds)
	}})
	if err == nil {
		d.tenure.restated.Store(true)
	}
	return err
}

// Timeouts implements [scheduler.Leased].
func (d *DB) Timeouts(ctx context.Context, longest map[string]time.Duration) error {
	text, err := json.Marshal(longest) // nanoseconds
	if err != nil {
		return err
	}
	return d.writer.do(ctx, &change{essential: true, apply: func(t *txn) (refused, err error) {
		t.exec("INSERT INTO meta VALUES ('timeouts', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value", text)
		return nil, nil
	}})
}

// Settle implements [scheduler.Durable].
func (d *DB) Settle(ctx context.Context, holds []lease.Hold) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(t *txn) (refused, err error) {
		t.settleHolds(holds)
		return nil, nil
	}})
}

// EndHandled implements [scheduler.Durable].
func (d *DB) EndHandled(ctx context.Context, notice string, again time.Time) error {
	return d.writer.do(ctx, &change{essential: true, apply: func(t *txn) (refused, err error) {
		if again.IsZero() {
			t.exec("DELETE FROM untold WHERE notice = $1", notice)
		} else {
			t.exec("UPDATE untold SET tell_at = $1, failures = failures + 1 WHERE notice = $2", columns.Micros(again), notice)
		}
		return nil, nil
	}})
}

// ofNew are the columns of a call that are given for a new one: it waits, and has no attempt.
const ofNew = "seq bigint, id text, upstream text, lane bigint, rank bigint, async boolean, callback text, resolves text, epoch bigint, bytes bigint, " +
	"accepted_at bigint, not_before bigint, due bigint, deadline bigint, wake bigint, sum bigint, facts text, " +
	"method text, target bytea, headers text, body bytea, sealed bytea, request_sum bigint"

var insertCall = newRowStatement(`INSERT INTO calls (`+namesOf(ofNew)+`, terms, state, ended_at, attempts, spent)
	SELECT `+namesOf(ofNew)+`, terms::bigint[], 'waiting', 0, '[]', '' FROM {rows}`, ofNew+", terms text")

// insert adds a call; request is nil if it is not to be kept.
func (t *txn) insert(r *columns.Row, request *columns.Content) {
	args := append(make([]any, 0, 24), r.Seq, r.ID, r.Upstream, r.Lane, r.Rank, r.Async, r.Callback, r.Resolves, t.generation, r.Bytes,
		r.Accepted, r.NotBefore, r.Due, r.Deadline, r.Wake, r.Sum, r.Facts)
	if request == nil {
		args = append(args, nil, nil, nil, nil, nil, nil)
	} else {
		args = append(args, request.Method, []byte(request.Target), request.Headers, request.Body, request.Encrypted, request.Sum)
	}
	t.addRow(r.Seq, insertCall, append(args, termsOf(r.Terms))...)
}

// termsOf returns the column terms of a call, an array as a text.
func termsOf(terms []columns.Term) string {
	text := []byte{'{'}
	for i, term := range terms {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(term), 10)
	}
	return string(append(text, '}'))
}

// claim takes the keys of an entry for its call, and keeps them for keep microseconds at least. If a
// call owns one of them, it takes none and returns the id of the owner.
func (t *txn) claim(keys []columns.StoredKey, e *scheduler.Entry, r *columns.Row, keep int64) (owner string, reused error) {
	for _, k := range keys {
		o := t.owners[string(k.Hash)]
		if o == nil {
			continue
		}
		if owner, reused = o.Claim(e.Fingerprint, r.Accepted-keep); owner != "" || reused != nil {
			return owner, reused
		}
	}
	for _, k := range keys {
		t.owners[string(k.Hash)] = columns.NewOwner(k, e.Fingerprint, e.Call.ID)
		t.addRow(string(k.Hash), insertKey, k.Hash, e.Fingerprint, r.Seq, r.Accepted+keep, k.EndedBy)
	}
	return "", nil
}

var insertKey = newRowStatement(`INSERT INTO keys SELECT * FROM {rows} ON CONFLICT (key) DO UPDATE
	SET fingerprint = excluded.fingerprint, seq = excluded.seq, until = excluded.until, ended_by = excluded.ended_by`,
	"key bytea, fingerprint text, seq bigint, until bigint, ended_by text")

// updateCall writes calls, and endCall those that are finished. The second one of each also stores a response.
var (
	updateCall = [...]*rowStatement{updates("", ""), updates("", keepResponse)}
	endCall    = [...]*rowStatement{updates(forgetRequest, ""), updates(forgetRequest, keepResponse)}
)

const (
	forgetRequest = ", method = NULL, target = NULL, headers = NULL, body = NULL, sealed = NULL, request_sum = NULL"
	keepResponse  = ", status = u.status, answer_headers = u.answer_headers, answer = u.answer, truncated = u.truncated, answer_sealed = u.answer_sealed, answer_sum = u.answer_sum"
)

// updates returns a statement that writes calls. It looks up the place of each row first: the server could join the calls with the
// parameters in a way that reads many calls.
func updates(request, response string) *rowStatement {
	of := "seq bigint, state text, rank bigint, async boolean, epoch bigint, not_before bigint, ended_at bigint, attempts text, spent text, " +
		"due bigint, deadline bigint, bound boolean, wake bigint, sum bigint, id text"
	if response != "" {
		of += ", status bigint, answer_headers text, answer bytea, truncated boolean, answer_sealed bytea, answer_sum bigint"
	}
	return newRowStatement(`WITH sent AS (DELETE FROM flights WHERE seq {among} RETURNING seq)
		UPDATE calls c SET state = u.state, rank = u.rank, async = u.async, epoch = CASE WHEN u.seq IN (SELECT seq FROM sent) THEN u.epoch ELSE c.epoch END,
		not_before = u.not_before, ended_at = u.ended_at, attempts = u.attempts, spent = u.spent, due = u.due, deadline = u.deadline,
		wake = CASE WHEN c.wake < 0 AND u.bound THEN c.wake ELSE u.wake END, sum = u.sum`+request+response+` FROM {rows}
		CROSS JOIN LATERAL (SELECT ctid AS place FROM calls c WHERE c.seq = u.seq AND c.id = u.id AND c.state IN ('waiting', 'unknown') OFFSET 0) open
		WHERE c.ctid = open.place RETURNING c.seq`, of)
}

// update writes a call that was waiting, in flight or unknown. The change is refused with unknown if there is no such
// call. A call that is bound to its process stays so if stayBound.
func (t *txn) update(call *scheduler.Call, r *columns.Row, response *columns.Content, stayBound bool, unknown error) (refused, err error) {
	statements, kept := updateCall, 0
	if call.State.Finished() {
		statements = endCall
	}
	row := append(make([]any, 0, 21), r.Seq, r.State, r.Rank, r.Async, t.generation, r.NotBefore, r.Ended, r.Attempts, r.Spent, r.Due, r.Deadline, stayBound, r.Wake, r.Sum, r.ID)
	if response != nil {
		kept = 1
		row = append(row, response.Status, response.Headers, response.Body, response.Truncated, response.Encrypted, response.Sum)
	}
	written := t.expect(unknown, r, statements[kept], row...)
	if call.Notice() == "" && !call.Handled() {
		return nil, nil
	}
	if err := t.flush(); err != nil || written.absent {
		return unknown, err
	}
	t.noteEnd(call)
	return nil, nil
}

// noteEnd notes the end of a call, to be told by a webhook or to the handler. The handler gets no
// earlier end of it any more.
func (t *txn) noteEnd(call *scheduler.Call) {
	var at any // a webhook's is null
	if call.Handled() {
		at = columns.Micros(time.Now())
		t.exec("DELETE FROM untold WHERE notice > $1 AND notice < $2", call.ID+".", call.ID+"/") // "/" follows the dot of a notice
	}
	if notice := call.Notice(); notice != "" {
		t.exec("INSERT INTO untold (notice, seq, tell_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", notice, call.Seq, at)
	}
}
