// Package quota keeps limits of the form "at most N calls per window" exactly,
// as the receiver of the calls counts them.
//
// A [Ledger] holds the permits of several limits:
//
//	short, ok := ledger.Take(now, needs)   // all permits or none
//	ledger.Return(now, needs, attempt)     // the attempt has ended
//	at := ledger.ETA(now, need, ahead, t)  // when will the calls ahead have gone?
//
// # Why it is exact
//
// A call arrives between its first byte and its response. So a permit is taken
// before the first byte and comes back at response + window. Take the last-sent
// of any N+1 arrivals within one window: each other one was sent before it and
// its permit had not come back, so N permits were out, and it was not sent. No
// common clock, no model of the network; the price is one round trip per window.
//
//	N = 2 per 1s   sent ├──────┤ response        permit back
//	call 1            0 ├──┤ 20ms                at 1020ms
//	call 2            5 ├────┤ 45ms              at 1045ms
//	call 3                    waits until 1020ms ├──┤
//	call 4                    waits until 1045ms   ├──┤
//
// An attempt that nobody answered may still be read by the receiver after we
// closed it: its permit comes back Late after its end, plus the window. One that
// was never sent gives its permit back at once.
//
// # Kinds of limits
//
// They differ only in when a permit comes back: response + window if the window
// slides; when the last window has ended in which the attempt may have arrived, if
// it is aligned to a [Calendar]; with the response for concurrency, a window of
// zero, and where the outcome does not count ([Uncounted]). A minimum distance is
// one call per window; a cost is several permits; spacing inside a window is a
// token bucket of golang.org/x/time/rate. Take takes the permits of all or none.
//
// A Ledger takes the instant, owns no goroutine and no lock, and knows limits,
// keys and costs, not calls. If a receiver counts an unanswered attempt later than
// Late after its end, the limit may be exceeded there.
package quota

import (
	"fmt"
	"iter"
	"time"

	"golang.org/x/time/rate"
)

const (
	// DefaultMaxKeys is how many keys a limit keeps apart at one time unless it says otherwise.
	DefaultMaxKeys = 100_000

	// What a limit may have at most.
	MaxCalls  = 1_000_000_000
	MaxWindow = 366 * 24 * time.Hour
)

// A Limit is "at most Calls per Window, counted per key".
type Limit struct {
	// Name is how messages call the limit.
	Name string
	// Calls is the number of permits per key, at least 1.
	Calls int
	// Window is the length of a sliding window. Zero makes the limit one of
	// concurrency: a permit comes back with the response.
	Window time.Duration
	// Calendar, if not nil, aligns the window to the calendar; Window is then ignored.
	Calendar *Calendar
	// Late is how long after its end an unanswered attempt may still be counted by the receiver.
	Late time.Duration
	// Guard, if positive, caps the hold of a slow answer: the permit comes back
	// at min(response, sent+Guard) + Window. That is exact only while a call's
	// way to the receiver takes less than Guard.
	Guard time.Duration
	// Burst, if positive, spaces the calls inside a sliding window: a token
	// bucket of Calls per Window that holds Burst.
	Burst int
	// Partly tells that not every answered attempt counts (see [Uncounted]): ETA then
	// expects the permits of attempts in flight back with the response.
	Partly bool
	// MaxKeys is how many keys with permits out there may be at a time; zero
	// means DefaultMaxKeys. Calls of further keys wait.
	MaxKeys int
}

// A Need is what one call takes from one limit.
type Need struct {
	Limit int    // index into the limits given to New
	Key   string // what is counted apart; empty where the limit has one key
	Cost  int    // permits, at least 1
}

// Fate is how much is known of an attempt that has ended.
type Fate uint8

const (
	// Answered: the counting host responded at Attempt.End.
	Answered Fate = iota
	// Unanswered: it may have been counted, and may yet be, up to Late after Attempt.End.
	Unanswered
	// Uncounted: not one byte was written, or the receiver does not count what
	// the attempt came to.
	Uncounted
)

// An Attempt is one sending, as far as a ledger needs to know it.
type Attempt struct {
	Sent time.Time // when the permits were taken
	End  time.Time // the response, or when it was given up
	Fate Fate
}

// A Shortage says what a call lacks.
type Shortage struct {
	// Need is the index, among the needs given to Take, of the one that will be
	// met last as things stand.
	Need int
	// Until is the earliest instant at which it can be met. Zero means: not
	// before an attempt that is in flight ends.
	Until time.Time
}

