package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
)

// UpstreamStatus is how an upstream stands.
type UpstreamStatus struct {
	Name        string
	URL         string
	State       string // up, paused, down, tripped, or removed from the configuration
	PausedUntil time.Time
	// Cause is answer, operator, restart (permits of attempts before it may be out), or down,
	// failing or silent of its circuit breaker. Who is the operator, Reason says why, and Since
	// from when on, if that is known. While it is down or tripped, PausedUntil is when the next probe is due.
	Cause  string
	Who    string
	Reason string
	Since  time.Time
	// Pauses are those of its limits and their keys, the latest end first, 100 at most. While
	// it is down or tripped, a pause of all of it is one of [ConcurrencyLimit] there.
	Pauses []WaitingFor
	// Slowed tells what is slowed down of it since it limited calls, the whole upstream first, then its
	// limits and their keys by limited calls, 100 at most; without those that still wait for the end of
	// their first pause.
	Slowed     []Slowed
	Waiting    int
	Sending    int
	Unknown    int   // submitted calls that wait for a decision
	MaxWaiting int   // of waiting and unknown ones
	Bytes      int64 // of bodies and headers of all these
	// ETA is when the last of the waiting calls can be expected to go. It is zero while that
	// depends on attempts in flight that take far longer than attempts do.
	ETA time.Time
	// MayExpire says that the deadline of a waiting call may come before it can go: before ETA, or at any
	// time while that is not known, the circuit breaker is open, or the upstream is not configured.
	MayExpire bool
	// Uncomputable has, by their names, the rules that had no value since the start, and how often: an
	// answer or a request had a text where a number is compared, or a body that cannot be read. Names
	// are such as outcomes[2], proof[0].holds, resolve[1].when or outcomes[3] of preset stripe.
	Uncomputable map[string]int64
}

// LimitStatus is how a limit stands. Its figures of keys, and their sums, are at most a second old
// for 20,000 keys, of all limits together, and older in proportion; those of few keys are of now. A
// flow counts as a key here for each kind of permits that its waiting calls take.
type LimitStatus struct {
	Upstream    string
	Limit       string
	Calls       int
	Window      string      // as quota.Window.String gives it; none for concurrency
	LiveKeys    int         // with permits out, a pause or calls waiting
	Out         int         // permits of all keys
	InFlight    int         // those of attempts that have not ended
	Late        int         // those of attempts that ended without an answer: the upstream may count them until Late after, so they stay out for longer
	NextBack    time.Time   // when the next permit comes back whose attempt has ended; zero if there is none
	Waiting     int         // permits that waiting calls will take; those only on disk are not counted
	Keys        []KeyStatus // the hundred for which most waits, most first
	PausedUntil time.Time

	// Most is the most permits of one key whose calls may have arrived within one
	// window since the limit began, or Calls changed, wherever between sending and response they did;
	// Margin is the rest of Calls.
	Most   int
	Margin int
	// HoldCost is the share of a saturated quota that holding permits until the
	// response costs, GuardWins the share that guards of these durations would win
	// back; nil where no window slides.
	HoldCost  float64
	GuardWins map[string]float64
	// Unanswered is how many permits attempts without an answer have used since the limit
	// began. If the upstream limits calls, it may count some of them later than Late.
	Unanswered int64
}

// KeyStatus is how one key of a limit stands.
type KeyStatus struct {
	Key         string
	Free        int
	Out         int
	InFlight    int
	Late        int
	NextBack    time.Time
	Waiting     int
	PausedUntil time.Time
}

// FlowStatus is how a flow of an upstream stands.
type FlowStatus struct {
	Flow    string
	Weight  float64
	Waiting int // calls that wait for permits, without those that wait for a time or lie on disk only
	// OldestAt is when the oldest of the calls was accepted that are first in line. Behind a call of
	// higher priority an older one may wait.
	OldestAt time.Time
}

// Totals are the running totals of an upstream or, with a Limit, of one of its limits.
type Totals struct {
	Upstream, Limit string
	// Waiting counts the waiting calls of an upstream, or the permits that they will take of a limit;
	// calls that are only on disk count for the upstream alone.
	Waiting int

	Out, InFlight int // permits of a limit, as [quota.Ledger.Total] counts them
	Most          int // as of LimitStatus
}

func totalsOf(now time.Time, l *loop) (all []Totals) {
	for name, u := range l.upstreams {
		all = append(all, Totals{Upstream: name, Waiting: u.count[waiting]})
		for i := range u.limits {
			t := Totals{Upstream: name, Limit: u.limits[i].Name, Waiting: u.planner.WantedOf(i), Most: u.ledger.Audit(i).Most}
			t.Out, t.InFlight = u.ledger.Total(now, i)
			all = append(all, t)
		}
	}
	return all
}

// keyStatusOf returns how a key of a limit stands.
func keyStatusOf(now time.Time, l *loop, upstream, limit, key string) (KeyStatus, error) {
	u := l.upstreams[upstream]
	if u == nil {
		return KeyStatus{}, errNoUpstream(upstream)
	}
	switch i := u.limitNamed(limit); {
	case i < 0:
		return KeyStatus{}, errNoLimit(u, limit)
	case key != "" && u.limits[i].PerKey == "":
		return KeyStatus{}, &Error{Reason: BadRequest, Upstream: upstream, Limit: limit, Detail: fmt.Sprintf("limit %q has no keys; leave the key %q out", limit, key)}
	default:
		return usageOf(now, u, i, key, u.planner.Wanted(i, key)), nil
	}
}

