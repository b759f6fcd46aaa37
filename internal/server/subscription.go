package server

import (
	"context"
	"net/http"
	"net/url"
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
	s := &subscription{scheduler: a.Scheduler, events: a.Events, eventFilter: eventFilterOf(q), routes: q.Get("routes") == "true"}
	release, ok := a.held.take(1)
	if !ok {
		return tooManyHeld()
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

// tooManyHeld refuses a request that would be held open, where MaxHeld are already.
func tooManyHeld() error {
	return &scheduler.Error{Reason: scheduler.Full, RetryAfter: time.Minute, Detail: "too many clients follow events or pages, or wait for calls here; the open files of the process bound them"}
}

// latestEvents returns the events that are in the ring, the newest first.
func latestEvents(a *Admin, r request[none]) (*api.EventList, error) {
	if err := a.known(r.Request, r.query.Get("upstream")); err != nil {
		return nil, err
	}
	f := eventFilterOf(r.query)
	return &api.EventList{At: api.At(time.Now()), Events: a.Events.latest(&f, r.op.number(r.query, "page_size"))}, nil
}

// An eventFilter chooses events. Empty members choose all.
type eventFilter struct {
	upstream, call string
	limit, key     string
	kinds          []string
}

// eventFilterOf returns the filter of parameters.
func eventFilterOf(q url.Values) eventFilter {
	return eventFilter{upstream: q.Get("upstream"), call: q.Get("call"), kinds: q["kind"], limit: q.Get("limit"), key: q.Get("key")}
}

// wants reports whether the filter lets an event through.
func (f *eventFilter) wants(r *record) bool {
	e := &r.event
	if f.upstream != "" && e.Upstream != f.upstream || f.call != "" && e.Call != f.call || len(f.kinds) > 0 && !slices.Contains(f.kinds, e.Event) {
		return false
	}
	if f.limit == "" && f.key == "" {
		return true
	}
	if route := r.source.Route(); route != nil {
		for limit, key := range route.Keys {
			if (f.limit == "" || limit == f.limit) && (f.key == "" || key == f.key) {
				return true
			}
		}
		return false
	}
	return e.Limit != "" && (f.limit == "" || e.Limit == f.limit) && (f.key == "" || e.Key == f.key || e.Key == "")
}

// A subscription is one client's stream of events.
type subscription struct {
	scheduler *scheduler.Scheduler
	events    *Events
	stream    *stream

	eventFilter
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
