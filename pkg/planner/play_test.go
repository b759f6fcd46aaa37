package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/oracle"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

var start = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// A player plays a load through a planner, a ledger and a wheel in virtual time, as
// their owner. Limit 0 of the ledger is the upstream; those of the load follow.
type player struct {
	t      *testing.T
	load   *oracle.Load
	limits []oracle.Limit // as they are now
	calls  []*played
	now    time.Duration

	wheel   *wheel.Wheel[Timeout]
	ledger  *quota.Ledger
	planner *Planner[*played]
	most    int        // calls of one Dispatch
	r       *rand.Rand // picks the calls whose ETA is asked for
	wakeups int        // the player's own timeouts in the wheel
	quiet   bool       // no call was sent at this instant

	// A change of limits is put in force by a succession that begins before.
	succession *Succession[*played]
	next       []oracle.Limit // its limits
	successor  *quota.Ledger
	begun      bool // calls are settled
}

// A played call has its place in the planner.
type played struct {
	Item[*played]
	*oracle.Call
	sent  []time.Duration
	state string        // "", waiting, sending, ended
	end   time.Duration // of the attempt
	needs []quota.Need  // of the attempt
}

// wakeup is in the wheel for what the player does at an instant.
type wakeup struct{ p *player }

func (w wakeup) Fire(time.Time) { w.p.wakeups-- }

func (p *player) wakeAt(at time.Duration) {
	p.wakeups++
	p.wheel.Insert(at, wakeup{p})
}

func newPlayer(t *testing.T, load *oracle.Load, most int) *player {
	p := &player{
		t: t, load: load, limits: slices.Clone(load.Limits), wheel: wheel.New[Timeout](oracle.Grain),
		most: most, r: rand.New(rand.NewPCG(7, 7)),
	}
	p.ledger = quota.New(start, quotas(load, p.limits)...)
	p.planner = New[*played](start, p.wheel, p.ledger, quotas(load, p.limits), p.weight)
	for i, c := range load.Calls {
		pl := &played{Call: c}
		pl.Value, pl.Seq, pl.Item.Priority = pl, uint64(i+1), math.MinInt16+int16(c.Priority)
		p.calls = append(p.calls, pl)
		p.wakeAt(c.Due)
		if c.Cancel > 0 {
			p.wakeAt(c.Cancel)
		}
	}
	for _, ch := range load.Changes {
		p.wakeAt(ch.At)
	}
	return p
}

func (p *player) weight(flow string) float64 { return p.load.Weights[flow] }
func (p *player) time() time.Time            { return start.Add(p.now) }

// quotas returns the limits as the ledger knows them.
func quotas(load *oracle.Load, limits []oracle.Limit) []quota.Limit {
	all := []quota.Limit{{Name: "upstream", Calls: quota.MaxCalls, Window: quota.InFlight()}}
	for i, l := range limits {
		all = append(all, quota.Limit{
			Name: fmt.Sprint(i), Calls: l.Calls, Window: window(l), Guard: l.Guard, Late: load.Late, Partly: l.FailedOnly,
		})
	}
	return all
}

// window returns the kind of a limit.
func window(l oracle.Limit) quota.Window {
	switch {
	case l.Calendar != nil:
		return quota.Aligned(*l.Calendar)
	case l.Window > 0:
		return quota.Sliding(l.Window)
	}
	return quota.InFlight()
}

// demandOf returns what a call takes under some limits.
func demandOf(c *played, limits []oracle.Limit) *Demand {
	d := &Demand{ID: c.Flow, Needs: []quota.Need{{Cost: 1}}, Flow: c.Flow, Cost: 1}
	for i, key := range c.Keys {
		if key != "" {
			n := quota.Need{Limit: i + 1, Key: key, Cost: min(c.Costs[i], limits[i].Calls)}
			d.Needs, d.Cost = append(d.Needs, n), max(d.Cost, n.Cost)
			d.ID += fmt.Sprint(" ", n)
		}
	}
	return d
}

