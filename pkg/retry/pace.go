package retry

import (
	"iter"
	"maps"
	"math"
	"time"
)

// The constants of a [Pacer]. Rates are calls per second.
const (
	// maxPaces bounds the keys that a Pacer remembers.
	maxPaces = 10_000
	// Calls start after a pause at paceStart calls per second, somewhat less where the full rate is
	// not far above. However high that is, as that of a limit for an hour or a day is, a second of calls
	// that pass may lead there.
	paceStart = 5.0
	// A ceiling below the start, down to paceLowest of it, needs paceProof answers. Below that
	// longer pauses see to the rest.
	paceLowest, paceProof = 0.1, 10
	// paceRise is the growth with each call that passes, until the rate is near the one that was limited.
	paceRise = 1.25
	// paceCut is the part of the rate that passed to which a refusal cuts.
	paceCut = 0.8
	// paceLeast is the least part of a rate that one refusal leaves.
	paceLeast = 0.25
	// paceStep is the growth within the first second of traffic beyond the rate that was limited;
	// it doubles with each second of traffic that none is limited, up to paceMost.
	paceStep, paceMost = 0.05, 0.5
)

// A Pacer slows calls down that an upstream limits although they keep its configured limits: by
// key, which may be a key of a limit or the whole upstream. The zero value is ready to use; it
// belongs to one goroutine. While no call was limited it remembers nothing.
//
// Each refusal pauses its key. The pause is as long as the answer asks for or, without such a wait,
// as the curve says for a level: up by one if half of the answers since the last pause were
// refusals, down by one if less than a quarter were. Calls that were in flight together count once,
// so neither a burst of refusals nor the one call of it that passed moves the level twice. A
// wait is obeyed as it is, unless the first calls after it are refused again: then the longer of
// the two counts.
//
// After the pause calls start slowly, or near the rate that passed if few were limited. Each call
// that passes raises the rate by a quarter, but no faster than to the double in a round trip, up to
// the ceiling: four fifths of the rate that passed when one was limited last. Beyond that it
// probes: 5% more within a second of traffic, 10% within the next, and so on. It ends when none has been
// limited for a minute after the last pause, and the rate is the full one, or no call has been sent.
//
//	rate                          pause            pause
//	full  ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
//	                           ╱│   │       ___──╱│   │      ___──╱
//	ceiling                  ╱  │   │  ___──      │   │ ___──
//	                     _─╱    │   │─            │   │─
//	start     ______──          │   │             │   │
//
// The rate matters, not the number in flight: with answers within a millisecond one call at
// a time is a thousand per second. Slow start and the ceiling are TCP's (RFC 5681); the cut by
// the measured rate is that of the adaptive retry mode of AWS SDKs (botocore,
// retries/adaptive.py), and the growth that accelerates is CUBIC's (RFC 9438), in proportion to
// the rate.
type Pacer[K comparable] struct {
	// Forgotten, if not nil, is called for each key that is forgotten to make room for others.
	Forgotten func(key K)

	byKey   map[K]*pace
	sweepAt int
}

// A pace is the state of one key.
type pace struct {
	Slowed
	told    float64       // the ceiling at which its owner was told of a change last
	waited  time.Duration // the pause then
	began   float64       // the rate at which the refusal came that ended the last epoch; 0 for the first one
	ceiling float64
	probed  float64       // seconds of traffic above the ceiling since the last refusal
	level   int           // of the curve
	wait    time.Duration // the last pause
	until   time.Time     // its end
	cut     time.Time     // its begin: attempts that were sent before belong to the epoch before
	sent    time.Time     // of the last call
	lasts   time.Time     // until then, and for a while after it, the slow-down lasts
	passed  int           // answers of this epoch or, during the pause, of the one before
	limited int
	fresh   bool // no answer of this epoch has come
}

// Slowed tells how a key is slowed down.
type Slowed struct {
	Since time.Time
	Rate  float64 // calls per second; the full one at most
	Full  float64 // at which the configured limits let calls go
	// Passed and Limited count the answers since the slow-down began.
	Passed, Limited int
}

// A Refusal is an answer that limited an attempt.
type Refusal struct {
	SentAt time.Time     // of the attempt
	Wait   time.Duration // that the answer asks for; zero if it does not
	Others time.Duration // how long some of the calls are held elsewhere, which are to start slowly too
	Full   float64       // calls per second that the configured limits allow
	Curve  Curve         // of pauses without such a wait
	Random float64       // from [0, 1)
}