func errNoLimit(u *upstreamState, limit string) *Error {
	return &Error{Reason: NotFound, Upstream: u.Name, Limit: limit, Detail: fmt.Sprintf("upstream %q has no limit %q; it has %s", u.Name, limit, u.limitNames())}
}

// usageOf returns how a key of a limit stands, of which waiting calls will take so many permits.
func usageOf(now time.Time, u *upstreamState, limit int, key string, wanted int) KeyStatus {
	usage := u.ledger.Usage(now, limit, key)
	st := KeyStatus{Key: key, Free: usage.Free, Out: usage.Out, InFlight: usage.InFlight, Waiting: wanted, PausedUntil: usage.PausedUntil}
	if usage.Out > usage.InFlight {
		st.Late, st.NextBack = u.ledger.Cooling(now, limit, key)
	}
	return st
}

func statusOf(now time.Time, u *upstreamState) UpstreamStatus {
	st := UpstreamStatus{
		Name: u.Name, URL: u.URL, State: "up",
		Waiting: u.count[waiting], Sending: u.count[sending], Unknown: u.count[unresolved], Bytes: u.usage.bytes.Load(), MaxWaiting: u.MaxWaiting,
		Uncomputable: u.loop.uncomputed.of(u.Name),
	}
	until := u.pausedUntil(now)
	if until.After(now) {
		p := pauseOn(now, u, 0, "")
		st.State, st.PausedUntil, st.Cause, st.Who, st.Reason, st.Since = "paused", until, string(p.cause), p.who, p.reason, p.since
	}
	st.Pauses, st.Slowed = pausedLimits(now, u), u.slow.all(now)
	if u.circuit.Open() && !u.shut() {
		st.State, st.Cause, st.Reason, st.Since = "tripped", u.circuit.Health().String(), u.circuit.reason, u.circuit.since
		if u.circuit.Health() == retry.Down {
			st.State = "down"
		}
	}
	if u.shut() {
		st.State, st.MayExpire = "removed", st.Waiting > 0
		return st
	}
	if st.Waiting > 0 {
		other := planner.Elsewhere{Ahead: u.window.OnDisk(), Hung: hungPermits(now, u)}
		for _, p := range st.Pauses {
			other.Pauses = append(other.Pauses, planner.Pause{Limit: u.limitNamed(p.Limit), Key: p.Key, Until: p.Until})
		}
		st.ETA = u.planner.Last(now, later(now, until), other)
		if until.After(st.ETA) {
			st.ETA = until
		}
		st.MayExpire = st.ETA.IsZero() || u.circuit.Open() || u.soonest.Before(st.ETA)
	}
	return st
}

// statusesOf returns how the upstreams stand that are configured, and those that were and
// have calls, by name.
func statusesOf(now time.Time, l *loop) []UpstreamStatus {
	var all []UpstreamStatus
	for _, u := range l.upstreams {
		all = append(all, statusOf(now, u))
	}
	for name := range l.absent {
		if !strings.Contains(name, webhookSeparator) {
			all = append(all, absentStatusOf(now, l, name))
		}
	}
	all = slices.DeleteFunc(all, func(st UpstreamStatus) bool {
		return st.State == "removed" && st.Waiting+st.Sending+st.Unknown == 0
	})
	slices.SortFunc(all, func(a, b UpstreamStatus) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// absentStatusOf returns how an upstream stands whose calls are in the store alone.
func absentStatusOf(now time.Time, l *loop, name string) UpstreamStatus {
	b := l.absent[name].backlog
	st := UpstreamStatus{Name: name, State: "removed", Waiting: b.Waiting, MayExpire: b.Waiting > 0, Unknown: b.Unknown, Bytes: b.Bytes}
	if h := l.pauses[pauseID{upstream: name}]; h.Back.After(now) {
		st.PausedUntil, st.Cause, st.Who, st.Reason, st.Since = h.Back, string(byOperator), h.Who, h.Reason, h.Since
	}
	return st
}

// limitStatusOf returns how a limit stands, without its keys.
func limitStatusOf(now time.Time, u *upstreamState, i int) LimitStatus {
	l := &u.limits[i]
	w := l.Kind()
	st := LimitStatus{Upstream: u.Name, Limit: l.Name, Window: w.String(), Calls: u.ledger.Calls(i), Keys: []KeyStatus{}}
	st.PausedUntil = u.ledger.Usage(now, i, "").PausedUntil
	audit := u.ledger.Audit(i)
	st.Most, st.Margin, st.Unanswered = audit.Most, st.Calls-audit.Most, audit.Unanswered
	if w.Slides() {
		cost, wins := audit.Cost(w.Length())
		st.HoldCost, st.GuardWins = cost, make(map[string]float64)
		for k, win := range wins {
			st.GuardWins[quota.Guards[k].String()] = win
		}
	}
	return st
}
