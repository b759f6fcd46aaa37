package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tmaxmax/go-sse"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of the event stream.
const (
	remembered     = 4096 // events, for all subscribers together
	maxSubscribers = 64
	eventBatch     = 128 // events that are written before they are flushed
	heartbeat      = 15 * time.Second
	eventTimeout   = 10 * time.Second // of writing a batch; who takes longer has gone
)

// An Event is what GET /v1/events tells of a call: accepted, refused, sending,
// attempt (one has ended), waiting (again), paused (by its answer), or ended (finished
// or unknown). Without a call, paused and resumed tell what somebody has done. Who asks
// for one call is told its state: at first, and, while it waits, with each heartbeat
// and whenever somebody has paused or resumed something.
type Event struct {
	At        time.Time          `json:"at"`
	Event     string             `json:"event"`
	Call      string             `json:"call"`
	Upstream  string             `json:"upstream"`
	State     scheduler.State    `json:"state"`
	Priority  int                `json:"priority"`
	ETA       time.Time          `json:"eta,omitzero"`        // of a call that waits, as of when this is told
	Attempt   *scheduler.Attempt `json:"attempt,omitempty"`   // the one that has ended
	Reason    scheduler.Reason   `json:"reason,omitempty"`    // of a refusal
	Limit     string             `json:"limit,omitempty"`     // that a pause shuts; none: the upstream
	Key       string             `json:"key,omitempty"`       // of the limit; none: all of it
	Until     time.Time          `json:"until,omitzero"`      // of a pause
	Deadline  time.Time          `json:"deadline,omitzero"`   // that the caller of one that comes in has set, or max_wait has
	NotBefore time.Time          `json:"not_before,omitzero"` // of one that comes in
	Route     *scheduler.Route   `json:"route,omitempty"`     // of one that comes in, for those who ask

	of scheduler.Event
}

// Lost is told, as the event "lost", to a subscriber that is too slow or comes too
// late: what it asked for is not remembered any more.
type Lost struct {
	Lost uint64 `json:"lost"` // events; 0 with Restarted
	// Restarted tells that the process has changed: nobody knows how many.
	Restarted bool `json:"restarted,omitempty"`
}

// Events remembers what happened last, for those who follow GET /v1/events. There
// is one ring for all, and a subscriber is a position in it: a slow one costs
// nothing and holds up nobody, it only finds that what it wanted is gone. Nor does
// one who comes back with Last-Event-ID miss what is still there.
type Events struct {
	epoch string // tells this process's numbers from another's

	mu          sync.Mutex
	ring        [remembered]Event
	next        uint64        // number of the next event: the ring holds those before it
	more        chan struct{} // closed at the next event; nil while nobody waits for it
	subscribers int
	closed      bool
}

// NewEvents returns an empty memory whose Observe is for scheduler.Config.
func NewEvents() *Events { return &Events{epoch: strconv.FormatInt(time.Now().UnixMilli(), 36)} }

// Observe remembers an event and wakes those who wait for one.
func (e *Events) Observe(ev scheduler.Event) {
	told := Event{
		At: time.Now(), Event: ev.Kind.String(), Call: ev.Call.ID, Upstream: ev.Call.Upstream,
		State: ev.Call.State, Priority: int(ev.Call.Priority), Reason: ev.Reason, Limit: ev.Limit, Key: ev.Key, Until: ev.Until,
	}
	if ev.Attempt != nil {
		a := *ev.Attempt
		told.Attempt = &a
	}
	if told.Deadline = ev.Deadline(); ev.Kind == scheduler.EventAccepted || ev.Kind == scheduler.EventRefused {
		told.NotBefore = ev.Call.NotBefore
	}
	told.of = ev
	told.of.Call, told.of.Attempt = nil, nil // they are good only now
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring[e.next%remembered] = told
	e.next++
	e.wake()
}

// Close ends all streams, when they have told what there is.
func (e *Events) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	e.wake()
}

func (e *Events) wake() {
	if e.more != nil {
		close(e.more)
		e.more = nil
	}
}

// after copies events into room, beginning with number from, or with the first
// that is remembered; lost is how many lie between. With nothing to copy, more is
// closed when there is something; it is nil when there will be nothing any more.
func (e *Events) after(from uint64, room []Event) (n int, lost uint64, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next > remembered && from < e.next-remembered {
		lost = e.next - remembered - from
		from += lost
	}
	for ; from < e.next && n < len(room); n++ {
		room[n] = e.ring[from%remembered]
		from++
	}
	if n == 0 && !e.closed {
		if e.more == nil {
			e.more = make(chan struct{})
		}
		more = e.more
	}
	return n, lost, more
}

// subscribe returns the number from which a new subscriber is told, and whether
// it comes back to another process than it left.
func (e *Events) subscribe(lastID string) (from uint64, restarted bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed:
		return 0, false, &scheduler.Error{Reason: scheduler.Stopping, Detail: "Throttler is stopping"}
	case e.subscribers == maxSubscribers:
		return 0, false, &scheduler.Error{Reason: scheduler.Full, RetryAfter: time.Minute, Detail: fmt.Sprintf("%d subscribers follow the events, at most %d may", e.subscribers, maxSubscribers)}
	}
	e.subscribers++
	if lastID == "" {
		return e.next, false, nil
	}
	epoch, number, _ := strings.Cut(lastID, "-")
	last, err := strconv.ParseUint(number, 10, 64)
	if epoch != e.epoch || err != nil || last >= e.next {
		return e.next - min(e.next, remembered), true, nil
	}
	return last + 1, false, nil
}

