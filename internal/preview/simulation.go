package preview

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// tick is the wheel's, and equal to that of a scheduler.
const tick = 100 * time.Microsecond

// A simulation plays calls through a configuration in virtual time. Planner, ledger and
// wheel are those of a scheduler. There is no store, no network and no goroutine: every
// call has one attempt, of outcome done. A simulation has one owner: its methods must not
// be called concurrently.
//
// Instants are counted from the beginning.
type simulation struct {
	// roundTrip returns the length of a call's attempt; nil means 0.
	roundTrip func(*workload.Arrival) time.Duration
	// observe, if not nil, gets each call when it is sent or refused.
	observe func(departure)

	begin     time.Time
	now       time.Duration
	wheel     *wheel.Wheel[planner.Timeout]
	upstreams map[string]*upstreamState
	order     []*upstreamState // by name: equal loads give equal runs
	spare     []*call          // ended, to be used again
	seq       uint64
	changed   bool // since the last dispatch
}

// A departure is the end of a call's wait.
type departure struct {
	*workload.Arrival
	demand    *demand
	arrivedAt time.Duration
	at        time.Duration    // when the call was sent or refused
	roundTrip time.Duration    // of a call that was sent
	reason    scheduler.Reason // of the refusal; empty if the call was sent
}

// An upstreamState is the plan and the calls of an upstream.
type upstreamState struct {
	*router
	simulation *simulation
	ledger     *quota.Ledger
	planner    *planner.Planner[*call]
	maxWaiting int
	maxAge     time.Duration
	waiting    int // calls
	sending    int
}

// A call has a timeout in the wheel until it ends: for its delay or its deadline while
// it waits, then for its answer.
type call struct {
	arrival      workload.Arrival
	item         planner.Item[*call]
	upstream     *upstreamState
	demand       *demand
	arrived, due time.Duration
	end          time.Duration // the deadline; the answer's instant once it is sent
	sent         time.Duration // notSent until then
	timeout      wheel.Handle
}

const notSent = -1

// newSimulation returns a simulation that begins at an instant of the calendar. The
// error joins all faults of the configuration.
func newSimulation(c scheduler.Config, begin time.Time) (*simulation, error) {
	routers, err := newRouters(c)
	if err != nil {
		return nil, err
	}
	s := &simulation{begin: begin, wheel: wheel.New[planner.Timeout](tick), upstreams: make(map[string]*upstreamState)}
	for _, r := range routers {
		configured := r.Upstream()
		u := &upstreamState{router: r, simulation: s, maxWaiting: configured.MaxWaiting, maxAge: configured.MaxAge}
		u.ledger = quota.New(begin, r.limits...)
		u.planner = planner.New[*call](begin, s.wheel, u.ledger, r.limits, r.Weight)
		s.upstreams[r.name] = u
		s.order = append(s.order, u)
	}
	return s, nil
}

// pending returns the numbers of calls that wait, and of those in flight.
func (s *simulation) pending() (waiting, sending int) {
	for _, u := range s.order {
		waiting += u.waiting
		sending += u.sending
	}
	return waiting, sending
}

// queued returns the number of calls that wait for a limit, all keys together.
func (s *simulation) queued(upstream string, limit int) int {
	return s.upstreams[upstream].planner.Held(limit)
}

// advance plays on to an instant.
func (s *simulation) advance(to time.Duration) {
	for {
		s.dispatch()
		next, ok := s.wheel.Next()
		if !ok || next > to {
			break
		}
		s.fire(max(s.now, next))
	}
	s.now = max(s.now, to)
}

// fire fires the timeouts that are due at an instant.
func (s *simulation) fire(at time.Duration) {
	s.now, s.changed = at, true
	now := s.time()
	s.wheel.Advance(at, func(t planner.Timeout) { t.Fire(now) })
}

// time returns the present instant of the calendar.
func (s *simulation) time() time.Time { return s.begin.Add(s.now) }

// arrive plays on to an instant, at which a call comes in, and returns its demand. Calls
// of one instant are dispatched together, before anything later happens. A call with a
// MaxWait has those before it dispatched first, for its ETA counts them.
func (s *simulation) arrive(at time.Duration, a workload.Arrival) (*demand, error) {
	if at > s.now {
		s.advance(at - 1)
		s.fire(at)
	}
	u := s.upstreams[a.Upstream]
	if u == nil {
		return nil, &scheduler.Error{Reason: scheduler.NotFound, Upstream: a.Upstream, Detail: fmt.Sprintf("upstream %q is not configured", a.Upstream)}
	}
	d, err := u.demand(a.Route)
	if err != nil {
		return nil, err
	}
	c := s.newCall(u, a, d)
	if reason := s.refusal(c); reason != "" {
		s.refuse(c, reason)
		return d, nil
	}
	u.waiting++
	if c.due > s.now {
		c.timeout = s.wheel.Insert(c.due, c)
	} else {
		s.queue(c)
	}
	return d, nil
}

