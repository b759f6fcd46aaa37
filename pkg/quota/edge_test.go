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
	spaced.Calls = 600
	l.Replace(at(11*time.Second), []Limit{spaced}, []int{0})
	if next, want := l.Next(at(11*time.Second), need[0]), at(11100*ms); next.Before(want) || next.Sub(want) > 10 {
		t.Errorf("the next one goes after %v, want 100ms after the last, at the new rate", next.Sub(start))
	}
	spaced.Burst, spaced.Guard = 0, time.Second
	l.Replace(at(11*time.Second), []Limit{spaced}, []int{0})
	if n := took(at(11 * time.Second)); n < 500 {
		t.Errorf("%d at once without spacing, want hundreds", n)
	}
	spaced.Burst, spaced.Calls = 2, 6000
	l.Replace(at(11*time.Second), []Limit{spaced}, []int{0})
	if n := took(at(11 * time.Second)); n != 2 {
		t.Errorf("%d with spacing again, want its burst of 2", n)
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
			seeds := uint64(60)
			if testing.Short() {
				seeds /= 6
			}
			for seed := range seeds {
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

// TestFullTableHasRoomAgain: a table of keys that was full tells a wait of a second while
// all permits are in flight, and has room as soon as a key is idle.
func TestFullTableHasRoomAgain(t *testing.T) {
	l := New(start, Limit{Calls: 2, Window: Sliding(time.Minute), MaxKeys: 1})
	a, b := []Need{{0, "a", 1}}, []Need{{0, "b", 1}}
	l.Take(at(0), a)
	for _, now := range []time.Duration{0, 500 * ms, time.Second, 1500 * ms, 2 * time.Second} {
		want := at(now.Truncate(time.Second) + time.Second)
		if short, ok := l.Take(at(now), b); ok || !short.Until.Equal(want) {
			t.Errorf("at %v: Take = %+v, %v; want a wait until %v", now, short, ok, want)
		}
		if eta := l.ETA(at(now), b[0], 0, time.Second); !eta.Equal(want) {
			t.Errorf("at %v: ETA %v, want %v", now, eta, want)
		}
	}
	l.Return(at(2*time.Second), a, Attempt{Sent: at(0), End: at(2 * time.Second), Fate: Uncounted})
	if _, ok := l.Take(at(3*time.Second), b); !ok || l.Known(0, "a") {
		t.Errorf("b has room: %v, a is known: %v", ok, l.Known(0, "a"))
	}
}

// TestETAWhenATableHasRoomAgain: a pause that kept a key in the table was ended, so the
// estimate of when there is room counts no more.
func TestETAWhenATableHasRoomAgain(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Minute), MaxKeys: 1})
	need := Need{0, "b", 1}
	l.PauseKey(at(0), 0, "a", at(time.Hour))
	if eta := l.ETA(at(0), need, 0, time.Second); !eta.Equal(at(time.Hour)) {
		t.Errorf("ETA %v, want the end of the pause", eta.Sub(start))
	}
	l.PauseKey(at(0), 0, "a", time.Time{})
	if eta := l.ETA(at(2*time.Second), need, 0, time.Second); !eta.Equal(at(2 * time.Second)) {
		t.Errorf("ETA %v, want at once", eta.Sub(start))
	}
	l.PauseKey(at(2*time.Second), 0, "a", at(3*time.Second))
	if _, ok := l.Take(at(3*time.Second), []Need{need}); !ok || l.Known(0, "a") {
		t.Errorf("at the end of the pause: taken %v, and a is known: %v", ok, l.Known(0, "a"))
	}
}

// TestKeyIsKeptWhileItsBucketFills: tokens are gone also where the permits are free.
func TestKeyIsKeptWhileItsBucketFills(t *testing.T) {
	l := New(start, Limit{Calls: 10, Window: Sliding(time.Second), Burst: 2, MaxKeys: 1})
	a, b := []Need{{0, "a", 2}}, []Need{{0, "b", 1}}
	l.Take(at(0), a)
	l.Return(at(0), a, Attempt{Sent: at(0), End: at(0), Fate: Uncounted})
	short, ok := l.Take(at(0), b)
	if ok || short.Until.Before(at(200*ms)) || short.Until.Sub(at(200*ms)) > 10 {
		t.Errorf("Take = %v after %v, %v; want a wait until the bucket of a is full, 200ms", short, short.Until.Sub(start), ok)
	}
	if _, ok := l.Take(short.Until, b); !ok {
		t.Error("b was refused when the bucket of a was full")
	}
}

