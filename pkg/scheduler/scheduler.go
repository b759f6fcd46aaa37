// Package scheduler calls rate-limited APIs; it breaks no limit and loses no call.
//
//	s, err := scheduler.New(cfg)
//	client := &http.Client{Transport: s.Transport("alipay")} // waits for the answer
//	call, err := s.Submit(ctx, request)                      // does not
//
//	Submit ─► waiting ── its slot fires ──► sending ──► done, failed
//	           ▲   └─► expired, cancelled     │ └─────► unknown ─► waiting, done, failed
//	           └── a new single-shot timeout ─┴───────► exhausted
//
// What was limited, or is safe to repeat, waits again; unknown waits for a query
// ([Resolve]) or a person. A slot goes to the best priority, then fairly between
// flows, then by age. With a [Durable] store, calls and quota survive the process.
// One goroutine owns the books; all methods are safe for concurrent use.
package scheduler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// What a Store in memory keeps of finished calls.
const (
	keepFinished      = 10_000
	keepFinishedBytes = 64 << 20
)

// A Scheduler schedules calls to a set of upstreams.
type Scheduler struct {
	services  atomic.Pointer[map[string]*service] // as configured last
	reloading sync.Mutex
	resolving sync.Mutex
	readers   sync.RWMutex  // of the stores
	store     Store         // of calls that live as long as the process
	durable   Durable       // of those that outlive it; nil if there is none
	long      time.Duration // the window above which permits are stored in blocks
	log       *slog.Logger
	loop      *loop

	work   sync.WaitGroup // attempts and records
	ctx    context.Context
	cancel context.CancelFunc // cuts attempts in flight

	after    sync.WaitGroup     // webhooks being handed over, unknown calls being asked about
	afterCtx context.Context    // ends with the beginning of a stop
	afterEnd context.CancelFunc //

	close  sync.Once
	closed chan struct{}

	failing sync.Once
	failed  chan struct{} // closed when the store has failed
	failure error
}

