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
// ([Resolve]) or a person. A slot goes by priority, turns of flows, and age. A
// [Durable] store outlives the process. All methods may be called concurrently.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	pausing   sync.Mutex
	readers   sync.RWMutex  // of the stores
	store     Store         // of calls that live as long as the process
	durable   Durable       // of those that outlive it; nil if there is none
	long      time.Duration // the window above which permits are stored in blocks
	precise   bool          // slots fire by the system's timer
	log       *slog.Logger
	loop      *loop

	work   sync.WaitGroup // attempts and records
	ctx    context.Context
	cancel context.CancelFunc // cuts attempts in flight

	untold   atomic.Int64       // webhooks that could not be handed over; with a store, not again since
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
	s := &Scheduler{store: c.Store, long: c.LongWindow, precise: c.Precise, log: c.Log, closed: make(chan struct{}), failed: make(chan struct{})}
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
		s.after.Go(func() { s.reconsider(slices.Collect(maps.Keys(services))) })
		s.after.Go(s.tellAgain)
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
	c.Async, c.Durable = true, s.durable != nil && r.resolves == "" // the next process asks by itself
	known, refused := s.accept(ctx, c, &r)
	switch {
	case refused != nil:
		return nil, refused
	case known != nil:
		return s.Get(ctx, known.ID)
	}
	var accepted Call
	if err := s.ask(context.WithoutCancel(ctx), func(now time.Time) { // it has been accepted
		s.loop.enqueue(now, c)
		accepted = s.loop.describe(now, c)
	}); err != nil {
		return nil, err
	}
	return &accepted, nil
}

// Do hands over a call and waits for the upstream's answer; the caller closes its
// body. A call that has not been sent when ctx ends is cancelled; one that has
// been sent runs to its own end and is recorded. The error is an [*Error], or
// that of ctx. The call is told wherever there is one: not if it was malformed, or
// the scheduler is closed. An IdempotencyKey counts only for a durable call: who
// comes second with it gets the answer of the first, if it is sent within max_wait.
func (s *Scheduler) Do(ctx context.Context, r Request) (*http.Response, *Call, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	c, refused := s.newCall(r)
	if refused != nil {
		return nil, nil, refused
	}
	c.settled = make(chan struct{})
	c.Deadline = earlier(c.Deadline, c.AcceptedAt.Add(c.route.service.MaxWait))
	if d, ok := ctx.Deadline(); ok {
		c.Deadline = earlier(c.Deadline, d)
	}
	if !c.Durable {
		r.IdempotencyKey = "" // forwarded only
	}
	switch known, refused := s.accept(ctx, c, &r); {
	case refused != nil:
		return nil, refused.Call, refused
	case known != nil:
		return s.join(ctx, known.ID, c.Deadline)
	}
	id := c.ID // from here on the loop may replace what is told of the call
	if err := s.ask(context.WithoutCancel(ctx), func(now time.Time) {
		s.loop.enqueue(now, c)
		if ctx.Err() != nil { // before anything was sent
			s.loop.abandon(now, c)
		}
	}); err != nil {
		return nil, nil, err
	}
	select {
	case <-c.settled:
	case <-ctx.Done():
		done := context.WithoutCancel(ctx)
		s.ask(done, func(now time.Time) { s.loop.abandon(now, c) })
		snapshot, err := s.Get(done, id)
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

// join waits for a call that another caller handed over, and returns its answer. It
// waits no longer than until latest for the call to be sent.
func (s *Scheduler) join(ctx context.Context, id string, latest time.Time) (*http.Response, *Call, error) {
	bounded, cancel := context.WithDeadline(ctx, latest)
	defer cancel()
	c, err := s.Wait(bounded, id)
	if err == nil && c.State == Sending {
		c, err = s.Wait(ctx, id)
	}
	switch {
	case err != nil:
		return nil, nil, err
	case c.State == Waiting && ctx.Err() == nil:
		return nil, c, wrongState(c, "it has this idempotency key and has not been sent yet; ask for its answer later")
	case c.Response != nil && c.State.Finished():
		return c.Response.http(), c, nil
	case ctx.Err() != nil:
		return nil, c, ctx.Err()
	case c.State == Unknown:
		return nil, c, &Error{Reason: NoAnswer, Upstream: c.Upstream, Call: c, Detail: fmt.Sprintf("call %s has this idempotency key; it was sent and may have been executed: query before you send it again", c.ID)}
	}
	return nil, c, wrongState(c, "it has this idempotency key, and there is no answer to it")
}

// service returns an upstream as it is configured now, nil if it is not.
func (s *Scheduler) service(upstream string) *service { return (*s.services.Load())[upstream] }

func errNoUpstream(upstream string) *Error {
	return &Error{Reason: NotFound, Upstream: upstream, Detail: fmt.Sprintf("upstream %q is not configured", upstream)}
}

func errStopping(upstream string) *Error {
	return &Error{Reason: Stopping, Upstream: upstream, Detail: "Throttler is stopping and takes no more calls; send the call to another instance, or again after the restart"}
}

// ask runs f in the loop and waits for it. If ctx ends before, f may run later: the
// caller must not look at anything that f writes. The error is that of ctx, or says
// that the loop has ended and f will not run.
func (s *Scheduler) ask(ctx context.Context, f func(now time.Time)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan struct{})
	if !s.loop.post(func(now time.Time) { f(now); close(done) }) {
		return errStopping("")
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-s.loop.ended:
		select { // f may have been the last message
		case <-done:
			return nil
		default:
			return errStopping("")
		}
	}
}

// Cancel takes back a call that is not being sent and has not finished. If ctx ends
// first, the call may be cancelled all the same: Get tells.
func (s *Scheduler) Cancel(ctx context.Context, id string) (*Call, error) {
	var err error
	var settled <-chan struct{}
	s.fetch(ctx, id)
	if gone := s.ask(ctx, func(now time.Time) {
		c := s.loop.calls[id]
		switch {
		case c == nil:
		case c.State == Waiting:
			settled = c.settling()
			s.loop.finish(now, c, Cancelled)
		default:
			err = wrongState(c.Call, "only a waiting call can be cancelled")
		}
	}); gone != nil {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	if settled != nil {
		select {
		case <-settled:
			return s.Get(ctx, id)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	c, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case c.State.Finished():
		return nil, wrongState(c, "it has finished")
	case c.State == Waiting && s.service(c.Upstream) == nil:
		return nil, notConfigured(c, "cancel it then")
	}
	return nil, wrongState(c, "only a waiting call can be cancelled")
}

// notConfigured refuses what only the upstream's configuration makes possible.
func notConfigured(c *Call, then string) *Error {
	return wrongState(c, fmt.Sprintf("its upstream %q is not configured, and it stays in the store; put the upstream into the configuration again, and %s", c.Upstream, then))
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
		s.ask(context.Background(), s.loop.stop)
		s.afterEnd()
		<-s.loop.ended
		s.work.Wait()
		s.after.Wait()
		if s.durable == nil {
			s.loop.lost()
		}
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
		err = s.durable.Restate(context.Background(), s.loop.holds(time.Now()))
	}
	return errors.Join(err, s.durable.Close())
}
