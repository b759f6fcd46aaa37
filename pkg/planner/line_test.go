package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// TestLine counts the calls before one: those of its flow, those that wait elsewhere and
// pass as fast as another limit lets them, and its own class where that waits elsewhere.
func TestLine(t *testing.T) {
	r := newRig(t, nil, quota.Limit{Name: "app", Calls: 1, Window: quota.Sliding(sec)},
		quota.Limit{Name: "refund", Calls: 2, Window: quota.Sliding(sec)}, quota.Limit{Name: "day", Calls: 3, Window: quota.Aligned(quota.Calendar{Unit: quota.Day})})
	r.trip = 0
	app := need(0, "", 1)
	r.add("z", app)
	r.run(0)
	for _, limit := range []int{1, 2} {
		r.ledger.PauseLimit(limit, start.Add(time.Hour))
	}
	for i := range 4 {
		r.add(fmt.Sprint("c", i), app, need(1, "k1", 1))
		r.add(fmt.Sprint("d", i), app, need(1, "k2", 1))
		r.add(fmt.Sprint("e", i), app, need(2, "", 1))
	}
	for _, name := range []string{"ar0", "ar1", "a0", "a1", "ar2"} {
		if needs := []quota.Need{app, need(1, "k1", 1)}; name[1] == 'r' {
			r.add(name, needs...)
		} else {
			r.add(name, needs[:1]...)
		}
	}
	r.run(0)
	for name, at := range map[string]string{"a0": "app:", "c0": "refund:k1", "d0": "refund:k2", "e0": "day:", "ar0": "refund:k1"} {
		r.wantAt(name, at)
	}
	for _, tt := range []struct {
		name  string
		in    time.Duration
		ahead int
	}{
		{"a1", 0, 1 + 3},            // a0, and three of flow e: a day has three permits at once
		{"a1", 500 * ms, 1 + 1 + 3}, // and two of eleven for refund, but for the part of flow a
		{"a1", 5 * sec, 2 + 8 + 3},  // all for refund; half of those of flow a are before it
		{"a0", 5 * sec, 0 + 8 + 3},
		{"ar2", 0, 4}, // those of its flow; three of its class stand for what passes
		{"ar2", 5 * sec, 4 + 8 + 3},
	} {
		l := r.planner.line(r.planner.keys[keyID{0, ""}], r.calls[tt.name], 1)
		if got := l.ahead(tt.in); got != tt.ahead {
			t.Errorf("%s, in %v: %d permits are taken before it, want %d", tt.name, tt.in, got, tt.ahead)
		}
	}
	l := r.planner.line(r.planner.keys[keyID{0, ""}], r.calls["ar2"], 3)
	if l.before != 2+2*3 || l.apart != 3*3 {
		t.Errorf("calls that take three permits each: %d before and %d apart, want 8 and 9", l.before, l.apart)
	}
}

// TestDue: a flow has as many turns before a virtual time as its weight gives, and one more
// at that time if its call is older.
func TestDue(t *testing.T) {
	f := &flow{virtual: 2, weight: 3}
	for _, tt := range []struct {
		tag   float64
		older int
		want  int
	}{
		{0, 0, 0}, {0, 9, 0}, {2, 0, 0}, {2, 1, 1}, {2.1, 9, 1}, {2 + 1.0/3, 1, 1}, {2 + 1.0/3, 2, 2}, {4, 0, 6}, {4, 9, 7},
	} {
		if got := (&rival{flow: f, older: tt.older}).due(tt.tag); got != tt.want {
			t.Errorf("at %v, %d are older: %d are due, want %d", tt.tag, tt.older, got, tt.want)
		}
	}
}

// TestOlder counts the calls of a flow that are as urgent and older, of up to four classes;
// of more the first call stands for all.
func TestOlder(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := newRig(t, nil, quota.Limit{Name: "app", Calls: 2, Window: quota.InFlight()}, plenty)
		r.add("z", need(0, "", 2))
		r.dispatch(1)
		classes := 1 + random.IntN(6)
		for i := range 20 {
			class := i % classes
			r.urgent(fmt.Sprint("a", i), int16(random.IntN(3)), need(0, "", 1), need(1, fmt.Sprint(class), 1))
		}
		r.dispatch(1 << 20)
		q := r.planner.keys[keyID{0, ""}]
		f := q.byFlow[r.planner.flows.byName["a"]]
		if f.classes.Size() != classes {
			t.Fatalf("%d classes wait, want %d", f.classes.Size(), classes)
		}
		first := f.classes.First().calls.first()
		for priority := range 3 {
			for seq := uint64(1); seq < 25; seq++ {
				want := 0
				for name, it := range r.calls {
					if name != "z" && int(it.Priority) == priority && it.Seq < seq {
						want++
					}
				}
				if classes > 4 {
					if want = 0; int(first.Priority) == priority && first.Seq < seq {
						want = math.MaxInt
					}
				}
				if got := f.older(rank{priority: priority, seq: seq}); got != want {
					t.Fatalf("seed %d, %d classes, priority %d, call %d: %d are older, want %d", seed, classes, priority, seq, got, want)
				}
			}
		}
	}
}

// TestPriorityCounts compares the counts with a map.
func TestPriorityCounts(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 2))
		var c priorityCounts
		want := map[int]int{}
		for range 50 {
			priority, n := random.IntN(5)-2, 1+random.IntN(3)
			if want[priority] > 0 && random.IntN(2) == 0 {
				n = -min(n, want[priority])
			}
			c.add(priority, n)
			if want[priority] += n; want[priority] == 0 {
				delete(want, priority)
			}
			if len(c) != len(want) {
				t.Fatalf("seed %d: %d priorities, want %d", seed, len(c), len(want))
			}
			for p := -3; p <= 3; p++ {
				more := 0
				for o, n := range want {
					if o > p {
						more += n
					}
				}
				if above, at := c.split(p); above != more || at != want[p] {
					t.Fatalf("seed %d: priority %d: %d above and %d at, want %d and %d", seed, p, above, at, more, want[p])
				}
			}
		}
	}
}

// TestScan: an item is in it once, and is looked at once per scan.
func TestScan(t *testing.T) {
	type item struct{ in bool }
	s := scan[*item]{in: func(x *item) *bool { return &x.in }}
	stays, goes := &item{}, &item{}
	for range 3 {
		s.add(stays)
		s.add(goes)
	}
	if len(s.items) != 2 {
		t.Errorf("%d items, want 2", len(s.items))
	}
	s.restart()
	looked := 0
	s.look(func(x *item) bool { looked++; return x == stays })
	s.look(func(x *item) bool { looked++; return x == stays })
	if looked != 2 || len(s.items) != 1 || s.items[0] != stays || goes.in {
		t.Errorf("%d were looked at, %d are left", looked, len(s.items))
	}
	if s.add(goes); len(s.items) != 2 {
		t.Error("an item that went cannot come again")
	}
}
