package scheduler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// A Pause tells that no call of an upstream, of a limit or of a key of it goes.
type Pause struct {
	ID                   string // the same over a restart, for as long as the pause lasts
	Upstream, Limit, Key string // an empty Limit: the upstream; an empty Key: all of the limit
	Since, Until         time.Time
	// By is person; answer of the upstream; breaker: its circuit breaker is open, and Until is
	// when the next probe is due; or restart: permits of attempts of the last process may be out.
	By     string
	Who    string // name of the person or the program; may be empty
	Reason string // in words; may be empty
	Status int    // of the answer
}

// identify sets the ID, which another pause of the same limit has not.
func (p *Pause) identify() {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %d", p.By, p.Upstream, p.Limit, p.Key, p.Since.UnixMicro()))
	p.ID = hex.EncodeToString(sum[:8])
}

// allPauses returns the pauses that hold now, without their IDs.
func allPauses(now time.Time, l *loop) []Pause {
	var all []Pause
	add := func(p Pause) {
		if p.Until.After(now) {
			all = append(all, p)
		}
	}
	for id, h := range l.pauses {
		if id.limit != circuitHold {
			add(Pause{Upstream: id.upstream, Limit: id.limit, Key: id.key, Since: h.Since, Until: h.Back, By: "person", Who: h.Who, Reason: h.Reason})
		}
	}
	for _, u := range l.upstreams {
		for at, p := range u.answerPauses.of {
			add(Pause{Upstream: u.Name, Limit: pausedName(u, at.limit), Key: at.key, Since: p.since, Until: p.until, By: "answer", Reason: p.reason, Status: p.status})
		}
		for i := range u.limits {
			p := restartPause(now, u, i)
			add(Pause{Upstream: u.Name, Limit: u.limits[i].Name, Since: p.since, Until: p.until, By: "restart", Reason: p.reason})
		}
		if u.circuit.Open() {
			add(Pause{Upstream: u.Name, Since: u.circuit.since, Until: later(u.circuit.Until(now), now.Add(1)), By: "breaker", Reason: u.circuit.reason})
		}
	}
	return all
}

// identified returns pauses with their IDs, in order. There may be many, so the loop does without.
func identified(all []Pause) []Pause {
	for i := range all {
		all[i].identify()
	}
	slices.SortFunc(all, func(a, b Pause) int {
		return cmp.Or(strings.Compare(a.Upstream, b.Upstream), strings.Compare(a.Limit, b.Limit), strings.Compare(a.Key, b.Key), strings.Compare(a.By, b.By))
	})
	return all
}

// pauseNamed returns a pause that a person can end.
func pauseNamed(now time.Time, l *loop, id string) (Pause, error) {
	all := identified(allPauses(now, l))
	i := slices.IndexFunc(all, func(p Pause) bool { return p.ID == id })
	switch {
	case i < 0:
		return Pause{}, &Error{Reason: NotFound, Detail: fmt.Sprintf("there is no pause %q; it has ended, or another one has taken its place", id)}
	case all[i].By == "restart":
		return all[i], &Error{Reason: WrongState, Upstream: all[i].Upstream, Limit: all[i].Limit,
			Detail: fmt.Sprintf("limit %q of upstream %q has permits of the last process out, which only come back with time, at %s", all[i].Limit, all[i].Upstream, stamp(all[i].Until))}
	}
	return all[i], nil
}

// A pause is the reason why no call of an upstream, a limit or a key goes.
type pause struct {
	cause        Reason // byOperator, byAnswer or byRestart
	who          string // a person; may be empty
	reason       string // in words; may be empty
	since, until time.Time
	status       int // of the answer
}

// pauseBy returns the pause by a person that a hold keeps.
func pauseBy(h lease.Hold) pause {
	return pause{cause: byOperator, who: h.Who, reason: h.Reason, since: h.Since, until: h.Back}
}

