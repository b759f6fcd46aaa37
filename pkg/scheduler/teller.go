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
	untoldPage  = 4 * maxHandlers // ends that are read at once: more than handlers run
)

// handlerRetry has the waits after failures of a handler.
var handlerRetry = retry.Curve{Min: time.Second, Max: 10 * time.Minute, Backoff: retry.Exponential}

// A teller hands the ends of calls to Config.Ended. The store has them; in memory are only
// those whose handlers run.
type teller struct {
	handle  func(context.Context, *Call) error
	journal *journal
	log     *slog.Logger
	news    chan struct{} // holds one when the store may have another end
	ended   chan string   // id of the call of each handler that has ended

	busy map[string]bool // ids of the calls whose handlers run; only run uses it
}

func newTeller(handle func(context.Context, *Call) error, j *journal, log *slog.Logger) *teller {
	return &teller{
		handle: handle, journal: j, log: log,
		news: make(chan struct{}, 1), ended: make(chan string, maxHandlers), busy: make(map[string]bool),
	}
}

// wake tells that the store has another end. It may be called on a nil teller: the next
// process may have one.
func (t *teller) wake() {
	if t == nil {
		return
	}
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// run starts the handlers until ctx ends, and waits for them.
func (t *teller) run(ctx context.Context) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	for ctx.Err() == nil && !t.journal.hasFailed() {
		next := time.NewTimer(t.start(ctx, &handlers))
		select {
		case <-t.news:
		case id := <-t.ended:
			delete(t.busy, id)
		case <-next.C:
		case <-t.journal.failed:
		case <-ctx.Done():
		}
		next.Stop()
	}
}

// start starts the handlers of all ends that are due, and returns when to look again if
// there is no news.
func (t *teller) start(ctx context.Context, handlers *sync.WaitGroup) time.Duration {
	for {
		page, err := t.journal.untold(ctx, untoldPage)
		if err != nil {
			return handlerRetry.Min
		}
		full := len(page) == untoldPage
		// Now: a handler that ends meanwhile has handled an end of the page.
		page = slices.DeleteFunc(page, func(c *Call) bool { return t.busy[c.ID] })
		for _, c := range page {
			// No wait is longer than Max, except by a step of the clock.
			if wait := time.Until(c.TellAt); wait > 0 && wait <= handlerRetry.Max {
				return wait
			}
			if len(t.busy) == maxHandlers && !t.awaitOne(ctx) {
				return handlerRetry.Max
			}
			t.busy[c.ID] = true
			handlers.Go(func() {
				defer func() { t.ended <- c.ID }()
				t.tell(ctx, c)
			})
		}
		if !full {
			return handlerRetry.Max
		}
	}
}

// awaitOne waits until a handler ends; false if ctx ends before.
func (t *teller) awaitOne(ctx context.Context) bool {
	select {
	case id := <-t.ended:
		delete(t.busy, id)
		return true
	case <-ctx.Done():
		return false
	}
}

// tell runs the handler of an end, and stores the result.
func (t *teller) tell(ctx context.Context, listed *Call) {
	c, err := t.journal.get(ctx, listed.ID)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !errors.Is(err, ErrNotFound):
		t.log.Error("a call whose end is to be handled cannot be read", "call", listed.ID, "again_in", handlerRetry.Min.String(), "err", err)
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
		t.conclude(ctx, c, listed.Failures, err)
	}()
	err = t.handle(ctx, c)
}

// conclude stores how the handler of an end has ended, after some failures before.
func (t *teller) conclude(ctx context.Context, c *Call, failures int, err error) {
	switch {
	case err == nil:
		err = t.journal.told(c.Notice(), time.Time{})
	case ctx.Err() != nil:
		return // the next process hands it over
	default:
		wait := handlerRetry.Delay(failures+1, 0, rand.Float64())
		t.log.Warn("the handler of a call's end has failed", "call", c.ID, "upstream", c.Upstream, "state", c.State, "failures", failures+1, "again_in", wait.String(), "err", err)
		err = t.journal.told(c.Notice(), time.Now().Add(wait))
	}
	if err != nil {
		t.log.Error("the store does not know that a call's end was handled", "call", c.ID, "err", err)
	}
}
