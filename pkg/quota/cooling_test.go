package quota

import "testing"

// TestCooling: permits come back at their instant, not after it, whatever the order in
// which they were put in; those of one instant are one batch.
func TestCooling(t *testing.T) {
	var c cooling
	for _, b := range []batch{{20, 1, 1}, {10, 2, 0}, {30, 1, 1}, {20, 3, 2}} {
		c.add(b)
	}
	if len(c.ring) != 3 {
		t.Errorf("%d batches, want one for each instant: %v", len(c.ring), c.ring)
	}
	for r, want := range []int64{10, 10, 20, 20, 20, 20, 30} {
		if at, ok := c.nth(r); !ok || at != want {
			t.Errorf("permit %d is back at %d, %v; want %d", r, at, ok, want)
		}
	}
	if _, ok := c.nth(7); ok {
		t.Error("an eighth of seven permits is out")
	}
	for most, want := range map[int]int64{7: 5, 6: 10, 5: 10, 4: 20, 1: 20, 0: 30} {
		if at := c.atMost(5, most); at != want {
			t.Errorf("at most %d are out from %d, want %d", most, at, want)
		}
	}
	for _, tt := range []struct {
		now       int64
		out, late int
	}{{9, 7, 4}, {10, 5, 4}, {19, 5, 4}, {20, 1, 1}, {29, 1, 1}, {30, 0, 0}} {
		if late, got := c.late(tt.now), c.at(tt.now); got != tt.out || late != tt.late {
			t.Errorf("%d are out at %d, %d of them late, want %d and %d", got, tt.now, late, tt.out, tt.late)
		}
	}
}

// TestCoolingShifts: a step moves permits that are out, none to before the floor; those
// that were back stay back.
func TestCoolingShifts(t *testing.T) {
	var c cooling
	for _, at := range []int64{10, 20, 30, 40} {
		c.add(batch{at: at, n: 1})
	}
	c.shift(10, -15, 8)
	if got := c.at(0); got != 3 {
		t.Errorf("%d are out after the step back, want 3: one was back", got)
	}
	for r, want := range []int64{8, 15, 25} {
		if at, _ := c.nth(r); at != want {
			t.Errorf("permit %d is back at %d, want %d", r, at, want)
		}
	}
}

// TestCoolingReusesItsRoom: a queue that is never empty, and never long, stays small.
func TestCoolingReusesItsRoom(t *testing.T) {
	var c cooling
	for now := range int64(10_000) {
		c.add(batch{at: now + 3, n: 1})
		if got, want := c.at(now), min(3, int(now)+1); got != want {
			t.Fatalf("%d are out at %d, want %d", got, now, want)
		}
	}
	if cap(c.ring) > 8 {
		t.Errorf("there is room for %d batches, want some 3", cap(c.ring))
	}
}