// New starts a scheduler. The error joins all faults of the config.
func New(c Config) (*Scheduler, error) {
	services, err := compile(c)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{store: c.Store, long: c.LongWindow, log: c.Log, closed: make(chan struct{}), failed: make(chan struct{})}
	s.services.Store(&services)
	s.durable, _ = c.Store.(Durable)
	if s.long == 0 {
		s.long = DefaultLongWindow
	}
	if s.store == nil || s.durable != nil {
		s.store = NewMemory(keepFinished, keepFinishedBytes)
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.afterCtx, s.afterEnd = context.WithCancel(s.ctx)
	s.loop = newLoop(s, c.Observe)
	if s.durable != nil {
		if err := s.recover(); err != nil {
			s.cancel()
			return nil, fmt.Errorf("throttler: %w", err)
		}
	}
	go s.loop.run()
	if s.durable != nil {
		s.after.Go(s.reconsider)
	}
	return s, nil
}

// Submit hands over a call and returns when it is stored, with its ETA. The error
// is an [*Error].
func (s *Scheduler) Submit(ctx context.Context, r Request) (*Call, error) {
	c, refused := s.newCall(r)
	if refused != nil {
		return nil, refused
	}
	c.Async, c.Durable = true, s.durable != nil
	known, refused := s.accept(ctx, c, &r)
	switch {
	case refused != nil:
		return nil, refused
	case known != nil:
		return s.Get(known.ID)
	}
	var accepted Call
	if !s.ask(func(now time.Time) {
		s.loop.enqueue(now, c)
		accepted = s.loop.describe(now, c)
	}) {
		return nil, errStopping(r.Upstream)
	}
	return &accepted, nil
}

// Do hands over a call and waits for the upstream's answer; the caller closes its
// body. A call that has not been sent when ctx ends is cancelled; one that has
// been sent runs to its own end and is recorded. The error is an [*Error], or
// that of ctx. The call is told wherever there is one: not if it was malformed, or
// the scheduler is closed. An IdempotencyKey counts only for a durable call: who
// comes second with it gets the answer of the first.
func (s *Scheduler) Do(ctx context.Context, r Request) (*http.Response, *Call, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c, refused := s.newCall(r)
	if refused != nil {
		return nil, nil, refused
	}
	c.settled = make(chan struct{})
	latest := c.AcceptedAt.Add(c.route.service.MaxWait)
	if d, ok := ctx.Deadline(); ok && d.Before(latest) {
		latest = d
	}
	if latest.Before(c.Deadline) {
		c.Deadline = latest
	}
	if !c.Durable {
		r.IdempotencyKey = "" // forwarded only
	}
	switch known, refused := s.accept(ctx, c, &r); {
	case refused != nil:
		return nil, refused.Call, refused
	case known != nil:
		return s.join(ctx, known.ID)
	}
	id := c.ID // from here on the loop may replace what is told of the call
	if !s.ask(func(now time.Time) {
		s.loop.enqueue(now, c)
		if ctx.Err() != nil { // before anything was sent
			s.loop.abandon(now, c)
		}
	}) {
		return nil, nil, errStopping(r.Upstream)
	}
	select {
	case <-c.settled:
	case <-ctx.Done():
		s.ask(func(now time.Time) { s.loop.abandon(now, c) })
		snapshot, err := s.Get(id)
		if err != nil {
			return nil, nil, ctx.Err()
		}
		return nil, snapshot, ctx.Err()
	}
	// Settled: the loop does not touch the call any more.
	last := c.Call.snapshot()
	if answer := c.answer(); answer != nil {
		if c.State != Unknown || answer.Outcome == upstream.Unknown {
			return answer.Response, &last, nil
		}
		answer.Response.Body.Close() // it says less than is known: an earlier attempt may have executed the call
	}
	return nil, &last, s.loop.explain(c)
}

// newCall checks a request and computes what it needs, on the caller's goroutine.
func (s *Scheduler) newCall(r Request) (*call, *Error) {
	sv := s.service(r.Upstream)
	if sv == nil || sv.target != "" && !r.internal {
		return nil, errNoUpstream(r.Upstream)
	}
	bad := func(format string, args ...any) (*call, *Error) {
		return nil, &Error{Reason: BadRequest, Upstream: r.Upstream, Detail: fmt.Sprintf(format, args...)}
	}
	if r.Priority < -MaxPriority || r.Priority > MaxPriority {
		return bad("priority is %d, must be from %d to %d", r.Priority, -MaxPriority, MaxPriority)
	}
	if !sv.knows(r.Callback) {
		return bad("callback %q is not one of upstream %q's callbacks in the configuration", r.Callback, r.Upstream)
	}
	if int64(len(r.Body)) > sv.MaxBody {
		return nil, &Error{Reason: TooLarge, Upstream: r.Upstream, Detail: fmt.Sprintf("the body has %d bytes, upstream %q takes at most %d (max_body)", len(r.Body), r.Upstream, sv.MaxBody)}
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	// The call outlives its caller, who may use the memory for something else.
	r.Header, r.Body = r.Header.Clone(), bytes.Clone(r.Body)
	wire := r.wire()
	if err := wire.Check(); err != nil {
		return bad("%v", err)
	}
	in := upstream.NewInput(wire)
	way, refused := sv.route(in)
	if refused != nil {
		refused.Upstream = r.Upstream
		return nil, refused
	}
	// Instants that come from outside are on the wall clock; from here on they
	// are on the monotonic one, which nobody puts back.
	now := time.Now()
	earliest := now
	if r.NotBefore.After(now) {
		earliest = now.Add(r.NotBefore.Sub(now))
	}
	deadline := sv.goodUntil(now, earliest.Add(sv.MaxAge))
	if deadline.Before(earliest) {
		return bad("not_before %s is after %s, when the call's signature is stale (signature.life is %v)", stamp(earliest), stamp(deadline), sv.Signature.Life)
	}
	if !r.Deadline.IsZero() {
		if !r.Deadline.After(now) {
			return bad("the deadline %s has passed", stamp(r.Deadline))
		}
		if r.Deadline.Before(earliest) {
			return bad("not_before %s is after the deadline %s", stamp(r.NotBefore), stamp(r.Deadline))
		}
		if d := now.Add(r.Deadline.Sub(now)); d.Before(deadline) {
			deadline = d
		}
	}
	c := &call{
		Call: &Call{
			ID: uuid.Must(uuid.NewV7()).String(), Upstream: r.Upstream, State: Waiting, Priority: r.Priority,
			AcceptedAt: now, NotBefore: r.NotBefore, Deadline: deadline, Attempts: []Attempt{},
			Callback: r.Callback, Resolves: r.resolves,
		},
		request: wire, route: way, repeatable: sv.up.Repeatable(in), bytes: size(wire), lane: laneOf(way),
	}
	c.Durable = s.durable != nil && sv.durable.holds(in, false)
	c.noBody = s.durable != nil && sv.noBody.holds(in, true)
	if earliest.After(now) {
		c.due, c.Due = earliest.Sub(s.loop.origin), earliest
	}
	return c, nil
}

// accept takes a new call and stores it, or returns the one that has its key.
func (s *Scheduler) accept(ctx context.Context, c *call, r *Request) (known *Call, refused *Error) {
	e := &Entry{Call: c.Call, Request: c.request, Lane: c.lane, Bytes: c.bytes, NoBody: c.noBody}
	store := s.storeOf(c.Call)
	if r.IdempotencyKey != "" {
		e.Key, e.Fingerprint = r.Upstream+" "+r.IdempotencyKey, fingerprintOf(r)
		// What was accepted stays so, whatever would refuse it now.
		err := s.reading(func() (err error) {
			known, err = store.Find(e.Key, e.Fingerprint)
			return err
		})
		if known != nil || err != nil {
			return known, s.unstored(r, err)
		}
	}
	if refused := s.admit(c); refused != nil {
		return nil, refused
	}
	known, err := store.Accept(ctx, e)
	if known != nil || err != nil {
		s.ask(func(time.Time) { s.loop.withdraw(c) })
	}
	return known, s.unstored(r, err)
}

// unstored says why the store did not take a call; nil if it did.
func (s *Scheduler) unstored(r *Request, err error) *Error {
	var refused *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, ErrKeyReused):
		return &Error{Reason: KeyReused, Upstream: r.Upstream, Detail: fmt.Sprintf("idempotency key %q was used for another request; take a new key, or send the same request", r.IdempotencyKey)}
	case errors.Is(err, ErrFull):
		return &Error{Reason: DiskFull, Upstream: r.Upstream, RetryAfter: time.Second, Detail: "the store's disk is full and the call was not taken; free some space, or send it again later"}
	}
	s.check(err)
	return &Error{Reason: StoreFailed, Upstream: r.Upstream, Detail: "the call could not be stored: " + err.Error()}
}

