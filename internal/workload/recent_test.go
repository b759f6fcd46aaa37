package workload

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestRecentIsARecording compares the arrivals that are kept with a recording of the same calls.
func TestRecentIsARecording(t *testing.T) {
	limits := map[string][]string{"pay": {"all", "app"}, "ship": {"day"}}
	begin := time.Date(2026, 11, 21, 9, 0, 0, 123456000, time.UTC)
	var recorded, kept bytes.Buffer
	recorder, recent := NewRecorder(&recorded, limits, true), NewRecent()
	for i := range 20 {
		at := begin.Add(time.Duration(i) * 1003 * time.Microsecond)
		a := NewArrival("pay", i-10, at, at.Add(time.Duration(i)*time.Second), at.Add(time.Duration(i-5)*time.Minute), &scheduler.Route{
			Keys: map[string]string{"all": "", "app": fmt.Sprint("app", i%3)}, Costs: map[string]int{"app": 1 + i}, Flow: fmt.Sprint("shop", i%2),
		})
		switch i % 4 {
		case 1:
			a.Route.Flow, a.Route.Weighted = "gold", true
		case 2:
			a = NewArrival("ship", 0, at, time.Time{}, time.Time{}, &scheduler.Route{Keys: map[string]string{}})
		case 3:
			delete(a.Route.Keys, "all")
			a.Route.Costs = nil
		}
		recent.Add(at, a)
		for limit, key := range a.Route.Keys {
			a.Route.Keys[limit] = hashText(recent.hash(key))
		}
		if !a.Route.Weighted {
			a.Route.Flow = hashText(recent.hash(a.Route.Flow))
		}
		if err := recorder.Write(at, a); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := recent.Write(&kept, begin, limits); n != 20 || err != nil || kept.String() != recorded.String() {
		t.Errorf("%d calls are kept, %v:\n%s\nand recorded:\n%s", n, err, &kept, &recorded)
	}
	if strings.Contains(kept.String(), "shop") || strings.Contains(kept.String(), `"app1"`) {
		t.Errorf("a key or a flow is in it:\n%s", &kept)
	}
	kept.Reset()
	from := begin.Add(15 * 1003 * time.Microsecond)
	if n, err := recent.Write(&kept, from, map[string][]string{"pay": {"app", "new"}}); n != 4 || err != nil || strings.Contains(kept.String(), "key.all") || !strings.Contains(kept.String(), `"key.new":null`) {
		t.Errorf("under another configuration, %d calls, %v:\n%s", n, err, &kept)
	}
}

// TestRecentIsBounded adds more calls than are kept, under few limits and under many.
func TestRecentIsBounded(t *testing.T) {
	if size := unsafe.Sizeof(recent{}); size != 48 {
		t.Errorf("an arrival has %d bytes, and the comment says 48", size)
	}
	for _, test := range []struct{ limits, want int }{{1, MaxRecent}, {4, MaxRecent}, {16, MaxRecent / 4}} {
		r, route := NewRecent(), &scheduler.Route{Keys: make(map[string]string)}
		var names []string
		for i := range test.limits {
			names = append(names, fmt.Sprint("l", i))
			route.Keys[names[i]] = "k"
		}
		at := time.UnixMicro(0)
		for range 2*MaxRecent + 77 {
			at = at.Add(time.Millisecond)
			r.Add(at, Arrival{Upstream: "pay", Route: route})
		}
		all := r.since(0, map[string][]string{"pay": names})
		if len(all) != test.want || !all[len(all)-1].at.Equal(at) || len(all[0].Route.Keys) != test.limits || all[0].Route.Keys["l0"] != all[len(all)-1].Route.Keys["l0"] {
			t.Errorf("with %d limits %d calls are kept, want %d", test.limits, len(all), test.want)
		}
		if len(r.words) > maxRecentWords || len(r.arrivals) > MaxRecent {
			t.Errorf("%d words and %d arrivals", len(r.words), len(r.arrivals))
		}
	}
	r := NewRecent()
	for i := range 3 * maxShapes {
		r.Add(time.UnixMicro(1), Arrival{Upstream: fmt.Sprint("u", i), Route: &scheduler.Route{}})
	}
	if len(r.shapes) > maxShapes {
		t.Errorf("%d shapes, at most %d", len(r.shapes), maxShapes)
	}
}

// BenchmarkRecent adds a call under three limits, as the loop of a scheduler does for each.
func BenchmarkRecent(b *testing.B) {
	r, at := NewRecent(), time.Now()
	a := Arrival{Upstream: "pay", Route: &scheduler.Route{Keys: map[string]string{"app": "2021001", "refund": "2021001", "merchant": "m-17"}, Flow: "shop7"}}
	b.ReportAllocs()
	for b.Loop() {
		r.Add(at, a)
	}
}

// TestRecentAllocatesNothing: each call of a scheduler comes in on the way to its upstream.
func TestRecentAllocatesNothing(t *testing.T) {
	r, at := NewRecent(), time.UnixMicro(1)
	a := Arrival{Upstream: "pay", Route: &scheduler.Route{Keys: map[string]string{"app": "2021001", "refund": "R-1"}, Costs: map[string]int{"app": 2}, Flow: "shop7", Weighted: true}}
	for range MaxRecent + maxRecentWords { // the rings are full
		r.Add(at, a)
	}
	if n := testing.AllocsPerRun(1000, func() { r.Add(at, a) }); n != 0 {
		t.Errorf("an arrival allocates %v times", n)
	}
}
