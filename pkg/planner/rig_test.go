package planner

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// A rig is the owner of a planner in virtual time. Calls have names.
type rig struct {
	t       *testing.T
	now     time.Duration
	wheel   *wheel.Wheel[Timeout]
	ledger  *quota.Ledger
	planner *Planner[string]
	calls   map[string]*Item[string]
	sent    map[string]time.Duration
	// trip is how long an attempt takes; if it is negative, until back is called.
	trip time.Duration
	// onSend, if it is not nil, runs inside Dispatch for each call that is sent.
	onSend func(name string)
}

// newRig returns a rig under limits. All flows have weight 1, but for those of weights.
func newRig(t *testing.T, weights map[string]float64, limits ...quota.Limit) *rig {
	r := &rig{
		t: t, wheel: wheel.New[Timeout](100 * time.Microsecond), ledger: quota.New(start, limits...),
		calls: make(map[string]*Item[string]), sent: make(map[string]time.Duration), trip: -1,
	}
	r.planner = New[string](start, r.wheel, r.ledger, limits, weight(weights))
	return r
}

func weight(weights map[string]float64) func(string) float64 {
	return func(flow string) float64 {
		if w, ok := weights[flow]; ok {
			return w
		}
		return 1
	}
}

func need(limit int, key string, cost int) quota.Need {
	return quota.Need{Limit: limit, Key: key, Cost: cost}
}

func (r *rig) time() time.Time { return start.Add(r.now) }

// demand returns the demand of a call of a flow.
func demand(flow string, needs ...quota.Need) *Demand {
	return NewDemand(flow, needs, false)
}

// flowOf returns the flow of a call: the first letter of its name.
func flowOf(name string) string {
	letter, _ := utf8.DecodeRuneInString(name)
	return string(letter)
}

// add lets a call wait, the youngest of all.
func (r *rig) add(name string, needs ...quota.Need) *Item[string] { return r.urgent(name, 0, needs...) }

// urgent is add for a call with a priority.
func (r *rig) urgent(name string, priority int16, needs ...quota.Need) *Item[string] {
	it := &Item[string]{Value: name, Demand: demand(flowOf(name), needs...), Seq: uint64(len(r.calls) + 1), Priority: priority}
	r.calls[name] = it
	r.planner.Add(r.time(), it)
	return it
}

// dispatch sends calls until there is nothing to look at, and returns their names.
func (r *rig) dispatch(most int) string {
	var sent []string
	for range 10_000 {
		names, more := r.once(most - len(sent))
		if sent = append(sent, names...); !more {
			return strings.Join(sent, " ")
		}
	}
	r.t.Fatalf("at %v: Dispatch has more to look at each time", r.now)
	return ""
}

// once is one Dispatch.
func (r *rig) once(most int) (sent []string, more bool) {
	more = r.planner.Dispatch(r.time(), most, func(name string) {
		sent = append(sent, name)
		r.sent[name] = r.now
		if r.trip >= 0 {
			r.wheel.Insert(r.now+r.trip, ending{r, name})
		}
		if r.onSend != nil {
			r.onSend(name)
		}
	})
	return sent, more
}

// An ending is in the wheel for the answer to a call.
type ending struct {
	r    *rig
	name string
}

func (e ending) Fire(time.Time) { e.r.back(e.name) }

// back ends the attempts of calls with an answer.
func (r *rig) back(names ...string) {
	for _, name := range names {
		needs := r.calls[name].Demand.Needs
		r.ledger.Return(r.time(), needs, quota.Attempt{Sent: start.Add(r.sent[name]), End: r.time(), Fate: quota.Answered})
		r.planner.Check(r.time(), needs)
	}
}

// run plays from now until an instant and returns the calls that are sent on the way.
func (r *rig) run(until time.Duration) string {
	sent := strings.Fields(r.dispatch(1 << 30))
	for at, ok := r.wheel.Next(); ok && at <= until; at, ok = r.wheel.Next() {
		r.now = max(r.now, at)
		r.wheel.Advance(r.now, func(t Timeout) { t.Fire(r.time()) })
		if names := r.dispatch(1 << 30); names != "" {
			sent = append(sent, names)
		}
	}
	r.now = until
	return strings.Join(sent, " ")
}

// at returns where a call waits: a limit and a key, parked, or gone.
func (r *rig) at(name string) string {
	it := r.calls[name]
	if !it.Queued() {
		return "gone"
	}
	switch q := r.planner.classes[it.Demand.ID].at.key; q {
	case r.planner.entry:
		return "entry"
	case r.planner.parked.queue:
		return "parked"
	default:
		return r.planner.limits[q.id.limit].Name + ":" + q.id.key
	}
}

// wantAt checks where a call waits.
func (r *rig) wantAt(name, want string) {
	r.t.Helper()
	if got := r.at(name); got != want {
		r.t.Errorf("at %v: %s waits at %s, want %s", r.now, name, got, want)
	}
}

// want checks the names of the calls that were sent.
func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: sent %q, want %q", what, got, want)
	}
}
