package quota

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestDayLimitsAcrossEdges spends a day limit as fast as it can for four days
// around a change of the zone's clock, at a receiver with a clock that is off by up
// to the skew. By the receiver's calendar no day has more calls than it may; and a
// day that refused calls wasted no more permits than there were calls in flight, or
// within the skew, at one of its edges.
func TestDayLimitsAcrossEdges(t *testing.T) {
	const calls, skew, late = 60, time.Second, 5 * time.Second
	refused, wasted, days := 0, 0, 0
	for _, edge := range []struct{ zone, date string }{
		{"America/New_York", "2026-03-08"}, // 23 hours
		{"America/New_York", "2026-11-01"}, // 25 hours
		{"Asia/Shanghai", "1991-04-14"},    // the last time that it had 23 hours
		{"Asia/Shanghai", "1991-09-15"},    // and 25
		{"Asia/Shanghai", "2026-11-01"},
	} {
		zone, err := time.LoadLocation(edge.zone)
		if err != nil {
			t.Fatal(err)
		}
		noon, _ := time.ParseInLocation("2006-01-02 15", edge.date+" 12", zone)
		for seed := range uint64(100) {
			d := &daySpender{r: rand.New(rand.NewPCG(seed, 3)), zone: zone, skew: skew, late: late, days: map[string]*daySpent{}}
			d.offset = time.Duration(d.r.Int64N(2*int64(skew)+1)) - skew
			if seed < 2 { // faults show at the ends
				d.offset = skew * time.Duration(2*int(seed)-1)
			}
			d.run(noon.Add(-48*time.Hour), noon.Add(48*time.Hour), calls)
			for date, day := range d.days {
				if day.arrived > calls {
					t.Fatalf("%s, seed %d: %d calls arrived on %s, at most %d may", edge.zone, seed, day.arrived, date, calls)
				}
				if !day.refused {
					continue
				}
				refused++
				if waste := calls - day.arrived; waste > day.edge {
					t.Errorf("%s, seed %d: %s refused calls, %d of %d arrived, and %d were in flight or within %v of an edge", edge.zone, seed, date, day.arrived, calls, day.edge, skew)
				} else {
					wasted += waste
				}
			}
			days += len(d.days)
		}
	}
	if refused < 500 || wasted == 0 {
		t.Errorf("only %d of %d days refused calls, %d permits were wasted: too few to tell", refused, days, wasted)
	}
	t.Logf("%d days, %d of them refused calls and wasted %.2f permits of %d each", days, refused, float64(wasted)/float64(refused), calls)
}

// daySpent is the receiver's record of a day, by its own clock.
type daySpent struct {
	arrived int
	edge    int  // attempts that were in flight, or within the skew, at the day's begin or end
	refused bool // for want of permits
}

type daySpender struct {
	r          *rand.Rand
	zone       *time.Location
	skew, late time.Duration
	offset     time.Duration // of the receiver's clock
	days       map[string]*daySpent
}

func (d *daySpender) day(at time.Time) *daySpent {
	date := at.In(d.zone).Format(time.DateOnly)
	if d.days[date] == nil {
		d.days[date] = new(daySpent)
	}
	return d.days[date]
}

// run asks for permits: seldom by day, all the time around midnight.
func (d *daySpender) run(from, to time.Time, calls int) {
	l := New(from, Limit{Calls: calls, Late: d.late, Window: Aligned(Calendar{Unit: Day, Zone: d.zone, Skew: d.skew})})
	pace := time.Duration(15+d.r.IntN(20)) * time.Minute
	var flying []*sent
	for now := from; now.Before(to); {
		still := flying[:0]
		for _, s := range flying {
			if s.end.After(now) {
				still = append(still, s)
				continue
			}
			l.Return(now, one(0), Attempt{Sent: s.at, End: s.end, Fate: s.fate})
			d.arrive(s)
		}
		flying = still
		if _, ok := l.Take(now, one(0)); ok {
			s := &sent{at: now, end: now.Add(time.Duration(d.r.Int64N(int64(4 * time.Second))))}
			if d.r.IntN(5) == 0 {
				s.fate = Unanswered
			}
			flying = append(flying, s)
		} else if day := d.day(now); d.day(now.Add(-10*time.Second)) == day && d.day(now.Add(10*time.Second)) == day {
			day.refused = true
		}
		step := time.Duration(d.r.Int64N(int64(2 * pace)))
		if d.day(now.Add(-10*time.Second)) != d.day(now.Add(10*time.Second)) {
			step = time.Duration(d.r.Int64N(int64(2 * time.Second)))
		} else if midnight := d.midnight(now); now.Add(step).After(midnight) {
			step = max(time.Second, midnight.Sub(now)-9*time.Second)
		}
		now = now.Add(step)
	}
	for _, s := range flying {
		d.arrive(s)
	}
}

// midnight returns the next one.
func (d *daySpender) midnight(now time.Time) time.Time {
	y, m, day := now.In(d.zone).Date()
	return time.Date(y, m, day+1, 0, 0, 0, 0, d.zone)
}

// arrive draws when the receiver counts an attempt: anywhere that the attempt allows.
func (d *daySpender) arrive(s *sent) {
	last := s.end
	if s.fate == Unanswered {
		last = last.Add(d.late)
	}
	at := s.at.Add(time.Duration(d.r.Int64N(int64(last.Sub(s.at)) + 1)))
	switch d.r.IntN(4) {
	case 0:
		at = s.at
	case 1:
		at = last
	}
	d.day(at.Add(d.offset)).arrived++
	before, after := d.day(s.at.Add(-d.skew)), d.day(last.Add(d.skew))
	if before != after {
		before.edge++
		after.edge++
	}
}

