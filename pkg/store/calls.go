package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A row is a call as the file has it.
type row struct {
	seq, lane, rank, epoch, bytes                   int64
	id, upstream, state                             string
	async                                           bool
	callback, resolves                              string
	accepted, notBefore, due, deadline, wake, ended int64
	attempts, spent                                 string
	sum                                             int64
}

// The columns of calls, in the order in which they are read: of a row, and of what
// goes on the wire and comes back.
const (
	columns        = "seq, id, upstream, lane, state, rank, async, callback, resolves, epoch, bytes, accepted_at, not_before, due, deadline, wake, ended_at, attempts, spent, sum"
	requestColumns = "method, target, headers, body, sealed, request_sum"
	answerColumns  = "status, answer_headers, answer, truncated, answer_sealed, answer_sum"
)

func (r *row) fields() []any {
	return []any{&r.seq, &r.id, &r.upstream, &r.lane, &r.state, &r.rank, &r.async, &r.callback, &r.resolves, &r.epoch, &r.bytes,
		&r.accepted, &r.notBefore, &r.due, &r.deadline, &r.wake, &r.ended, &r.attempts, &r.spent, &r.sum}
}

// checksum covers what a change has at hand: all that decides whether, when and
// with which permits the call is sent.
func (r *row) checksum() int64 {
	return sum(r.id, r.upstream, r.state, r.rank, r.async, r.callback, r.resolves, r.accepted, r.notBefore, r.due, r.deadline, r.ended, r.attempts, r.spent)
}

// fragile is the wake of a call that cannot go on without the process that accepted
// it: nobody else has its request, or was told of it.
const fragile = -1

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// ceil rounds up: a permit never comes back sooner than it should.
func ceil(t time.Time) time.Time { return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) }

// rowOf returns what of a call changes with it.
func rowOf(c *scheduler.Call) (*row, error) {
	attempts, spent := []byte("[]"), ""
	if len(c.Attempts) > 0 {
		var err error
		if attempts, err = json.Marshal(c.Attempts); err != nil {
			return nil, err
		}
	}
	if len(c.Spent) > 0 {
		holds := make([]scheduler.Hold, len(c.Spent))
		for i, h := range c.Spent {
			h.Back = ceil(h.Back)
			if c.Spent[i].Back.IsZero() {
				h.Back = time.Time{}
			}
			holds[i] = h
		}
		b, err := json.Marshal(holds)
		if err != nil {
			return nil, err
		}
		spent = string(b)
	}
	r := &row{
		seq: c.Seq, id: c.ID, upstream: c.Upstream, state: string(c.State), rank: -int64(c.Priority), async: c.Async,
		callback: c.Callback, resolves: c.Resolves,
		accepted: micros(c.AcceptedAt), notBefore: micros(c.NotBefore), due: micros(c.Due), deadline: micros(c.Deadline),
		ended: micros(c.FinishedAt), attempts: string(attempts), spent: spent,
	}
	for n := len(c.Attempts); n > 0 && r.ended == 0; n-- { // the last that has ended: an intent leaves it as it is
		r.ended = micros(c.Attempts[n-1].EndedAt)
	}
	if r.due != 0 {
		r.wake = min(r.due, r.deadline)
	}
	r.sum = r.checksum()
	return r, nil
}

// call returns the call of a row, without its answer.
func (r *row) call() (*scheduler.Call, error) {
	if r.checksum() != r.sum {
		return nil, fmt.Errorf("call %s: %w", r.id, errSum)
	}
	c := &scheduler.Call{
		ID: r.id, Upstream: r.upstream, State: scheduler.State(r.state), Priority: int16(-r.rank), Async: r.async, Durable: true,
		Callback: r.callback, Resolves: r.resolves,
		AcceptedAt: instant(r.accepted), NotBefore: instant(r.notBefore), Deadline: instant(r.deadline),
		Stored: &scheduler.Stored{Seq: r.seq, Lane: r.lane, Due: instant(r.due)},
	}
	if c.State.Finished() {
		c.FinishedAt = instant(r.ended)
	}
	if err := json.Unmarshal([]byte(r.attempts), &c.Attempts); err != nil {
		return nil, err
	}
	if r.spent == "" {
		return c, nil
	}
	if err := json.Unmarshal([]byte(r.spent), &c.Spent); err != nil {
		return nil, err
	}
	for i := range c.Spent {
		c.Spent[i].Upstream = c.Upstream
	}
	return c, nil
}

