package server

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Bounds of the event stream.
const (
	ringSize       = 4096 // events, for all subscriptions together
	maxSubscribers = 64
)

// Events keeps the latest events for GET /v1/events, in one ring for all
// subscriptions. A subscription is a position in the ring: a slow one costs nothing
// and delays no other, but the events that it has not read may be overwritten. A
// client that reconnects with Last-Event-ID misses no event that is in the ring.
//
// It also keeps the calls that came in lately, far more of them, for previews.
type Events struct {
	epoch    string // tells the numbers of this process from those of another one
	arrivals *workload.Recent

	mu          sync.Mutex
	ring        [ringSize]record
	next        uint64        // number of the next event: the ring has those before it
	more        chan struct{} // closed at the next event; nil while no subscription waits for it
	subscribers int
	closed      bool
	route       scheduler.Route // of the event that is being added

	estimating sync.Mutex // held while an ETA is computed: other subscriptions wait for it
	etas       [ringSize]sharedETA
}

// A sharedETA is the ETA of the call of an event, computed once for all subscriptions.
type sharedETA struct {
	number uint64 // of the event, from 1
	at     api.Instant
}

// A record is an event of the ring.
type record struct {
	event  api.Event
	source scheduler.Event // without its pointers; for Route
}

// NewEvents returns an empty ring. Its Observe is for scheduler.Config.
func NewEvents() *Events {
	return &Events{epoch: strconv.FormatInt(time.Now().UnixMilli(), 36), arrivals: workload.NewRecent()}
}

// Observe appends an event and wakes the subscriptions that wait for one.
func (e *Events) Observe(ev scheduler.Event) {
	r := record{event: apiEvent(ev, time.Now()), source: ev}
	r.source.Call, r.source.Attempt = nil, nil // they are valid only during Observe
	e.mu.Lock()
	defer e.mu.Unlock()
	if ev.ReadRoute(&e.route) {
		at := r.event.At.Time
		e.arrivals.Add(at, workload.NewArrival(r.event.Upstream, r.event.Priority, at, r.event.Deadline.Time, r.event.NotBefore.Time, &e.route))
	}
	e.ring[e.next%ringSize] = r
	e.next++
	e.wake()
}

// Tell appends an event that is not the scheduler's, as Observe does.
func (e *Events) Tell(ev api.Event) {
	ev.At = api.At(time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ring[e.next%ringSize] = record{event: ev}
	e.next++
	e.wake()
}

// eta returns the ETA of the call of an event. It is computed for the first subscription that
// asks: the scheduler does it in its loop.
func (e *Events) eta(number uint64, compute func() api.Instant) api.Instant {
	e.estimating.Lock()
	defer e.estimating.Unlock()
	shared := &e.etas[number%ringSize]
	if shared.number != number+1 {
		*shared = sharedETA{number + 1, compute()}
	}
	return shared.at
}

// Close ends all streams after the events that are in the ring.
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

// after copies events into batch, beginning with number from or, if that was
// overwritten, with the oldest in the ring; lost is the number of events between
// them. With n = 0, more is closed at the next event; it is nil after Close.
func (e *Events) after(from uint64, batch []record) (n int, lost uint64, more <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.next > ringSize && from < e.next-ringSize {
		lost = e.next - ringSize - from
		from += lost
	}
	for ; from < e.next && n < len(batch); n++ {
		batch[n] = e.ring[from%ringSize]
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

// latest returns at most max events of the ring that a filter lets through, the newest first.
func (e *Events) latest(f *eventFilter, max int) []api.Event {
	list := []api.Event{}
	e.mu.Lock()
	defer e.mu.Unlock()
	for n := e.next; n > 0 && e.next-n < ringSize && len(list) < max; n-- {
		if r := &e.ring[(n-1)%ringSize]; f.wants(r) {
			list = append(list, r.event)
		}
	}
	return list
}

// id returns the id of an event, for Last-Event-ID.
func (e *Events) id(number uint64) string { return e.epoch + "-" + strconv.FormatUint(number, 10) }

// subscribe counts a subscription and returns the number of its first event.
// Restarted reports that lastID is not of this process.
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
		return e.next - min(e.next, ringSize), true, nil
	}
	return last + 1, false, nil
}

func (e *Events) unsubscribe() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.subscribers--
}
