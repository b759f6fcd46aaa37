package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A row has the columns of a call, without its request and its response.
type row struct {
	seq, lane, rank, epoch, bytes                   int64
	id, upstream, state                             string
	async                                           bool
	callback, resolves                              string
	accepted, notBefore, due, deadline, wake, ended int64
	attempts, spent                                 string
	sum                                             int64
	facts                                           string // encrypted in a sealed file
	summed                                          string // stands for the facts in sum
	terms                                           []term // of a new call
}

// The columns of calls, in the order in which a row, a request and a response are read.
const (
	columns         = "seq, id, upstream, lane, state, rank, async, callback, resolves, epoch, bytes, accepted_at, not_before, due, deadline, wake, ended_at, attempts, spent, sum, facts"
	requestColumns  = "method, target, headers, body, sealed, request_sum"
	responseColumns = "status, answer_headers, answer, truncated, answer_sealed, answer_sum"
)

// boundToProcess is the wake of a call that ends with the process that accepted it:
// only that process has its request, or its caller.
const boundToProcess = -1

func (r *row) fields() []any {
	return []any{&r.seq, &r.id, &r.upstream, &r.lane, &r.state, &r.rank, &r.async, &r.callback, &r.resolves, &r.epoch, &r.bytes,
		&r.accepted, &r.notBefore, &r.due, &r.deadline, &r.wake, &r.ended, &r.attempts, &r.spent, &r.sum, &r.facts}
}

// checksum covers the columns that every change has at hand: all that decide
// whether, when and with which permits the call is sent.
func (r *row) checksum(d *codec) int64 {
	s := d.newSum()
	s.texts(r.id, r.upstream, r.state)
	s.ints(r.rank)
	s.bool(r.async)
	s.texts(r.callback, r.resolves)
	s.ints(r.accepted, r.notBefore, r.due, r.deadline, r.ended)
	s.texts(r.attempts, r.spent)
	if r.summed != "" { // rows of older programs have none
		s.texts(r.summed)
	}
	return s.end()
}

// row returns the columns that change with a call.
func (k clock) row(c *scheduler.Call, d *codec) (*row, error) {
	attempts, err := encodeAttempts(d, c)
	if err != nil {
		return nil, err
	}
	spent, err := d.encodeSpent(c.ID, k.holds(c.Outstanding))
	if err != nil {
		return nil, err
	}
	summed, err := summed(c)
	if err != nil {
		return nil, err
	}
	r := &row{
		summed: summed,
		seq:    c.Seq, id: c.ID, upstream: c.Upstream, state: string(c.State), rank: -int64(c.Priority), async: c.Async,
		callback: c.Callback, resolves: c.Resolves,
		accepted: micros(c.AcceptedAt), notBefore: micros(c.NotBefore), due: micros(c.Due), deadline: micros(c.Deadline),
		ended: k.micros(c.FinishedAt), attempts: attempts, spent: spent,
	}
	for n := len(c.Attempts); n > 0 && r.ended == 0; n-- { // of the last attempt that has ended: an intent leaves it
		r.ended = k.micros(c.Attempts[n-1].EndedAt)
	}
	if r.due != 0 {
		r.wake = min(r.due, r.deadline)
	}
	r.sum = r.checksum(d)
	return r, nil
}