// keyOf is what is kept of an idempotency key.
func keyOf(key string) []byte {
	h := sha256.Sum256([]byte(key))
	return h[:]
}

// Accept implements [scheduler.Store].
func (d *DB) Accept(ctx context.Context, e *scheduler.Entry) (existing *scheduler.Call, err error) {
	r, err := rowOf(e.Call)
	if err != nil {
		return nil, err
	}
	r.lane, r.bytes = e.Call.Lane, e.Bytes
	if e.NoBody || !e.Call.Async && e.Key == "" {
		r.wake = fragile
	}
	var request *content
	if !e.NoBody {
		if request, err = d.sealRequest(r.id, e.Request); err != nil {
			return nil, err
		}
	}
	known := ""
	err = d.do(ctx, &op{run: func(w *writer) (answer, err error) {
		known = ""
		if e.Tells != "" {
			if err := w.exec("DELETE FROM untold WHERE notice = ?", e.Tells); err != nil {
				return nil, err
			}
		}
		if e.Key != "" {
			if known, answer, err = w.claim(keyOf(e.Key), e.Fingerprint, r); known != "" || answer != nil || err != nil {
				return answer, err
			}
		}
		return nil, w.accept(r, request)
	}})
	if err != nil || known == "" {
		return nil, err
	}
	return d.Get(ctx, known)
}

// Find implements [scheduler.Store].
func (d *DB) Find(ctx context.Context, key, fingerprint string) (*scheduler.Call, error) {
	k := &claimed{}
	err := d.read.QueryRowContext(ctx, selectKey, keyOf(key)).Scan(k.fields()...)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, d.check(ctx, err)
	}
	known, reused := k.claims(fingerprint, micros(time.Now().Add(-d.options.KeepKeys)))
	if known == "" {
		return nil, reused
	}
	return d.Get(ctx, known)
}

// claimed is what is known of an idempotency key; zero if nothing is.
type claimed struct {
	fingerprint, id, state string
	ended                  int64
}

const selectKey = "SELECT k.fingerprint, c.id, c.state, c.ended_at FROM keys k JOIN calls c USING (seq) WHERE k.key = ?"

func (k *claimed) fields() []any { return []any{&k.fingerprint, &k.id, &k.state, &k.ended} }

// claims returns the call that has the key, empty if it is free: a call that ended
// before an instant has it no more.
func (k *claimed) claims(fingerprint string, before int64) (id string, reused error) {
	switch state := scheduler.State(k.state); {
	case k.id == "", k.ended < before && state.Finished():
		return "", nil // nobody has had it, or its time is over
	case state == scheduler.Cancelled, state == scheduler.Expired, state == scheduler.Exhausted:
		return "", nil // nothing was executed
	case k.fingerprint != fingerprint:
		return "", fmt.Errorf("%w, call %s", scheduler.ErrKeyReused, k.id)
	}
	return k.id, nil
}

// claim takes an idempotency key for a call, or returns the call that has it.
func (w *writer) claim(key []byte, fingerprint string, r *row) (known string, answer, err error) {
	k, keep := &claimed{}, w.options.KeepKeys.Microseconds()
	if err := w.one(selectKey, []any{key}, k.fields()...); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return "", nil, err
	}
	if known, answer = k.claims(fingerprint, r.accepted-keep); known != "" || answer != nil {
		return known, answer, nil
	}
	return "", nil, w.exec("INSERT OR REPLACE INTO keys VALUES (?, ?, ?, ?)", key, fingerprint, r.seq, r.accepted+keep)
}

// smallBody is how many bytes of a body, at most, are in its call's row, which is
// written anew with every outcome. Half a page of the file: a bigger one has a row apart.
const smallBody = 2048