// A Ledger holds the permits of a set of limits. It is not safe for concurrent use.
type Ledger struct {
	// OnStep, if not nil, is told when the wall clock was put forward, or back (a
	// negative step), by more than the skew of an aligned limit. After a step back
	// aligned windows stand still until the clock is where it was.
	OnStep func(step time.Duration)

	limits []*limit
	found  []*account // by Take
	origin time.Time
	wall   int64 // high-water mark of the wall clock: a step back reopens nothing
	offset int64 // of the wall clock to the monotonic one, when last seen
}

// An instant is a point in time on both clocks, in nanoseconds: mono since the
// ledger's origin, wall since the Unix epoch.
type instant struct{ mono, wall int64 }

func (i instant) add(d int64) instant { return instant{i.mono + d, i.wall + d} }

// New returns a ledger of limits with all permits free. It panics if a limit is
// impossible (see [Limit.Check]); now fixes the origin of the ledger's clock.
func New(now time.Time, limits ...Limit) *Ledger {
	l := &Ledger{origin: now, wall: now.UnixNano(), offset: now.UnixNano()}
	l.Replace(now, limits, nil)
	return l
}

// Replace gives the ledger another set of limits. A new limit with kept[i] = j
// goes on with the permits and pauses of the old limit j: only its Calls, Late,
// Guard, Burst, Partly and MaxKeys may differ. One with kept[i] < 0, or beyond the end of
// kept, begins with all permits free. It panics if a limit is impossible.
func (l *Ledger) Replace(now time.Time, limits []Limit, kept []int) {
	at, old := l.instant(now), l.limits
	l.limits = nil
	for i, c := range limits {
		if err := c.Check(); err != nil {
			panic("quota: " + err.Error())
		}
		if i < len(kept) && kept[i] >= 0 {
			lim := old[kept[i]]
			lim.set(at, c)
			l.limits = append(l.limits, lim)
		} else {
			l.limits = append(l.limits, newLimit(c))
		}
	}
}

// Check reports what makes a limit impossible.
func (c Limit) Check() error {
	switch {
	case c.Calls < 1 || c.Calls > MaxCalls:
		return fmt.Errorf("limit %q: calls is %d, must be from 1 to %d", c.Name, c.Calls, MaxCalls)
	case c.Window < 0 || c.Window > MaxWindow:
		return fmt.Errorf("limit %q: window is %v, must be from 0 to %v", c.Name, c.Window, MaxWindow)
	case c.Late < 0 || c.Late > MaxWindow:
		return fmt.Errorf("limit %q: late is %v, must be from 0 to %v", c.Name, c.Late, MaxWindow)
	case c.Guard < 0 || c.Guard > MaxWindow:
		return fmt.Errorf("limit %q: guard is %v, must be from 0 to %v", c.Name, c.Guard, MaxWindow)
	case c.Burst < 0 || c.Burst > c.Calls:
		return fmt.Errorf("limit %q: burst is %d, must be between 0 and calls (%d)", c.Name, c.Burst, c.Calls)
	case c.Burst > 0 && (c.Window == 0 || c.Calendar != nil):
		return fmt.Errorf("limit %q: burst is %d, but spacing needs a sliding window", c.Name, c.Burst)
	case c.MaxKeys < 0:
		return fmt.Errorf("limit %q: max_keys is %d, must not be negative", c.Name, c.MaxKeys)
	}
	return nil
}

// Take takes the permits of all needs, or none and reports the shortage. A need
// whose cost is above its limit's calls can never be met: refuse it before.
func (l *Ledger) Take(now time.Time, needs []Need) (Shortage, bool) {
	at := l.instant(now)
	short, last := Shortage{Need: -1}, int64(-1)
	l.found = l.found[:0]
	for i, n := range needs {
		lim := l.limits[n.Limit]
		lim.sweep(at)
		a := lim.find(n.Key)
		if until := lim.next(at, a, n.Cost); until > at.mono && until > last {
			last = until
			short = Shortage{Need: i, Until: l.time(until)}
		}
		l.found = append(l.found, a)
	}
	if short.Need >= 0 {
		return short, false
	}
	for i, n := range needs {
		l.limits[n.Limit].take(at, l.found[i], n)
	}
	return Shortage{}, true
}

// Charge takes the permits of all needs whether they are free or not, for an
// attempt that is in flight already when a limit begins.
func (l *Ledger) Charge(now time.Time, needs []Need) {
	at := l.instant(now)
	for _, n := range needs {
		lim := l.limits[n.Limit]
		lim.take(at, lim.find(n.Key), n)
	}
}

// Return ends an attempt for needs whose permits Take gave: each comes back when
// its limit's rule says. Each need must be returned exactly once, all together or
// each with a fate of its own.
func (l *Ledger) Return(now time.Time, needs []Need, a Attempt) {
	at := l.instant(now)
	sent, end := l.before(at, a.Sent), l.before(at, a.End)
	for _, n := range needs {
		l.limits[n.Limit].give(at, n, sent, end, a.Fate)
	}
}