// String says by whom, since when and why.
func (p pause) String() string {
	s := "by an answer of the upstream"
	switch p.cause {
	case byOperator:
		s = "by " + cmp.Or(p.who, "an operator")
	case byRestart:
		s = "by a restart or take-over"
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
	of      map[target]pause
	sweepAt int
}

func (a *answerPauses) note(now time.Time, at target, p pause) {
	if a.of == nil || len(a.of) >= a.sweepAt {
		live := make(map[target]pause)
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
	carry := func(at target, p pause) {
		was := &u.limits[at.limit]
		if i := next.limitNamed(was.Name); i >= 0 && p.until.After(now) && (at.key == "" || next.limits[i].PerKey == was.PerKey) {
			carried.note(now, target{i, at.key}, p)
		}
	}
	for at, p := range u.answerPauses.of {
		carry(at, p)
	}
	for i := range u.limits {
		if !slices.Contains(kept, i) {
			carry(target{limit: i}, restartPause(now, u, i))
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
	name := pausedName(u, limit)
	for _, k := range []string{key, ""} {
		try(u.answerPauses.of[target{limit, k}])
		h := u.loop.pauses[pauseID{u.Name, name, k}]
		try(pauseBy(h))
	}
	return longest
}

// pausedName returns the name by which a limit is paused: none for the upstream as a whole.
func pausedName(u *upstreamState, limit int) string {
	if limit == 0 {
		return ""
	}
	return u.limits[limit].Name
}

// restartPause returns the pause of a limit whose permits may all be out since an earlier
// process; its end is zero if there is none.
func restartPause(now time.Time, u *upstreamState, limit int) pause {
	return pause{cause: byRestart, reason: "permits of attempts of the last process may be out", since: u.loop.origin, until: u.ledger.HeldUntil(now, limit)}
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
	at := make(map[target]bool)
	for k := range u.answerPauses.of {
		at[k] = true
	}
	for id := range u.loop.pauses {
		if i := u.limitNamed(id.limit); i > 0 && id.upstream == u.Name {
			at[target{i, id.key}] = true
		}
	}
	for i := range u.limits {
		at[target{limit: i}] = true
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
	p := pauseBy(old)
	return &Error{Reason: WrongState, Upstream: h.Upstream, Limit: h.Limit,
		Detail: fmt.Sprintf("%s is paused until %s already, and not only until %s; resume it first to shorten the pause (%v)", what, stamp(old.Back), stamp(h.Back), p)}
}

// logLimited tells that the upstream has limited a call, and slows down what it has paused: the time
// that this waits now, and of each window the permits of the key that were out, of which the upstream
// can have counted the calls.
func logLimited(now time.Time, u *upstreamState, c *call, needs []quota.Need, r *upstream.Result, at target, wait time.Duration, begun bool) {
	var out []string
	for _, n := range needs {
		if l := &u.limits[n.Limit]; l.Kind() != quota.InFlight() {
			out = append(out, fmt.Sprintf("%s: %d of %d per %v", l.Name, u.ledger.Usage(now, n.Limit, n.Key).Out, l.capacity(), l.Kind()))
		}
	}
	message := "the upstream limited a call, although its limits had room here, and its calls are slowed down: " + whyLimited
	if !begun {
		message = "the upstream goes on limiting calls, and how far they are slowed down has changed"
	}
	slowed, _ := u.slow.slowed(now, at)
	logBeside(u, slog.LevelWarn, message,
		"call", c.ID, "upstream", u.Name, "reason", r.Reason, "out", strings.Join(out, ", "), "paused", cmp.Or(pausedName(u, at.limit), "the upstream"), retryAfter(wait), askedFor(u, r),
		"slowed", slowed.String())
}

// logAlone tells that the upstream wants one call later, for a reason of its own.
func logAlone(u *upstreamState, c *call, r *upstream.Result, wait time.Duration) {
	logBeside(u, slog.LevelInfo, "the upstream did not execute a call, which is sent again",
		"call", c.ID, "upstream", u.Name, "reason", r.Reason, retryAfter(wait), askedFor(u, r))
}

func retryAfter(wait time.Duration) slog.Attr {
	return slog.String("retry_after", wait.Round(time.Millisecond).String())
}

// askedFor tells of a wait that the upstream asked for and max_pause has capped; empty, which a log leaves
// out, for another one.
func askedFor(u *upstreamState, r *upstream.Result) slog.Attr {
	if r.Asked <= u.up.MaxPause {
		return slog.Attr{}
	}
	return slog.String("asked", fmt.Sprintf("%v, capped by max_pause", r.Asked))
}

// warnOfWait tells that the expression of a rule gave no wait, so that the pause is the one of the
// answer's fields or of the backoff.
func warnOfWait(u *upstreamState, c *call, r *upstream.Result) {
	if r.WaitErr != nil {
		logBeside(u, slog.LevelWarn, "a rule's expression for the wait of an answer gives none; the answer's fields or the backoff take its place",
			"call", c.ID, "upstream", u.Name, "rule", r.Reason, "err", r.WaitErr.Error())
	}
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