// Empty reports whether no key is slowed down.
func (p *Pacer[K]) Empty() bool { return len(p.byKey) == 0 }

// A Change says whether a refusal has changed how a key is slowed down.
type Change uint8

const (
	Unchanged Change = iota // or by little
	Changed                 // by half or to the double, in its rate or its pause
	Begun                   // it was not slowed down before
)

// UnknownFull is the full rate, calls per second, where no limit tells it.
const UnknownFull = 1000

// Limited notes a refusal, and returns until when the key pauses.
func (p *Pacer[K]) Limited(now time.Time, key K, r Refusal) (until time.Time, change Change) {
	k := p.byKey[key]
	begun := k == nil || k.over(now)
	if begun {
		k = p.add(now, key, r.Full)
	}
	k.Full = r.Full
	k.Limited++
	if event := k.count(r.SentAt, false); event {
		k.began = k.Rate
		switch share := k.share(); {
		case begun:
			k.level, k.began = 1, 0
		case share >= 0.5:
			k.level++
		case share < 0.25:
			k.level = max(1, k.level-1)
		}
		k.wait = r.Wait
		if r.Wait == 0 || k.level > 1 {
			k.wait = max(r.Wait, r.Curve.Delay(k.level, k.wait, r.Random))
		}
		k.cut, k.fresh, k.probed = now, true, 0
	}
	k.slow()
	if at := now.Add(max(r.Wait, k.wait)); at.After(k.until) {
		k.until = at
	}
	for _, at := range []time.Time{k.until, now.Add(r.Others)} {
		if at.After(k.lasts) {
			k.lasts = at
		}
	}
	return k.until, k.change(begun)
}

// change tells how much has changed since the owner was told last.
func (k *pace) change(begun bool) Change {
	change := Unchanged
	switch {
	case begun:
		change = Begun
	case k.ceiling < k.told/2, k.ceiling > 2*k.told, k.wait > 2*k.waited:
		change = Changed
	}
	if change != Unchanged {
		k.told, k.waited = k.ceiling, k.wait
	}
	return change
}

// Passed notes that a call passed a key. If the slow-down is over, it tells what it was.
func (p *Pacer[K]) Passed(now time.Time, key K, sentAt time.Time) (was Slowed, over bool) {
	k := p.byKey[key]
	if k == nil {
		return Slowed{}, false
	}
	k.Passed++
	k.count(sentAt, true)
	if sentAt.Before(k.cut) {
		k.slow()
	} else {
		k.rise(now.Sub(sentAt))
	}
	if over = k.over(now); over {
		delete(p.byKey, key)
	}
	return k.Slowed, over
}

// Sent notes that a call is sent, and returns the earliest instant of the next one of the key; zero
// if it is not slowed down.
func (p *Pacer[K]) Sent(now time.Time, key K) (next time.Time) {
	k := p.byKey[key]
	if k == nil || k.over(now) {
		return next
	}
	k.sent = now
	return now.Add(interval(k.Rate))
}

// Ahead returns how long so many calls of a key take, if all pass; zero if it is not slowed down.
func (p *Pacer[K]) Ahead(key K, calls int) (wait time.Duration) {
	k := p.byKey[key]
	if k == nil {
		return 0
	}
	rate := k.Rate
	for ; calls > 0 && rate < k.ceiling; calls-- {
		wait += interval(rate)
		rate = min(k.ceiling, paceRise*rate)
	}
	return wait + time.Duration(float64(calls)/rate*float64(time.Second))
}

// Slowed tells how a key is slowed down; false if it is not.
func (p *Pacer[K]) Slowed(now time.Time, key K) (Slowed, bool) {
	if k := p.byKey[key]; k != nil && !k.over(now) {
		return k.Slowed, true
	}
	return Slowed{}, false
}

// Waits reports whether the first pause of a key still lasts, before which no call has gone slower.
func (p *Pacer[K]) Waits(now time.Time, key K) bool {
	k := p.byKey[key]
	return k != nil && k.began == 0 && now.Before(k.until)
}