// play plays the load to its end.
func (p *player) play() {
	for at, ok := p.wheel.Next(); ok; at, ok = p.wheel.Next() {
		p.now = max(p.now, at)
		p.end()
		for _, ch := range p.load.Changes {
			if ch.At == p.now {
				p.apply(ch)
			}
		}
		for _, c := range p.calls {
			if c.Cancel > 0 && c.Cancel == p.now {
				p.cancel(c)
			}
			if c.Due == p.now && c.state == "" {
				p.wait(c)
			}
		}
		p.quiet = true
		p.dispatch()
		p.verify()
		p.step()
	}
	if n := len(p.planner.classes) + len(p.planner.keys); n > 0 {
		p.t.Errorf("%d classes and keys are left", n)
	}
}

func (p *player) wait(c *played) {
	c.state, c.Demand = "waiting", demandOf(c, p.limits)
	p.planner.Add(p.time(), &c.Item)
}

// cancel ends a call that has not been sent.
func (p *player) cancel(c *played) {
	switch c.state {
	case "waiting":
		p.planner.Remove(p.time(), &c.Item)
		fallthrough
	case "":
		c.state = "ended"
	}
}

// end ends the attempts whose answer comes now, the first sent first. Limited calls wait
// again.
func (p *player) end() {
	var ends []*played
	for _, c := range p.calls {
		if c.state == "sending" && c.end == p.now {
			ends = append(ends, c)
		}
	}
	slices.SortStableFunc(ends, func(a, b *played) int { return int(a.sent[len(a.sent)-1] - b.sent[len(b.sent)-1]) })
	for _, c := range ends {
		try := c.Tries[len(c.sent)-1]
		for i, n := range c.needs {
			a := quota.Attempt{Sent: start.Add(c.sent[len(c.sent)-1]), End: p.time(), Fate: quota.Answered}
			switch {
			case try.Result == oracle.Lost:
				a.Fate = quota.Unanswered
			case n.Limit > 0 && p.limits[n.Limit-1].FailedOnly && try.Result != oracle.Failed:
				a.Fate = quota.Uncounted
			}
			p.ledger.Return(p.time(), c.needs[i:i+1], a)
		}
		p.planner.Observe(try.Trip)
		p.planner.Check(p.time(), c.needs)
		if c.state = "ended"; try.Result == oracle.Limited {
			until := p.now + p.load.Pause
			if key := c.Keys[0]; key != "" {
				p.pause(1, key, until)
			} else {
				p.pause(0, "", until)
			}
			p.wait(c)
		}
	}
}

// pause pauses a limit, or one key of it; an instant of 0 ends the pause.
func (p *player) pause(limit int, key string, until time.Duration) {
	at := time.Time{}
	if until > 0 {
		at = start.Add(until)
	}
	if key == "" {
		p.ledger.PauseLimit(limit, at)
		p.planner.CheckLimit(p.time(), limit)
		return
	}
	p.ledger.PauseKey(p.time(), limit, key, at)
	p.planner.Check(p.time(), []quota.Need{{Limit: limit, Key: key, Cost: 1}})
}

// apply applies a change. Other limits are put in force as by a reload: a limit with
// another window begins anew, keeps its pauses, and is charged for calls in flight.
func (p *player) apply(ch oracle.Change) {
	if ch.Pause {
		p.pause(ch.Limit+1, ch.Key, ch.Until)
		return
	}
	now, changed := p.time(), ch.Limit+1
	all := p.ledger.Usage(now, changed, "").PausedUntil
	pauses := map[string]time.Time{}
	for u := range p.ledger.PausedKeys(now, changed) {
		pauses[u.Key] = u.PausedUntil
	}
	if p.succession == nil || p.begun {
		p.succeed(ch)
	}
	p.each(1, func(c *played) { p.succession.Stage(now, &c.Item, demandOf(c, p.next)) })
	p.successor.Begin(now)
	p.limits, p.ledger, p.planner, p.begun = p.next, p.successor, p.succession.Begin(now), true
	if ch.Window > 0 {
		if !all.IsZero() {
			p.ledger.PauseLimit(changed, all)
		}
		for key, until := range pauses {
			if until.After(all) {
				p.ledger.PauseKey(now, changed, key, until)
			}
		}
	}
	for _, c := range p.calls {
		if c.state == "sending" && ch.Window > 0 {
			d := demandOf(c, p.limits)
			c.needs = slices.DeleteFunc(slices.Clone(c.needs), func(n quota.Need) bool { return n.Limit == changed })
			if i := slices.IndexFunc(d.Needs, func(n quota.Need) bool { return n.Limit == changed }); i >= 0 {
				p.ledger.Charge(now, d.Needs[i:i+1])
				c.needs = append(c.needs, d.Needs[i])
			}
		}
	}
}

