package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/paging"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of finished calls in memory.
const (
	keepFinished      = 10_000
	keepFinishedBytes = 64 << 20
)

// A journal keeps calls: durable ones in a Durable, the others in memory. It is the only
// part of the scheduler that calls a Store. Its methods may be called concurrently. They
// may block, and the loop calls them only for a call that is kept in place.
type journal struct {
	memory  Store   // of calls that live as long as the process
	durable Durable // of those that outlive it; nil if there is none
	log     *slog.Logger
	locks   *identityLocks

	// Nothing is asked of a closed store: readings counts the callers that read from one, and
	// close waits for them.
	mu       sync.Mutex
	closed   bool // guarded by mu
	readings sync.WaitGroup

	failing sync.Once
	failed  chan struct{} // closed when the store has failed
	failure error         // set before failed is closed
	onFail  func()
}

func newJournal(store Store, log *slog.Logger) *journal {
	j := &journal{memory: store, log: log, locks: newIdentityLocks(), failed: make(chan struct{})}
	j.durable, _ = store.(Durable)
	if store == nil || j.durable != nil {
		j.memory = newMemory(keepFinished, keepFinishedBytes)
	}
	return j
}

// outlives reports whether there is a store that outlives the process.
func (j *journal) outlives() bool { return j.durable != nil }

// storeOf returns the store that keeps a call.
func (j *journal) storeOf(c *Call) Store {
	if c.Durable {
		return j.durable
	}
	return j.memory
}

// allowed returns the function that attempts ask before their first byte, nil if there is none.
func (j *journal) allowed() func() bool {
	if l, ok := j.durable.(Leased); ok {
		return l.Allowed
	}
	return nil
}

// inPlace reports whether to record a call cannot block.
func (j *journal) inPlace(c *Call) bool {
	_, ok := j.storeOf(c).(*memory)
	return ok
}

// loopOnly reports whether new calls are looked up and accepted by the loop alone: the store in
// memory is the only one, and another one could block it.
func (j *journal) loopOnly() bool { return j.durable == nil }

// accept stores a new call, or returns the one that was accepted with its key.
func (j *journal) accept(ctx context.Context, e *Entry) (known *Call, err error) {
	return j.storeOf(e.Call).Accept(ctx, e)
}

// intend stores that a call is being sent, and the permits taken for it.
func (j *journal) intend(intent *Call, take []lease.Hold) error {
	if j.hasFailed() {
		return ErrBroken
	}
	if len(take) > 0 && !intent.Durable {
		if err := j.durable.Intend(context.Background(), nil, take); err != nil {
			j.check(err)
			return err
		}
	}
	err := j.storeOf(intent).Intend(context.Background(), intent, take)
	j.check(err)
	return err
}

// record stores the state of a call, and reports whether the store has it.
func (j *journal) record(c *Call) (stored bool) {
	err := j.storeOf(c).Record(context.Background(), c)
	if err != nil {
		j.log.Error("a call's state could not be stored", "call", c.ID, "state", c.State, "err", err)
		j.check(err)
	}
	return err == nil
}

// decide stores a decision about a call that is not in memory.
func (j *journal) decide(ctx context.Context, c *Call) error {
	return j.reading(func() error { return j.storeOf(c).Record(ctx, c) })
}

// settle stores when the permits of leases come back.
func (j *journal) settle(holds []lease.Hold) {
	j.check(j.durable.Settle(context.Background(), holds))
}

