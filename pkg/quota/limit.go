package quota

import (
	"math"
	"slices"
	"time"

	"golang.org/x/time/rate"
)

// never is the instant of a return that is unknown: an attempt in flight has to end first.
const never = math.MaxInt64

// A limit is a Limit with the accounts of its keys. A key with no permit out has no
// account, after a while, so an idle key costs nothing.
type limit struct {
	Limit
	wall       bool  // the window follows the wall clock
	offset     int64 // of the wall clock to the monotonic one, at the limit's begin or the last step
	doubts     []doubt
	accounts   map[string]*account
	pausedKeys map[string]*account // that have been paused themselves
	found      *account            // that find returned last, nil if it was forgotten
	visits     []visit             // visits[visited:]: to each account once a window, about
	visited    int
	pool       []*account // forgotten accounts
	fullUntil  int64      // monotonic: until then no place of a full table is given away
	fullSince  int64      // monotonic: since then no account of a full table was forgotten
	forgot     bool       // an account, since the table was last found full
	vacant     int64      // monotonic: an estimate of when a full table has room
	leaving    *account   // takes no permit until it is idle, so that its place comes free
	paused     int64      // monotonic: never before heldUntil
	heldUntil  int64      // monotonic: all permits are out until then
	paces      paces
	audit      Audit
	total      total
}

// An account is the permits of one key that are out.
type account struct {
	key      string
	cooling  cooling  // permits of ended attempts
	inFlight int32    // permits of attempts that have not ended
	idle     int64    // on the window's clock: from then on no permit is cooling, also without the guard
	paused   int64    // monotonic
	extra    *extra   // nil unless the limit has a guard or spacing
	room     [2]batch // for cooling, until it needs more
}

// A visit is due when an account may be idle: it is then forgotten, or visited again.
type visit struct {
	at int64 // on the window's clock
	*account
}

// extra is the part of an account that only a guard or spacing needs.
type extra struct {
	bucket *rate.Limiter // spacing, or nil
	full   cooling       // as if there were no guard
}

func newLimit(now instant, c Limit) *limit {
	lim := &limit{accounts: make(map[string]*account), pausedKeys: make(map[string]*account), offset: now.offset()}
	lim.set(now, c)
	return lim
}

func (lim *limit) set(now instant, c Limit) {
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	lim.fullUntil, lim.forgot, lim.leaving = 0, true, nil
	old := lim.Limit
	lim.Limit, lim.wall = c, c.Window.onWall()
	if c.Calls != old.Calls && lim.audit.Most <= old.Calls {
		lim.audit.Most = 0 // it was kept as it was; the audit of the new one begins
	}
	if c.Guard == old.Guard && c.Burst == old.Burst && (c.Burst == 0 || c.Calls == old.Calls) {
		return // the accounts are as they were, and there may be many
	}
	for _, a := range lim.accounts {
		a.extra = lim.newExtra(now, a.extra)
	}
}

// newExtra returns the extra of an account, nil if the limit needs none. A bucket
// goes on with the tokens that it has.
func (lim *limit) newExtra(now instant, old *extra) *extra {
	if lim.Burst == 0 && lim.Guard == 0 {
		return nil
	}
	s := &extra{bucket: lim.spacing()}
	if old != nil {
		s.full = old.full
		if s.bucket != nil && old.bucket != nil {
			at := time.Unix(0, now.mono)
			old.bucket.SetLimitAt(at, s.bucket.Limit())
			old.bucket.SetBurstAt(at, s.bucket.Burst())
			s.bucket = old.bucket
		}
	}
	return s
}

// find returns the account of a key, nil if it has none. Most are looked up several
// times in a row.
func (lim *limit) find(key string) *account {
	if lim.found != nil && lim.found.key == key {
		return lim.found
	}
	if a := lim.accounts[key]; a != nil {
		lim.found = a
		return a
	}
	return nil
}

// clock returns now on the window's clock.
func (lim *limit) clock(now instant) int64 {
	if lim.wall {
		return now.wall
	}
	return now.mono
}

// next returns the monotonic instant from which a need can be met, if the key has so many
// permits. The account is nil if the key has none.
func (lim *limit) next(now instant, a *account, cost, calls int) (until int64) {
	if a == nil {
		return max(lim.full(now), lim.paused)
	}
	until = max(lim.fits(now, a, cost, calls), lim.paused, a.paused)
	if a == lim.leaving {
		until = max(until, lim.idleAt(now, a))
	}
	return until
}

