package quota

import (
	"fmt"
	"iter"
	"maps"
	"time"
)

// A Ledger holds the permits of a set of limits. It is not safe for concurrent use.
type Ledger struct {
	// OnStep, if not nil, is called when the wall clock was put forward, or back (a
	// negative step), by more than the skew of an aligned limit. Which of the two clocks
	// is right is not known. So permits that are out, and those taken in the next
	// window, come back when their window is over on both.
	OnStep func(step time.Duration)

	limits []*limit
	found  []*account // by Take, one per need
	origin time.Time
	offset int64 // of the wall clock to the monotonic one, when last seen
	ahead  int64 // steps of the wall clock that a test has made
	// outlived is the instant by which attempts of an earlier process end: see Outlived.
	outlived int64
	set      []Limit // the limits from Begin on
}

// An instant is a point in time on both clocks, in nanoseconds: mono since the
// ledger's origin, wall since the Unix epoch.
type instant struct{ mono, wall int64 }

func (i instant) add(d int64) instant { return instant{i.mono + d, i.wall + d} }

// offset returns how far the wall clock is ahead of the monotonic one.
func (i instant) offset() int64 { return i.wall - i.mono }

// New returns a ledger of limits with all permits free. It panics if a limit is
// impossible (see [Limit.Check]); now fixes the origin of the ledger's clock.
func New(now time.Time, limits ...Limit) *Ledger {
	l := &Ledger{origin: now, offset: now.UnixNano()}
	l.Replace(now, limits, nil)
	return l
}

// Replace gives the ledger another set of limits at once: see [Ledger.Successor].
func (l *Ledger) Replace(now time.Time, limits []Limit, kept []int) {
	next := l.Successor(now, limits, kept)
	next.Begin(now)
	l.limits, l.set = next.limits, limits
}

// Successor returns a ledger of another set of limits, which takes the place of l at Begin.
// A new limit with kept[i] = j goes on with the permits and pauses of the limit j of l: only
// its Calls, Late, Guard, Burst, Partly and MaxKeys may differ. One with kept[i] < 0, or
// beyond the end of kept, begins with all permits free. Successor panics if a limit is
// impossible.
//
// Until Begin, l is in force. The successor tells by Next when needs could be met if it began
// now; afterwards l must not be used any more.
func (l *Ledger) Successor(now time.Time, limits []Limit, kept []int) *Ledger {
	at := l.instant(now)
	s := &Ledger{OnStep: l.OnStep, origin: l.origin, offset: l.offset, ahead: l.ahead, outlived: l.outlived, set: limits}
	for i, c := range limits {
		if err := c.Check(); err != nil {
			panic(fmt.Sprintf("quota: limit %q: %v", c.Name, err))
		}
		if i < len(kept) && kept[i] >= 0 {
			s.limits = append(s.limits, l.limits[kept[i]])
		} else {
			s.limits = append(s.limits, newLimit(at, c))
		}
	}
	return s
}

// Begin puts the limits of a successor in force.
func (l *Ledger) Begin(now time.Time) {
	at := l.instant(now)
	for i, lim := range l.limits {
		lim.set(at, l.set[i])
	}
}

