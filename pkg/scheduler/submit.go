package scheduler

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Submit hands over a call and returns when it is stored, with its ETA. The error
// is an [*Error], or that of ctx: the call may then be accepted all the same.
func (s *Scheduler) Submit(ctx context.Context, r Request) (*Call, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sv, c, refused := s.newCall(r)
	if refused != nil {
		return nil, refused
	}
	if s.relay != nil && c.Callback == "" && r.origin == nil {
		c.Callback = toEnded
	}
	c.Async, c.Durable = true, s.journal.outlives() && (r.origin == nil || r.origin.resolves == "") // the next process queries by itself
	accepted, known, err := s.accept(ctx, sv, c, &r)
	switch {
	case err != nil:
		return nil, err
	case known != nil && known.State.Finished():
		return repeated(known, nil)
	case known != nil:
		s.awaitEntry(ctx, known.ID)
		return repeated(s.Get(ctx, known.ID))
	}
	return accepted, nil
}

// repeated marks a call that was accepted before, under the same idempotency key.
func repeated(c *Call, err error) (*Call, error) {
	if c != nil {
		c.Repeated = true
	}
	return c, err
}

// Do hands over a call and waits for the upstream's answer; the caller closes its
// body. A call that has not been sent when ctx ends, or that ctx had ended before, is
// cancelled; one that has been sent runs to its own end and is recorded. The error is an
// [*Error], or that of ctx. The returned Call is nil if it was refused, or if its state
// could not be read. A slow answer streams; of a durable call its end comes when the store
// has that of the call.
//
// An IdempotencyKey counts only for a durable call, and is ignored otherwise; see Request.
// The second request with a key, or with the Identity of a call, gets the answer of the first if
// that is sent within max_wait, else an error with the state of the first.
func (s *Scheduler) Do(ctx context.Context, r Request) (*http.Response, *Call, error) {
	ready := make(chan struct{}, 1)
	c, end, waits := s.begin(ctx, r, func(*call) { ready <- struct{}{} })
	for waits {
		<-ready
		end, waits = c.attend(s)
	}
	return end.resp, end.call, end.err
}

// Begin is Do for servers of many clients: a call that waits has no goroutine. If the call ends
// before it has to wait, Begin returns the results of Do. Else waits is true, and then gets them,
// once, on a goroutine of its own, which may be before Begin returns. That goroutine also makes the
// attempt of a call with a Client. Its owner is the caller of Begin: then may run after Close, which
// does not wait for it, and a panic of then ends the process.
//
// Begin blocks like Do while a call is being stored, while it makes the attempt of one that goes at once,
// while queries about its unknown outcome are made, and for the repeat of a call that has not ended.
// A ctx that is none of package context, and has no method AfterFunc, costs a goroutine.
func (s *Scheduler) Begin(ctx context.Context, r Request, then func(resp *http.Response, c *Call, err error)) (waits bool, resp *http.Response, of *Call, err error) {
	_, end, waits := s.begin(ctx, r, func(c *call) {
		go func() {
			if end, waits := c.attendSafely(s); !waits {
				then(end.resp, end.call, end.err)
			}
		}()
	})
	return waits, end.resp, end.call, end.err
}

// begin hands over a call whose caller waits, and attends to the caller, the first time.
func (s *Scheduler) begin(ctx context.Context, r Request, again func(c *call)) (c *call, end results, waits bool) {
	sv, c, refused := s.newCall(r)
	if refused != nil {
		return nil, results{err: refused}, false
	}
	if err := ctx.Err(); err != nil {
		c.State = Cancelled
		return nil, results{nil, c.Call, err}, false
	}
	c.caller = &caller{ctx: ctx, client: r.Client, came: c.AcceptedAt, service: sv, again: again}
	c.Deadline = earlier(c.Deadline, c.AcceptedAt.Add(sv.MaxWait))
	if d, ok := ctx.Deadline(); ok {
		c.Deadline = earlier(c.Deadline, d)
	}
	if !c.Durable {
		r.IdempotencyKey = "" // forwarded only
	}
	switch _, known, err := s.accept(ctx, sv, c, &r); { // from here on the loop may replace the Call
	case err != nil:
		return nil, results{nil, callOf(err), err}, false
	case known != nil:
		return s.joinOrBegin(ctx, r, known.ID, c, again)
	}
	end, waits = c.attend(s)
	return c, end, waits
}