func TestReplaceRefillsNoBucket(t *testing.T) {
	spaced := Limit{Name: "app", Calls: 60, Window: Sliding(time.Minute), Burst: 5}
	l := New(start, spaced)
	need := []Need{{0, "", 1}}
	took := func(now time.Time) (n int) {
		for {
			if _, ok := l.Take(now, need); !ok {
				return n
			}
			n++
		}
	}
	if n := took(at(0)); n != 5 {
		t.Fatalf("%d at once, want the burst of 5", n)
	}
	l.Replace(at(time.Second), []Limit{spaced}, []int{0})
	if n := took(at(time.Second)); n != 1 {
		t.Errorf("%d one second later, after a reload, want 1", n)
	}
	spaced.Burst = 2
	l.Replace(at(time.Second), []Limit{spaced}, []int{0})
	if n := took(at(11 * time.Second)); n != 2 {
		t.Errorf("%d after ten seconds, want the new burst of 2", n)
	}
}

func TestPauseForEverIsAPause(t *testing.T) {
	l := New(start, Limit{Name: "app", Calls: 1, Window: Sliding(time.Second)})
	l.PauseLimit(0, start.AddDate(500, 0, 0))
	if u := l.Usage(at(0), 0, ""); u.PausedUntil.IsZero() || u.Free != 0 {
		t.Errorf("%+v, want it paused", u)
	}
	if next := l.Next(at(0), Need{0, "", 1}); next.Before(start.AddDate(250, 0, 0)) {
		t.Errorf("the next permit is at %v", next)
	}
}

func TestFullTableOfKeys(t *testing.T) {
	l := New(start, Limit{Name: "merchant", Calls: 1, Window: Sliding(time.Minute), MaxKeys: 2})
	for _, key := range []string{"a", "b"} {
		need := []Need{{0, key, 1}}
		l.Take(at(0), need)
		l.Return(at(time.Second), need, Attempt{Sent: at(0), End: at(time.Second)})
	}
	if eta := l.ETA(at(time.Second), Need{0, "c", 1}, 0, time.Second); !eta.Equal(at(61 * time.Second)) {
		t.Errorf("a third key has its permit at %v, want it when another one is forgotten", eta.Sub(start))
	}
	if l.PauseKey(at(time.Second), 0, "c", at(time.Hour)) || !l.PauseKey(at(time.Second), 0, "a", at(time.Hour)) {
		t.Error("a pause of a third key was taken, or one of a known key was not")
	}
	if !l.PauseKey(at(time.Second), 0, "d", time.Time{}) || l.Known(0, "d") {
		t.Error("opening a key that is not paused opened an account")
	}
}

// TestPlacesInTurn: keys that lack a place in a full table get one in the order in which
// their calls came, however busy the other keys are.
func TestPlacesInTurn(t *testing.T) {
	for name, limit := range map[string]Limit{
		"one permit at a time":   {Calls: 1, Window: Sliding(time.Second)},
		"a permit is always out": {Calls: 3, Window: Sliding(time.Second)},
		"spaced calls":           {Calls: 3, Window: Sliding(time.Second), Burst: 2},
		"calls in flight":        {Calls: 2, Window: InFlight()},
		"windows of a calendar":  {Calls: 3, Window: Aligned(Calendar{Unit: Minute, Skew: 100 * ms})},
	} {
		t.Run(name, func(t *testing.T) {
			limit.MaxKeys = 3
			for seed := range uint64(60) {
				playPlaces(t, rand.New(rand.NewPCG(seed, 10)), limit)
			}
		})
	}
}

// playPlaces has MaxKeys keys that ask for permits all the time, and five more that ask
// for one each and come later.
func playPlaces(t *testing.T, r *rand.Rand, limit Limit) {
	t.Helper()
	type ask struct {
		need []Need
		came time.Duration
	}
	type flight struct {
		need      []Need
		sent, end time.Duration
	}
	const step = 10 * ms
	l := New(start, limit)
	bound := 2*limit.Window.Length() + 2*time.Second
	var flights []flight
	var waiting []ask // oldest first
	latest, placed := 0, 0
	for now := time.Duration(0); placed < 5; now += step {
		flights = slices.DeleteFunc(flights, func(f flight) bool {
			if f.end <= now {
				l.Return(at(now), f.need, Attempt{Sent: at(f.sent), End: at(now)})
			}
			return f.end <= now
		})
		if latest < 5 && now > time.Second && r.IntN(40) == 0 {
			waiting = append(waiting, ask{[]Need{{0, fmt.Sprint("new ", latest), 1}}, now})
			latest++
		}
		asks := slices.Clone(waiting)
		for i := range limit.MaxKeys { // the youngest, in any order
			if r.IntN(4) > 0 {
				asks = append(asks, ask{[]Need{{0, fmt.Sprint("busy ", (i+int(now/step))%limit.MaxKeys), 1}}, now})
			}
		}
		for _, a := range asks {
			if _, ok := l.Take(at(now), a.need); !ok {
				continue
			}
			flights = append(flights, flight{a.need, now, now + 5*ms + time.Duration(r.IntN(60))*ms})
			if key := a.need[0].Key; key[:3] == "new" {
				if want := fmt.Sprint("new ", placed); key != want {
					t.Fatalf("%s got a place before %s, which came earlier", key, want)
				}
				waiting = waiting[1:]
				placed++
			}
		}
		if len(waiting) > 0 && now-waiting[0].came > time.Duration(placed+1)*bound {
			t.Fatalf("%s came at %v, and has no place at %v", waiting[0].need[0].Key, waiting[0].came, now)
		}
	}
}
