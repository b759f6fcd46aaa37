package main

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

func TestCounts(t *testing.T) {
	w := workload{calls: 2, window: 100 * ms, due: make([]time.Duration, 4), backlog: true}
	for _, c := range []struct {
		name          string
		arrivals      []time.Duration
		most, refused int
		late          time.Duration
	}{
		{"exact", []time.Duration{0, 0, 100 * ms, 100 * ms}, 2, 0, 0},
		{"one early", []time.Duration{0, 0, 99 * ms, 100 * ms}, 3, 1, 0},
		{"all at once", []time.Duration{0, 0, 0, 0}, 4, 2, 0},
		{"smooth", []time.Duration{0, 50 * ms, 100 * ms, 150 * ms}, 2, 0, 50 * ms},
	} {
		t.Run(c.name, func(t *testing.T) {
			if most := w.most(c.arrivals); most != c.most {
				t.Errorf("most is %d, want %d", most, c.most)
			}
			if refused := w.refused(c.arrivals); refused != c.refused {
				t.Errorf("refused is %d, want %d", refused, c.refused)
			}
			if late := w.late(c.arrivals); late != c.late {
				t.Errorf("late is %v, want %v", late, c.late)
			}
		})
	}
	if w.optimal() != 100*ms {
		t.Errorf("optimal is %v, want 100ms", w.optimal())
	}
}

func TestOracle(t *testing.T) {
	w := workload{calls: 2, window: 100 * ms, due: []time.Duration{0, 10 * ms, 20 * ms, 300 * ms}}
	want := []time.Duration{0, 10 * ms, 100 * ms, 300 * ms}
	if got := w.oracle(); !slices.Equal(got, want) {
		t.Errorf("oracle is %v, want %v", got, want)
	}
}

func TestBurstyIsEightyPerCent(t *testing.T) {
	w := bursty(100, time.Second)
	if len(w.due) != 800 || !slices.IsSorted(w.due) || w.due[799] >= 10*time.Second {
		t.Errorf("%d calls, the last due at %v; want 800 within 10s, in order", len(w.due), w.due[len(w.due)-1])
	}
}

// TestVerdict tests the rows that fail a run, and those that do not.
func TestVerdict(t *testing.T) {
	w := workload{name: "test", calls: 2, window: 100 * ms, due: make([]time.Duration, 4), backlog: true}
	good := row{limiter: ours, worst: 2, makespan: 1004 * ms, late: 14 * ms}
	held := row{limiter: bare, worst: 2, makespan: 1000 * ms, late: 10 * ms}
	over, slow, late := good, good, good
	over.worst, slow.makespan, late.late = 3, 1006*ms, 16*ms
	for _, c := range []struct {
		name string
		us   row
		busy int
		ok   bool
	}{
		{"good", good, 0, true},
		{"over", over, 0, false},
		{"slow", slow, 0, false},
		{"late", late, 0, false},
		{"slow beside busy loops", slow, 4, true},
		{"over beside busy loops", over, 4, false},
	} {
		table := table{workload: w, busy: c.busy, rows: []row{c.us, held}}
		if lines, ok := table.verdict(); ok != c.ok {
			t.Errorf("%s: ok is %v, want %v: %q", c.name, ok, c.ok, lines)
		}
	}
}