// A call that is new waits, and nothing has come of it.
const insertCall = `INSERT INTO calls (seq, id, upstream, lane, rank, async, callback, resolves, epoch, bytes, accepted_at, not_before,
	due, deadline, wake, sum, ` + requestColumns + `, state, ended_at, attempts, spent)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'waiting', 0, '[]', '')`

func (w *writer) accept(r *row, request *content) error {
	args := []any{r.seq, r.id, r.upstream, r.lane, r.rank, r.async, r.callback, r.resolves, w.epoch, r.bytes,
		r.accepted, r.notBefore, r.due, r.deadline, r.wake, r.sum}
	switch {
	case request == nil:
		args = append(args, nil, nil, nil, nil, nil, nil)
	case len(request.body)+len(request.sealed) > smallBody:
		if err := w.exec("INSERT INTO bodies VALUES (?, ?, ?)", r.seq, request.body, request.sealed); err != nil {
			return err
		}
		args = append(args, request.head, request.target, request.headers, nil, nil, request.sum)
	default:
		args = append(args, request.head, request.target, request.headers, request.body, request.sealed, request.sum)
	}
	return w.exec(insertCall, args...)
}

// Intend implements [scheduler.Store].
func (d *DB) Intend(ctx context.Context, c *scheduler.Call, take []scheduler.Hold) error {
	var r *row
	if c != nil {
		var err error
		if r, err = rowOf(c); err != nil {
			return err
		}
	}
	return d.do(ctx, &op{run: func(w *writer) (answer, err error) {
		if r != nil {
			n, err := w.changed("INSERT OR IGNORE INTO flights SELECT seq, ?, ?, ?, ?, ?, ?, ? FROM calls WHERE seq = ? AND id = ? AND state = 'waiting'",
				r.async, w.epoch, r.due, r.deadline, r.attempts, r.spent, r.sum, r.seq, r.id)
			if err != nil {
				return nil, err
			}
			if n == 0 {
				return fmt.Errorf("%w: %s", scheduler.ErrNotWaiting, r.id), nil
			}
		}
		for _, h := range take {
			if err := w.hold("INSERT OR IGNORE", h); err != nil {
				return nil, err
			}
		}
		return nil, nil
	}})
}

// updated is what changes of a row.
type updated struct {
	ends     bool // its request is not needed any more
	answered bool
}

var updates = make(map[updated]string)

func init() {
	for _, u := range []updated{{}, {ends: true}, {answered: true}, {true, true}} {
		set := "state = ?, async = ?, epoch = iif(?, ?, epoch), ended_at = ?, attempts = ?, spent = ?, due = ?, deadline = ?, wake = iif(wake < 0 AND ?, wake, ?), sum = ?"
		if u.ends {
			set += ", method = NULL, target = NULL, headers = NULL, body = NULL, sealed = NULL, request_sum = NULL"
		}
		if u.answered {
			set += ", status = ?, answer_headers = ?, answer = ?, truncated = ?, answer_sealed = ?, answer_sum = ?"
		}
		updates[u] = "UPDATE calls SET " + set + " WHERE seq = ? AND id = ? AND (state = 'waiting' OR state = 'unknown')"
	}
}

// update writes where a call stands that was waiting, being sent or unknown; it
// returns 0 if there is no such call. One that is fragile stays so, if it may.
func (w *writer) update(c *scheduler.Call, r *row, answer *content, mayStay bool) (n int64, err error) {
	sent, err := w.changed("DELETE FROM flights WHERE seq = ?", r.seq)
	if err != nil {
		return 0, err
	}
	u := updated{ends: c.State.Finished(), answered: answer != nil && !w.tight}
	args := []any{r.state, r.async, sent > 0, w.epoch, r.ended, r.attempts, r.spent, r.due, r.deadline, mayStay, r.wake, r.sum}
	if u.answered {
		args = append(args, answer.status, answer.headers, answer.body, answer.truncated, answer.sealed, answer.sum)
	}
	n, err = w.changed(updates[u], append(args, r.seq, r.id)...)
	if u.ends && err == nil {
		err = w.exec("DELETE FROM bodies WHERE seq = ?", r.seq)
	}
	if notice := c.Notice(); notice != "" && n > 0 && err == nil {
		err = w.exec("INSERT OR IGNORE INTO untold VALUES (?, ?)", notice, r.seq)
	}
	return n, err
}