// TestKeyInUseIsForgottenLater: an account that is not idle when it is looked at is looked
// at again.
func TestKeyInUseIsForgottenLater(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second)})
	a, b := []Need{{0, "a", 1}}, []Need{{0, "b", 1}}
	l.Take(at(0), a)
	l.Return(at(900*ms), a, Attempt{Sent: at(0), End: at(900 * ms)})
	for now := time.Second; now < 6*time.Second; now += 500 * ms {
		l.Take(at(now), b)
		if known := l.Known(0, "a"); now < 1900*ms && !known || now > 4*time.Second && known {
			t.Errorf("a is known at %v: %v, and its permit is back at 1.9s", now, known)
		}
	}
}

// TestKeysAgainstModel draws calls of more keys than the table holds. No key has more
// permits than it may, the table never more keys than it may; a wait for room is at most a
// second long, and there is room at once while few keys have a permit out.
func TestKeysAgainstModel(t *testing.T) {
	const maxKeys = 3
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 7))
		l := New(start, Limit{Calls: 1, Window: Sliding(time.Second), MaxKeys: maxKeys})
		type call struct {
			sent time.Time
			back time.Time // zero while it is in flight
		}
		out := map[string]*call{}
		refused := time.Time{} // until then a table that was full need not be searched
		for now := start; now.Before(at(30 * time.Second)); now = now.Add(time.Duration(r.Int64N(int64(200 * ms)))) {
			for key, c := range out {
				if !c.back.IsZero() && !c.back.After(now) {
					delete(out, key)
				}
			}
			key := string(rune('a' + r.IntN(6)))
			need := []Need{{Key: key, Cost: 1}}
			if c := out[key]; c != nil && c.back.IsZero() && r.IntN(2) == 0 {
				fate := Fate(r.IntN(3))
				l.Return(now, need, Attempt{Sent: c.sent, End: now, Fate: fate})
				if c.back = now.Add(time.Second); fate == Uncounted {
					delete(out, key)
				}
				continue
			}
			short, ok := l.Take(now, need)
			switch {
			case ok && (out[key] != nil || len(out) == maxKeys):
				t.Fatalf("seed %d, %v: %q was taken, and %d keys have permits out, itself: %v", seed, now.Sub(start), key, len(out), out[key] != nil)
			case ok:
				out[key] = &call{sent: now}
			case out[key] != nil && !short.Until.Equal(out[key].back):
				t.Fatalf("seed %d, %v: %q waits until %v, and its permit is back at %v", seed, now.Sub(start), key, short.Until, out[key].back)
			case out[key] == nil && (!short.Until.After(now) || short.Until.Sub(now) > time.Second):
				t.Fatalf("seed %d, %v: a new key waits until %v, want a second at most", seed, now.Sub(start), short.Until)
			case out[key] == nil && len(out) < maxKeys && now.After(refused):
				t.Fatalf("seed %d, %v: a new key waits until %v, and only %d keys have permits out", seed, now.Sub(start), short.Until, len(out))
			case out[key] == nil:
				refused = short.Until
			}
			if n := len(l.limits[0].accounts); n > maxKeys {
				t.Fatalf("seed %d, %v: %d keys are known, at most %d may be", seed, now.Sub(start), n, maxKeys)
			}
		}
	}
}

func TestKeys(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second)})
	for _, key := range []string{"a", "b", "c"} {
		l.Take(start, []Need{{Key: key, Cost: 1}})
	}
	got := map[string]int{}
	for key := range l.Keys(0) {
		got[key] = l.Usage(start, 0, key).InFlight
	}
	if len(got) != 3 || got["a"] != 1 || got["b"] != 1 || got["c"] != 1 {
		t.Errorf("%v, want one in flight of each key", got)
	}
	n := 0
	for range l.Keys(0) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d keys after a break", n)
	}
}

