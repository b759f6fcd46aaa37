package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
)

// Bounds of Config.Ended.
const (
	maxHandlers = 16              // that run at once
	endsPage    = 4 * maxHandlers // ends that are read at once: more than handlers run
)

// handlerRetry has the waits after failures of a handler.
var handlerRetry = retry.Curve{Min: time.Second, Max: 10 * time.Minute, Backoff: retry.Exponential}

// A relay hands the ends of calls to Config.Ended: that of a transactional outbox, which is
// in the store. In memory are only the calls whose handlers run.
type relay struct {
	handle  func(context.Context, *Call) error
	journal *journal
	log     *slog.Logger
	news    chan struct{} // holds one when the store may have another end
	ended   chan string   // id of the call of each handler that has ended

	busy map[string]bool // ids of the calls whose handlers run; only run uses it
}

func newRelay(handle func(context.Context, *Call) error, j *journal, log *slog.Logger) *relay {
	return &relay{
		handle: handle, journal: j, log: log,
		news: make(chan struct{}, 1), ended: make(chan string, maxHandlers), busy: make(map[string]bool),
	}
}

// wake tells that the store has another end. It may be called on a nil relay: the next
// process may have one.
func (r *relay) wake() {
	if r == nil {
		return
	}
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// run starts the handlers until ctx ends, and waits for them.
func (r *relay) run(ctx context.Context) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for ctx.Err() == nil && !r.journal.hasFailed() {
		next := time.NewTimer(r.start(ctx, &handlers))
		select {
		case <-r.news:
		case id := <-r.ended:
			delete(r.busy, id)
		case <-next.C:
		case <-r.journal.failed:
		case <-ctx.Done():
		}
		next.Stop()
	}
}

// start starts the handlers of all ends that are due, and returns when to look again if
// there is no news.
func (r *relay) start(ctx context.Context, handlers *sync.WaitGroup) time.Duration {
	for {
		page, err := r.journal.pendingEnds(ctx, endsPage)
		if err != nil {
			return handlerRetry.Min
		}
		full := len(page) == endsPage
		// Now: a handler that ends meanwhile has handled an end of the page.
		page = slices.DeleteFunc(page, func(c *Call) bool { return r.busy[c.ID] })
		for _, c := range page {
			// No wait is longer than Max, except by a step of the clock.
			if wait := time.Until(c.HandleAt); wait > 0 && wait <= handlerRetry.Max {
				return wait
			}
			if len(r.busy) == maxHandlers && !r.awaitOne(ctx) {
				return handlerRetry.Max
			}
			r.busy[c.ID] = true
			handlers.Go(func() {
				defer func() { r.ended <- c.ID }()
				r.hand(ctx, c)
			})
		}
		if !full {
			return handlerRetry.Max
		}
	}
}

// awaitOne waits until a handler ends; false if ctx ends before.
func (r *relay) awaitOne(ctx context.Context) bool {
	select {
	case id := <-r.ended:
		delete(r.busy, id)
		return true
	case <-ctx.Done():
		return false
	}
}

// hand runs the handler of an end, and stores the result.
func (r *relay) hand(ctx context.Context, listed *Call) {
	c, err := r.journal.get(ctx, listed.ID)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !errors.Is(err, ErrNotFound):
		r.log.Error("a call whose end is to be handled cannot be read", "call", listed.ID, "again_in", handlerRetry.Min.String(), "err", err)
		select {
		case <-time.After(handlerRetry.Min):
		case <-ctx.Done():
		}
		return
	case err != nil || c.Notice() != listed.Notice():
		return // the call has moved on, and the store has another end
	}
	err = errors.New("the handler has ended its goroutine")
	defer func() {
		if bug := recover(); bug != nil {
			err = fmt.Errorf("panic: %v\n%s", bug, debug.Stack())
		}
		r.conclude(ctx, c, listed.Failures, err)
	}()
	err = r.handle(ctx, c)
}

// conclude stores how the handler of an end has ended, after some failures before.
func (r *relay) conclude(ctx context.Context, c *Call, failures int, err error) {
	switch {
	case err == nil:
		err = r.journal.endHandled(c.Notice(), time.Time{})
	case ctx.Err() != nil:
		return // the next process hands it over
	default:
		wait := handlerRetry.Delay(failures+1, 0, rand.Float64())
		r.log.Warn("the handler of a call's end has failed", "call", c.ID, "upstream", c.Upstream, "state", c.State, "failures", failures+1, "again_in", wait.String(), "err", err)
		err = r.journal.endHandled(c.Notice(), time.Now().Add(wait))
	}
	if err != nil {
		r.log.Error("the store does not know that a call's end was handled", "call", c.ID, "err", err)
	}
}