// Record implements [scheduler.Store].
func (d *DB) Record(ctx context.Context, c *scheduler.Call) error {
	r, err := rowOf(c)
	if err != nil {
		return err
	}
	var result *content
	if c.Response != nil && c.State != scheduler.Waiting {
		if result, err = d.sealAnswer(r.id, c.Response); err != nil {
			return err
		}
	}
	return d.do(ctx, &op{essential: true, run: func(w *writer) (answer, err error) {
		n, err := w.update(c, r, result, true)
		if n == 0 && err == nil {
			answer = fmt.Errorf("%w, or it is finished: %s", scheduler.ErrNotFound, r.id)
		}
		return answer, err
	}})
}

// check ends the store if an error of a read says that the file cannot be trusted. A
// read that was cut short by its ctx says nothing of the file.
func (d *DB) check(ctx context.Context, err error) error {
	switch {
	case err == nil, errors.Is(err, scheduler.ErrNotFound), errors.Is(err, sql.ErrConnDone):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	}
	d.fail(err)
	return d.failure
}

// Get implements [scheduler.Store].
func (d *DB) Get(ctx context.Context, id string) (*scheduler.Call, error) {
	r := &row{}
	err := d.read.QueryRowContext(ctx, "SELECT "+columns+" FROM current WHERE id = ?", id).Scan(r.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: %s", scheduler.ErrNotFound, id)
	}
	if err != nil {
		return nil, d.check(ctx, err)
	}
	c, err := d.whole(ctx, r)
	return c, d.check(ctx, err)
}

// whole returns the call of a row with its answer.
func (d *DB) whole(ctx context.Context, r *row) (*scheduler.Call, error) {
	c, err := r.call()
	if err != nil || c.State == scheduler.Waiting || c.State == scheduler.Sending {
		return c, err
	}
	a := &content{}
	err = d.read.QueryRowContext(ctx, "SELECT "+answerColumns+" FROM calls WHERE seq = ? AND answer_sum IS NOT NULL", r.seq).
		Scan(&a.status, &a.headers, &a.body, &a.truncated, &a.sealed, &a.sum)
	if errors.Is(err, sql.ErrNoRows) {
		return c, nil
	}
	if err == nil {
		c.Response, err = d.openAnswer(r.id, a)
	}
	return c, err
}

// List implements [scheduler.Store].
func (d *DB) List(ctx context.Context, f scheduler.Filter) ([]*scheduler.Call, error) {
	where := "id > ?1 AND (?2 = '' OR upstream = ?2)"
	switch f.State {
	case "":
	case scheduler.Sending: // these are few of many
		where += " AND seq IN (SELECT seq FROM flights)"
	case scheduler.Unknown:
		where += " AND seq IN (SELECT seq FROM calls INDEXED BY unsettled WHERE state = 'unknown')"
	default:
		where += " AND state = ?3"
	}
	rows, err := d.read.QueryContext(ctx, "SELECT "+columns+" FROM current WHERE "+where+" ORDER BY id LIMIT ?4",
		f.After, f.Upstream, string(f.State), f.Max)
	if err != nil {
		return nil, d.check(ctx, err)
	}
	found, err := scan(rows)
	if err != nil {
		return nil, d.check(ctx, err)
	}
	var calls []*scheduler.Call
	for _, r := range found {
		c, err := d.whole(ctx, r)
		if err != nil {
			return nil, d.check(ctx, err)
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// scan reads all rows of a query.
func scan(rows *sql.Rows) ([]*row, error) {
	defer rows.Close()
	var all []*row
	for rows.Next() {
		r := &row{}
		if err := rows.Scan(r.fields()...); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}