// call returns the call of a row, without its response.
func (r *row) call(d *codec) (*scheduler.Call, error) {
	facts, err := d.decryptText(r.facts, r.id, factsKind)
	if err != nil {
		return nil, fmt.Errorf("facts of call %s: %w", r.id, err)
	}
	c := &scheduler.Call{
		ID: r.id, Upstream: r.upstream, State: scheduler.State(r.state), Priority: int16(-r.rank), Async: r.async, Durable: true,
		Callback: r.callback, Resolves: r.resolves,
		AcceptedAt: instant(r.accepted), NotBefore: instant(r.notBefore), Deadline: instant(r.deadline),
		Stored: &scheduler.Stored{Seq: r.seq, Class: r.lane, Due: instant(r.due)},
	}
	if r.summed, err = decodeFacts(facts, c); err != nil {
		return nil, err
	}
	if r.checksum(d) != r.sum {
		return nil, fmt.Errorf("call %s: %w", r.id, errChecksum)
	}
	if c.State.Finished() {
		c.FinishedAt = instant(r.ended)
	}
	if err := decodeAttempts(d, r.attempts, c); err != nil {
		return nil, err
	}
	if c.Outstanding, err = d.decodeSpent(r.id, r.spent, r.upstream); err != nil {
		return nil, err
	}
	return c, possible(c)
}

// possible fails for a call that no scheduler has stored.
func possible(c *scheduler.Call) error {
	last := c.Last()
	switch {
	case !slices.Contains(scheduler.States, c.State):
		return fmt.Errorf("call %.100q has the state %.100q, which there is not: %w", c.ID, c.State, errChecksum)
	case (c.State == scheduler.Sending || c.State == scheduler.Unknown) && last == nil:
		return fmt.Errorf("call %.100q is %s, and no attempt of it is known: %w", c.ID, c.State, errChecksum)
	}
	for _, h := range c.Outstanding {
		if err := possibleHold(h); err != nil {
			return err
		}
	}
	return nil
}

func possibleHold(h lease.Hold) error {
	if h.Permits < 0 || h.Permits > quota.MaxCalls {
		return fmt.Errorf("%d permits of limit %.100q are out, which cannot be: %w", h.Permits, h.Limit, errChecksum)
	}
	return nil
}

// A querier is a pool, a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// withResponse returns the call of a row with its response.
func (r *row) withResponse(ctx context.Context, q querier, d *codec) (*scheduler.Call, error) {
	c, err := r.call(d)
	if err != nil || c.State == scheduler.Waiting || c.State == scheduler.Sending {
		return c, err
	}
	a, err := r.response(ctx, q)
	if a != nil && err == nil {
		c.Response, err = d.decodeResponse(r.id, a)
	}
	return c, err
}

// response returns the columns of a row's response, nil if there is none.
func (r *row) response(ctx context.Context, q querier) (*content, error) {
	a := &content{}
	err := q.QueryRowContext(ctx, selectResponse, r.seq).Scan(a.responseFields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return a, err
}

const selectResponse = "SELECT " + responseColumns + " FROM calls WHERE seq = ? AND answer_sum IS NOT NULL"

const selectRequest = `SELECT method, target, headers, coalesce(c.body, b.body), coalesce(c.sealed, b.sealed), request_sum
	FROM calls c LEFT JOIN bodies b USING (seq) WHERE seq = ? AND request_sum IS NOT NULL`

// entry returns the call of a row with its request, nil if that was not kept.
func (r *row) entry(ctx context.Context, q querier, d *codec) (*scheduler.Entry, error) {
	c, err := r.call(d)
	if err != nil {
		return nil, err
	}
	e := &scheduler.Entry{Call: c, Bytes: r.bytes}
	b, err := r.request(ctx, q)
	if err != nil {
		return nil, err
	}
	if e.NoBody = b == nil; !e.NoBody {
		e.Request, err = d.decodeRequest(r.id, b)
	}
	return e, err
}

// request returns the columns of a row's request, nil if that was not kept.
func (r *row) request(ctx context.Context, q querier) (*content, error) {
	b := &content{}
	err := q.QueryRowContext(ctx, selectRequest, r.seq).Scan(&b.method, &b.target, &b.headers, &b.body, &b.encrypted, &b.sum)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return b, err
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

// micros returns an instant as the file has it: microseconds since the Unix epoch,
// 0 for none.
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

// ceil rounds up to whole microseconds: a permit never comes back early. The zero
// time, which stands for no instant, stays.
func ceil(t time.Time) time.Time { return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) }
