package columns

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Row has the columns of a call, without its request and its response.
type Row struct {
	Seq, Lane, Rank, Epoch, Bytes                   int64
	ID, Upstream, State                             string
	Async                                           bool
	Callback, Resolves                              string
	Accepted, NotBefore, Due, Deadline, Wake, Ended int64
	Attempts, Spent                                 string
	Sum                                             int64
	Facts                                           string // encrypted in a sealed file
	Summed                                          string // stands for the facts in sum
	Terms                                           []Term // of a new call
}

// The columns of calls, in the order in which a row, a request and a response are read.
const (
	OfCall     = "seq, id, upstream, lane, state, rank, async, callback, resolves, epoch, bytes, accepted_at, not_before, due, deadline, wake, ended_at, attempts, spent, sum, facts"
	OfRequest  = "method, target, headers, body, sealed, request_sum"
	OfResponse = "status, answer_headers, answer, truncated, answer_sealed, answer_sum"
)

// BoundToProcess is the wake of a call that ends with the process that accepted it:
// only that process has its request, or its caller.
const BoundToProcess = -1

func (r *Row) Fields() []any {
	return []any{&r.Seq, &r.ID, &r.Upstream, &r.Lane, &r.State, &r.Rank, &r.Async, &r.Callback, &r.Resolves, &r.Epoch, &r.Bytes,
		&r.Accepted, &r.NotBefore, &r.Due, &r.Deadline, &r.Wake, &r.Ended, &r.Attempts, &r.Spent, &r.Sum, &r.Facts}
}

// Checksum covers the columns that every change has at hand: all that decide
// whether, when and with which permits the call is sent.
func (r *Row) Checksum(d *Codec) int64 {
	s := d.NewSum()
	s.Texts(r.ID, r.Upstream, r.State)
	s.Ints(r.Rank)
	s.bool(r.Async)
	s.Texts(r.Callback, r.Resolves)
	s.Ints(r.Accepted, r.NotBefore, r.Due, r.Deadline, r.Ended)
	s.Texts(r.Attempts, r.Spent)
	if r.Summed != "" { // rows of older programs have none
		s.Texts(r.Summed)
	}
	return s.End()
}

// Row returns the columns that change with a call.
func (k Clock) Row(c *scheduler.Call, d *Codec) (*Row, error) {
	attempts, err := EncodeAttempts(d, c)
	if err != nil {
		return nil, err
	}
	spent, err := d.EncodeSpent(c.ID, k.holds(c.Outstanding))
	if err != nil {
		return nil, err
	}
	summed, err := Summed(c)
	if err != nil {
		return nil, err
	}
	r := &Row{
		Summed: summed,
		Seq:    c.Seq, ID: c.ID, Upstream: c.Upstream, State: string(c.State), Rank: -int64(c.Priority), Async: c.Async,
		Callback: c.Callback, Resolves: c.Resolves,
		Accepted: Micros(c.AcceptedAt), NotBefore: Micros(c.NotBefore), Due: Micros(c.Due), Deadline: Micros(c.Deadline),
		Ended: k.Micros(c.FinishedAt), Attempts: attempts, Spent: spent,
	}
	for n := len(c.Attempts); n > 0 && r.Ended == 0; n-- { // of the last attempt that has ended: an intent leaves it
		r.Ended = k.Micros(c.Attempts[n-1].EndedAt)
	}
	if r.Due != 0 {
		r.Wake = min(r.Due, r.Deadline)
	}
	r.Sum = r.Checksum(d)
	return r, nil
}

// NewRow returns the columns of a new call, and those of its request, nil if that is not to be kept.
func (k Clock) NewRow(e *scheduler.Entry, d *Codec) (r *Row, request *Content, err error) {
	if r, err = k.Row(e.Call, d); err != nil {
		return nil, nil, err
	}
	r.Lane, r.Bytes = e.Call.Class, e.Bytes
	if e.NoBody || !e.Call.Async && e.Key == "" {
		r.Wake = BoundToProcess
	}
	if !e.NoBody {
		if request, err = d.EncodeRequest(r.ID, e.Request); err != nil {
			return nil, nil, err
		}
	}
	facts, err := EncodeFacts(e.Call)
	r.Facts, r.Terms = d.EncryptText(facts, r.ID, FactsKind), TermsOf(d, e.Call)
	return r, request, err
}