// fits returns the monotonic instant from which the account has room for the cost among so
// many permits.
func (lim *limit) fits(now instant, a *account, cost, calls int) int64 {
	left := calls - cost - int(a.inFlight)
	if left < 0 {
		return never
	}
	until := now.mono
	if int(a.cooling.total) > left { // as of when it was last looked at
		clock := lim.clock(now)
		until += a.cooling.atMost(clock, left) - clock
	}
	if a.extra != nil && a.extra.bucket != nil {
		until = max(until, now.mono+a.extra.refill(now, cost))
	}
	return until
}

// refill returns how long the bucket needs until it holds n tokens, in nanoseconds.
// It never holds more than its burst: a greater cost goes when it is full.
func (s *extra) refill(now instant, n int) int64 {
	lacking := float64(min(n, s.bucket.Burst())) - s.bucket.TokensAt(time.Unix(0, now.mono))
	if lacking <= 0 {
		return 0
	}
	// Rounded up, and one more: the bucket computes in floating point.
	return int64(math.Ceil(lacking/float64(s.bucket.Limit())*1e9)) + 1
}

// refund returns the tokens that a call took and did not use, which are at most those it took. A
// bucket never holds more than its burst.
func (s *extra) refund(now instant, taken, used int) {
	if s == nil || s.bucket == nil {
		return
	}
	burst := s.bucket.Burst()
	s.bucket.AllowN(time.Unix(0, now.mono), min(used, burst)-min(taken, burst)) // none or fewer: they are put back
}

// take takes the permits of an account, a new one if it is nil.
func (lim *limit) take(now instant, a *account, n Need) {
	if a == nil {
		a = lim.open(now, n.Key)
	}
	if a == lim.leaving { // it was idle; or another key has its place, and the account with it
		lim.leaving = nil
	}
	a.inFlight += int32(n.Cost)
	lim.total.inFlight += n.Cost
	out := int(a.inFlight) + a.cooling.at(lim.clock(now))
	if a.extra != nil {
		if a.extra.bucket != nil {
			a.extra.bucket.AllowN(time.Unix(0, now.mono), min(n.Cost, a.extra.bucket.Burst()))
		}
		out = max(out, int(a.inFlight)+a.extra.full.at(lim.clock(now)))
	}
	lim.audit.Most = max(lim.audit.Most, out)
}

// give ends an attempt of an account: its permits begin to cool, or are back.
func (lim *limit) give(now instant, n Need, t trip) {
	a := lim.find(n.Key)
	a.inFlight -= int32(n.Cost)
	lim.total.inFlight -= n.Cost
	if t.fate == Uncounted {
		return
	}
	clock, used, late := lim.clock(now), int32(n.Cost), int32(0)
	switch t.fate {
	case Answered:
		used -= int32(max(0, min(t.unused, n.Cost)))
		a.extra.refund(now, n.Cost, int(used))
		lim.audit.add(int(used), time.Duration(t.end.mono-t.sent.mono))
		if used == 0 {
			return
		}
	case Unanswered:
		late = int32(n.Cost)
		lim.audit.Unanswered += int64(n.Cost)
	}
	arrived, latest := lim.arrived(t)
	back, full := lim.back(arrived), lim.back(latest)
	if lim.Guard > 0 && full > clock {
		a.extra.full.add(batch{full, used, late})
	}
	if back > clock {
		a.cooling.add(batch{back, used, late})
		lim.total.add(clock, lim.Window, back, used)
	}
	a.idle = max(a.idle, full)
}

// arrived returns by when an attempt arrived: with the guard, and as if there were none.
func (lim *limit) arrived(t trip) (guarded, latest instant) {
	if t.fate == Unanswered {
		latest = t.end.add(int64(lim.Late))
		return latest, latest
	}
	if g := int64(lim.Guard); g > 0 && t.end.mono > t.written.mono+g {
		return t.written.add(g), t.end
	}
	return t.end, t.end
}

// back returns when the permit of an attempt comes back that arrived by the instant.
func (lim *limit) back(arrived instant) int64 {
	back := lim.Window.back(arrived)
	for _, d := range lim.doubts {
		if arrived.mono < d.until {
			old := instant{arrived.mono, arrived.mono + d.offset}
			back = max(back, lim.Window.back(old)+arrived.offset()-d.offset)
		}
	}
	return back
}

// open returns a new account.
func (lim *limit) open(now instant, key string) *account {
	var a *account
	if last := len(lim.pool) - 1; last >= 0 {
		a, lim.pool = lim.pool[last], lim.pool[:last]
	} else {
		a = new(account)
	}
	a.key, a.cooling.ring = key, a.room[:0]
	a.extra = lim.newExtra(now, nil)
	lim.accounts[key] = a
	lim.visit(a, lim.Window.back(now))
	return a
}