func (e *Events) unsubscribe() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribers--
}

// Serve adds GET /v1/events to the admin API.
func (a *Admin) Serve(e *Events) {
	a.mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		if err := a.follow(e, w, r); err != nil {
			Refusal{}.write(w, asError(err), nil)
		}
	})
}

// follow streams events until the client goes or the process stops. An error is
// one from before the stream began.
func (a *Admin) follow(e *Events, w http.ResponseWriter, r *http.Request) error {
	q, err := a.parseFollowing(r)
	if err != nil {
		return err
	}
	from, restarted, err := e.subscribe(r.Header.Get("Last-Event-ID"))
	if err != nil {
		return err
	}
	defer e.unsubscribe()
	var stands *Event
	if q.call != "" { // after the subscription: what changes from here on is told
		if stands, err = a.state(r.Context(), q.call); err != nil {
			return err
		}
	}
	st, err := newStream(w, r)
	if err != nil {
		return err
	}
	if stands != nil {
		st.send(stands.Event, "", stands)
	}
	if restarted {
		st.send("lost", "", Lost{Restarted: true})
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	room := make([]Event, eventBatch)
	for st.flush() == nil {
		n, lost, more := e.after(from, room)
		from += lost
		if lost > 0 {
			st.send("lost", "", Lost{Lost: lost})
		}
		moved := false
		for i, ev := range room[:n] {
			moved = moved || ev.Call == "" && stands != nil && ev.Upstream == stands.Upstream
			if q.wants(&ev) {
				if q.routes {
					ev.Route = ev.of.Route()
				}
				a.expect(r.Context(), &ev)
				st.send(ev.Event, e.epoch+"-"+strconv.FormatUint(from+uint64(i), 10), ev)
			}
		}
		if moved {
			a.revise(r.Context(), st, stands)
		}
		if from += uint64(n); n > 0 || lost > 0 {
			continue
		}
		if more == nil {
			return nil
		}
		select {
		case <-more:
		case <-beat.C:
			st.comment("still here")
			a.revise(r.Context(), st, stands)
		case <-r.Context().Done():
			return nil
		}
	}
	return nil
}

// state returns where a call stands, as an event.
func (a *Admin) state(ctx context.Context, id string) (*Event, error) {
	c, err := a.s.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Event{At: time.Now(), Event: "state", Call: c.ID, Upstream: c.Upstream, State: c.State, Priority: int(c.Priority), ETA: c.ETA}, nil
}

// revise tells anew when a call will go that stands, while it waits.
func (a *Admin) revise(ctx context.Context, st *stream, stands *Event) {
	if stands == nil {
		return
	}
	if now, err := a.state(ctx, stands.Call); err == nil && now.State == scheduler.Waiting {
		st.send(now.Event, "", now)
	}
}

// A following is what a subscriber asks for.
type following struct {
	upstream, call string
	routes         bool
}

func (a *Admin) parseFollowing(r *http.Request) (following, error) {
	q, err := a.query(r, "upstream", "call", "routes")
	return following{q.Get("upstream"), q.Get("call"), q.Get("routes") != ""}, err
}

func (f following) wants(e *Event) bool {
	return (f.upstream == "" || e.Upstream == f.upstream) && (f.call == "" || e.Call == f.call)
}

// expect adds when a call that has begun to wait will go. The subscriber pays for
// that, not the scheduler's loop, and not for what it does not read.
func (a *Admin) expect(ctx context.Context, e *Event) {
	if e.State != scheduler.Waiting || e.Event == scheduler.EventRefused.String() {
		return
	}
	if c, err := a.s.Get(ctx, e.Call); err == nil {
		e.ETA = c.ETA
	}
}

// A stream writes Server-Sent Events.
type stream struct {
	session  *sse.Session
	deadline *http.ResponseController
	err      error // the first
}

func newStream(w http.ResponseWriter, r *http.Request) (*stream, error) {
	session, err := sse.Upgrade(w, r)
	if err != nil {
		return nil, err
	}
	w.Header().Set("Cache-Control", "no-store")
	return &stream{session: session, deadline: http.NewResponseController(w)}, nil
}

func (s *stream) send(kind, id string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.err = err
		return
	}
	m := &sse.Message{Type: sse.Type(kind)}
	if id != "" {
		m.ID = sse.ID(id)
	}
	m.AppendData(string(data))
	s.write(m)
}

func (s *stream) comment(text string) {
	m := &sse.Message{}
	m.AppendComment(text)
	s.write(m)
}

func (s *stream) write(m *sse.Message) {
	if s.err == nil {
		s.deadline.SetWriteDeadline(time.Now().Add(eventTimeout))
		s.err = s.session.Send(m)
	}
}

// flush sends what was written, and says whether the client is still there.
func (s *stream) flush() error {
	if s.err == nil {
		s.err = s.session.Flush()
	}
	return s.err
}