func (s *simulation) newCall(u *upstreamState, a workload.Arrival, d *demand) *call {
	s.seq++
	due := s.now + max(0, a.Delay)
	end := due + u.maxAge
	if a.MaxWait > 0 {
		end = min(end, s.now+a.MaxWait)
	}
	c := s.spareCall()
	*c = call{arrival: a, upstream: u, demand: d, arrived: s.now, due: due, end: end, sent: notSent}
	c.item = planner.Item[*call]{Value: c, Demand: d.Demand, Seq: s.seq, Priority: int16(a.Priority)}
	return c
}

// spareCall returns a call that has ended, or a new one.
func (s *simulation) spareCall() *call {
	last := len(s.spare) - 1
	if last < 0 {
		return new(call)
	}
	c := s.spare[last]
	s.spare = s.spare[:last]
	return c
}

// refusal returns the reason for which a scheduler would refuse the call; empty if it
// would accept it.
func (s *simulation) refusal(c *call) scheduler.Reason {
	u := c.upstream
	if u.waiting >= u.maxWaiting {
		return scheduler.Full
	}
	if c.arrival.MaxWait == 0 {
		return ""
	}
	s.dispatch()
	slot := u.planner.ETA(s.time(), &c.item, planner.Elsewhere{}).At
	if deadline := s.begin.Add(c.end); c.due > c.end || slot.After(deadline) {
		return scheduler.PastDeadline
	}
	return ""
}

// queue lets a call wait for its permits until its deadline.
func (s *simulation) queue(c *call) {
	c.upstream.planner.Add(s.time(), &c.item)
	c.timeout = s.wheel.Insert(c.end, c)
	s.changed = true
}

// dispatch sends every call that can go.
func (s *simulation) dispatch() {
	if !s.changed {
		return
	}
	s.changed = false
	now := s.time()
	for _, u := range s.order {
		for u.planner.Dispatch(now, math.MaxInt, s.send) {
		}
	}
}

func (s *simulation) send(c *call) {
	var trip time.Duration
	if s.roundTrip != nil {
		trip = s.roundTrip(&c.arrival)
	}
	c.upstream.waiting--
	c.upstream.sending++
	s.wheel.Cancel(c.timeout)
	c.sent, c.end = s.now, s.now+trip
	c.timeout = s.wheel.Insert(c.end, c)
	s.report(c, trip, "")
}

// Fire is the answer of a call that was sent, the deadline of one that is queued, or the
// end of a delay.
func (c *call) Fire(now time.Time) {
	u := c.upstream
	s := u.simulation
	switch {
	case c.sent != notSent:
		u.complete(now, c)
		return
	case c.item.Queued():
		u.planner.Remove(now, &c.item)
	case s.now < c.end:
		s.queue(c)
		return
	}
	u.waiting--
	s.refuse(c, scheduler.PastDeadline)
}

// complete returns the permits of a call that has been answered.
func (u *upstreamState) complete(now time.Time, c *call) {
	s := u.simulation
	u.sending--
	u.planner.Observe(c.end - c.sent)
	a := quota.Attempt{Sent: s.begin.Add(c.sent), End: s.begin.Add(c.end)}
	for i, n := range c.demand.Needs {
		if a.Fate = quota.Answered; u.limits[n.Limit].Partly {
			a.Fate = quota.Uncounted
		}
		u.ledger.Return(now, c.demand.Needs[i:i+1], a)
	}
	u.planner.Check(now, c.demand.Needs)
	s.spare = append(s.spare, c)
}

// refuse ends a call that was not sent.
func (s *simulation) refuse(c *call, reason scheduler.Reason) {
	s.report(c, 0, reason)
	s.spare = append(s.spare, c)
}

// report passes a call that was sent or refused to the observer.
func (s *simulation) report(c *call, trip time.Duration, reason scheduler.Reason) {
	if s.observe != nil {
		s.observe(departure{Arrival: &c.arrival, demand: c.demand, arrivedAt: c.arrived, at: s.now, roundTrip: trip, reason: reason})
	}
}
