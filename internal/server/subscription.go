package server

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	eventBatch = 128 // events that are written before they are flushed
	heartbeat  = 15 * time.Second
)

// followEvents streams events until the client disconnects or the process stops. Its
// errors are from before the stream.
func followEvents(a *Admin, w http.ResponseWriter, r request[none]) error {
	q := r.query
	if err := a.known(r.Request, q.Get("upstream")); err != nil {
		return err
	}
	s := &subscription{
		scheduler: a.Scheduler, events: a.Events, upstream: q.Get("upstream"), call: q.Get("call"),
		kinds: q["kind"], limit: q.Get("limit"), key: q.Get("key"), routes: q.Get("routes") == "true",
	}
	release, ok := a.held.take(1)
	if !ok {
		return &scheduler.Error{Reason: scheduler.Full, RetryAfter: time.Minute, Detail: "too many clients follow events or wait for calls here; the open files of the process bound them"}
	}
	defer release()
	var restarted bool
	var err error
	if s.next, restarted, err = s.events.subscribe(r.Header.Get("Last-Event-ID")); err != nil {
		return err
	}
	defer s.events.unsubscribe()
	var state api.Event
	if s.call != "" { // read after subscribing: each later change is an event
		if state, err = s.state(r.Context()); err != nil {
			return err
		}
		s.upstreamOfCall = state.Upstream
	}
	if s.stream, err = newStream(w, r.Request); err != nil {
		return err
	}
	if s.call != "" {
		s.stream.send(state.Event, "", state)
	}
	if restarted {
		s.stream.send(api.EventLost, "", api.Lost{Restarted: true})
	}
	s.run(r.Context())
	return nil
}

// A subscription is one client's stream of events.
type subscription struct {
	scheduler *scheduler.Scheduler
	events    *Events
	stream    *stream

	upstream, call string // filters; empty: all
	limit, key     string
	kinds          []string
	upstreamOfCall string // empty without call
	routes         bool   // accepted and refused calls come with their route

	next uint64 // number of the next event
}

func (s *subscription) run(ctx context.Context) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	batch := make([]record, eventBatch)
	for s.stream.flush() == nil {
		n, lost, more := s.events.after(s.next, batch)
		if s.next += lost; lost > 0 {
			s.stream.send(api.EventLost, "", api.Lost{Lost: lost})
		}
		s.send(ctx, batch[:n])
		if n > 0 || lost > 0 {
			continue
		}
		if more == nil {
			return
		}
		select {
		case <-more:
		case <-beat.C:
			s.stream.comment("still here")
			s.sendState(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// send writes the events of a batch that the filters let through.
func (s *subscription) send(ctx context.Context, batch []record) {
	moved := false // the call may go at another time
	for _, r := range batch {
		e := r.event
		moved = moved || e.Call == "" && s.call != "" && e.Upstream == s.upstreamOfCall
		if s.wants(&r) {
			if s.routes {
				e.Route = apiRoute(r.source.Route())
			}
			s.addETA(ctx, &e)
			s.stream.send(e.Event, s.events.id(s.next), e)
		}
		s.next++
	}
	if moved {
		s.sendState(ctx)
	}
}

// wants reports whether the filters let an event through.
func (s *subscription) wants(r *record) bool {
	e := &r.event
	if s.upstream != "" && e.Upstream != s.upstream || s.call != "" && e.Call != s.call || len(s.kinds) > 0 && !slices.Contains(s.kinds, e.Event) {
		return false
	}
	if s.limit == "" && s.key == "" {
		return true
	}
	if route := r.source.Route(); route != nil {
		for limit, key := range route.Keys {
			if (s.limit == "" || limit == s.limit) && (s.key == "" || key == s.key) {
				return true
			}
		}
		return false
	}
	return e.Limit != "" && (s.limit == "" || e.Limit == s.limit) && (s.key == "" || e.Key == s.key || e.Key == "")
}

// state returns the current state of the call.
func (s *subscription) state(ctx context.Context) (api.Event, error) {
	c, err := s.scheduler.Get(ctx, s.call)
	if err != nil {
		return api.Event{}, err
	}
	return apiState(c, time.Now()), nil
}

// sendState writes the current state of the call, with its ETA, while it waits.
func (s *subscription) sendState(ctx context.Context) {
	if s.call == "" {
		return
	}
	if e, err := s.state(ctx); err == nil && e.State == api.Waiting {
		s.stream.send(e.Event, "", e)
	}
}

// addETA adds the ETA of a call that has begun to wait.
func (s *subscription) addETA(ctx context.Context, e *api.Event) {
	if e.State != api.Waiting || e.Event == api.EventRefused {
		return
	}
	e.ETA = s.events.eta(s.next, func() (at api.Instant) {
		if c, err := s.scheduler.Get(context.WithoutCancel(ctx), e.Call); err == nil {
			at = api.At(estimate(c.ETA))
		}
		return at
	})
}