// Next returns the earliest instant at which the need can be met if nobody else
// takes a permit before: now or earlier if at once, zero if not before an attempt
// that is in flight ends.
func (l *Ledger) Next(now time.Time, n Need) time.Time {
	lim := l.limits[n.Limit]
	return l.time(lim.next(l.instant(now), lim.find(n.Key), n.Cost))
}

// PauseLimit shuts a limit for all of its keys until the instant; the zero
// instant opens it again. A later pause wins over an earlier one.
func (l *Ledger) PauseLimit(limit int, until time.Time) {
	lim := l.limits[limit]
	lim.paused = max(lim.shut, l.later(lim.paused, until))
}

// PauseKey shuts one key of a limit until the instant; the zero instant opens it
// again. It reports false, and does nothing, if the limit knows too many other keys.
func (l *Ledger) PauseKey(now time.Time, limit int, key string, until time.Time) bool {
	lim, at := l.limits[limit], l.instant(now)
	a := lim.accounts[key]
	switch {
	case a == nil && until.IsZero():
		return true
	case a == nil && lim.full(at) > at.mono:
		return false
	case a == nil:
		a = lim.open(at, key)
	}
	a.paused = l.later(a.paused, until)
	return true
}

// Calls returns the number of permits per key.
func (l *Ledger) Calls(limit int) int { return l.limits[limit].Calls }

// Usage is the state of one key of a limit.
type Usage struct {
	Key         string
	Free        int       // permits that could be taken now
	InFlight    int       // permits of attempts that have not ended
	Out         int       // all permits that are out, InFlight among them
	PausedUntil time.Time // zero if it is not paused
}

// Usage returns the state of one key.
func (l *Ledger) Usage(now time.Time, limit int, key string) Usage {
	lim := l.limits[limit]
	return l.usage(l.instant(now), lim, key, lim.accounts[key])
}

func (l *Ledger) usage(at instant, lim *limit, key string, a *account) Usage {
	u := Usage{Key: key, Free: lim.Calls}
	paused := lim.paused
	if a != nil {
		u.InFlight = int(a.inFlight)
		u.Out = u.InFlight + a.cooling.at(lim.clock(at))
		u.Free = max(0, lim.Calls-u.Out)
		paused = max(paused, a.paused)
	}
	if paused > at.mono {
		u.Free, u.PausedUntil = 0, l.time(paused)
	}
	return u
}

// Keys yields the state of every key of a limit of which the ledger knows, in no
// particular order: those with a permit out or a pause, and some that had one.
func (l *Ledger) Keys(now time.Time, limit int) iter.Seq[Usage] {
	return func(yield func(Usage) bool) {
		lim, at := l.limits[limit], l.instant(now)
		for key, a := range lim.accounts {
			if !yield(l.usage(at, lim, key, a)) {
				return
			}
		}
	}
}

// Known reports whether Keys yields a key.
func (l *Ledger) Known(limit int, key string) bool { return l.limits[limit].accounts[key] != nil }

// instant returns now, on a wall clock that never goes back.
func (l *Ledger) instant(now time.Time) instant {
	return l.clocks(int64(now.Sub(l.origin)), now.UnixNano())
}

func (l *Ledger) clocks(mono, wall int64) instant {
	l.wall = max(l.wall, wall)
	now := instant{mono, l.wall}
	step := wall - mono - l.offset
	l.offset += step
	if step != 0 {
		l.stepped(now, step)
	}
	return now
}

// stepped takes note that the wall clock went otherwise than the monotonic one.
func (l *Ledger) stepped(now instant, step int64) {
	told := l.OnStep == nil
	for _, lim := range l.limits {
		if lim.Calendar == nil || max(step, -step) <= int64(lim.Calendar.Skew) {
			continue
		}
		if step > 0 {
			lim.stepped(now)
		}
		if !told {
			l.OnStep(time.Duration(step))
			told = true
		}
	}
}

// before returns an instant of the past, as long before now on both clocks.
func (l *Ledger) before(now instant, t time.Time) instant {
	return now.add(int64(t.Sub(l.origin)) - now.mono)
}

func (l *Ledger) time(mono int64) time.Time {
	if mono == never {
		return time.Time{}
	}
	return l.origin.Add(time.Duration(mono))
}

func (l *Ledger) later(paused int64, until time.Time) int64 {
	if until.IsZero() {
		return 0
	}
	return max(paused, min(int64(until.Sub(l.origin)), never-1)) // 292 years are for ever
}

// spacing returns the token bucket of a limit, or nil.
func (c Limit) spacing() *rate.Limiter {
	if c.Burst == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(float64(c.Calls)/c.Window.Seconds()), c.Burst)
}
