package quota

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// never is the instant of what cannot be foreseen: an attempt in flight has to end first.
const never = math.MaxInt64

// A sliding window of coarse or longer is counted in grains: permits come back
// at most 1/1440 of the window later, and a key needs no more room than that.
const (
	coarse = int64(time.Hour)
	grains = 1440
)

// A limit is a Limit with the accounts of its keys. A key of which nothing is out
// has no account, after a while, so an idle key costs nothing.
//
// Its clock is the wall's if it is aligned to the calendar, else the monotonic one.
type limit struct {
	Limit
	accounts map[string]*account
	found    *account // that find returned last, nil if it was forgotten
	visits   []visit  // visits[visited:]: to each account once a window, about
	visited  int
	pool     []*account // forgotten accounts
	fullTill int64      // monotonic: until then a full table need not be searched again
	vacant   int64      // monotonic: when it can be expected to have room
	paused   int64      // monotonic
	shut     int64      // monotonic: no permit is taken before, whatever paused says
	audit    Audit
}

// An account is what is out under one key.
type account struct {
	key      string
	cooling  cooling  // permits of ended attempts
	inFlight int32    // permits of attempts that have not ended
	idle     int64    // on the limit's clock: from when on nothing is cooling
	paused   int64    // monotonic
	soft     *soft    // what few limits have
	room     [2]batch // for cooling, until it needs more
}

// A visit is due when an account may be idle: it is then forgotten, or visited again.
type visit struct {
	at int64 // on the limit's clock
	*account
}

// soft is what an account has under a limit with a guard or with spacing.
type soft struct {
	bucket *rate.Limiter // spacing, or nil
	full   cooling       // as if there were no guard
}

func newLimit(c Limit) *limit {
	lim := &limit{accounts: make(map[string]*account)}
	lim.set(instant{}, c)
	return lim
}

func (lim *limit) set(now instant, c Limit) {
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	lim.Limit = c
	for _, a := range lim.accounts {
		a.soft = lim.softly(now, a.soft)
	}
}

// softly returns what an account needs for a guard or spacing, if there is any. A
// bucket goes on with the tokens that it has.
func (lim *limit) softly(now instant, old *soft) *soft {
	if lim.Burst == 0 && lim.Guard == 0 {
		return nil
	}
	s := &soft{bucket: lim.spacing()}
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

// find returns the account of a key, nil if it has none. Most are looked for
// several times in a row.
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

// clock returns now on the limit's clock.
func (lim *limit) clock(now instant) int64 {
	if lim.Calendar != nil {
		return now.wall
	}
	return now.mono
}

// back returns when the permit of an attempt that arrived by the instant comes
// back, on the limit's clock. This is all that kinds of limits differ in.
func (lim *limit) back(arrived instant) int64 {
	if lim.Calendar != nil {
		return lim.Calendar.over(arrived.wall)
	}
	at := arrived.mono + int64(lim.Window)
	if w := int64(lim.Window); w >= coarse {
		grain := w / grains
		at = (at + grain - 1) / grain * grain
	}
	return at
}

// next returns the monotonic instant from which the need can be met. The account is
// nil if the key has none.
func (lim *limit) next(now instant, a *account, cost int) (until int64) {
	if a == nil {
		return max(lim.full(now), lim.paused)
	}
	return max(lim.fits(now, a, cost), lim.paused, a.paused)
}

// fits returns the monotonic instant from which the account has room for the cost.
func (lim *limit) fits(now instant, a *account, cost int) int64 {
	left := lim.Calls - cost - int(a.inFlight)
	if left < 0 {
		return never
	}
	if int(a.cooling.total) > left { // as of when it was last looked at
		clock := lim.clock(now)
		if a.cooling.at(clock) > left {
			return now.mono + a.cooling.few(clock, left) - clock
		}
	}
	if a.soft != nil && a.soft.bucket != nil {
		return now.mono + a.soft.refill(now, cost)
	}
	return now.mono
}

// refill returns how long the bucket needs until it holds n tokens, in nanoseconds.
// It never holds more than its burst: a greater cost goes when it is full.
func (s *soft) refill(now instant, n int) int64 {
	lacking := float64(min(n, s.bucket.Burst())) - s.bucket.TokensAt(time.Unix(0, now.mono))
	if lacking <= 0 {
		return 0
	}
	// Rounded up, and one more: the bucket computes in floating point.
	return int64(math.Ceil(lacking/float64(s.bucket.Limit())*1e9)) + 1
}

// take takes the permits of an account, a new one if it is nil.
func (lim *limit) take(now instant, a *account, n Need) {
	if a == nil {
		a = lim.open(now, n.Key)
	}
	a.inFlight += int32(n.Cost)
	out := int(a.inFlight) + int(a.cooling.total)
	if a.soft != nil {
		if a.soft.bucket != nil {
			a.soft.bucket.AllowN(time.Unix(0, now.mono), min(n.Cost, a.soft.bucket.Burst()))
		}
		out = max(out, int(a.inFlight)+a.soft.full.at(lim.clock(now)))
	}
	lim.audit.Most = max(lim.audit.Most, out)
}

// give ends an attempt of an account: its permits begin to cool, or are back.
func (lim *limit) give(now instant, n Need, sent, end instant, fate Fate) {
	a := lim.find(n.Key)
	a.inFlight -= int32(n.Cost)
	switch fate {
	case Uncounted:
		return
	case Unanswered:
		end = end.add(int64(lim.Late))
	case Answered:
		lim.audit.add(n.Cost, time.Duration(end.mono-sent.mono))
	}
	clock := lim.clock(now)
	a.cooling.at(clock)
	full := lim.back(end)
	if g := int64(lim.Guard); g > 0 && fate == Answered && end.mono > sent.mono+g {
		end = sent.add(g)
	}
	if a.soft != nil && lim.Guard > 0 && full > clock {
		a.soft.full.add(full, n.Cost)
	}
	if at := lim.back(end); at > clock {
		a.cooling.add(at, n.Cost)
		a.idle = max(a.idle, at, full)
	}
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
	a.soft = lim.softly(now, nil)
	lim.accounts[key] = a
	lim.visit(a, lim.back(now))
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
			lim.visit(a, max(a.idle, lim.back(now)))
		}
	}
}

