package planner

import (
	"iter"
	"math"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// An estimate looks at so many flow queues of a key, and at so many classes of each,
// and takes them for all: its cost is bounded however much waits.
const (
	maxFlows   = 16
	maxClasses = 16
)

// Elsewhere is the part of the wait of a call that a planner does not know.
type Elsewhere struct {
	// Ahead is the number of calls that wait outside the planner, as on disk, and go before.
	Ahead int
	// Without leaves a limit out of the estimate, by its index plus 1.
	Without int
	// Pauses are those of limits and keys, for [Planner.Last]: a bounded number, the latest end first.
	Pauses []Pause
	// Hung returns how many permits of a key are in flight and not expected back; nil if
	// there are none. It does not count during a pause.
	Hung func(limit int, key string) int
}

// outlook is what is expected of a key, apart from the calls ahead.
func (p *Planner[T]) outlook(now, opens time.Time, limit int, key string, other Elsewhere) quota.Outlook {
	o := quota.Outlook{Trip: p.trip, From: opens}
	if other.Hung != nil && !opens.After(now) {
		o.Hung = other.Hung(limit, key)
	}
	return o
}

// A Forecast is when a call can be expected to go.
type Forecast struct {
	// At is zero if that cannot be told before permits are back that hang in flight.
	At time.Time
	// Limit is the index of the limit that it waits for last, or whose pause lasts longest
	// if one of its limits is paused, -1 if none holds it; Key is its key there.
	Limit int
	Key   string
	Ahead int       // permits of the key that calls ahead of it will take
	Pause time.Time // until when the limit or the key is paused; zero if it is not
	Full  bool      // the limit has no place for the key: see quota.Limit.MaxKeys
}

// ETA estimates when a call can be expected to go, also one that has not been added. It
// counts the calls that wait, not those that are yet to come.
func (p *Planner[T]) ETA(now time.Time, it *Item[T], other Elsewhere) Forecast {
	f := Forecast{At: now, Limit: -1}
	if len(p.classes) == 0 && other.Ahead == 0 && other.Hung == nil && p.free(now, it.Demand) { // as most calls find it
		return f
	}
	opens := now // all pauses are over
	for _, n := range it.Demand.Needs {
		if until := p.ledger.Usage(now, n.Limit, n.Key).PausedUntil; n.Limit != other.Without-1 && until.After(opens) {
			opens = until
		}
	}
	for _, n := range it.Demand.Needs {
		if n.Limit == other.Without-1 {
			continue
		}
		stored := other.Ahead * n.Cost
		line := p.line(p.keys[keyID{n.Limit, n.Key}], it, n.Cost)
		o := p.outlook(now, opens, n.Limit, n.Key, other)
		o.Ahead = stored + line.ahead(0)
		at, known := p.ledger.Estimate(now, n, o)
		if !known {
			return Forecast{Limit: n.Limit, Key: n.Key, Ahead: o.Ahead}
		}
		for range 4 { // calls that pass meanwhile take time too; it converges from below
			more := stored + line.ahead(at.Sub(now))
			if more <= o.Ahead {
				break
			}
			o.Ahead = more
			at, _ = p.ledger.Estimate(now, n, o)
		}
		until := p.ledger.Usage(now, n.Limit, n.Key).PausedUntil
		holds := at.After(f.At)
		if opens.After(now) {
			holds = until.Equal(opens) && f.Limit < 0
		}
		if holds {
			f = Forecast{At: f.At, Limit: n.Limit, Key: n.Key, Ahead: o.Ahead, Pause: until, Full: p.ledger.Full(now, n.Limit, n.Key)}
		}
		if at.After(f.At) {
			f.At = at
		}
	}
	return f
}

// free reports whether the permits of a demand are free.
func (p *Planner[T]) free(now time.Time, d *Demand) bool {
	for _, n := range d.Needs {
		if p.wait(now, n) > 0 {
			return false
		}
	}
	return true
}

// Last estimates when the last of all waiting calls can be expected to go: it waits at
// one of the keys for which most permits are wanted. Calls ahead elsewhere are taken to
// need the same as those in the planner. No call goes before opens. The result is zero if
// none is in the planner, or if it cannot be told before permits are back that hang in
// flight.
func (p *Planner[T]) Last(now, opens time.Time, other Elsewhere) (at time.Time) {
	inside := 0
	for _, n := range p.held {
		inside += n
	}
	longest := make([]*keyQueue[T], len(p.limits))
	for id, q := range p.keys {
		if l := longest[id.limit]; l == nil || q.total() > l.total() {
			longest[id.limit] = q
		}
	}
	for i, q := range longest {
		if q == nil || q.total() == 0 {
			continue
		}
		o := p.outlook(now, opens, i, q.id.key, other)
		o.Ahead = q.total() + int(float64(q.total())*float64(other.Ahead)/float64(max(1, inside))) - 1
		eta, known := p.ledger.Estimate(now, quota.Need{Limit: i, Key: q.id.key, Cost: 1}, o)
		if !known {
			return time.Time{}
		}
		if eta.After(at) {
			at = eta
		}
	}
	return lines[T]{p, longest, float64(other.Ahead) / float64(max(1, inside))}.after(now, at, other)
}

// Trip returns how long attempts take, the last ones most.
func (p *Planner[T]) Trip() time.Duration { return p.trip }

// Observe learns how long attempts take.
func (p *Planner[T]) Observe(trip time.Duration) {
	if p.trip == 0 {
		p.trip = trip
	}
	p.trip += (trip - p.trip) / 8
}

// Held returns how many calls wait for a limit, all its keys together.
func (p *Planner[T]) Held(limit int) int { return p.held[limit+1] }

// Wanted returns how many permits of a key waiting calls will take.
func (p *Planner[T]) Wanted(limit int, key string) int {
	if q := p.keys[keyID{limit, key}]; q != nil {
		return q.total()
	}
	return 0
}

// WantedOf returns how many permits of all keys of a limit waiting calls will take.
func (p *Planner[T]) WantedOf(limit int) int { return p.wanted[limit] }

// A KeyDemand is what waiting calls need of one key of a limit.
type KeyDemand struct {
	Limit   int
	Key     string
	Permits int // that they will take
}

// Keys yields the keys of all limits that waiting calls need, in no particular order. The planner
// may change between two of them: a key that comes or goes meanwhile may be left out.
func (p *Planner[T]) Keys() iter.Seq[KeyDemand] {
	return func(yield func(KeyDemand) bool) {
		for id, q := range p.keys {
			if !yield(KeyDemand{id.limit, id.key, q.total()}) {
				return
			}
		}
	}
}

// A FlowDemand is the waiting calls of a flow.
type FlowDemand[T any] struct {
	Flow    string
	Weight  float64
	Waiting int // calls
	First   T   // the first in line of those that take the same permits
}

// Flows yields the flows of waiting calls, each as often as its calls take different permits, in no
// particular order. The planner may change between two of them, as with Keys.
func (p *Planner[T]) Flows() iter.Seq[FlowDemand[T]] {
	return func(yield func(FlowDemand[T]) bool) {
		for _, cl := range p.classes {
			if !yield(FlowDemand[T]{cl.flow.name, cl.flow.weight, cl.flow.waiting, cl.calls.first().Value}) {
				return
			}
		}
	}
}

// First returns the call that is first in line at a key; false if none waits there.
func (p *Planner[T]) First(limit int, key string) (first T, ok bool) {
	q := p.keys[keyID{limit, key}]
	if q == nil || q.empty() {
		return first, false
	}
	return q.first().calls.first().Value, true
}

// A line is the calls at a key queue between a call and its turn. Flows take turns there
// by their virtual time, whichever of their classes a call comes from. Classes that wait
// at the key go when it is their turn; classes that wait at another key and need this
// one too pass as fast as the other limit lets them.
type line[T any] struct {
	p      *Planner[T]
	key    *keyQueue[T]
	flow   *flow   // of the call, nil if it has none waiting
	weight float64 // of the flow
	tag    float64 // virtual time of the flow
	before int     // permits for calls of the flow that go before, and wait here or in the class of the call
	behind float64 // the part of the flow's calls at other keys that go before
	apart  int     // permits for the class of the call, if it waits at another key
	rivals [maxFlows]rival
	seen   int // rivals, as many as fit
	all    int // rivals at the key
}

// A rival is another flow at the key, with the permits for its calls that are more
// urgent than the call, and as urgent.
type rival struct {
	flow          *flow
	urgent, alike int
	older         int // of alike, those of calls that are older
}

// line returns the calls between a call and its turn at a key, none if no call waits for
// the key. It is returned by value: on the heap it would take a quarter of an estimate.
func (p *Planner[T]) line(q *keyQueue[T], it *Item[T], cost int) (l line[T]) {
	if q == nil {
		return l
	}
	r := it.rank()
	if r.seq == 0 { // not accepted yet
		r.seq = math.MaxUint64
	}
	d := it.Demand
	l = line[T]{p: p, key: q, flow: p.flows.byName[d.Flow], tag: p.flows.virtual, weight: p.flows.weight(d.Flow), behind: 1, all: q.flows.Size()}
	if l.flow != nil {
		l.tag = max(l.tag, l.flow.virtual)
	}
	own := q.byFlow[l.flow]
	if own != nil {
		l.all--
		l.before = own.before(r)
		all, _ := own.counts.split(lowest.priority)
		l.behind = float64(l.before) / float64(all)
	}
	if cl := p.classes[d.ID]; cl != nil && cl.at != own {
		l.before += cl.calls.before(r) * cost
		l.apart = cl.calls.size() * cost
	}
	for f := range sample(q.flows.Items, maxFlows) {
		if f == own {
			continue
		}
		urgent, alike := f.counts.split(r.priority)
		l.rivals[l.seen] = rival{f.flow, urgent, alike, f.older(r)}
		l.seen++
	}
	return l
}

// ahead returns how many permits of the key will be taken before the turn of the call, if
// that comes within a time.
func (l *line[T]) ahead(in time.Duration) int {
	if l.key == nil {
		return 0
	}
	own := float64(l.apart)
	if l.flow != nil {
		own = max(own, l.passing(l.flow, in))
	}
	rest := l.passing(nil, in) - own
	mine := l.before + int(l.behind*(own-float64(l.apart)))
	tag := l.tag + float64(mine)/l.weight // of the call
	others := 0
	for _, r := range l.rivals[:l.seen] {
		passing := l.passing(r.flow, in)
		rest -= passing
		others += r.urgent + min(r.alike+int(passing), r.due(tag))
	}
	n := mine + scale(others, l.seen, l.all)
	if l.seen == l.all { // flows that have nothing waiting here
		n += int(max(0, rest))
	}
	return n
}

// due returns how many permits of the rival come before a call at a virtual time. Of two
// calls at one time the older goes first.
func (r *rival) due(tag float64) int {
	ahead := (tag - r.flow.virtual) * r.flow.weight
	n := max(0, int(math.Ceil(ahead-1e-9)))
	if same := math.Abs(ahead-float64(n)) < 1e-9; same && r.older > n {
		n++
	}
	return n
}

// passing returns how many permits of the key are taken within a time by calls that wait
// at other keys: those of a flow, or of all flows if it is nil.
func (l *line[T]) passing(f *flow, in time.Duration) float64 {
	n := 0.0
	for j := range l.p.limits {
		if here := float64(l.key.waiting[j+1]); j != l.key.id.limit && here > 0 {
			all := float64(l.p.held[j+1])
			if f != nil {
				here *= float64(f.held[j+1]) / all
			}
			n += here * min(1, l.p.passes(j, in)/all)
		}
	}
	return n
}

// passes returns how many permits all keys of a limit give within a time.
func (p *Planner[T]) passes(limit int, in time.Duration) float64 {
	l := &p.limits[limit]
	all := float64(l.Calls * p.perKey[limit])
	round := l.Window.Round(p.trip)
	if round <= 0 {
		return all
	}
	return all * float64(in) / float64(round)
}

// before returns how many permits of the key go to calls of the flow queue with a better
// rank.
func (f *flowQueue[T]) before(r rank) int {
	n, seen := 0, 0
	for cl := range sample(f.classes.Items, maxClasses) {
		n += cl.calls.before(r) * cl.cost(f.key)
		seen++
	}
	return scale(n, seen, f.classes.Size())
}

// older returns how many permits of the key go to calls of the flow queue that are as
// urgent as a call, and older. With more than four classes, the first call stands for all.
func (f *flowQueue[T]) older(r rank) int {
	if f.classes.Size() <= 4 {
		return f.before(r) - f.before(rank{priority: r.priority})
	}
	if first := f.classes.First().calls.first(); int(first.Priority) == r.priority && first.Seq < r.seq {
		return math.MaxInt
	}
	return 0
}

// sample yields at most n items, evenly spread over all.
func sample[T any](items []T, n int) func(yield func(T) bool) {
	return func(yield func(T) bool) {
		n = min(n, len(items))
		for i := range n {
			if !yield(items[i*len(items)/n]) {
				return
			}
		}
	}
}

// scale takes a count over the items that were seen for one over all.
func scale(n, seen, all int) int {
	if seen == all {
		return n
	}
	return n * all / seen
}

// Sizes are the parts of a planner that come with their first call and go with their
// last, but for flows: idle ones are kept while they are ahead of the others.
type Sizes struct{ Classes, Keys, Ready, Flows int }

// Sizes returns how much the planner remembers.
func (p *Planner[T]) Sizes() Sizes {
	return Sizes{len(p.classes), len(p.keys), p.ready.Size(), len(p.flows.byName)}
}
