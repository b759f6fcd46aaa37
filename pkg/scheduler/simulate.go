package scheduler

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A Simulation plays calls through a configuration in virtual time: the planner,
// the wheel and the books are those of a [Scheduler], but there is no store, no
// network and no goroutine, and each call is answered once and well. A million
// calls take seconds. It has one owner: its methods must not be called concurrently.
//
// Instants are since the beginning.
type Simulation struct {
	// RoundTrip returns how long the attempt of a call takes; nil means no time.
	RoundTrip func(*Arrival) time.Duration
	// Observe, if not nil, is told of each call when it is sent or turned away.
	Observe func(Departure)

	begin    time.Time
	now      time.Duration
	wheel    *wheel.Wheel[timeouter]
	planners map[string]*planner
	order    []*planner    // by name, so that a run can be repeated
	told     map[int]*Call // what planners look at of a call, by priority
	spare    []*played     // of calls that are over
	seq      uint64
	changed  bool // since dispatch looked
}

// An Arrival is a call that comes in.
type Arrival struct {
	Upstream string
	Route    *Route // may be shared by arrivals that are alike
	Priority int
	// MaxWait is how long its caller waits: it is refused at once if its slot is
	// later than that. Zero: nobody does, and it waits until MaxAge of its upstream.
	MaxWait time.Duration
	// Delay is how long after its arrival it is sent at the earliest.
	Delay time.Duration
}

// A Departure tells what became of an arrival.
type Departure struct {
	*Arrival
	ArrivedAt time.Duration
	At        time.Duration // when it was sent or turned away
	RoundTrip time.Duration // of one that was sent
	Reason    Reason        // why it was turned away; empty if it was sent
}

// played is a call of a simulation. It lies in the wheel as long as it lives: for
// its deadline while it waits, then for its answer.
type played struct {
	call
	s       *Simulation
	p       *planner
	arrival Arrival
	at, end time.Duration
	flight  flight
}

// NewSimulation returns a simulation that begins at an instant, which calendars
// look at. The error joins all faults of the config.
func NewSimulation(c Config, begin time.Time) (*Simulation, error) {
	services, err := compile(c)
	if err != nil {
		return nil, err
	}
	s := &Simulation{begin: begin, wheel: wheel.New[timeouter](tick), planners: make(map[string]*planner), told: make(map[int]*Call)}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		p := newPlanner(services[name], s.wheel, begin)
		s.planners[name], s.order = p, append(s.order, p)
	}
	return s, nil
}

// Now returns the instant that the simulation has reached.
func (s *Simulation) Now() time.Duration { return s.now }

// Pending returns how many calls wait, and how many are on their way.
func (s *Simulation) Pending() (waiting, sending int) {
	for _, p := range s.order {
		waiting += p.waiting
		sending += p.sending
	}
	return waiting, sending
}

// Queued returns how many calls wait for a limit, all its keys together; 0 for one
// that the configuration does not have.
func (s *Simulation) Queued(upstream, limit string) int {
	if p := s.planners[upstream]; p != nil {
		return p.queued[p.limitNamed(limit)+1]
	}
	return 0
}

