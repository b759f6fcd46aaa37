package planner

import "github.com/seed-30fe103d/throttler/pkg/internal/heap"

// A flow is the calls that share fairly as one party, by start-time fair queueing.
type flow struct {
	name    string
	weight  float64
	virtual float64 // start tag of its next call
	waiting int     // calls
	held    []int   // calls, by the limit at whose key queue their class waits, plus 1
	place   int     // among the idle flows
}

// A flowTable knows the flows that have calls waiting, and idle ones that are ahead of
// virtual time: these have had more than their share, and must not begin anew.
type flowTable struct {
	byName  map[string]*flow
	idle    heap.Heap[*flow]
	virtual float64 // greatest start tag of a call that went
	spare   spare[flow]
	limits  int
	weight  func(flow string) float64
}

func newFlowTable(limits int, weight func(string) float64) flowTable {
	t := flowTable{limits: limits, weight: weight, byName: make(map[string]*flow)}
	t.idle = heap.New(func(f *flow) *int { return &f.place }, func(a, b *flow) bool { return a.virtual < b.virtual })
	return t
}

// of returns the flow of a name, a new one if there is none.
func (t *flowTable) of(name string) *flow {
	f := t.byName[name]
	if f == nil {
		f = t.spare.take()
		f.name, f.weight, f.virtual = name, t.weight(name), 0
		if f.held == nil {
			f.held = make([]int, t.limits+1)
		}
		t.byName[name] = f
	}
	return f
}

// activate lets a flow take turns. The share that an idle flow has not used is lost.
func (t *flowTable) activate(f *flow) {
	if t.idle.Contains(f) {
		t.idle.Remove(f)
	}
	if f.waiting == 0 {
		f.virtual = max(f.virtual, t.virtual)
	}
}

// leave takes one call out of a flow.
func (t *flowTable) leave(f *flow) {
	if f.waiting--; f.waiting == 0 {
		t.idle.Add(f)
	}
}

// pay advances the virtual time of a flow by a call that goes.
func (t *flowTable) pay(f *flow, cost int) {
	t.virtual = max(t.virtual, f.virtual)
	f.virtual += float64(cost) / f.weight
}

// prune forgets idle flows that virtual time has reached.
func (t *flowTable) prune() {
	for t.idle.Size() > 0 && t.idle.First().virtual <= t.virtual {
		f := t.idle.Pop()
		delete(t.byName, f.name)
		t.spare.put(f)
	}
}

// reset begins virtual time anew. No call waits, and none has left at this instant, so no
// flow has had less because of another.
func (t *flowTable) reset() {
	t.virtual = 0
	for _, f := range t.idle.Items[:min(t.idle.Size(), maxSpare)] {
		f.place = 0
		t.spare.put(f)
	}
	clear(t.byName)
	clear(t.idle.Items)
	t.idle.Items = t.idle.Items[:0]
}