// Take takes the permits of all needs, or none and reports the shortage. A need
// that costs more than its limit's calls can never be met: refuse it before. Take panics
// if two needs are of one limit: their permits are one need, or two calls.
func (l *Ledger) Take(now time.Time, needs []Need) (Shortage, bool) {
	at := l.instant(now)
	short, last := Shortage{Need: -1}, at.mono
	l.found = l.found[:0]
	l.mustDiffer(needs)
	for i, n := range needs {
		lim := l.limits[n.Limit]
		lim.sweep(at)
		a := lim.find(n.Key)
		if until := max(lim.next(at, a, n.Cost, lim.Calls), lim.paces.next(n.Key)); until > last {
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

// mustDiffer panics if two needs are of one limit.
func (l *Ledger) mustDiffer(needs []Need) {
	for i, n := range needs {
		for _, other := range needs[:i] {
			if other.Limit == n.Limit {
				panic(fmt.Sprintf("quota: limit %q is needed twice by one call, for keys %q and %q; add the costs of one key up, or send two calls", l.limits[n.Limit].Name, other.Key, n.Key))
			}
		}
	}
}

// Charge takes the permits of all needs whether they are free or not, for an
// attempt that is in flight already when a limit begins. It panics as Take does.
func (l *Ledger) Charge(now time.Time, needs []Need) {
	at := l.instant(now)
	l.mustDiffer(needs)
	for _, n := range needs {
		lim := l.limits[n.Limit]
		lim.take(at, lim.find(n.Key), n)
	}
}

// Return ends an attempt for needs that Take or Charge met: the permits come back
// as the windows of their limits say. Each need must be returned exactly once, all
// together or each with a fate of its own.
func (l *Ledger) Return(now time.Time, needs []Need, a Attempt) {
	at := l.instant(now)
	t := l.trip(at, a)
	for _, n := range needs {
		l.limits[n.Limit].give(at, n, t)
	}
}

// Next returns the earliest instant at which the need can be met if no other need
// is met before: now or earlier if at once, zero if not before an attempt that is
// in flight ends.
func (l *Ledger) Next(now time.Time, n Need) time.Time {
	lim := l.limits[n.Limit]
	return l.time(max(lim.next(l.instant(now), lim.find(n.Key), n.Cost, l.set[n.Limit].Calls), lim.paces.next(n.Key)))
}

// PauseLimit pauses a limit for all of its keys until the instant; the zero
// instant ends the pause. Of two pauses the later end counts.
func (l *Ledger) PauseLimit(limit int, until time.Time) {
	lim := l.limits[limit]
	lim.paused = max(lim.heldUntil, l.later(lim.paused, until))
}

// PauseKey pauses one key of a limit until the instant; the zero instant ends the
// pause. It reports false, and does nothing, if the limit knows too many other keys.
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
	lim.pausedKeys[key] = a
	return true
}

// Pace holds the calls of a key apart, besides what the limit says: none goes before next, and
// ahead tells estimates how long so many calls take from there on. It takes the place of an
// earlier pace of the key; a zero next ends it. The owner bounds how many keys have one.
func (l *Ledger) Pace(limit int, key string, next time.Time, ahead func(calls int) time.Duration) {
	lim := l.limits[limit]
	switch {
	case next.IsZero():
		delete(lim.paces, key)
		return
	case lim.paces == nil:
		lim.paces = make(paces)
	}
	lim.paces[key] = pace{int64(next.Sub(l.origin)), ahead}
}

// Live returns how many keys of a limit the ledger knows: see Keys.
func (l *Ledger) Live(limit int) int { return len(l.limits[limit].accounts) }

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

// Total returns the permits of all keys of a limit that are out, and those of attempts that have
// not ended, however many keys there are. The permits of a window that slides may count as out for
// a thousandth of it too long. Those that HoldAll keeps are not counted.
func (l *Ledger) Total(now time.Time, limit int) (out, inFlight int) {
	lim := l.limits[limit]
	return lim.total.inFlight + lim.total.cooling.at(lim.clock(l.instant(now))), lim.total.inFlight
}

// Cooling tells of the permits of a key that are out though their attempts have ended:
// how many had no answer, so that they stay out for Limit.Late longer, and when the next of
// all comes back; zero if there is none. Those that were restored count as answered.
func (l *Ledger) Cooling(now time.Time, limit int, key string) (late int, next time.Time) {
	at, lim := l.instant(now), l.limits[limit]
	a := lim.accounts[key]
	if a == nil {
		return 0, next
	}
	clock := lim.clock(at)
	late = a.cooling.late(clock)
	if back, some := a.cooling.nth(0); some {
		next = l.time(at.mono + back - clock)
	}
	return late, next
}

// Keys yields every key of a limit that the ledger knows, in no particular order: those with a
// permit out or a pause, and some that had one. The ledger may change between two of them: a key
// that comes or goes meanwhile may be left out.
func (l *Ledger) Keys(limit int) iter.Seq[string] { return maps.Keys(l.limits[limit].accounts) }

// PausedKeys yields the state of every key of a limit that is paused, itself and not only
// with the limit, in no particular order.
func (l *Ledger) PausedKeys(now time.Time, limit int) iter.Seq[Usage] {
	return func(yield func(Usage) bool) {
		lim, at := l.limits[limit], l.instant(now)
		for key, a := range lim.pausedKeys {
			if a.paused > at.mono && !yield(l.usage(at, lim, key, a)) {
				return
			}
		}
	}
}

// Audit returns the audit of a limit since it began.
func (l *Ledger) Audit(limit int) Audit { return l.limits[limit].audit }

// Full reports whether a key has no place among the MaxKeys of its limit: its calls wait
// until another key has no permit out.
func (l *Ledger) Full(now time.Time, limit int, key string) bool {
	lim, at := l.limits[limit], l.instant(now)
	return lim.accounts[key] == nil && lim.full(at) > at.mono
}

// Known reports whether Keys yields a key.
func (l *Ledger) Known(limit int, key string) bool { return l.limits[limit].accounts[key] != nil }

// instant returns now on both clocks.
func (l *Ledger) instant(now time.Time) instant {
	return l.clocks(int64(now.Sub(l.origin)), now.UnixNano()+l.ahead)
}

func (l *Ledger) clocks(mono, wall int64) instant {
	now := instant{mono, wall}
	if offset := now.offset(); offset != l.offset {
		l.offset = offset
		l.stepped(now)
	}
	return now
}

// stepped records that the wall clock went ahead of the monotonic one, or fell behind it,
// and reports a step once. Small steps add up until they are more than the skew.
func (l *Ledger) stepped(now instant) {
	step := int64(0)
	for _, lim := range l.limits {
		if by := now.offset() - lim.offset; !lim.Window.tolerates(by) {
			step = by
			lim.stepped(now)
		}
	}
	if step != 0 && l.OnStep != nil {
		l.OnStep(time.Duration(step))
	}
}

// A trip is an Attempt on the ledger's clocks.
type trip struct {
	sent, written, end instant
	fate               Fate
	unused             int
}

func (l *Ledger) trip(now instant, a Attempt) trip {
	t := trip{sent: l.before(now, a.Sent), end: l.before(now, a.End), fate: a.Fate, unused: a.Unused}
	if t.written = t.sent; !a.Written.IsZero() {
		t.written = l.before(now, a.Written)
	}
	return t
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