// succeed begins the succession to the limits after a change.
func (p *player) succeed(ch oracle.Change) {
	now := p.time()
	p.each(1, func(c *played) { p.succession.Settle(now, &c.Item) }) // of the one before
	kept := make([]int, len(p.limits)+1)
	for i := range kept {
		kept[i] = i
	}
	p.next, p.begun = slices.Clone(p.limits), false
	l := &p.next[ch.Limit]
	if ch.Calls > 0 {
		l.Calls = ch.Calls
	}
	if ch.Window > 0 {
		l.Window = ch.Window
		kept[ch.Limit+1] = -1
	}
	limits := quotas(p.load, p.next)
	p.successor = p.ledger.Successor(now, limits, kept)
	p.succession = Succeed(p.planner, p.successor, limits, kept, p.weight)
}

// step begins a succession, stages some calls, gives them up, or settles some.
func (p *player) step() {
	now := p.time()
	switch {
	case p.succession == nil || p.begun && p.planner.arriving == nil:
		var first *oracle.Change // of those to come
		for i, ch := range p.load.Changes {
			if !ch.Pause && ch.At > p.now && (first == nil || ch.At < first.At) {
				first = &p.load.Changes[i]
			}
		}
		if first != nil && p.r.IntN(2) == 0 {
			p.succeed(*first)
		}
	case p.begun:
		p.each(3, func(c *played) { p.succession.Settle(now, &c.Item) })
	case p.r.IntN(20) == 0:
		for p.succession.Abandon(now, 1+p.r.IntN(3)) {
		}
		p.succession = nil
	case p.r.IntN(3) == 0:
		for _, c := range p.succession.Late() {
			p.succession.Stage(now, &c.Item, demandOf(c, p.next))
		}
	default:
		p.each(3, func(c *played) { p.succession.Stage(now, &c.Item, demandOf(c, p.next)) })
	}
}

// each calls do for one in n of the calls that wait.
func (p *player) each(n int, do func(*played)) {
	for _, c := range p.calls {
		if c.Queued() && p.r.IntN(n) == 0 {
			do(c)
		}
	}
}

// dispatch fires the wheel and sends calls as long as there is anything to do now.
func (p *player) dispatch() {
	for range 10_000 {
		p.wheel.Advance(p.now, p.fire)
		sent := 0
		more := p.planner.Dispatch(p.time(), p.most, func(c *played) { sent++; p.send(c) })
		next, ok := p.wheel.Next()
		due := ok && next <= p.now
		if more && !due {
			p.t.Fatalf("at %v: there is more to look at, and the wheel fires at %v", p.now, next)
		}
		if sent > p.most {
			p.t.Fatalf("at %v: Dispatch sends %d calls, at most %d are allowed", p.now, sent, p.most)
		}
		if !due && sent < p.most {
			return
		}
	}
	p.t.Fatalf("at %v: Dispatch has more to do each time", p.now)
}

func (p *player) fire(t Timeout) { t.Fire(p.time()) }

