package scheduler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// Reload takes another set of upstreams from now on; the rest of the config stays.
// On an error, which joins all faults, nothing has changed. If ctx ends while the new
// set takes over, it takes over all the same.
//
// Where many calls wait it takes a while, in short steps between which calls go, and are
// accepted, by the old set, until at one instant all go by the new one. That instant is
// before Reload returns.
//
// No call is lost. Those that wait go by the new limits. An upstream that is no longer
// there refuses new calls and sends none: submitted ones wait until it is there again, and
// callers that wait get an error ([NotFound]). Attempts in flight end, and webhooks go on.
//
// A limit whose calls, cost, guard or counted outcomes have changed keeps the
// permits that are out. One whose name, window, key or condition has is a new limit: it
// counts the calls that are sent from now on, and those in flight. Under its name it
// stays paused, as its keys do where they are computed as before.
func (s *Scheduler) Reload(ctx context.Context, c Config) error {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	next, err := compile(c, s.generation+1)
	if err != nil {
		return err
	}
	if err := s.times.extend(ctx, next); err != nil {
		return err
	}
	s.generation++
	return newReload(s, next).run(ctx)
}

// Config returns the upstreams as they are configured now, defaults filled in.
func (s *Scheduler) Config() map[string]Upstream {
	all := make(map[string]Upstream)
	for name, sv := range *s.services.Load() {
		if sv.webhook == nil {
			all[name] = sv.Upstream
		}
	}
	return all
}

// Upstream returns an upstream as it is configured now, defaults filled in; false
// if there is none of the name.
func (s *Scheduler) Upstream(name string) (Upstream, bool) {
	sv := s.service(name)
	if sv == nil {
		return Upstream{}, false
	}
	return sv.Upstream, true
}

// attachAll adds the upstreams of a configuration that are not there, and returns their
// names.
func (l *loop) attachAll(now time.Time, next map[string]*service) (added []string) {
	for name, sv := range next {
		if l.upstreams[name] == nil {
			u := newUpstreamState(l, sv)
			l.upstreams[name] = u
			l.attach(now, u)
			added = append(added, name)
		}
	}
	return added
}

// A detached upstream is one that was configured and may be so again: by a reload, or for
// the next process. Permits that are out of its limits stay out meanwhile.
type detached struct {
	since   time.Time     // no attempt of it ended later
	step    time.Duration // of the wall clock, from when the holds were stored until since
	holds   []lease.Hold
	backlog Backlog // calls that wait in the store
}

// detach lets an upstream go that has no calls.
func (l *loop) detach(now time.Time, u *upstreamState) {
	u.up.Close()
	delete(l.upstreams, u.Name)
	if holds := u.holds(now); len(holds) > 0 {
		l.absent[u.Name] = detached{since: now, holds: holds}
	}
}

// attach gives an upstream the permits, pauses and calls that it had when it was
// configured before.
func (l *loop) attach(now time.Time, u *upstreamState) {
	d, ok := l.absent[u.Name]
	if !ok {
		d.since = now
	}
	delete(l.absent, u.Name)
	d.step += wallStep(d.since, now)
	u.inherit(d.backlog)
	for _, h := range slices.AppendSeq(d.holds, maps.Values(l.pauses)) {
		if h.Upstream == u.Name && (h.Back.IsZero() || h.Back.After(now)) {
			u.restore(now, l.lastEnd(u, d.since), d.step, &h)
		}
	}
	if !l.restored.IsZero() {
		u.fill(now, l.lastEnd(u, l.restored))
	}
}

// wallStep returns how far the wall clock was put forward between two instants of this
// process, or back if it is negative.
func wallStep(from, to time.Time) time.Duration {
	return to.Round(0).Sub(from.Round(0)) - to.Sub(from)
}

// holdsNow returns the permits that are out of all upstreams, and the pauses. The loop
// has ended.
func (l *loop) holdsNow() []lease.Hold {
	var all []lease.Hold
	now := time.Now()
	for _, u := range l.upstreams {
		all = append(all, u.holds(now)...)
	}
	for _, d := range l.absent {
		all = append(all, d.holds...)
	}
	return slices.AppendSeq(all, maps.Values(l.pauses))
}

// A pauseID names a pause: of an upstream, a limit, or a key of it.
type pauseID struct{ upstream, limit, key string }

func pauseOf(h *lease.Hold) pauseID { return pauseID{h.Upstream, h.Limit, h.Key} }

// notePause keeps a pause by a person, or its end, and returns the holds that the store
// must know: those that begin, and those that are over.
func (l *loop) notePause(now time.Time, h lease.Hold) (begun, over []lease.Hold) {
	for id, old := range l.pauses {
		if id == pauseOf(&h) || !old.Back.After(now) {
			delete(l.pauses, id)
			old.Back = now
			over = append(over, old)
		}
	}
	if h.Back.After(now) {
		h.ID = l.nextHold()
		l.pauses[pauseOf(&h)] = h
		begun = []lease.Hold{h}
	}
	return begun, over
}

// takePause pauses an upstream, a limit or a key, or ends the pause. An upstream that was
// removed, and is not in memory, is paused when it is there again, as a whole.
func (l *loop) takePause(now time.Time, upstream, limit, key string, until time.Time) error {
	u := l.upstreams[upstream]
	if u == nil {
		_, absent := l.absent[upstream]
		switch {
		case !absent:
			return errNoUpstream(upstream)
		case limit != "":
			return &Error{Reason: NotFound, Upstream: upstream, Limit: limit, Detail: fmt.Sprintf("upstream %q is not configured, so its limit %q is not known; leave the limit out to pause all of it", upstream, limit)}
		}
		return nil
	}
	i := u.pausable(limit)
	if i < 0 {
		return errNoLimit(u, limit)
	}
	if until.IsZero() {
		delete(u.answerPauses.of, target{i, key})
		u.slow.end(now, target{i, key})
	}
	return u.pause(now, i, key, until)
}