// Advance plays on to an instant.
func (s *Simulation) Advance(to time.Duration) {
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

// fire lets happen what is due at an instant.
func (s *Simulation) fire(at time.Duration) {
	s.now, s.changed = at, true
	now := s.time()
	s.wheel.Advance(at, func(t timeouter) { t.timeoutAt(now) })
}

// Arrive plays on to an instant, at which a call comes in. Calls of one instant
// are looked at together, before anything later happens; but for one with a MaxWait,
// whose ETA counts those that came before it, these are looked at first.
func (s *Simulation) Arrive(at time.Duration, a Arrival) error {
	if at > s.now {
		s.Advance(at - 1)
		s.fire(at)
	}
	p := s.planners[a.Upstream]
	if p == nil {
		return errNoUpstream(a.Upstream)
	}
	if a.Route.compiled == nil || a.Route.compiled.service != p.service {
		r, err := p.compileRoute(a.Route)
		if err != nil {
			return err
		}
		a.Route.compiled = r
	}
	c := s.newCall(p, a)
	if reason := s.refusal(c); reason != "" {
		s.leave(c, reason)
		return nil
	}
	p.waiting++
	if c.due > s.now {
		c.timeout = s.wheel.Insert(min(c.due, c.end), c)
	} else {
		s.queue(c)
	}
	return nil
}

// queue puts a call into the plan, until its deadline.
func (s *Simulation) queue(c *played) {
	c.p.add(s.time(), &c.call)
	c.timeout = s.wheel.Insert(c.end, c)
	s.changed = true
}

func (s *Simulation) newCall(p *planner, a Arrival) *played {
	c := &played{s: s}
	if last := len(s.spare) - 1; last >= 0 {
		c, s.spare = s.spare[last], s.spare[:last]
	}
	s.seq++
	due := s.now + max(0, a.Delay)
	c.p, c.arrival, c.at, c.end = p, a, s.now, due+p.MaxAge
	if a.MaxWait > 0 {
		c.end = min(c.end, s.now+a.MaxWait)
	}
	if s.told[a.Priority] == nil {
		s.told[a.Priority] = &Call{Priority: int16(a.Priority)}
	}
	c.call = call{Call: s.told[a.Priority], route: a.Route.compiled, seq: s.seq, due: due}
	return c
}

// refusal says why a scheduler would not take the call, empty if it would.
func (s *Simulation) refusal(c *played) Reason {
	if c.p.waiting >= c.p.MaxWaiting {
		return Full
	}
	if c.arrival.MaxWait == 0 {
		return ""
	}
	s.dispatch()
	if eta, _ := c.p.eta(s.time(), &c.call); eta.After(s.begin.Add(c.end)) {
		return PastDeadline
	}
	return ""
}

// dispatch sends every call that can go.
func (s *Simulation) dispatch() {
	if !s.changed {
		return
	}
	s.changed = false
	now := s.time()
	for _, p := range s.order {
		p.aside.again()
		for again := true; again; again = p.aside.unfinished() {
			p.dispatch(now, func(c *call) {
				lying, _ := s.wheel.Cancel(c.timeout)
				s.send(now, lying.(*played))
			})
		}
	}
}

func (s *Simulation) send(now time.Time, c *played) {
	var trip time.Duration
	if s.RoundTrip != nil {
		trip = s.RoundTrip(&c.arrival)
	}
	c.p.waiting--
	c.p.sending++
	c.flight = flight{sentAt: now, needs: c.route.needs}
	c.call.flight = &c.flight
	c.end = s.now + trip
	c.timeout = s.wheel.Insert(c.end, c)
	s.tell(c, trip, "")
}

// timeoutAt is the time of a call that is delayed, the deadline of one that waits, or
// the answer to one that was sent.
func (c *played) timeoutAt(now time.Time) {
	s, p := c.s, c.p
	if c.call.flight != nil {
		p.sending--
		p.back(now, c.call.flight, &upstream.Result{Outcome: upstream.Done, Sent: true, Answered: true, AnsweredAt: s.begin.Add(c.end)})
		s.spare = append(s.spare, c)
		return
	}
	switch l := c.queued.lane; {
	case l != nil:
		g := l.share.gate
		p.remove(now, &c.call)
		p.check(now, g) // what it waited for may be enough for the next
	case s.now < c.end:
		s.queue(c)
		return
	}
	p.waiting--
	s.leave(c, PastDeadline)
}

// leave ends a call that was not sent.
func (s *Simulation) leave(c *played, why Reason) {
	s.tell(c, 0, why)
	s.spare = append(s.spare, c)
}

func (s *Simulation) tell(c *played, trip time.Duration, why Reason) {
	if s.Observe != nil {
		s.Observe(Departure{Arrival: &c.arrival, ArrivedAt: c.at, At: s.now, RoundTrip: trip, Reason: why})
	}
}

func (s *Simulation) time() time.Time { return s.begin.Add(s.now) }

// compileRoute returns a route as the planner knows it.
func (sv *service) compileRoute(told *Route) (*route, error) {
	r := &route{service: sv, cost: 1, flow: sv.flowNamed(told.Flow), needs: []quota.Need{{Cost: 1}}}
	for i := range sv.limits[1:] {
		l := &sv.limits[i+1]
		key, under := told.Keys[l.Name]
		if !under {
			continue
		}
		n := quota.Need{Limit: i + 1, Key: key, Cost: max(1, told.Costs[l.Name])}
		if n.Cost > l.capacity() {
			return nil, &Error{Reason: CostTooHigh, Limit: l.Name, Detail: fmt.Sprintf("the call costs %d permits of limit %q, which has %d", n.Cost, l.Name, l.capacity())}
		}
		r.cost = max(r.cost, n.Cost)
		r.needs = append(r.needs, n)
	}
	r.id = r.name()
	return r, nil
}
