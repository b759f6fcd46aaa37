// Package limiter makes callers wait until a limit has room, as the receiver of their
// calls counts it. It is as short to use as golang.org/x/time/rate:
//
//	l := limiter.Per(50, time.Second)
//	done, err := l.Wait(ctx, "account 7") // each key is counted apart
//	if err != nil { … }
//	resp, err := call()
//	done(err == nil) // the answer came, or it did not
//
// The difference is done. A receiver counts a call somewhere between its first byte and
// its answer. So the permit comes back one window after the answer, and no window of the
// receiver has more calls than the limit, on any network. Without an answer the receiver
// may still read the call: then the permit comes back a window after the limit's Late.
// Package quota has the proof, and the kinds of limits: sliding windows, calendar days,
// calls in flight, costs, spacing.
//
// Callers of one key go in the order in which they came; a caller that needs several
// permits is not overtaken for ever by those that need one (package planner). A Limiter
// lives in one process, and forgets with it. Package scheduler makes the calls itself, and
// keeps calls and permits over a restart.
package limiter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// tick is the grain of the instants at which waiting callers go.
const tick = 100 * time.Microsecond

// DefaultLate is the Late of the limit of [Per].
const DefaultLate = 5 * time.Second

// A Need is the permits of one limit that a call takes.
type Need struct {
	Limit string // its name
	Key   string // each key of a limit is counted apart
	Cost  int    // permits, from 1 to the limit's calls
}

// Done ends a call, at its answer: answered tells whether there was one. Without an
// answer the permits stay out until the limit's Late and a window have passed. Only the
// first call of it counts. A permit whose Done is never called does not come back.
type Done func(answered bool)

// A Limiter holds the permits of limits. It is safe for concurrent use, has no goroutine of
// its own, and need not be closed.
type Limiter struct {
	byName map[string]int

	mu      sync.Mutex
	limits  []quota.Limit
	ledger  *quota.Ledger
	wheel   *wheel.Wheel[planner.Timeout]
	planner *planner.Planner[*waiter]
	origin  time.Time
	callers uint64
	timer   *time.Timer // rings when the wheel is due
	set     time.Duration
}

// A waiter is a caller.
type waiter struct {
	planner.Item[*waiter]
	granted chan struct{} // closed with the mutex held, when the permits are taken
	sent    time.Time
}

// Per returns a limiter of one limit: so many calls in each window, whenever it begins. It
// panics if calls or window is not positive.
func Per(calls int, window time.Duration) *Limiter {
	l, err := New(quota.Limit{Name: "limit", Calls: calls, Window: quota.Sliding(window), Late: DefaultLate})
	if err != nil {
		panic(err)
	}
	return l
}