// TestShortageIsOfTheNeedThatIsMetLast also where it is not the last one, and where the
// wait is as short as can be.
func TestShortageIsOfTheNeedThatIsMetLast(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second)}, Limit{Calls: 1, Window: Sliding(time.Second)}, Limit{Calls: 1, Window: Sliding(time.Second)})
	l.PauseLimit(0, at(time.Second))
	l.PauseLimit(1, at(3*time.Second))
	l.PauseLimit(2, at(2*time.Second))
	if short, ok := l.Take(start, []Need{{0, "", 1}, {1, "", 1}, {2, "", 1}}); ok || short.Need != 1 || !short.Until.Equal(at(3*time.Second)) {
		t.Errorf("Take = %+v, %v; want the second need, until 3s", short, ok)
	}
	l = New(start, Limit{Calls: 1, Window: Sliding(time.Second)})
	l.PauseLimit(0, at(1))
	if _, ok := l.Take(start, one(0)); ok {
		t.Error("taken a nanosecond before the end of a pause")
	}
}

// TestLeavingKey: if no place of a full table came free for a window, the key that is idle
// first takes no permit until it is, and no other key has to wait.
func TestLeavingKey(t *testing.T) {
	limit := Limit{Calls: 3, Window: Sliding(time.Second), MaxKeys: 2}
	l := New(start, limit)
	take := func(tenths int, key string, want time.Duration) { // when it is refused until; 0: it is not
		t.Helper()
		now, need := at(time.Duration(tenths)*100*ms), []Need{{0, key, 1}}
		short, ok := l.Take(now, need)
		if ok {
			l.Return(now, need, Attempt{Sent: now, End: now})
			short.Until = start
		}
		if got := short.Until.Sub(start); got != want {
			t.Errorf("at %v key %s is refused until %v, want %v", now.Sub(start), key, got, want)
		}
	}
	eta := func(tenths int, key string, want time.Duration) {
		t.Helper()
		if got := l.ETA(at(time.Duration(tenths)*100*ms), Need{0, key, 1}, 0, 0).Sub(start); got != want {
			t.Errorf("key %s goes at %v, want %v", key, got, want)
		}
	}
	full := func(tenths int, key string, want bool) {
		t.Helper()
		if got := l.Full(at(time.Duration(tenths)*100*ms), 0, key); got != want {
			t.Errorf("at %d00ms there is a place for %s: %v", tenths, key, !got)
		}
	}
	full(0, "c", false)
	take(0, "a", 0)
	take(1, "b", 0)
	take(2, "a", 0)
	full(2, "c", true)
	full(2, "a", false)
	take(2, "c", 1100*ms) // b is idle
	take(6, "b", 0)
	take(11, "c", 1200*ms) // a is idle; no place came free for 900 ms
	take(11, "a", 0)
	take(12, "c", 1600*ms) // for a window: b, which is idle first, leaves
	take(13, "b", 1600*ms)
	eta(13, "b", 1600*ms)
	eta(13, "a", 1300*ms)
	take(13, "a", 0)
	take(16, "b", 0)       // older than the call of c: it is b's turn
	take(16, "b", 0)       // and b leaves no more
	take(17, "c", 2300*ms) // a is idle first
	take(18, "a", 2300*ms)
	take(18, "b", 0)
	full(23, "c", false)
	take(23, "c", 0) // in the place of a
	take(24, "c", 0) // it does not leave in the place of a
	take(24, "d", 2800*ms)
	take(26, "b", 0) // a place came free lately: no key leaves
	take(28, "d", 3400*ms)
	take(33, "c", 0)
	take(34, "d", 3600*ms) // b is idle first
	take(34, "b", 3600*ms)
	limit.MaxKeys = 3
	l.Replace(at(3400*ms), []Limit{limit}, []int{0})
	take(34, "b", 0) // no key has to leave any more
	take(34, "d", 0) // at once
	take(34, "e", 4300*ms)
}

func TestUnansweredPermits(t *testing.T) {
	l := New(start, Limit{Calls: 9, Window: Sliding(time.Second)})
	for _, cost := range []int{2, 3} {
		need := []Need{{0, "", cost}}
		l.Take(at(0), need)
		l.Return(at(0), need, Attempt{Sent: at(0), End: at(0), Fate: Unanswered})
	}
	if got := l.Audit(0).Unanswered; got != 5 {
		t.Errorf("%d permits of attempts without an answer, want 5", got)
	}
}