func (p *player) send(c *played) {
	if f := p.planner.flows; f.idle.Size() > 0 && f.idle.First().virtual <= f.virtual {
		p.t.Fatalf("at %v: flow %q is idle and not ahead, and is kept", p.now, f.idle.First().name)
	}
	if c.state != "waiting" || c.Queued() {
		p.t.Fatalf("at %v: call %d is sent; it was %q and queued: %v", p.now, c.Seq-1, c.state, c.Queued())
	}
	if len(c.sent) == len(c.Tries) {
		p.t.Fatalf("at %v: call %d is sent once too often", p.now, c.Seq-1)
	}
	c.state, c.needs, c.end = "sending", c.Demand.Needs, p.now+c.Tries[len(c.sent)].Trip
	c.sent = append(c.sent, p.now)
	p.quiet = false
	if c.Cancels > 0 && len(c.sent) == 1 {
		p.cancel(p.calls[c.Cancels-1])
	}
	p.wakeAt(c.end)
}

// verify compares what the planner says of its calls with the calls.
func (p *player) verify() {
	p.verifyDoubles()
	if p.planner.arriving != nil {
		return // some calls have the demands of before
	}
	waiting, wanted := 0, make(map[keyID]int)
	var some *played // one that waits
	for _, c := range p.calls {
		if (c.state == "waiting") != c.Queued() {
			p.t.Fatalf("at %v: call %d is %q and queued: %v", p.now, c.Seq-1, c.state, c.Queued())
		}
		if !c.Queued() {
			continue
		}
		waiting++
		p.verifyPlace(c)
		for _, n := range c.Demand.Needs {
			wanted[keyID{n.Limit, n.Key}] += n.Cost
		}
		if some == nil || p.r.IntN(4) == 0 {
			some = c
		}
	}
	held := p.planner.Held(-1)
	for limit := range p.planner.limits {
		held += p.planner.Held(limit)
		all := 0
		for id, n := range wanted {
			if id.limit == limit {
				all += n
			}
		}
		if got := p.planner.WantedOf(limit); got != all {
			p.t.Fatalf("at %v: limit %d: %d permits of all keys are wanted, want %d", p.now, limit, got, all)
		}
	}
	for d := range p.planner.Keys() {
		id := keyID{d.Limit, d.Key}
		if d.Permits != wanted[id] || d.Permits != p.planner.Wanted(d.Limit, d.Key) {
			p.t.Fatalf("at %v: limit %d: key %q: %d permits are wanted, want %d", p.now, d.Limit, d.Key, d.Permits, wanted[id])
		}
		delete(wanted, id)
	}
	if held != waiting || len(wanted) > 0 || !p.planner.entry.empty() || p.planner.ready.Size() > 0 {
		p.t.Fatalf("at %v: %d calls wait, %d are held; wanted of keys that are not known: %v; %d key queues are ready", p.now, waiting, held, wanted, p.planner.ready.Size())
	}
	p.verifyFlows()
	p.verifyCounts()
	p.verifyTimeouts()
	if some != nil {
		if f := p.planner.ETA(p.time(), &some.Item, Elsewhere{}); f.At.Before(p.time()) {
			p.t.Fatalf("at %v: the ETA of call %d is %v", p.now, some.Seq-1, f.At.Sub(start))
		}
	}
}

// verifyDoubles checks that a call with a double waits, and that nothing is kept of others.
func (p *player) verifyDoubles() {
	if p.succession == nil {
		return
	}
	for it, double := range p.succession.doubles {
		if !it.Queued() || !double.Queued() || p.succession.owners[double] != it {
			p.t.Fatalf("at %v: call %d is queued: %v; its double: %v", p.now, it.Seq-1, it.Queued(), double.Queued())
		}
	}
	if n, doubles := len(p.succession.owners), len(p.succession.doubles); n != doubles {
		p.t.Fatalf("at %v: %d calls have a double, and %d doubles have a call", p.now, doubles, n)
	}
}