// join waits for a call that another caller handed over, and returns its answer.
func (s *Scheduler) join(ctx context.Context, id string) (*http.Response, *Call, error) {
	c, err := s.Wait(ctx, id)
	switch {
	case err != nil:
		return nil, nil, err
	case c.Response != nil && c.State.Finished():
		return c.Response.http(), c, nil
	case ctx.Err() != nil:
		return nil, c, ctx.Err()
	case c.State == Unknown:
		return nil, c, &Error{Reason: NoAnswer, Upstream: c.Upstream, Call: c, Detail: fmt.Sprintf("call %s has this idempotency key; it was sent and may have been executed: query before you send it again", c.ID)}
	}
	return nil, c, wrongState(c, "it has this idempotency key, and there is no answer to it")
}

func laneOf(r *route) int64 {
	h := fnv.New64a()
	io.WriteString(h, r.id)
	return int64(h.Sum64())
}

// size estimates what a request holds in memory, in bytes.
func size(r *upstream.Request) int64 {
	n := len(r.Target) + len(r.Body)
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return int64(n)
}

func fingerprintOf(r *Request) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q ", r.Method, r.Target)
	r.Header.Write(h)
	fmt.Fprintf(h, "\r\n%s", r.Body)
	return hex.EncodeToString(h.Sum(nil))
}

// service returns an upstream as it is configured now, nil if it is not.
func (s *Scheduler) service(upstream string) *service { return (*s.services.Load())[upstream] }

func errNoUpstream(upstream string) *Error {
	return &Error{Reason: NotFound, Upstream: upstream, Detail: fmt.Sprintf("upstream %q is not configured", upstream)}
}

func errStopping(upstream string) *Error {
	return &Error{Reason: Stopping, Upstream: upstream, Detail: "Throttler is stopping and takes no more calls; send the call to another instance, or again after the restart"}
}

// admit reserves a place for the call, or says why it is refused.
func (s *Scheduler) admit(c *call) *Error {
	var refused *Error
	if !s.ask(func(now time.Time) { refused = s.loop.admit(now, c) }) {
		return errStopping(c.Upstream)
	}
	return refused
}

// ask runs f in the loop and waits for it; false if the loop has ended.
func (s *Scheduler) ask(f func(now time.Time)) bool {
	done := make(chan struct{})
	if !s.loop.post(func(now time.Time) { f(now); close(done) }) {
		return false
	}
	select {
	case <-done:
		return true
	case <-s.loop.ended:
		select { // it may have been the last that it did
		case <-done:
			return true
		default:
			return false
		}
	}
}

// Get returns a call.
func (s *Scheduler) Get(id string) (*Call, error) {
	var live *Call
	if !s.ask(func(now time.Time) {
		if c := s.loop.calls[id]; c != nil {
			d := s.loop.describe(now, c)
			live = &d
		}
	}) {
		return nil, errStopping("")
	}
	if live != nil {
		return live, nil
	}
	return s.stored(id)
}

