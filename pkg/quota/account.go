package quota

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// never is the instant of what cannot be foreseen: an attempt in flight has to end first.
const never = math.MaxInt64

// A limit is a Limit with the accounts of its keys. A key with nothing out has
// no account, so an idle key costs nothing.
type limit struct {
	Limit
	accounts map[string]*account
	paused   int64

	// Accounts without an attempt in flight, in the order in which their last
	// one ended: those at the front are forgotten once nothing of them is out.
	idle account // sentinel of a ring
	pool []*account
}

// An account is what is out under one key.
type account struct {
	key      string
	inFlight int   // permits of attempts that have not ended
	paused   int64 // shut until then
	window   window
	bucket   *rate.Limiter // spacing, or nil

	prev, next *account // in limit.idle; nil while an attempt is in flight
}

// A window holds the permits of ended attempts until they come back.
type window interface {
	// used returns how many are still out.
	used(now instant) int
	// charge adds those of an attempt that may have arrived from sent to end.
	charge(now, sent, end instant, cost int)
	// fits returns the instant from which at most n are out, if none is added.
	fits(now instant, n int) int64
	// expect returns when, from the instant from on, the last-th permit counted
	// from 0 can be had: of calls, inFlight are out beside those of the window,
	// and an attempt takes trip.
	expect(now, from instant, calls, inFlight, last int, trip int64) int64
}

func newLimit(c Limit) *limit {
	if c.MaxKeys == 0 {
		c.MaxKeys = DefaultMaxKeys
	}
	lim := &limit{Limit: c, accounts: make(map[string]*account)}
	lim.idle.prev, lim.idle.next = &lim.idle, &lim.idle
	return lim
}

// next returns the earliest instant at which the need can be met, and whether a
// pause is what it waits for.
func (lim *limit) next(now instant, n Need) (until int64, paused bool) {
	until, pause := now.mono, lim.paused
	if a := lim.accounts[n.Key]; a != nil {
		pause = max(pause, a.paused)
		until = a.fits(now, lim.Calls-n.Cost)
		if a.bucket != nil && until <= now.mono {
			until = now.mono + a.refill(now, n.Cost)
		}
	} else if len(lim.accounts) >= lim.MaxKeys {
		// The table is full: wait for the key that will be idle first.
		until = max(now.mono+1, lim.idleAt(lim.idle.next, now))
	}
	if pause > now.mono && pause >= until {
		return pause, true
	}
	return until, false
}

// fits returns the instant from which at most n permits are out.
func (a *account) fits(now instant, n int) int64 {
	if n < a.inFlight {
		return never
	}
	return a.window.fits(now, n-a.inFlight)
}

// refill returns how long the bucket needs until it holds n tokens, in nanoseconds.
func (a *account) refill(now instant, n int) int64 {
	lacking := float64(n) - a.bucket.TokensAt(time.Unix(0, now.mono))
	if lacking <= 0 {
		return 0
	}
	// Rounded up, and one more: the bucket computes in floating point.
	return int64(math.Ceil(lacking/float64(a.bucket.Limit())*1e9)) + 1
}

func (lim *limit) take(now instant, n Need) {
	a := lim.open(n.Key)
	lim.busy(a)
	a.inFlight += n.Cost
	if a.bucket != nil {
		a.bucket.AllowN(time.Unix(0, now.mono), min(n.Cost, a.bucket.Burst()))
	}
}

func (lim *limit) back(now instant, n Need, sent, end instant, fate Fate) {
	a := lim.accounts[n.Key]
	a.inFlight -= n.Cost
	late := int64(lim.Late)
	switch fate {
	case Answered:
		if g := int64(lim.Guard); g > 0 && end.mono > sent.mono+g {
			end = instant{sent.mono + g, sent.wall + g}
		}
		a.window.charge(now, sent, end, n.Cost)
	case Unanswered:
		a.window.charge(now, sent, instant{end.mono + late, end.wall + late}, n.Cost)
	}
	lim.rest(a)
}

// open returns the account of a key, a new one if there is none.
func (lim *limit) open(key string) *account {
	if a := lim.accounts[key]; a != nil {
		return a
	}
	var a *account
	if last := len(lim.pool) - 1; last >= 0 {
		a, lim.pool = lim.pool[last], lim.pool[:last]
	} else {
		a = &account{bucket: lim.spacing(), window: lim.newWindow()}
	}
	a.key = key
	lim.accounts[key] = a
	return a
}

func (c Limit) newWindow() window {
	if c.Calendar != nil {
		return &aligned{calendar: *c.Calendar}
	}
	return &sliding{length: int64(c.Window)}
}

// busy takes an account off the idle ring.
func (lim *limit) busy(a *account) {
	if a.next != nil {
		a.prev.next, a.next.prev = a.next, a.prev
		a.prev, a.next = nil, nil
	}
}

// rest puts an account without an attempt in flight at the end of the idle ring.
func (lim *limit) rest(a *account) {
	if a.inFlight == 0 {
		a.prev, a.next = lim.idle.prev, &lim.idle
		a.prev.next, lim.idle.prev = a, a
	}
}

// forget drops a few accounts of which nothing is out any more. Each call of
// Take forgets more than it can create, so the table does not grow.
func (lim *limit) forget(now instant) {
	for range 2 {
		a := lim.idle.next
		if a == &lim.idle || lim.idleAt(a, now) > now.mono {
			return
		}
		lim.busy(a)
		delete(lim.accounts, a.key)
		a.key = ""
		lim.pool = append(lim.pool, a)
	}
}

// idleAt returns when nothing of an idle account is out any more.
func (lim *limit) idleAt(a *account, now instant) int64 {
	if a == &lim.idle { // every key has an attempt in flight
		return now.mono + int64(time.Millisecond)
	}
	at := max(a.paused, a.window.fits(now, 0))
	if a.bucket != nil {
		at = max(at, now.mono+a.refill(now, a.bucket.Burst()))
	}
	return at
}
