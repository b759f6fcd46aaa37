package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Why an upstream, a limit or a key is paused.

// A pause is the reason why no call of an upstream, a limit or a key goes.
type pause struct {
	cause        Reason // byOperator, byAnswer or byRestart
	reason       string // in words; may be empty
	since, until time.Time
}

// String says by whom, since when and why.
func (p pause) String() string {
	s := "by an answer of the upstream"
	switch p.cause {
	case byOperator:
		s = "by an operator"
	case byRestart:
		s = "by the restart"
	}
	if !p.since.IsZero() {
		s += ", since " + stamp(p.since)
	}
	if p.reason != "" {
		s += ": " + p.reason
	}
	return s
}

// answerPauses are the pauses by answers of an upstream. Those that are over stay until
// there are many.
type answerPauses struct {
	of      map[streakKey]pause
	sweepAt int
}

func (a *answerPauses) note(now time.Time, at streakKey, p pause) {
	if a.of == nil || len(a.of) >= a.sweepAt {
		live := make(map[streakKey]pause)
		for k, old := range a.of {
			if old.until.After(now) {
				live[k] = old
			}
		}
		a.of, a.sweepAt = live, max(64, 2*len(live))
	}
	if old := a.of[at]; !old.until.After(p.until) {
		a.of[at] = p
	}
}

// carriedPauses returns the pauses by answers as a reload goes on with them: by the names of
// their limits. Limits that are not kept go on without the holds of an earlier process, and
// have them as pauses.
func carriedPauses(now time.Time, u *upstreamState, next *service, kept []int) answerPauses {
	var carried answerPauses
	carry := func(at streakKey, p pause) {
		was := &u.limits[at.limit]
		if i := next.limitNamed(was.Name); i >= 0 && p.until.After(now) && (at.key == "" || next.limits[i].PerKey == was.PerKey) {
			carried.note(now, streakKey{i, at.key}, p)
		}
	}
	for at, p := range u.answerPauses.of {
		carry(at, p)
	}
	for i := range u.limits {
		if !slices.Contains(kept, i) {
			carry(streakKey{limit: i}, restartPause(now, u, i))
		}
	}
	return carried
}

// pauseOn returns the pause that holds a key of a limit the longest, or all of its keys if
// none is given.
func pauseOn(now time.Time, u *upstreamState, limit int, key string) pause {
	longest := pause{cause: byAnswer}
	try := func(p pause) {
		if p.until.After(now) && p.until.After(longest.until) {
			longest = p
		}
	}
	try(restartPause(now, u, limit))
	name := ""
	if limit > 0 {
		name = u.limits[limit].Name
	}
	for _, k := range []string{key, ""} {
		try(u.answerPauses.of[streakKey{limit, k}])
		h := u.loop.pauses[pauseID{u.Name, name, k}]
		try(pause{byOperator, h.Reason, h.Since, h.Back})
	}
	return longest
}

// restartPause returns the pause of a limit whose permits may all be out since an earlier
// process; its end is zero if there is none.
func restartPause(now time.Time, u *upstreamState, limit int) pause {
	return pause{byRestart, "permits of attempts before the restart may be out", u.loop.origin, u.ledger.HeldUntil(now, limit)}
}

// heldBy says what holds an upstream that sends no calls.
func heldBy(now time.Time, u *upstreamState) string {
	if at := u.ledger.Usage(now, 0, "").PausedUntil; at.After(u.circuit.Until(now)) {
		return fmt.Sprintf("was paused until %s (%v)", stamp(at), pauseOn(now, u, 0, ""))
	}
	return fmt.Sprintf("had its circuit breaker open since %s (%s)", stamp(u.circuit.since), u.circuit.reason)
}