// stored returns a call that is not in hand.
func (s *Scheduler) stored(id string) (*Call, error) {
	var c *Call
	err := s.reading(func() (err error) {
		c, err = s.store.Get(id)
		if s.durable != nil && errors.Is(err, ErrNotFound) {
			c, err = s.durable.Get(id)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Reason: NotFound, Detail: fmt.Sprintf("call %q is not known; it may have been forgotten some time after it finished", id)}
	case err != nil:
		return nil, s.unread(err)
	case !c.Durable || c.State != Waiting:
	case c.Deadline.After(time.Now()):
		s.foresee(c)
	default: // its turn has not come, and need not
		s.fetch(id)
	}
	return c, nil
}

// reading runs f while the store is open.
func (s *Scheduler) reading(f func() error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	select {
	case <-s.loop.ended:
		return errStopping("")
	default:
		return f()
	}
}

// unread says why nothing could be read from the store.
func (s *Scheduler) unread(err error) error {
	var stopping *Error
	if errors.As(err, &stopping) {
		return err
	}
	s.check(err)
	return &Error{Reason: StoreFailed, Detail: "the store could not be read: " + err.Error()}
}

// Wait returns a call when it is finished or unknown, or as it is when ctx ends.
func (s *Scheduler) Wait(ctx context.Context, id string) (*Call, error) {
	var settled <-chan struct{}
	settling := func(time.Time) {
		if c := s.loop.calls[id]; c != nil {
			settled = c.settling()
		}
	}
	if s.ask(settling); settled == nil {
		s.fetch(id)
		s.ask(settling)
	}
	if settled != nil {
		select {
		case <-settled:
		case <-ctx.Done():
		case <-s.closed:
		}
	}
	return s.Get(id)
}

// List returns the calls that match a filter, by growing id.
func (s *Scheduler) List(f Filter) ([]*Call, error) {
	var calls []*Call
	err := s.reading(func() (err error) {
		calls, err = s.store.List(f)
		if err != nil || s.durable == nil {
			return err
		}
		more, err := s.durable.List(f)
		calls = append(calls, more...)
		slices.SortFunc(calls, func(a, b *Call) int { return strings.Compare(a.ID, b.ID) })
		calls = calls[:min(len(calls), f.Max)]
		return err
	})
	if err != nil {
		return nil, s.unread(err)
	}
	s.ask(func(now time.Time) {
		for _, stored := range calls {
			if c := s.loop.calls[stored.ID]; c != nil {
				*stored = s.loop.describe(now, c)
			}
		}
	})
	return calls, nil
}

// Cancel takes back a call that is not being sent and has not finished.
func (s *Scheduler) Cancel(id string) (*Call, error) {
	var err error
	var settled <-chan struct{}
	s.fetch(id)
	if !s.ask(func(now time.Time) {
		c := s.loop.calls[id]
		switch {
		case c == nil:
		case c.State == Waiting:
			settled = c.settling()
			s.loop.finish(now, c, Cancelled)
		default:
			err = wrongState(c.Call, "only a waiting call can be cancelled")
		}
	}) {
		return nil, errStopping("")
	}
	if err != nil {
		return nil, err
	}
	if settled != nil {
		<-settled
		return s.Get(id)
	}
	c, err := s.Get(id)
	if err == nil {
		return nil, wrongState(c, "it has finished")
	}
	return nil, err
}

func wrongState(c *Call, why string) *Error {
	snapshot := c.snapshot()
	return &Error{Reason: WrongState, Upstream: c.Upstream, Call: &snapshot, Detail: fmt.Sprintf("call %s is %s: %s", c.ID, c.State, why)}
}

// Close refuses new calls and those whose callers wait, lets the attempts in
// flight end, each within its time-out, and returns when every goroutine has.
func (s *Scheduler) Close() error { return s.Shutdown(context.Background()) }

// Shutdown is Close with a bound: when ctx ends, attempts in flight are cut off;
// the outcome of those that may have been executed is unknown.
func (s *Scheduler) Shutdown(ctx context.Context) error {
	var err error
	stop := context.AfterFunc(ctx, s.cancel)
	defer stop()
	s.close.Do(func() {
		s.ask(s.loop.stop)
		s.afterEnd()
		<-s.loop.ended
		s.work.Wait()
		s.after.Wait()
		for _, sv := range *s.services.Load() {
			sv.up.Close()
		}
		s.readers.Lock()
		err = s.closeStores()
		s.readers.Unlock()
		close(s.closed)
	})
	<-s.closed
	return err
}

// closeStores stores what is out, so that the next process need not wait, and
// closes the stores.
func (s *Scheduler) closeStores() error {
	err := s.store.Close()
	if s.durable == nil {
		return err
	}
	if s.hasFailed() {
		err = s.failure
	} else {
		err = s.durable.Restate(s.loop.holds(time.Now()))
	}
	return errors.Join(err, s.durable.Close())
}
