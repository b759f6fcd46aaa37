package planner

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// docHas checks that the package doc has some lines, as the test has found them.
func docHas(t *testing.T, lines string) {
	t.Helper()
	source, err := os.ReadFile("planner.go")
	if err != nil {
		t.Fatal(err)
	}
	if doc, _, _ := strings.Cut(string(source), "\npackage planner"); !strings.Contains(doc, lines) {
		t.Errorf("the package doc does not have what happens:\n%s", lines)
	}
}

// draw returns the key queues with their flow queues, classes and calls, as the package
// doc draws them.
func (r *rig) draw() string {
	var b strings.Builder
	line := func(queue, flow, needs, calls string) {
		fmt.Fprintf(&b, "//\t%-12s %-12s %-22s %s\n", queue, flow, needs, calls)
	}
	line("key queue", "flow queue", "class, by its needs", "calls, oldest first")
	p := r.planner
	var queues []*keyQueue[string]
	for _, q := range p.keys {
		if !q.empty() {
			queues = append(queues, q)
		}
	}
	slices.SortFunc(queues, func(a, b *keyQueue[string]) int { return cmp.Compare(a.id.limit, b.id.limit) })
	name := func(id keyID) string { return strings.TrimSuffix(p.limits[id.limit].Name+":"+id.key, ":") }
	for _, q := range queues {
		queue := name(q.id)
		flows := slices.SortedFunc(slices.Values(q.flows.Items), func(a, b *flowQueue[string]) int { return cmp.Compare(a.flow.name, b.flow.name) })
		for _, f := range flows {
			flow := f.flow.name
			classes := slices.SortedFunc(slices.Values(f.classes.Items), func(a, b *class[string]) int {
				return int(a.calls.first().Seq) - int(b.calls.first().Seq)
			})
			for _, cl := range classes {
				var needs, calls []string
				for _, k := range cl.keys {
					needs = append(needs, name(k.id))
				}
				var walk func(it *Item[string])
				walk = func(it *Item[string]) {
					if it != nil {
						walk(it.left)
						calls = append(calls, fmt.Sprint("#", it.Seq))
						walk(it.right)
					}
				}
				walk(cl.calls.root)
				line(queue, flow, strings.Join(needs, ", "), strings.Join(calls, " "))
				queue, flow = "", ""
			}
		}
	}
	return b.String()
}

// TestKeyQueues draws the picture of the package doc, and plays it to its end.
func TestKeyQueues(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 1, Window: quota.Sliding(100 * ms)}, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(sec)})
	r.trip = 0
	app, trade := need(0, "", 1), func(key string) quota.Need { return need(1, key, 1) }
	r.add("x1", app, trade("18"))
	r.dispatch(1)
	r.run(100 * ms)
	r.add("x2", app)
	r.dispatch(1)
	r.run(100 * ms) // app is full for 100ms, key 18 of trade for 900ms
	r.add("b3", app, trade("18"))
	r.planner.Remove(r.time(), r.add("a4", app))
	r.add("a5", app, trade("17"))
	r.add("a6", app)
	r.add("b7", app)
	r.add("b8", app, trade("18"))
	r.add("a9", app, trade("17"))
	want(t, "while the limits are full", r.dispatch(10), "")
	docHas(t, r.draw())

	for _, step := range []struct {
		at   time.Duration
		sent string
	}{{200 * ms, "a5"}, {300 * ms, "b7"}, {400 * ms, "a6"}, {999 * ms, ""}, {sec, "b3"}, {1199 * ms, ""}, {1200 * ms, "a9"}, {3 * sec, "b8"}} {
		want(t, fmt.Sprint("until ", step.at), r.run(step.at), step.sent)
	}
	if r.sent["b8"] != 2*sec {
		t.Errorf("b8 was sent at %v, want 2s", r.sent["b8"])
	}
}

// TestFullKeyBlocksNoOther: calls that wait for a full key keep no other from the limits
// that both need.
func TestFullKeyBlocksNoOther(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 100, Window: quota.InFlight()}, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(sec)})
	app, trade := need(0, "", 1), func(key string) quota.Need { return need(1, key, 1) }
	for i := range 500 {
		r.add(fmt.Sprint("a", i), app, trade("17"))
	}
	want(t, "one key", r.dispatch(1000), "a0")
	r.add("a", app, trade("18"))
	r.add("b", app)
	want(t, "others", r.dispatch(1000), "b a")
	if n := r.planner.Held(1); n != 499 {
		t.Errorf("%d calls wait for trade, want 499", n)
	}
}

// TestLastLimitThatStops: a class waits at the limit whose permits come back last, and a
// permit of another limit wakes nothing.
func TestLastLimitThatStops(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "short", Calls: 1, Window: quota.Sliding(100 * ms)}, quota.Limit{Name: "long", Calls: 1, Window: quota.Sliding(sec)})
	r.trip = 0
	both := []quota.Need{need(0, "", 1), need(1, "", 1)}
	r.add("a1", both...)
	r.dispatch(1)
	r.run(0)
	r.add("a2", both...)
	r.dispatch(1)
	r.wantAt("a2", "long:")
	r.run(500 * ms)
	r.wantAt("a2", "long:")
	r.add("b", need(0, "", 1)) // it takes the permit of the short limit
	want(t, "another call", r.dispatch(1), "b")
	want(t, "until both limits let it", r.run(sec), "a2")
}

// TestUrgentCallAtAReadyKey: several keys have permits again, and before a Dispatch looks at
// them an urgent call comes for the last one.
func TestUrgentCallAtAReadyKey(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(sec)})
	r.trip = 0
	for i := range 5 {
		r.add(fmt.Sprint("z", i), need(0, fmt.Sprint(i), 1))
	}
	r.run(0)
	for i := range 5 {
		r.add(fmt.Sprint("w", i), need(0, fmt.Sprint(i), 1))
	}
	r.run(sec - 1)
	r.now = sec
	r.wheel.Advance(r.now, func(t Timeout) { t.Fire(r.time()) })
	if n := r.planner.ready.Size(); n != 5 {
		t.Fatalf("%d keys are ready, want 5", n)
	}
	r.urgent("w9", 1, need(0, "4", 1))
	want(t, "one call", r.dispatch(1), "w9")
	want(t, "the others", r.dispatch(10), "w0 w1 w2 w3")
}