// joinOrBegin waits for the first call of a repeat. If the first call ends unsent, because its
// caller has left or had a shorter wait, the request is sent as a call of its own.
func (s *Scheduler) joinOrBegin(ctx context.Context, r Request, id string, repeat *call, again func(c *call)) (c *call, end results, waits bool) {
	sv, latest := repeat.caller.service, repeat.Deadline
	if sv.ClientTimeout > 0 { // half of it is for the answer, as far as is known here
		latest = earlier(latest, repeat.AcceptedAt.Add(sv.ClientTimeout/2))
	}
	resp, known, err := s.join(ctx, id, latest)
	if known != nil && known.Response == nil && (known.State == Cancelled || known.State == Expired) && ctx.Err() == nil && time.Now().Before(latest) &&
		(r.Client == nil || !repeat.caller.hasLeft(s.log)) {
		r.Deadline = latest
		return s.begin(ctx, r, again)
	}
	return nil, results{resp, known, err}, false
}

// join waits for a call that another caller handed over, and returns its answer. It
// waits no longer than until latest for the call to be sent.
func (s *Scheduler) join(ctx context.Context, id string, latest time.Time) (*http.Response, *Call, error) {
	bounded, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	c, err := repeated(s.Wait(bounded, id))
	if err == nil && c.State == Sending {
		c, err = repeated(s.Wait(ctx, id))
	}
	switch {
	case err != nil:
		return nil, nil, err
	case c.State == Waiting && ctx.Err() == nil:
		return nil, c, wrongState(c, "the request has its idempotency key or identity, and it has not been sent yet; ask for its answer later")
	case c.State.Finished() && c.Answer() != nil:
		return c.Answer().http(), c, nil
	case ctx.Err() != nil:
		return nil, c, ctx.Err()
	case c.State.Finished() && c.Outcome() != upstream.NotExecuted:
		return nil, c, &Error{Reason: NoAnswer, Upstream: c.Upstream, Call: c, Detail: fmt.Sprintf("the request has the idempotency key or identity of call %s, which is %s, but no answer that says so was kept; query it for its details", c.ID, c.State)}
	case c.State == Unknown:
		return nil, c, &Error{Reason: NoAnswer, Upstream: c.Upstream, Call: c, Detail: fmt.Sprintf("the request has the idempotency key or identity of call %s, which was sent and may have been executed: query before you send it again", c.ID)}
	}
	return nil, c, wrongState(c, "the request has its idempotency key or identity, and there is no answer to it")
}

// http returns the answer as it came, as far as it was kept.
func (r *Response) http() *http.Response {
	return &http.Response{
		StatusCode: r.Status, Status: fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.Headers.Clone(),
		ContentLength: int64(len(r.Body)), Body: io.NopCloser(bytes.NewReader(r.Body)),
	}
}

// Reserve counts bytes of a request that is being read against its upstream's
// max_waiting_bytes, so that bodies on their way in are bounded like those that wait, and
// says at once where a call would be refused in any case. It is called as the bytes come:
// a client that has only announced them takes no room. The last sixteenth of the room is
// for calls that are too small to be worth a reservation, unless one body needs it.
//
// Release gives the bytes back; it is called once, before the call is handed over, which
// counts for itself. Neither waits. The error is an [*Error].
func (s *Scheduler) Reserve(upstream string, bytes int64) (release func(), err error) {
	sv := s.service(upstream)
	if sv == nil {
		return nil, errNoUpstream(upstream)
	}
	if s.stopping.Load() {
		return nil, errStopping(upstream)
	}
	room := max(sv.MaxWaitingBytes-sv.MaxWaitingBytes/16, min(sv.MaxBody, sv.MaxWaitingBytes))
	for {
		held := sv.usage.bytes.Load()
		if refused := full(sv, held, bytes, room); refused != nil {
			return nil, refused
		}
		if sv.usage.bytes.CompareAndSwap(held, held+bytes) {
			return func() { sv.usage.bytes.Add(-bytes) }, nil
		}
	}
}

