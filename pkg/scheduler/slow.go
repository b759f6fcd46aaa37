package scheduler

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Calls that an upstream limits although they keep its limits are slowed down.

// whyLimited has the causes of that.
const whyLimited = "another program uses the quota, a limit is set too high, attempts without an answer are counted later than late, or the platform counts otherwise, bursts for instance: then write fewer calls per shorter window"

// Slowed tells how the calls of an upstream, a limit or a key go slower than the limits allow,
// since answers of the upstream have limited some.
type Slowed struct {
	Limit, Key string // an empty Limit: the whole upstream
	Since      time.Time
	// CallsPerSecond is how many go now, and FullPerSecond how many at full speed.
	CallsPerSecond, FullPerSecond float64
	// Passed and Limited count the answers since then.
	Passed, Limited int
	Within          string // the limits that the calls have kept, such as 100 per 1s
}

// String is a sentence without its subject, such as: slowed to 12 calls/s since
// 2026-01-02T03:04:05.000Z: 99 of 100 answers limited calls within 100 per 1s.
func (s Slowed) String() string {
	if s.Since.IsZero() {
		return ""
	}
	text := fmt.Sprintf("slowed to %s calls/s since %s: %d of %d answers limited calls", perSecondText(s.CallsPerSecond), stamp(s.Since), s.Limited, s.Passed+s.Limited)
	if s.Within != "" {
		text += " within " + s.Within
	}
	return text
}

// perSecondText returns a rate with two digits.
func perSecondText(rate float64) string {
	if rate >= 10 {
		return strconv.FormatFloat(math.Round(rate), 'f', -1, 64)
	}
	return strconv.FormatFloat(rate, 'g', 2, 64)
}

// A target is what an answer pauses and slows down: a key of a limit; the zero one is the whole
// upstream.
type target struct {
	limit int
	key   string
}

// A slowdown holds the calls of an upstream apart, by what retry.Pacer says: after each call that
// is sent, the ledger knows when the next one may go. The loop alone calls it.
type slowdown struct {
	up     *upstreamState
	pacer  retry.Pacer[target]
	spread retry.Spread[target]
	watch  bool // it is in the wheel, until none is slowed down
	steady bool // of tests: pauses are as long as answers say, and no call is slowed down
}

// begin lets all calls of an upstream go at full speed.
func (s *slowdown) begin(u *upstreamState) {
	s.up, s.spread = u, retry.Spread[target]{}
	s.pacer = retry.Pacer[target]{Forgotten: func(at target) { u.ledger.Pace(at.limit, at.key, time.Time{}, nil) }}
}

// target returns what an answer pauses: the limit or the upstream that its rule names, else the key of
// the call's only limit that has keys. If several keys are limited within a short time, the platform
// limits all of them together, perhaps, and the answer slows down the whole upstream: key is then the
// one that the call has, and else the target.
func (s *slowdown) target(now time.Time, needs []quota.Need, p *upstream.Pause) (at, key target) {
	u := s.up
	if p != nil && (p.Limit != "" || p.Upstream) {
		i := slices.IndexFunc(needs, func(n quota.Need) bool { return u.limits[n.Limit].Name == p.Limit })
		if p.Upstream || i < 0 { // the call is not under the limit
			return target{}, target{}
		}
		at = target{needs[i].Limit, needs[i].Key}
		return at, at
	}
	for _, n := range needs {
		if l := &u.limits[n.Limit]; l.PerKey != "" && l.Concurrency == 0 {
			if key.limit != 0 {
				return target{}, target{}
			}
			key = target{n.Limit, n.Key}
		}
	}
	if _, whole := s.pacer.Slowed(now, target{}); whole || key.limit != 0 && s.spread.Limited(now, key) {
		return target{}, key
	}
	return key, key
}

// limited notes an answer that limited a call, with the wait that it asks for of the target, and the one for
// which it holds a key of it. It returns until when the target pauses.
func (s *slowdown) limited(now time.Time, at target, needs []quota.Need, sentAt time.Time, wait, held time.Duration) (until time.Time, change retry.Change) {
	u := s.up
	if s.steady {
		return now.Add(wait), retry.Begun
	}
	until, change = s.pacer.Limited(now, at, retry.Refusal{SentAt: sentAt, Wait: wait, Others: held, Full: s.full(at, needs), Curve: u.Retry.LimitedCurve(), Random: u.loop.random()})
	s.hold(at, until)
	if !s.watch {
		s.Fire(now)
	}
	return until, change
}

// Fire is the instant at which a slow-down may be over, also if no call is sent.
func (s *slowdown) Fire(now time.Time) {
	next := s.pacer.Sweep(now, func(at target, was retry.Slowed) { s.over(now, at, was) })
	if s.watch = !next.IsZero(); s.watch {
		s.up.loop.wheel.Insert(later(next, now.Add(time.Second)).Sub(s.up.loop.origin), s)
	}
}

// over lets the calls of a target go at full speed, since none is limited any more. No log has a key, because one may be
// a secret, such as the caller's API key.
func (s *slowdown) over(now time.Time, at target, was retry.Slowed) {
	s.end(now, at)
	logBeside(s.up, slog.LevelInfo, "the upstream limits no calls any more, and they go at full speed again",
		"upstream", s.up.Name, "limit", pausedName(s.up, at.limit), "was", s.tell(at, was).String())
}

