package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// TestTotal compares the totals of a limit with the sums of its keys. A permit of a window that
// slides may count for a thousandth of it too long.
func TestTotal(t *testing.T) {
	for name, limit := range map[string]Limit{
		"sliding": {Calls: 3, Late: time.Second, Window: Sliding(2 * time.Second), MaxKeys: 5},
		"guarded": {Calls: 3, Late: time.Second, Window: Sliding(2 * time.Second), Guard: 10 * ms},
		"aligned": {Calls: 20, Late: time.Second, Window: Aligned(Calendar{Unit: Minute})},
		"flight":  {Calls: 3, Window: InFlight()},
	} {
		limit.Name = name
		slack := time.Duration(0)
		if limit.Window.Slides() {
			slack = limit.Window.Length() / totalSteps
		}
		l, r := New(start, limit), rand.New(rand.NewPCG(1, 5))
		var flying []sent
		now := start
		for range 5000 {
			now = now.Add(time.Duration(r.Int64N(int64(100 * ms))))
			if need := []Need{{Key: fmt.Sprint(r.IntN(8)), Cost: 1 + r.IntN(3)}}; r.IntN(2) == 0 {
				if _, ok := l.Take(now, need); ok {
					flying = append(flying, sent{needs: need, at: now})
				}
			} else if len(flying) > 0 {
				s := flying[0]
				flying = flying[1:]
				l.Return(now, s.needs, Attempt{Sent: s.at, End: now, Fate: Fate(r.IntN(3)), Unused: r.IntN(2)})
			}
			out, inFlight := 0, 0
			for key := range l.Keys(0) {
				u := l.Usage(now, 0, key)
				out, inFlight = out+u.Out, inFlight+u.InFlight
			}
			if got, flying := l.Total(now, 0); got < out || flying != inFlight {
				t.Fatalf("%s at %v: %d out, %d in flight; the keys have %d and %d", name, now.Sub(start), got, flying, out, inFlight)
			}
			now = now.Add(slack)
			if got, _ := l.Total(now, 0); got > out {
				t.Fatalf("%s at %v: %d out, the keys had %d a thousandth before", name, now.Sub(start), got, out)
			}
		}
		if n := len(l.limits[0].total.cooling.ring); n > 3*totalSteps {
			t.Errorf("%s: a total has %d instants", name, n)
		}
	}
}

// TestTotalTellsInstantsApart: the instants of a window that slides are rounded up to steps of a
// 1024th of it, and those of others are exact.
func TestTotalTellsInstantsApart(t *testing.T) {
	for _, c := range []struct {
		name       string
		window     Window
		back, want int64
	}{
		{"a step", Sliding(10 * totalSteps), 90, 90},
		{"one more", Sliding(10 * totalSteps), 91, 100},
		{"one less", Sliding(10 * totalSteps), 99, 100},
		{"steps of 2", Sliding(2 * totalSteps), 91, 92},
		{"steps of 1", Sliding(totalSteps), 91, 91},
		{"a window shorter than the steps", Sliding(totalSteps / 2), 91, 91},
		{"aligned", Aligned(Calendar{Unit: Day}), 91, 91},
	} {
		var sum total
		sum.add(0, c.window, c.back, 2)
		if before, after := sum.cooling.at(c.want-1), sum.cooling.at(c.want); before != 2 || after != 0 {
			t.Errorf("%s: permits that come back at %d: %d at %d, %d at %d", c.name, c.back, before, c.want-1, after, c.want)
		}
	}
}

// TestTotalUsesItsRoomAgain: what is back takes no memory, also if nothing reads the total.
func TestTotalUsesItsRoomAgain(t *testing.T) {
	var sum total
	for now := range int64(100_000) {
		sum.add(now, Sliding(4*totalSteps), now+4*totalSteps, 1)
	}
	if room := cap(sum.cooling.ring); room > 4*totalSteps {
		t.Errorf("a total of at most %d instants has room for %d", totalSteps+1, room)
	}
}

// TestTotalAfterRestart: permits that another process left count, for as long as they are out.
func TestTotalAfterRestart(t *testing.T) {
	for after, want := range map[time.Duration]int{0: 3, 499: 3, 600: 1, 900: 0} {
		fresh := New(start, Limit{Name: "app", Calls: 5, Window: Sliding(time.Second)})
		fresh.Restore(start, 0, Held{Key: "a", Permits: 2, Back: at(500 * ms)})
		fresh.Restore(start, 0, Held{Key: "b", Permits: 1, Back: at(800 * ms)})
		if out, flying := fresh.Total(at(after*ms), 0); out != want || flying != 0 {
			t.Errorf("after %dms: %d out, %d in flight, want %d", after, out, flying, want)
		}
	}
}

// TestTotalAfterAStep: the permits of a day stay out as long as those of its keys.
func TestTotalAfterAStep(t *testing.T) {
	l := New(start, Limit{Name: "day", Calls: 5, Window: Aligned(Calendar{Unit: Day})})
	l.Take(start, one(0))
	l.Return(at(ms), one(0), Attempt{Sent: start, End: at(ms)})
	outs := 0
	for hour := range 72 {
		if hour == 1 {
			l.ahead -= int64(12 * time.Hour)
		}
		now := at(time.Duration(hour)*time.Hour + time.Second)
		want := l.Usage(now, 0, "").Out
		if out, _ := l.Total(now, 0); out != want {
			t.Errorf("after %d hours: %d out, the key has %d", hour, out, want)
		}
		outs += want
	}
	if outs < 13 || outs > 60 {
		t.Errorf("a permit is out for %d hours of 72", outs)
	}
}