// Changed returns the columns of a call after an attempt or at its end, and those of its response,
// nil if it has none that is kept.
func (k Clock) Changed(c *scheduler.Call, d *Codec) (r *Row, response *Content, err error) {
	if r, err = k.Row(c, d); err == nil && c.Response != nil && c.State != scheduler.Waiting {
		response, err = d.EncodeResponse(r.ID, c.Response)
	}
	return r, response, err
}

// AddLostAttempt adds to a call the attempt that may have been made after a mark, unless one is in flight.
func (r *Row) AddLostAttempt(c *scheduler.Call, after Mark) {
	last, n := c.Last(), 1
	if last != nil {
		if last.EndedAt.IsZero() {
			return
		}
		n = last.N + 1
	}
	c.Attempts = append(c.Attempts, scheduler.Attempt{N: n, SentAt: Instant(max(after.Wall, r.Accepted))})
}

// Call returns the call of a row, without its response.
func (r *Row) Call(d *Codec) (*scheduler.Call, error) {
	facts, err := d.DecryptText(r.Facts, r.ID, FactsKind)
	if err != nil {
		return nil, fmt.Errorf("facts of call %s: %w", r.ID, err)
	}
	c := &scheduler.Call{
		ID: r.ID, Upstream: r.Upstream, State: scheduler.State(r.State), Priority: int16(-r.Rank), Async: r.Async, Durable: true,
		Callback: r.Callback, Resolves: r.Resolves,
		AcceptedAt: Instant(r.Accepted), NotBefore: Instant(r.NotBefore), Deadline: Instant(r.Deadline),
		Stored: &scheduler.Stored{Seq: r.Seq, Class: r.Lane, Due: Instant(r.Due)},
	}
	if r.Summed, err = DecodeFacts(facts, c); err != nil {
		return nil, err
	}
	if r.Checksum(d) != r.Sum {
		return nil, fmt.Errorf("call %s: %w", r.ID, ErrChecksum)
	}
	if c.State.Finished() {
		c.FinishedAt = Instant(r.Ended)
	}
	if err := DecodeAttempts(d, r.Attempts, c); err != nil {
		return nil, err
	}
	if c.Outstanding, err = d.decodeSpent(r.ID, r.Spent, r.Upstream); err != nil {
		return nil, err
	}
	return c, possible(c)
}

// possible fails for a call that no scheduler has stored.
func possible(c *scheduler.Call) error {
	last := c.Last()
	switch {
	case !slices.Contains(scheduler.States, c.State):
		return fmt.Errorf("call %.100q has the state %.100q, which there is not: %w", c.ID, c.State, ErrChecksum)
	case (c.State == scheduler.Sending || c.State == scheduler.Unknown) && last == nil:
		return fmt.Errorf("call %.100q is %s, and no attempt of it is known: %w", c.ID, c.State, ErrChecksum)
	}
	for _, h := range c.Outstanding {
		if err := PossibleHold(h); err != nil {
			return err
		}
	}
	return nil
}

func PossibleHold(h lease.Hold) error {
	if h.Permits < 0 || h.Permits > quota.MaxCalls {
		return fmt.Errorf("%d permits of limit %.100q are out, which cannot be: %w", h.Permits, h.Limit, ErrChecksum)
	}
	return nil
}

// Micros returns an instant as the file has it: microseconds since the Unix epoch,
// 0 for none.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func Instant(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros)
}

// Ceil rounds up to whole microseconds: a permit never comes back early. The zero
// time, which stands for no instant, stays.
func Ceil(t time.Time) time.Time { return t.Add(time.Microsecond - 1).Truncate(time.Microsecond) }