// pausedLimits returns the pauses of limits and of their keys, maxKeys at most. The one of the
// whole upstream is among them while its circuit breaker is open, which its state tells then.
func pausedLimits(now time.Time, u *upstreamState) []WaitingFor {
	at := make(map[streakKey]bool)
	for k := range u.answerPauses.of {
		at[k] = true
	}
	for id := range u.loop.pauses {
		if i := u.limitNamed(id.limit); i > 0 && id.upstream == u.Name {
			at[streakKey{i, id.key}] = true
		}
	}
	for i := range u.limits {
		at[streakKey{limit: i}] = true
	}
	var all []WaitingFor
	for k := range at {
		if k.limit == 0 && !u.circuit.Open() {
			continue
		}
		if until := u.ledger.Usage(now, k.limit, k.key).PausedUntil; !until.IsZero() {
			all = append(all, WaitingFor{Limit: u.limits[k.limit].Name, Key: k.key, Until: until, Paused: true, Pause: pauseOn(now, u, k.limit, k.key).String()})
		}
	}
	slices.SortFunc(all, func(a, b WaitingFor) int {
		return cmp.Or(b.Until.Compare(a.Until), strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key))
	})
	return all[:min(len(all), maxKeys)]
}

// shorter refuses a pause that ends before one by a person that is there already: a pause
// only grows, and the caller would take it for shorter.
func shorter(now time.Time, l *loop, h lease.Hold) error {
	old := l.pauses[pauseOf(&h)]
	if h.Back.IsZero() || !old.Back.After(now) || !old.Back.After(h.Back) {
		return nil
	}
	what := fmt.Sprintf("upstream %q", h.Upstream)
	if h.Limit != "" {
		what = fmt.Sprintf("limit %q of %s", h.Limit, what)
	}
	if h.Key != "" {
		what = fmt.Sprintf("key %q of %s", h.Key, what)
	}
	p := pause{byOperator, old.Reason, old.Since, old.Back}
	return &Error{Reason: WrongState, Upstream: h.Upstream, Limit: h.Limit,
		Detail: fmt.Sprintf("%s is paused until %s already, and not only until %s; resume it first to shorten the pause (%v)", what, stamp(old.Back), stamp(h.Back), p)}
}

// logLimited tells that the upstream has limited a call: the time that what is paused waits now,
// and of each window the permits of the key that were out, of which the upstream can have
// counted the calls.
func logLimited(now time.Time, u *upstreamState, c *call, needs []quota.Need, r *upstream.Result, paused string, wait time.Duration) {
	var out []string
	for _, n := range needs {
		if l := &u.limits[n.Limit]; l.Kind() != quota.InFlight() {
			out = append(out, fmt.Sprintf("%s: %d of %d per %v", l.Name, u.ledger.Usage(now, n.Limit, n.Key).Out, l.capacity(), l.Kind()))
		}
	}
	logBeside(u, slog.LevelWarn, "the upstream limited a call, although its limits had room here: another program uses the quota, a limit is set too high, or attempts without an answer are counted later than late",
		"call", c.ID, "upstream", u.Name, "reason", r.Reason, "out", strings.Join(out, ", "), "paused", paused, "retry_after", wait.Round(time.Millisecond).String())
}

// logAlone tells that the upstream wants one call later, for a reason of its own.
func logAlone(u *upstreamState, c *call, r *upstream.Result, wait time.Duration) {
	logBeside(u, slog.LevelInfo, "the upstream did not execute a call, which is sent again",
		"call", c.ID, "upstream", u.Name, "reason", r.Reason, "retry_after", wait.Round(time.Millisecond).String())
}

// logBeside writes a line about an upstream's call on another goroutine, for a log may block;
// beyond maxLogging such lines are dropped. About webhooks the attempt has told.
func logBeside(u *upstreamState, level slog.Level, message string, args ...any) {
	if u.webhook != nil {
		return
	}
	select {
	case u.loop.logging <- struct{}{}:
	default:
		return
	}
	u.loop.work.Go(func() {
		defer func() { <-u.loop.logging }()
		u.loop.log.Log(context.Background(), level, message, args...)
	})
}