// Sweep forgets the keys that are slowed down no longer, and tells what each was. It returns the
// earliest instant at which another one may be so; zero if none is left.
func (p *Pacer[K]) Sweep(now time.Time, over func(key K, was Slowed)) (next time.Time) {
	for key, k := range p.byKey {
		switch at := k.end(); {
		case k.over(now):
			delete(p.byKey, key)
			over(key, k.Slowed)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}

// Keys yields the keys that are remembered, in no particular order.
func (p *Pacer[K]) Keys() iter.Seq[K] { return maps.Keys(p.byKey) }

// Forget lets the calls of a key go at full speed.
func (p *Pacer[K]) Forget(key K) { delete(p.byKey, key) }

// Rename gives the keys other names, and forgets those of which it is told so.
func (p *Pacer[K]) Rename(to func(K) (name K, keep bool)) {
	was := p.byKey
	p.byKey = nil
	for key, k := range was {
		if name, keep := to(key); keep {
			if p.byKey == nil {
				p.byKey = make(map[K]*pace)
			}
			p.byKey[name] = k
		}
	}
}

func interval(rate float64) time.Duration { return time.Duration(float64(time.Second) / rate) }

// add returns the pace of a key that begins.
func (p *Pacer[K]) add(now time.Time, key K, full float64) *pace {
	if p.byKey == nil || len(p.byKey) >= p.sweepAt {
		p.forget(func(k *pace) bool { return k.over(now) })
		if len(p.byKey) >= maxPaces { // one that is forgotten begins again
			p.forget(func(*pace) bool { return true })
		}
		if p.byKey == nil {
			p.byKey = make(map[K]*pace)
		}
		p.sweepAt = min(maxPaces, max(64, 2*len(p.byKey)))
	}
	k := &pace{Slowed: Slowed{Since: now, Full: full}}
	p.byKey[key] = k
	return k
}

// forget forgets some keys.
func (p *Pacer[K]) forget(which func(*pace) bool) {
	for key, k := range p.byKey {
		if !which(k) {
			continue
		}
		delete(p.byKey, key)
		if p.Forgotten != nil {
			p.Forgotten(key)
		}
	}
}

// count counts an answer, and reports whether it is a refusal that begins a pause: that of an attempt
// that was sent since the last one.
func (k *pace) count(sentAt time.Time, passed bool) (event bool) {
	ours := !sentAt.Before(k.cut)
	if ours && k.fresh {
		k.fresh, k.passed, k.limited = false, 0, 0
	}
	if passed {
		k.passed++
		return false
	}
	k.limited++
	return ours
}

// share returns the part of the answers that were refusals.
func (k *pace) share() float64 { return float64(k.limited) / float64(k.passed+k.limited) }

// slow cuts the rate, by the share of the answers that have come since the last pause: more may come
// during the pause.
func (k *pace) slow() {
	if !k.fresh {
		return
	}
	start := k.Full * paceStart / (k.Full + paceStart)
	if k.began == 0 { // the way to the full rate is not known to be limited
		k.ceiling, k.Rate = k.Full, start
		return
	}
	if k.passed > 0 { // else the pause was too short, which says nothing of the rate
		lowest := start
		if k.passed+k.limited >= paceProof {
			lowest *= paceLowest
		}
		k.ceiling = max(lowest, paceCut*k.began*max(paceLeast, 1-k.share()))
	}
	k.Rate = k.ceiling
	if k.share() >= 0.5 {
		k.Rate = min(start, k.ceiling)
	}
}

// rise lets the rate grow with a call that passed, whose answer took a time.
func (k *pace) rise(trip time.Duration) {
	most := 1 / max(trip.Seconds(), 1e-6) // as TCP's window: one more with each answer is twice as much in a round trip
	up := (paceRise - 1) * k.Rate
	if k.Rate >= k.ceiling {
		up = min(up, k.Rate*min(paceMost, paceStep*math.Exp2(k.probed))/max(10, k.Rate))
		k.probed += 1 / max(10, k.Rate)
	} else {
		up = min(up, k.ceiling-k.Rate)
	}
	k.Rate = min(k.Full, k.Rate+min(up, most))
}

// over reports whether the key is slowed down no longer.
func (k *pace) over(now time.Time) bool { return !now.Before(k.end()) }

// end returns when the key is slowed down no longer, if nothing comes before: none has been limited for
// a while since the last pause, in which none could be, and the rate is the full one, or no call has
// been sent.
func (k *pace) end() time.Time {
	at := k.lasts
	if k.Rate < k.Full && k.sent.After(at) {
		at = k.sent
	}
	return at.Add(calm)
}