// full returns the monotonic instant until which there is no room for a new key: now
// if there is.
func (lim *limit) full(now instant) int64 {
	if len(lim.accounts) < lim.MaxKeys {
		return now.mono
	}
	if now.mono < lim.fullTill {
		return lim.fullTill
	}
	soonest := int64(never)
	due := lim.visits[lim.visited:]
	lim.visits, lim.visited = due[:0], 0
	for _, v := range due {
		at := lim.idleAt(now, v.account)
		if at <= now.mono {
			lim.forget(v.account)
			continue
		}
		soonest = min(soonest, at)
		lim.visits = append(lim.visits, v)
	}
	if len(lim.accounts) < lim.MaxKeys {
		return now.mono
	}
	lim.fullTill = min(soonest, now.mono+int64(time.Second)) // a permit may come back sooner than expected
	if lim.vacant = soonest; soonest == never {
		lim.vacant = lim.fullTill
	}
	return lim.fullTill
}

// forget drops an account of which nothing is out.
func (lim *limit) forget(a *account) {
	delete(lim.accounts, a.key)
	if lim.found == a {
		lim.found = nil
	}
	*a = account{}
	lim.pool = append(lim.pool, a)
}

// idleAt returns the monotonic instant from which nothing of the account is out.
func (lim *limit) idleAt(now instant, a *account) int64 {
	if a.inFlight > 0 {
		return never
	}
	at := max(a.paused, now.mono+a.idle-lim.clock(now))
	if a.soft != nil && a.soft.bucket != nil {
		at = max(at, now.mono+a.soft.refill(now, a.soft.bucket.Burst()))
	}
	return at
}

// stepped takes note that the wall clock was put forward: nobody knows in which
// of the windows the receiver has counted what is out, so it counts in both.
func (lim *limit) stepped(now instant) {
	at := lim.Calendar.over(now.wall)
	for _, a := range lim.accounts {
		if a.cooling.total > 0 {
			a.cooling.postpone(at)
			a.idle = max(a.idle, at)
		}
	}
}