// New returns a limiter of limits, which all hold at once. The error joins all faults of
// the limits; names must differ.
func New(limits ...quota.Limit) (*Limiter, error) {
	l := &Limiter{byName: make(map[string]int), limits: limits, origin: time.Now(), wheel: wheel.New[planner.Timeout](tick), set: -1}
	var faults []error
	if len(limits) == 0 {
		faults = append(faults, errors.New("limiter: no limit is given"))
	}
	for i, c := range limits {
		if err := c.Check(); err != nil {
			faults = append(faults, fmt.Errorf("limiter: limit %q: %w", c.Name, err))
		}
		if _, taken := l.byName[c.Name]; taken {
			faults = append(faults, fmt.Errorf("limiter: two limits have the name %q", c.Name))
		}
		l.byName[c.Name] = i
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	l.ledger = quota.New(l.origin, limits...)
	l.planner = planner.New[*waiter](l.origin, l.wheel, l.ledger, limits, func(string) float64 { return 1 })
	return l, nil
}

// Wait waits until each limit has a permit for the key, and takes them. If ctx ends before,
// or has a deadline before that can be expected, no permit is taken and the error wraps
// that of ctx.
func (l *Limiter) Wait(ctx context.Context, key string) (Done, error) {
	needs := make([]quota.Need, len(l.limits))
	for i := range needs {
		needs[i] = quota.Need{Limit: i, Key: key, Cost: 1}
	}
	return l.wait(ctx, needs)
}

// WaitFor is Wait for a call that needs other permits: of some of the limits, of a key of
// each, or several. A need of an unknown limit, one that the limit could never meet, and
// two of one limit are errors.
func (l *Limiter) WaitFor(ctx context.Context, needs ...Need) (Done, error) {
	found := make([]quota.Need, len(needs))
	seen := make(map[string]bool)
	var faults []error
	if len(needs) == 0 {
		faults = append(faults, errors.New("limiter: a call without needs has no limit; make it without the limiter"))
	}
	for i, n := range needs {
		limit, known := l.byName[n.Limit]
		switch {
		case !known:
			faults = append(faults, fmt.Errorf("limiter: limit %q is not one of the limiter's", n.Limit))
		case seen[n.Limit]:
			faults = append(faults, fmt.Errorf("limiter: limit %q is needed twice; add the costs up, or wait twice", n.Limit))
		case n.Cost < 1 || n.Cost > l.limits[limit].Calls:
			faults = append(faults, fmt.Errorf("limiter: cost of limit %q is %d, must be from 1 to its calls (%d)", n.Limit, n.Cost, l.limits[limit].Calls))
		}
		seen[n.Limit] = true
		found[i] = quota.Need{Limit: limit, Key: n.Key, Cost: n.Cost}
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return l.wait(ctx, found)
}

func (l *Limiter) wait(ctx context.Context, needs []quota.Need) (Done, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("limiter: %w", context.Cause(ctx))
	}
	w := &waiter{granted: make(chan struct{})}
	w.Value, w.Demand = w, planner.NewDemand("", needs, false)
	if err := l.enter(ctx, w); err != nil {
		return nil, err
	}
	select {
	case <-w.granted:
		return l.doneOf(w), nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if w.Queued() {
		l.planner.Remove(now, &w.Item)
	} else { // just now
		l.giveBack(now, w, quota.Uncounted)
	}
	l.dispatch(now)
	return nil, fmt.Errorf("limiter: %w", context.Cause(ctx))
}

// enter lets a caller wait, unless its deadline comes first.
func (l *Limiter) enter(ctx context.Context, w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.callers++
	w.Seq = l.callers
	l.dispatch(now) // permits that are due go to earlier callers
	if deadline, ok := ctx.Deadline(); ok {
		if f := l.planner.ETA(now, &w.Item, planner.Elsewhere{}); f.Limit >= 0 && f.At.After(deadline) {
			return fmt.Errorf("limiter: limit %q, key %q: the next permit can be expected in %v, and the deadline comes first: %w", l.limits[f.Limit].Name, f.Key, f.At.Sub(now).Round(time.Millisecond), context.DeadlineExceeded)
		}
	}
	l.planner.Add(now, &w.Item)
	l.dispatch(now)
	return nil
}

// doneOf returns the Done of a caller whose permits are taken.
func (l *Limiter) doneOf(w *waiter) Done {
	var once sync.Once
	return func(answered bool) {
		once.Do(func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			now, fate := time.Now(), quota.Unanswered
			if answered {
				fate = quota.Answered
				l.planner.Observe(now.Sub(w.sent))
			}
			l.giveBack(now, w, fate)
			l.dispatch(now)
		})
	}
}

func (l *Limiter) giveBack(now time.Time, w *waiter, fate quota.Fate) {
	l.ledger.Return(now, w.Demand.Needs, quota.Attempt{Sent: w.sent, End: now, Fate: fate})
	l.planner.Check(now, w.Demand.Needs)
}

// dispatch wakes the callers whose permits are free, and sets the timer for the next.
func (l *Limiter) dispatch(now time.Time) {
	l.wheel.Advance(now.Sub(l.origin), func(t planner.Timeout) { t.Fire(now) })
	l.planner.Dispatch(now, math.MaxInt, func(w *waiter) {
		w.sent = now
		close(w.granted)
	})
	next, ok := l.wheel.Next()
	switch in := next - now.Sub(l.origin); {
	case !ok || next == l.set:
	case l.timer == nil:
		l.timer = time.AfterFunc(in, l.ring)
		l.set = next
	default:
		l.timer.Reset(in)
		l.set = next
	}
}

func (l *Limiter) ring() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set = -1
	l.dispatch(time.Now())
}