// verifyFlows compares the calls of the flows with the calls that wait.
func (p *player) verifyFlows() {
	waiting := map[string]int{}
	for _, c := range p.calls {
		if c.Queued() {
			waiting[c.Flow]++
		}
	}
	for f := range p.planner.Flows() {
		if f.Waiting != waiting[f.Flow] || f.Weight != p.planner.flows.weight(f.Flow) || f.First.Flow != f.Flow || !f.First.Queued() {
			p.t.Fatalf("at %v: %+v, want %d calls", p.now, f, waiting[f.Flow])
		}
	}
	for name, f := range p.planner.flows.byName {
		if f.waiting != waiting[name] {
			p.t.Fatalf("at %v: flow %q has %d calls, want %d", p.now, name, f.waiting, waiting[name])
		}
	}
}

// verifyCounts compares the permits by priority of each flow queue with its calls.
func (p *player) verifyCounts() {
	queues := []*keyQueue[*played]{p.planner.entry, p.planner.parked.queue}
	for _, q := range p.planner.keys {
		queues = append(queues, q)
	}
	for _, q := range queues {
		counts := map[*flowQueue[*played]]map[int]int{}
		for _, f := range q.byFlow {
			counts[f] = map[int]int{}
		}
		for _, c := range p.calls {
			if c.Queued() {
				if cl := p.planner.classes[c.Demand.ID]; cl.at.key == q {
					counts[cl.at][int(c.Item.Priority)] += cl.cost(q)
				}
			}
		}
		for f, want := range counts {
			if len(want) != len(f.counts) || len(want) == 0 {
				p.t.Fatalf("at %v: flow %q has permits of %d priorities at %v, want %d", p.now, f.flow.name, len(f.counts), q.id, len(want))
			}
			for _, c := range f.counts {
				if want[c.priority] != c.n {
					p.t.Fatalf("at %v: flow %q: calls of priority %d take %d permits of %v, want %d", p.now, f.flow.name, c.priority, c.n, q.id, want[c.priority])
				}
			}
		}
	}
}

// verifyTimeouts checks that the wheel holds one timeout for each key queue at most, and
// one for parked calls.
func (p *player) verifyTimeouts() {
	if p.planner.leaving != nil {
		return // the second planner has its own
	}
	most := 0
	for _, q := range p.planner.keys {
		if !q.empty() {
			most++
		}
	}
	if p.planner.unfinished() || !p.planner.parked.soonest.IsZero() {
		most++
	}
	if n := p.wheel.Len() - p.wakeups; n > most {
		p.t.Fatalf("at %v: the planner has %d timeouts in the wheel, want %d at most", p.now, n, most)
	}
}

// verifyPlace checks where a call waits that came at this instant, and at whose keys no
// other waits: at the limit that stops it for longest.
func (p *player) verifyPlace(c *played) {
	cl := p.planner.classes[c.Demand.ID]
	q := cl.at.key
	others := func(k *keyQueue[*played]) bool {
		return k != q && !k.empty() || k.flows.Size() > 1 || k == q && cl.at.classes.Size() > 1
	}
	if !p.quiet || c.Due != p.now || cl.calls.size() > 1 || c.Demand.Cost > 1 || slices.ContainsFunc(cl.keys, others) {
		return
	}
	until := func(n quota.Need) time.Time {
		if at := p.ledger.Next(p.time(), n); !at.IsZero() {
			return at
		}
		return p.time().Add(math.MaxInt64) // when an attempt has ended
	}
	here := until(c.Demand.Needs[slices.Index(cl.keys, q)])
	for i, n := range c.Demand.Needs {
		if until(n).After(here) {
			p.t.Fatalf("at %v: call %d waits at %v, but %v stops it for longer", p.now, c.Seq-1, q.id, cl.keys[i].id)
		}
	}
}

// compare plays a load, and tells the first send that is not the oracle's.
func compare(t *testing.T, load *oracle.Load, most int) {
	t.Helper()
	p := newPlayer(t, load, most)
	p.play()
	sent := make([][]time.Duration, len(p.calls))
	for i, c := range p.calls {
		sent[i] = c.sent
	}
	if diff := oracle.Run(load).Diff(load, sent); diff != "" {
		t.Error(diff)
	}
}