func (lim *limit) visit(a *account, at int64) {
	if lim.visited > len(lim.visits)/2 && len(lim.visits) == cap(lim.visits) {
		lim.visits = lim.visits[:copy(lim.visits, lim.visits[lim.visited:])]
		lim.visited = 0
	}
	lim.visits = append(lim.visits, visit{at, a})
}

// sweep makes visits that are due. It makes more of them than a Take can open
// accounts, so the table does not grow.
func (lim *limit) sweep(now instant) {
	for range 2 {
		if lim.visited == len(lim.visits) || lim.visits[lim.visited].at > lim.clock(now) {
			return
		}
		a := lim.visits[lim.visited].account
		lim.visited++
		if lim.idleAt(now, a) <= now.mono {
			lim.forget(a)
		} else {
			lim.visit(a, max(a.idle, lim.Window.back(now)))
		}
	}
}

// full returns the monotonic instant until which there is no room for a new key: now
// if there is. Places that come free before that instant are given away then, so that the
// first call of all that wait for one gets it, not the next that comes.
//
// An account that always has a permit out never gives its place away. If no place came
// free for a window, the one that would be idle first takes no permit until it is.
func (lim *limit) full(now instant) int64 {
	switch {
	case now.mono < lim.fullUntil:
		return lim.fullUntil
	case len(lim.accounts) < lim.MaxKeys:
		return now.mono
	}
	var first *account
	soonest := int64(never)
	due := lim.visits[lim.visited:]
	lim.visits, lim.visited = due[:0], 0
	for _, v := range due {
		at := lim.idleAt(now, v.account)
		if at <= now.mono {
			lim.forget(v.account)
			continue
		}
		if first == nil || at < soonest {
			first, soonest = v.account, at
		}
		lim.visits = append(lim.visits, v)
	}
	if len(lim.accounts) < lim.MaxKeys {
		return now.mono
	}
	if lim.forgot {
		lim.forgot, lim.fullSince = false, now.mono
	}
	if lim.leaving == nil && now.mono-lim.fullSince >= int64(lim.Window.Length()) {
		lim.leaving = first
	}
	lim.fullUntil = min(soonest, now.mono+int64(time.Second)) // a permit may come back sooner than estimated
	if lim.vacant = soonest; soonest == never {
		lim.vacant = lim.fullUntil
	}
	return lim.fullUntil
}

// forget drops an account with no permit out.
func (lim *limit) forget(a *account) {
	lim.forgot = true
	delete(lim.accounts, a.key)
	delete(lim.pausedKeys, a.key)
	if lim.found == a {
		lim.found = nil
	}
	*a = account{}
	lim.pool = append(lim.pool, a)
}

// idleAt returns the monotonic instant from which the account has no permit out.
func (lim *limit) idleAt(now instant, a *account) int64 {
	if a.inFlight > 0 {
		return never
	}
	at := max(a.paused, now.mono+a.idle-lim.clock(now))
	if a.extra != nil && a.extra.bucket != nil {
		at = max(at, now.mono+a.extra.refill(now, a.extra.bucket.Burst()))
	}
	return at
}

// stepped records that the wall clock was put forward, or back. The receiver's clock may
// be near the one before the step or the one after it: a permit that is out comes back
// when its window is over on both. One that was back by the clock before stays so.
func (lim *limit) stepped(now instant) {
	step, floor := now.offset()-lim.offset, lim.Window.back(now.add(int64(lim.Late)))
	over := now.mono + lim.offset // by the clock before
	for _, a := range lim.accounts {
		a.cooling.shift(over, step, floor)
		if a.extra != nil {
			a.extra.full.shift(over, step, floor)
		}
		if a.idle > over {
			a.idle = max(a.idle+step, floor)
		} else {
			a.idle = 0
		}
	}
	for i := range lim.visits {
		lim.visits[i].at += step
	}
	lim.total.cooling.shift(over, step, floor)
	if lim.heldUntil > now.mono {
		lim.heldUntil = max(lim.heldUntil, now.mono+floor-now.wall)
		lim.paused = max(lim.paused, lim.heldUntil)
	}
	lim.doubts = slices.DeleteFunc(lim.doubts, func(d doubt) bool { return d.until <= now.mono })
	if len(lim.doubts) == maxDoubts {
		lim.doubts = slices.Delete(lim.doubts, 0, 1)
	}
	lim.doubts = append(lim.doubts, doubt{lim.offset, now.mono + floor - now.wall + int64(lim.Window.Length())})
	lim.offset = now.offset()
}
