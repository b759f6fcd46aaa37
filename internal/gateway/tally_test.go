package gateway

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// most is the definition of Tally.Most: the arrivals in (t−w, t] for each arrival t.
func most(at []time.Time, w time.Duration) int {
	n := 0
	for _, t := range at {
		in := 0
		for _, u := range at {
			if u.After(t.Add(-w)) && !u.After(t) {
				in++
			}
		}
		n = max(n, in)
	}
	return n
}

// TestWindows draws arrivals, handled in another order than that of their instants,
// and compares admissions and counts with the definition. Instants are whole
// milliseconds, so that many fall on the edge of a window.
func TestWindows(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	origin := time.Now()

	for range 500 {
		limit := Limit{1 + random.IntN(5), time.Duration(1+random.IntN(10)) * time.Millisecond}
		book := &tally{limit: limit}
		var arrivals, admitted []time.Time
		for range 60 {
			at := origin.Add(time.Duration(random.IntN(60)) * time.Millisecond)
			arrivals = append(arrivals, at)

			with := append(slices.Clone(admitted), at)
			want := most(with, limit.Window) <= limit.Calls
			if got := book.fits(at); got != want {
				t.Fatalf("limit %+v, admitted %v: fits(%v) = %v", limit, admitted, at, got)
			}
			if want {
				book.take(at)
				admitted = with
			}
		}
		slices.SortFunc(arrivals, time.Time.Compare)
		if got, want := (Tally{Limit: limit, Arrivals: arrivals}).Most(), most(arrivals, limit.Window); got != want {
			t.Fatalf("limit %+v, arrivals %v: Most() = %d, want %d", limit, arrivals, got, want)
		}
	}
}

func TestWindowIsHalfOpen(t *testing.T) {
	at := time.Now()
	tally := Tally{
		Limit:    Limit{1, time.Second},
		Arrivals: []time.Time{at, at.Add(time.Second)},
	}
	if tally.Most() != 1 || tally.Span() != time.Second {
		t.Errorf("one window apart: most %d, span %v", tally.Most(), tally.Span())
	}
	tally.Arrivals[1] = at.Add(time.Second - 1)
	if tally.Most() != 2 {
		t.Errorf("a nanosecond less: most %d", tally.Most())
	}
	if empty := (Tally{}); empty.Most() != 0 || empty.Span() != 0 {
		t.Errorf("no arrivals: most %d, span %v", empty.Most(), empty.Span())
	}
}