// full returns how many calls per second the limits let go to a target at once: a window of several
// seconds lets all of its calls go in the first.
func (s *slowdown) full(at target, needs []quota.Need) float64 {
	full := math.Inf(1)
	for _, n := range needs {
		l := &s.up.limits[n.Limit]
		if l.Kind() == quota.InFlight() || at.limit != 0 && n.Limit != at.limit {
			continue
		}
		rate := float64(l.capacity()) / min(time.Second, l.Kind().Length()).Seconds()
		if at.limit == 0 && l.PerKey != "" {
			rate *= float64(max(1, s.up.ledger.Live(n.Limit)))
		}
		full = min(full, rate)
	}
	if math.IsInf(full, 1) {
		return retry.UnknownFull
	}
	return full
}

// sent notes that a call is sent, which holds the next one of what is slowed down.
func (s *slowdown) sent(now time.Time, needs []quota.Need) {
	if s.pacer.Empty() {
		return
	}
	for _, n := range needs {
		at := target{n.Limit, n.Key}
		if next := s.pacer.Sent(now, at); !next.IsZero() {
			s.hold(at, next)
		}
	}
}

// passed notes that the upstream has answered a call and not limited it. Its outcome may be unknown all the
// same, such as that of a refund that was accepted.
func (s *slowdown) passed(now time.Time, needs []quota.Need, sentAt time.Time) {
	s.spread.Passed(now)
	if s.pacer.Empty() {
		return
	}
	for _, n := range needs {
		at := target{n.Limit, n.Key}
		if was, over := s.pacer.Passed(now, at, sentAt); over {
			s.over(now, at, was)
		}
	}
}

// hold has the ledger let no call of a target go before an instant.
func (s *slowdown) hold(at target, next time.Time) {
	s.up.ledger.Pace(at.limit, at.key, next, func(calls int) time.Duration { return s.pacer.Ahead(at, calls) })
}

// end lets the calls of a target go at full speed.
func (s *slowdown) end(now time.Time, at target) {
	s.pacer.Forget(at)
	s.up.ledger.Pace(at.limit, at.key, time.Time{}, nil)
	s.up.planner.Check(now, []quota.Need{{Limit: at.limit, Key: at.key}})
}

// slowed tells how a target is slowed down; false if it is not.
func (s *slowdown) slowed(now time.Time, at target) (Slowed, bool) {
	k, ok := s.pacer.Slowed(now, at)
	if !ok {
		return Slowed{}, false
	}
	return s.tell(at, k), true
}

func (s *slowdown) tell(at target, k retry.Slowed) Slowed {
	return Slowed{
		Limit: pausedName(s.up, at.limit), Key: at.key, Since: k.Since, CallsPerSecond: k.Rate, FullPerSecond: k.Full, Passed: k.Passed, Limited: k.Limited,
		Within: withinOf(s.up, at.limit),
	}
}

// all returns how the upstream, its limits and their keys are slowed down, the upstream first and then
// those with the most limited calls; maxKeys at most. Those that have not gone slower yet are left out,
// since their pause tells all that there is.
func (s *slowdown) all(now time.Time) []Slowed {
	var all []Slowed
	for at := range s.pacer.Keys() {
		if one, ok := s.slowed(now, at); ok && !s.pacer.Waits(now, at) {
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Slowed) int {
		return cmp.Or(cmp.Compare(min(1, len(a.Limit)), min(1, len(b.Limit))), b.Limited-a.Limited, strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), maxKeys)]
}

// withinOf returns the windows that calls of a limit keep, or those of the upstream.
func withinOf(u *upstreamState, limit int) string {
	var windows []string
	for i := range u.limits {
		if l := &u.limits[i]; l.Kind() != quota.InFlight() && (limit == 0 || i == limit) {
			windows = append(windows, fmt.Sprintf("%d per %v", l.capacity(), l.Kind()))
		}
	}
	if len(windows) > 3 {
		windows = append(windows[:3], "…")
	}
	return strings.Join(windows, ", ")
}

// carry has the slow-downs go on under the limits of another configuration: by their names, and of
// keys only where they are computed as before.
func (s *slowdown) carry(u *upstreamState, next *service) {
	s.pacer.Rename(func(at target) (target, bool) {
		was := &u.limits[at.limit]
		i := next.limitNamed(was.Name)
		return target{i, at.key}, i >= 0 && next.limits[i].PerKey == was.PerKey
	})
	s.spread = retry.Spread[target]{}
}

// resume has the ledger of another configuration hold what is slowed down.
func (s *slowdown) resume(now time.Time) {
	for at := range s.pacer.Keys() {
		s.hold(at, now)
	}
}

// reset ends all slow-downs: the upstream is another one.
func (s *slowdown) reset() {
	for at := range s.pacer.Keys() {
		s.up.ledger.Pace(at.limit, at.key, time.Time{}, nil)
	}
	s.begin(s.up)
}

// tellSlowed adds to the reason why a call waits how its limit is slowed down.
func tellSlowed(now time.Time, u *upstreamState, f *WaitingFor) {
	if i := u.limitNamed(f.Limit); i >= 0 {
		if slowed, ok := u.slow.slowed(now, target{i, f.Key}); ok {
			f.Slowed = &slowed
		}
	}
}