// pause stores the pauses that have begun and those that are over.
func (j *journal) pause(ctx context.Context, begun, over []lease.Hold) error {
	if j.durable == nil {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	err := j.reading(func() (err error) {
		if len(begun) > 0 {
			err = j.durable.Intend(ctx, nil, begun)
		}
		if err == nil && len(over) > 0 {
			err = j.durable.Settle(ctx, over)
		}
		return err
	})
	j.check(err)
	return err
}

// get returns a stored call.
func (j *journal) get(ctx context.Context, id string) (c *Call, err error) {
	err = j.reading(func() (err error) {
		c, err = j.memory.Get(ctx, id)
		if j.durable != nil && errors.Is(err, ErrNotFound) {
			c, err = j.durable.Get(ctx, id)
		}
		return err
	})
	if errors.Is(err, ErrNotFound) {
		return nil, &Error{Reason: NotFound, Detail: fmt.Sprintf("call %q is not known; it may have been forgotten some time after it finished", id)}
	}
	return c, j.unread(err)
}

// list returns a page of the stored calls that match a filter, without their Response.
func (j *journal) list(ctx context.Context, f Filter) (page *ListPage, err error) {
	err = j.reading(func() (err error) {
		page, err = j.memory.List(ctx, f)
		if err != nil || j.durable == nil {
			return err
		}
		more, err := j.durable.List(ctx, f)
		if err == nil {
			page = f.merge(page, more)
		}
		return err
	})
	return page, j.unread(err)
}

// fetch returns a durable call that waits or is unknown, nil if there is none.
func (j *journal) fetch(ctx context.Context, id string) (e *Entry) {
	if j.durable == nil {
		return nil
	}
	err := j.reading(func() (err error) {
		e, err = j.durable.Fetch(ctx, id)
		return err
	})
	if err != nil {
		j.check(err)
		return nil
	}
	return e
}

// request returns the request of an unknown call, nil if it was not kept.
func (j *journal) request(ctx context.Context, c *Call) *upstream.Request {
	if m, ok := j.storeOf(c).(*memory); ok {
		return m.request(c.ID)
	}
	if e := j.fetch(ctx, c.ID); e != nil && !e.NoBody {
		return e.Request
	}
	return nil
}

// scan reads a page of the waiting calls of an upstream. It returns nil if that fails,
// which ends the scheduler.
func (j *journal) scan(upstream string, after Position, due time.Time, want func(Position, int64) bool) *Page {
	page, err := j.durable.Scan(context.Background(), upstream, after, due, paging.PageSize, want)
	if err != nil {
		j.fail(err)
		return nil
	}
	return page
}

// waking reads a page of the waiting calls whose time has come near. It returns nil if
// that fails, which ends the scheduler.
func (j *journal) waking(before time.Time, after Position) *Page {
	page, err := j.durable.Waking(context.Background(), before, after, paging.PageSize)
	if err != nil {
		j.fail(err)
		return nil
	}
	return page
}

// each calls do with the calls that a list of the durable store has, until ctx ends.
func (j *journal) each(ctx context.Context, list func(ctx context.Context, after string) (*ListPage, error), do func(*Call)) {
	for after, more := "", true; more; more = after != "" {
		var page *ListPage
		err := j.reading(func() (err error) {
			page, err = list(ctx, after)
			return err
		})
		if err != nil {
			j.check(err)
			return
		}
		for _, c := range page.Calls {
			if ctx.Err() != nil {
				return
			}
			do(c)
		}
		after = page.Next
	}
}

// pendingWebhooks lists the durable calls that are due for a webhook.
func (j *journal) pendingWebhooks(ctx context.Context, after string) (*ListPage, error) {
	calls, err := j.durable.PendingWebhooks(ctx, after, paging.PageSize)
	page := &ListPage{Calls: calls}
	if len(calls) == paging.PageSize {
		page.Next = calls[len(calls)-1].ID
	}
	return page, err
}

// An outbox keeps the ends of calls until Config.Ended has handled them; see [Durable].
type outbox interface {
	PendingEnds(ctx context.Context, max int) ([]*Call, error)
	EndHandled(ctx context.Context, notice string, again time.Time) error
}

// outbox returns the store of submitted calls, nil if it does not keep their ends.
func (j *journal) outbox() outbox {
	if j.durable != nil {
		return j.durable
	}
	o, _ := j.memory.(outbox)
	return o
}

// pendingEnds lists the calls whose end is to be handled, the next one first.
func (j *journal) pendingEnds(ctx context.Context, most int) (calls []*Call, err error) {
	err = j.reading(func() (err error) {
		calls, err = j.outbox().PendingEnds(ctx, most)
		return err
	})
	j.check(err)
	return calls, err
}

// unhandled counts the ends that a store in memory keeps.
func (j *journal) unhandled() int {
	m, ok := j.memory.(*memory)
	if !ok {
		return 0
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.pendingEnds)
}

// endHandled stores that an end was handled, or is handled again at an instant.
func (j *journal) endHandled(notice string, again time.Time) error {
	err := j.outbox().EndHandled(context.Background(), notice, again)
	j.check(err)
	return err
}

// unknown lists the durable calls of unknown outcome.
func (j *journal) unknown(ctx context.Context, after string) (*ListPage, error) {
	return j.durable.List(ctx, Filter{States: []State{Unknown}, Oldest: true, After: after, Max: paging.PageSize})
}

// recover begins a life of the durable store; restate stores the holds of that life.
func (j *journal) recover(ctx context.Context, recent time.Duration, repeat func(*Entry) (time.Time, bool)) (*Recovered, error) {
	return j.durable.Recover(ctx, recent, repeat)
}

func (j *journal) restate(ctx context.Context, holds []lease.Hold) error {
	return j.durable.Restate(ctx, holds)
}

// reading runs f while the stores are open. It does not wait for close, which stores permits.
func (j *journal) reading(f func() error) error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return errStopping("")
	}
	j.readings.Add(1)
	j.mu.Unlock()
	defer j.readings.Done()
	return f()
}

// unread says why nothing could be read from the store; nil if err is.
func (j *journal) unread(err error) error { return j.told(err, "the store could not be read") }

// told returns an error of the store with words about it; nil if err is.
func (j *journal) told(err error, words string) error {
	var refused *Error
	switch {
	case err == nil, errors.As(err, &refused), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	j.check(err)
	return storeFailed(err, "", words)
}

// check ends the scheduler if an error of the store says so.
func (j *journal) check(err error) {
	if errors.Is(err, ErrBroken) {
		j.fail(err)
	}
}

// fail ends the scheduler: its store can promise nothing any more. Nothing is accepted
// or sent after it; attempts in flight end.
func (j *journal) fail(err error) {
	j.failing.Do(func() {
		j.failure = err
		close(j.failed)
		j.log.Error("the store has failed; nothing more is accepted or sent", "err", err)
		j.onFail()
	})
}

// watch ends the scheduler when the durable store has failed, also while nothing is asked
// of it, until ctx ends.
func (j *journal) watch(ctx context.Context) {
	select {
	case <-j.durable.Failed():
		j.check(j.durable.Settle(ctx, nil))
	case <-ctx.Done():
	}
}

// hasFailed reports whether the store has failed.
func (j *journal) hasFailed() bool {
	select {
	case <-j.failed:
		return true
	default:
		return false
	}
}

// giveUpAfter lets changes wait for a server that is away until ctx ends, and not much longer.
func (j *journal) giveUpAfter(ctx context.Context) (stop func()) {
	if l, ok := j.durable.(Leased); ok {
		return l.GiveUpAfter(ctx)
	}
	return func() {}
}

// close stores the permits that are out, so that the next process need not wait, and
// closes the stores.
func (j *journal) close(holds func() []lease.Hold) error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.readings.Wait()
	err := j.memory.Close()
	if j.durable == nil {
		return err
	}
	if j.hasFailed() {
		err = j.failure
	} else {
		err = j.restate(context.Background(), holds())
	}
	return errors.Join(err, j.durable.Close())
}