// The usage of an upstream's max_waiting and max_waiting_bytes. The loop counts calls,
// and Reserve bytes too; all goroutines may read.
type usage struct {
	waiting, unknown atomic.Int64 // calls
	bytes            atomic.Int64 // of bodies and headers
}

// full says why no call of so many bytes can be taken beside those that are held, in a
// room of so many; nil if one can.
func full(sv *service, held, bytes, room int64) *Error {
	var detail string
	waiting, unknown := sv.usage.waiting.Load(), sv.usage.unknown.Load()
	switch {
	case waiting+unknown >= int64(sv.MaxWaiting):
		detail = fmt.Sprintf("%d calls wait for upstream %q and %d are unknown, at most %d may be pending (max_waiting)", waiting, sv.Name, unknown, sv.MaxWaiting)
	case held+bytes > room:
		detail = fmt.Sprintf("calls of %d bytes are pending for upstream %q, at most %d may be (max_waiting_bytes)", held, sv.Name, sv.MaxWaitingBytes)
	default:
		return nil
	}
	return &Error{Reason: Full, Upstream: sv.Name, RetryAfter: time.Second, Detail: detail}
}

// newCall checks a request and computes its demand, on the caller's goroutine.
func (s *Scheduler) newCall(r Request) (*service, *call, *Error) {
	sv := s.service(r.Upstream)
	if r.origin != nil {
		sv = r.origin.by
	}
	if sv == nil || sv.webhook != nil && r.origin == nil {
		return nil, nil, errNoUpstream(r.Upstream)
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	if !r.NoCopy { // the call outlives its caller, and the memory may be used otherwise
		r.Header, r.Body = r.Header.Clone(), bytes.Clone(r.Body)
	}
	wire := r.wire()
	if refused := checkRequest(sv, &r, wire); refused != nil {
		return nil, nil, refused
	}
	in := upstream.NewInput(wire)
	query := r.origin != nil && r.origin.resolves != ""
	demand, refused := sv.demand(in, query)
	if refused != nil {
		refused.Upstream = r.Upstream
		return nil, nil, refused
	}
	now := time.Now()
	earliest, deadline, refused := spanOf(sv, now, now, &r)
	if refused != nil {
		return nil, nil, refused
	}
	c := &call{
		Call: &Call{
			ID: uuid.Must(uuid.NewV7()).String(), Upstream: r.Upstream, State: Waiting, Priority: int16(r.Priority),
			AcceptedAt: now, NotBefore: r.NotBefore, Deadline: deadline, Attempts: []Attempt{}, Callback: r.Callback,
			Method: r.Method, Path: pathOf(r.Target), Flow: demand.Flow, Origin: r.cameFrom(), SubmittedBy: r.SubmittedBy, IdempotencyKey: r.IdempotencyKey,
			demand: demand, by: sv,
		},
		request: wire, query: query, generation: sv.generation, bytes: requestSize(wire),
	}
	if r.arrived != "" {
		c.ID = r.arrived
	}
	c.item.Value, c.item.Priority, c.item.Demand = c, c.Priority, demand
	if r.origin != nil {
		c.Resolves = r.origin.resolves
	} else if refused := identify(sv, c, in); refused != nil {
		return nil, nil, refused
	}
	if s.journal.outlives() {
		c.Stored = &Stored{Class: sv.class(demand)}
		c.Durable, c.noBody = sv.durable.holds(in, false), sv.noBody.holds(in, true)
	}
	if earliest.After(now) {
		c.due = earliest.Sub(s.loop.origin)
		c.delayUntil(earliest)
	}
	return sv, c, nil
}

// accept takes a new call, stores it and lets it wait. It returns a description of one that is
// submitted, or the call that has its idempotency key, or its identity, if there is one.
func (s *Scheduler) accept(ctx context.Context, sv *service, c *call, r *Request) (accepted, known *Call, err error) {
	e := newEntry(sv, c, r)
	if !s.journal.loopOnly() {
		unlock, err := s.journal.locks.lock(ctx, e.Identity)
		if err != nil {
			return nil, nil, err
		}
		defer unlock()
		if known, err := s.journal.known(ctx, e); known != nil || err != nil {
			return nil, known, unstored(s.journal, c.Call, r, err)
		}
	}
	accept := s.acceptStored
	if s.journal.inPlace(c.Call) {
		accept = s.acceptInPlace
	}
	stored := c.Call // the loop may put another one in its place
	a := accept(ctx, e, c)
	return a.accepted, a.known, unstored(s.journal, stored, r, a.err)
}

// newEntry returns a new call as the store gets it.
func newEntry(sv *service, c *call, r *Request) *Entry {
	if c.Durable {
		c.Permits, c.demand, c.by = c.permits(), nil, nil
	}
	e := &Entry{Call: c.Call, Request: c.request, Bytes: c.bytes, NoBody: c.noBody, Arrived: r.arrived != ""}
	if r.origin != nil {
		e.Notice = r.origin.notice
	}
	if r.IdempotencyKey != "" {
		e.Key = r.Upstream + " " + r.IdempotencyKey
	}
	if e.Identity = c.identities.identity(); e.Key != "" || e.Identity != "" {
		e.Fingerprint = sv.up.Fingerprint(c.request)
	}
	return e
}

// An acceptance is what became of a new call.
type acceptance struct {
	accepted *Call // its description, if it was submitted
	known    *Call // the call that has its key or identity
	err      error // why it was refused, or not stored
}

// acceptInPlace accepts a call that is kept in memory, by one message to the loop. It waits for no
// lock, so that in a burst calls with and without an identity keep their order.
func (s *Scheduler) acceptInPlace(ctx context.Context, e *Entry, c *call) (a acceptance) {
	if !s.loop.post(func(now time.Time) {
		if s.journal.loopOnly() {
			if a.known, a.err = s.journal.known(ctx, e); a.known != nil || a.err != nil {
				return
			}
		}
		if refused := s.loop.admit(now, c); refused != nil {
			a.err = refused
			return
		}
		if a.known, a.err = s.journal.accept(ctx, e); a.known != nil || a.err != nil {
			c.up.setPhase(c, uncounted)
			return
		}
		a.accepted = c.up.accept(now, c)
	}) {
		a.err = errStopping(c.Upstream)
	}
	return a
}

// acceptStored accepts a call whose store may block: a message reserves its place, and
// another lets it wait when it is stored.
func (s *Scheduler) acceptStored(ctx context.Context, e *Entry, c *call) (a acceptance) {
	if a.err = s.reserve(c); a.err != nil {
		return a
	}
	a.known, a.err = s.journal.accept(ctx, e)
	s.enter(c, &a)
	return a
}

// reserve reserves the place of a call until [Scheduler.enter].
func (s *Scheduler) reserve(c *call) (err error) {
	if !s.loop.post(func(now time.Time) {
		if refused := s.loop.admit(now, c); refused != nil {
			err = refused
			return
		}
		s.loop.busy++
		s.loop.accepting[c.ID] = true
	}) {
		err = errStopping(c.Upstream)
	}
	return err
}

// enter lets a call wait if it was stored, else it gives its place up. Callers may watch it since it is
// in the store.
func (s *Scheduler) enter(c *call, a *acceptance) {
	if !s.loop.post(func(now time.Time) {
		s.loop.busy--
		delete(s.loop.accepting, c.ID)
		s.loop.watched.tell(c.ID, nil)
		if a.known != nil || a.err != nil {
			c.up.setPhase(c, uncounted)
			return
		}
		a.accepted = c.up.accept(now, c)
	}) {
		a.err = errStopping(c.Upstream)
	}
}
