package quota

import (
	"archive/zip"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sent is one attempt as the model and the checker of arrivals know it.
type sent struct {
	needs   []Need
	at, end time.Time // end is zero while it is in flight
	fate    Fate
	unused  int // permits of each need that its answer gives back
}

// uses returns the permits of a need that the receiver counts.
func (s *sent) uses(n Need) int {
	if s.fate != Answered || s.end.IsZero() {
		return n.Cost
	}
	return max(0, n.Cost-s.unused)
}

// model is the rule of the package doc written down without any thought of
// speed: every attempt is kept, and every method looks at all of them.
type model struct {
	limits []Limit
	log    []*sent
}

// out returns how many permits of a key are out at now.
func (m *model) out(now time.Time, limit int, key string) int {
	l, n := m.limits[limit], 0
	for _, s := range m.log {
		for _, need := range s.needs {
			if need.Limit == limit && need.Key == key && m.held(now, l, s) {
				n += s.uses(need)
			}
		}
	}
	return n
}

func (m *model) held(now time.Time, l Limit, s *sent) bool {
	if s.end.IsZero() {
		return true
	}
	end := s.end
	switch s.fate {
	case Uncounted:
		return false
	case Unanswered:
		end = end.Add(l.Late)
	}
	return now.Before(end.Add(l.Window.Length()))
}

func (m *model) fits(now time.Time, needs []Need) bool {
	for _, n := range needs {
		if m.out(now, n.Limit, n.Key)+n.Cost > m.limits[n.Limit].Calls {
			return false
		}
	}
	return true
}

// forget drops attempts that hold no permit any more.
func (m *model) forget(now time.Time) {
	keep := m.log[:0]
	for _, s := range m.log {
		if s.end.IsZero() || now.Sub(s.end) < 20*time.Second {
			keep = append(keep, s)
		}
	}
	m.log = keep
}

// run does ops random operations and compares the ledger with the model after
// each; then it checks arrivals drawn for the attempts.
func run(t testing.TB, seed uint64, ops int, limits []Limit) {
	r := rand.New(rand.NewPCG(seed, 1))
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	ledger, m := New(now, limits...), &model{limits: limits}
	var flying []*sent
	arrivals := newArrivals(limits)
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %s", seed, fmt.Sprintf(format, args...))
	}
	for range ops {
		switch k := r.IntN(10); {
		case k < 6: // a call
			needs := drawNeeds(r, limits)
			want := m.fits(now, needs)
			short, got := ledger.Take(now, needs)
			if got != want {
				fail("Take(%v) = %v at %v, the model says %v", needs, got, now, want)
			}
			if got {
				s := &sent{needs: needs, at: now}
				m.log, flying = append(m.log, s), append(flying, s)
				break
			}
			if n := needs[short.Need]; !short.Until.IsZero() {
				// An instant that is given must be right: not a nanosecond too late, nor too early.
				if m.fits(short.Until.Add(-1), []Need{n}) || !m.fits(short.Until, []Need{n}) {
					fail("Take(%v) says until %v, wrongly", needs, short.Until)
				}
			}
		case k < 9 && len(flying) > 0: // an attempt ends
			i := r.IntN(len(flying))
			s := flying[i]
			flying = append(flying[:i], flying[i+1:]...)
			s.fate = [...]Fate{Answered, Answered, Answered, Unanswered, Uncounted}[r.IntN(5)]
			s.end = now.Add(-time.Duration(r.Int64N(int64(now.Sub(s.at)) + 1))) // learnt a little later
			if r.IntN(2) == 0 {
				s.end = now
			}
			s.unused = max(0, r.IntN(8)-4) // often nothing, and more than one need cost
			ledger.Return(now, s.needs, Attempt{Sent: s.at, End: s.end, Fate: s.fate, Unused: s.unused})
			arrivals.add(r, s)
		default:
			now = now.Add(time.Duration(r.Int64N(int64(300 * time.Millisecond))))
			m.forget(now)
		}
	}
	for _, s := range flying {
		s.end, s.fate = now, Answered
		arrivals.add(r, s)
	}
	if err := arrivals.check(); err != nil {
		fail("%v", err)
	}
}

func drawNeeds(r *rand.Rand, limits []Limit) []Need {
	var needs []Need
	for i, l := range limits {
		if r.IntN(3) > 0 || len(needs) == 0 && i == len(limits)-1 {
			needs = append(needs, Need{Limit: i, Key: string(rune('a' + r.IntN(2))), Cost: 1 + r.IntN(min(4, l.Calls))})
		}
	}
	return needs
}

// arrivals checks the promise itself: no window of the receiver holds more than N.
type arrivals struct {
	limits []Limit
	log    map[Need][]arrival // by limit and key, Cost 0
}

type arrival struct {
	at   time.Time
	cost int
}

func newArrivals(limits []Limit) *arrivals {
	return &arrivals{limits: limits, log: make(map[Need][]arrival)}
}

// add draws where the receiver counts an attempt: anywhere that the attempt allows.
func (a *arrivals) add(r *rand.Rand, s *sent) {
	if s.fate == Uncounted || s.fate == Unanswered && r.IntN(4) == 0 {
		return // never arrived
	}
	for _, n := range s.needs {
		last := s.end
		if s.fate == Unanswered {
			last = last.Add(a.limits[n.Limit].Late)
		}
		at := s.at.Add(time.Duration(r.Int64N(int64(last.Sub(s.at)) + 1)))
		switch r.IntN(4) { // faults show at the ends
		case 0:
			at = s.at
		case 1:
			at = last
		}
		id := Need{Limit: n.Limit, Key: n.Key}
		a.log[id] = append(a.log[id], arrival{at, s.uses(n)})
	}
}

func (a *arrivals) check() error {
	for id, log := range a.log {
		l := a.limits[id.Limit]
		if l.Window == InFlight() {
			continue // concurrency is no count of arrivals
		}
		for _, last := range log {
			n := 0
			for _, x := range log {
				if d := last.at.Sub(x.at); d >= 0 && d < l.Window.Length() {
					n += x.cost
				}
			}
			if n > l.Calls {
				return fmt.Errorf("limit %q key %q: %d calls arrived in (t-%v, t] with t = %v, at most %d may", l.Name, id.Key, n, l.Window, last.at, l.Calls)
			}
		}
	}
	return nil
}

var mixed = []Limit{
	{Name: "app", Calls: 7, Window: Sliding(time.Second), Late: 700 * time.Millisecond},
	{Name: "method", Calls: 3, Window: Sliding(200 * time.Millisecond), Late: 50 * time.Millisecond},
	{Name: "trade", Calls: 1, Window: Sliding(3 * time.Second)},
	{Name: "concurrency", Calls: 4, Window: InFlight(), Late: time.Second},
}

// TestLedgerAgainstModel runs over a million random operations.
func TestLedgerAgainstModel(t *testing.T) {
	seeds, ops := uint64(3000), 400
	if testing.Short() {
		seeds /= 6
	}
	for seed := range seeds {
		from := int(seed % 4)
		run(t, seed, ops, append(mixed[from:len(mixed):len(mixed)], mixed[:from]...)[:1+seed/4%4])
	}
}

func FuzzLedger(f *testing.F) {
	f.Add(uint64(1), uint16(100))
	f.Fuzz(func(t *testing.T, seed uint64, ops uint16) { run(t, seed, int(ops), mixed) })
}

var start = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

const ms = time.Millisecond

func one(limit int) []Need { return []Need{{Limit: limit, Cost: 1}} }

func TestPermitComesBackAtResponsePlusWindow(t *testing.T) {
	tests := []struct {
		name  string
		limit Limit
		a     Attempt
		back  time.Duration
	}{
		{"answered", Limit{Calls: 1, Window: Sliding(time.Second)}, Attempt{Sent: at(0), End: at(20 * ms), Fate: Answered}, 1020 * ms},
		{"no answer", Limit{Calls: 1, Window: Sliding(time.Second), Late: 5 * time.Second}, Attempt{Sent: at(0), End: at(20 * ms), Fate: Unanswered}, 6020 * ms},
		{"never sent, or not counted", Limit{Calls: 1, Window: Sliding(time.Second), Late: 5 * time.Second}, Attempt{Sent: at(0), End: at(20 * ms), Fate: Uncounted}, 20 * ms},
		{"slow, with a guard", Limit{Calls: 1, Window: Sliding(time.Second), Guard: 100 * ms}, Attempt{Sent: at(0), End: at(800 * ms), Fate: Answered}, 1100 * ms},
		{"slow to be written, with a guard", Limit{Calls: 1, Window: Sliding(time.Second), Guard: 100 * ms}, Attempt{Sent: at(0), Written: at(500 * ms), End: at(800 * ms), Fate: Answered}, 1600 * ms},
		{"fast, with a guard", Limit{Calls: 1, Window: Sliding(time.Second), Guard: 100 * ms}, Attempt{Sent: at(0), End: at(20 * ms), Fate: Answered}, 1020 * ms},
		{"concurrency", Limit{Calls: 1, Window: InFlight()}, Attempt{Sent: at(0), End: at(20 * ms), Fate: Answered}, 20 * ms},
		{"concurrency, no answer", Limit{Calls: 1, Window: InFlight(), Late: time.Second}, Attempt{Sent: at(0), End: at(20 * ms), Fate: Unanswered}, 1020 * ms},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := New(start, tt.limit)
			if _, ok := l.Take(at(0), one(0)); !ok {
				t.Fatal("the first call did not get its permit")
			}
			if short, ok := l.Take(tt.a.End, one(0)); ok || !short.Until.IsZero() {
				t.Fatalf("in flight: Take = %+v, %v; want a shortage without an instant", short, ok)
			}
			l.Return(tt.a.End, one(0), tt.a)
			if got := l.Next(tt.a.End, one(0)[0]); !got.Equal(at(tt.back)) {
				t.Errorf("back at %v, want %v", got.Sub(start), tt.back)
			}
			if tt.back > tt.a.End.Sub(start) {
				if _, ok := l.Take(at(tt.back-1), one(0)); ok {
					t.Error("taken a nanosecond too early")
				}
			}
			if _, ok := l.Take(at(tt.back), one(0)); !ok {
				t.Error("not to be had when it is back")
			}
		})
	}
}

func TestAllPermitsOrNone(t *testing.T) {
	l := New(start, Limit{Name: "app", Calls: 2, Window: Sliding(time.Second)}, Limit{Name: "trade", Calls: 1, Window: Sliding(3 * time.Second)})
	both := []Need{{0, "app", 1}, {1, "T1", 1}}
	if _, ok := l.Take(at(0), both); !ok {
		t.Fatal("first call refused")
	}
	l.Return(at(0), both, Attempt{Sent: at(0), End: at(0)})
	short, ok := l.Take(at(0), both)
	if ok || both[short.Need].Key != "T1" || !short.Until.Equal(at(3*time.Second)) {
		t.Fatalf("Take = %+v, %v; want a shortage of T1 until 3s", short, ok)
	}
	if u := l.Usage(at(0), 0, "app"); u.Free != 1 {
		t.Errorf("the failed Take left %d permits of app free, want 1", u.Free)
	}
}

func TestIdleKeyCostsNothing(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second)})
	now := start
	for i := range 100_000 {
		need := []Need{{0, fmt.Sprint(i), 1}}
		if _, ok := l.Take(now, need); !ok {
			t.Fatal("a new key was refused")
		}
		l.Return(now, need, Attempt{Sent: now, End: now})
		now = now.Add(10 * ms)
	}
	if n := len(l.limits[0].accounts); n > 102 {
		t.Errorf("%d accounts, but only 100 keys have a permit out", n)
	}
	if n := cap(l.limits[0].visits); n > 1000 {
		t.Errorf("there is room for %d visits, but only 100 keys have a permit out", n)
	}
}

func TestFullKeyTableMakesNewKeysWait(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second), MaxKeys: 2})
	for _, key := range []string{"a", "b"} {
		l.Take(at(0), []Need{{0, key, 1}})
	}
	l.Return(at(10*ms), []Need{{0, "b", 1}}, Attempt{Sent: at(0), End: at(10 * ms)})
	short, ok := l.Take(at(20*ms), []Need{{0, "c", 1}})
	if ok || !short.Until.Equal(at(1010*ms)) {
		t.Fatalf("Take = %+v, %v; want a wait until b is idle, at 1.01s", short, ok)
	}
	if _, ok := l.Take(at(1010*ms), []Need{{0, "c", 1}}); !ok {
		t.Error("c was refused after b went idle")
	}
}

func TestPause(t *testing.T) {
	l := New(start, Limit{Calls: 5, Window: Sliding(time.Second)})
	a, b := []Need{{0, "a", 1}}, []Need{{0, "b", 1}}
	l.PauseKey(start, 0, "a", at(3*time.Second))
	if short, ok := l.Take(at(0), a); ok || !short.Until.Equal(at(3*time.Second)) {
		t.Fatalf("Take(a) = %+v, %v; want a pause until 3s", short, ok)
	}
	if _, ok := l.Take(at(0), b); !ok {
		t.Error("the pause of a stopped b")
	}
	l.PauseLimit(0, at(time.Second))
	if _, ok := l.Take(at(999*ms), b); ok {
		t.Error("b passed a paused limit")
	}
	if _, ok := l.Take(at(time.Second), b); !ok {
		t.Error("b did not pass after the pause")
	}
	l.PauseKey(start, 0, "a", time.Time{})
	if _, ok := l.Take(at(time.Second), a); !ok {
		t.Error("a did not pass after it was opened again")
	}
}

func TestSpacingInsideTheWindow(t *testing.T) {
	l := New(start, Limit{Calls: 10, Window: Sliding(time.Second), Burst: 2})
	now, n := start, 0
	for now.Before(at(500 * ms)) {
		if short, ok := l.Take(now, one(0)); ok {
			l.Return(now, one(0), Attempt{Sent: now, End: now})
			n++
		} else {
			now = short.Until
		}
	}
	if n != 6 && n != 7 { // 2 at once, then one per 100 ms
		t.Errorf("%d calls in 500ms, want 2 and one per 100ms", n)
	}
}

func TestAlignedWindows(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	day := Limit{Calls: 2, Window: Aligned(Calendar{Unit: Day, Zone: shanghai, Skew: time.Second})}
	edge := time.Date(2026, 11, 22, 0, 0, 0, 0, shanghai)
	t.Run("a day has its permits again after midnight of the zone and the skew", func(t *testing.T) {
		l := New(edge.Add(-time.Hour), day)
		now := edge.Add(-time.Hour)
		for range 2 {
			l.Take(now, one(0))
			l.Return(now, one(0), Attempt{Sent: now, End: now})
		}
		short, ok := l.Take(now, one(0))
		if want := edge.Add(time.Second); ok || !short.Until.Equal(want) {
			t.Fatalf("Take = %+v, %v; want a shortage until %v", short, ok, want)
		}
		if _, ok := l.Take(edge.Add(time.Second), one(0)); !ok {
			t.Error("no permit in the new day")
		}
	})
	t.Run("an attempt in flight over midnight counts in both days", func(t *testing.T) {
		l := New(edge.Add(-10*time.Second), day)
		sent, end := edge.Add(-10*time.Second), edge.Add(5*time.Second)
		l.Take(sent, one(0))
		l.Return(end, one(0), Attempt{Sent: sent, End: end})
		if u := l.Usage(end, 0, ""); u.Free != 1 {
			t.Errorf("%d free in the new day, want 1", u.Free)
		}
	})
	t.Run("days of 23 and 25 hours", func(t *testing.T) {
		ny, err := time.LoadLocation("America/New_York")
		if err != nil {
			t.Fatal(err)
		}
		for date, hours := range map[string]int{"2026-03-08": 23, "2026-11-01": 25, "2026-11-02": 24} {
			d, _ := time.ParseInLocation(time.DateOnly, date, ny)
			end := Calendar{Unit: Day, Zone: ny}.end(d.Add(12 * time.Hour).UnixNano())
			if got := time.Duration(end - d.UnixNano()); got != time.Duration(hours)*time.Hour {
				t.Errorf("%s has %v, want %dh", date, got, hours)
			}
		}
	})
}

// TestEndsInEveryZone looks at every change of every zone's clock in the database of zones.
// After the end of a window no instant has its date, and right before it one has. A window
// is no longer than its unit and the hours that come twice.
func TestEndsInEveryZone(t *testing.T) {
	zones := allZones(t)
	if len(zones) < 250 {
		t.Fatalf("%d zones are known, want all", len(zones))
	}
	around := []time.Duration{-26 * time.Hour, -13 * time.Hour, -time.Hour, -30 * time.Minute, -1, 0, 30 * time.Minute, time.Hour, 13 * time.Hour, 26 * time.Hour}
	for _, zone := range zones {
		for at, until := time.Date(1900, 1, 1, 0, 0, 0, 0, zone), time.Date(2040, 1, 1, 0, 0, 0, 0, zone); at.Before(until); {
			_, change := at.ZoneBounds()
			if change.IsZero() {
				break
			}
			for _, off := range around {
				for u := Minute; u <= Month; u++ {
					checkEnd(t, Calendar{Unit: u, Zone: zone}, change.Add(off))
				}
			}
			at = change.Add(time.Hour)
		}
	}
}

func checkEnd(t *testing.T, c Calendar, at time.Time) {
	end := time.Unix(0, c.end(at.UnixNano())).In(c.Zone)
	window := func(at time.Time) int { // grows from one to the next
		y, m, d := at.Date()
		if c.Unit == Month {
			d = 0
		}
		return (y*100+int(m))*100 + d
	}
	longest := c.Unit.length() + 26*time.Hour
	if c.Unit == Month {
		longest += 24 * time.Hour
	}
	switch {
	case !end.After(at) || end.Sub(at) > longest:
		t.Fatalf("%v: the %v of %v ends at %v", c.Zone, c.Unit, at, end)
	case c.Unit < Day:
		return
	case window(end.Add(-1)) > window(at) && !skipped(end):
		t.Fatalf("%v: the %v of %v ends at %v, and is over before", c.Zone, c.Unit, at, end)
	}
	for later := end; later.Before(end.Add(26 * time.Hour)); later = later.Add(1 + later.Sub(end)*2/3 + 10*time.Minute) {
		if window(later) <= window(at) {
			t.Fatalf("%v: the %v of %v ends at %v, and %v is still in it", c.Zone, c.Unit, at, end, later)
		}
	}
}

// skipped reports whether the clock is put back at about an instant, so that a window may
// be over and come again.
func skipped(at time.Time) bool {
	_, before := at.Add(-26 * time.Hour).Zone()
	_, after := at.Zone()
	return after < before
}

// allZones returns the zones of the database that the toolchain has, but for those that
// are another name of one.
func allZones(t *testing.T) (zones []*time.Location) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	known := map[uint32]bool{}
	for _, f := range archive.File {
		if zone, err := time.LoadLocation(f.Name); err == nil && !known[f.CRC32] {
			known[f.CRC32] = true
			zones = append(zones, zone)
		}
	}
	return zones
}

// TestAlignedArrivals draws arrivals anywhere in flight, on a receiver's clock
// that is off by up to the skew, and counts them by its calendar.
func TestAlignedArrivals(t *testing.T) {
	const skew = 300 * ms
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		l := New(start, Limit{Calls: 5, Late: 2 * time.Second, Window: Aligned(Calendar{Unit: Minute, Skew: skew})})
		offset := time.Duration(r.Int64N(2*int64(skew)+1)) - skew
		counts := make(map[time.Time]int)
		var flying []*sent
		for now := start; now.Before(at(10 * time.Minute)); now = now.Add(time.Duration(r.Int64N(int64(4 * time.Second)))) {
			if _, ok := l.Take(now, one(0)); ok {
				flying = append(flying, &sent{at: now})
			}
			for len(flying) > 0 && r.IntN(3) == 0 {
				s := flying[0]
				flying = flying[1:]
				fate, last := Answered, now
				if r.IntN(5) == 0 {
					fate, last = Unanswered, now.Add(2*time.Second)
				}
				l.Return(now, one(0), Attempt{Sent: s.at, End: now, Fate: fate})
				arrived := s.at.Add(time.Duration(r.Int64N(int64(last.Sub(s.at)) + 1))).Add(offset)
				counts[arrived.Truncate(time.Minute)]++
			}
		}
		for minute, n := range counts {
			if n > 5 {
				t.Fatalf("seed %d: %d calls arrived in the minute of %v, at most 5 may", seed, n, minute)
			}
		}
	}
}

func TestReplace(t *testing.T) {
	app := Limit{Name: "app", Calls: 3, Window: Sliding(time.Second)}
	l := New(start, app, Limit{Name: "gone", Calls: 1, Window: Sliding(time.Hour)})
	both := []Need{{0, "a", 1}, {1, "", 1}}
	for range 2 {
		l.Take(at(0), both[:1])
		l.Return(at(0), both[:1], Attempt{Sent: at(0), End: at(0)})
	}
	l.Take(at(0), both) // in flight
	l.PauseKey(at(0), 0, "b", at(500*ms))

	app.Calls = 2
	l.Replace(at(0), []Limit{{Name: "new", Calls: 2, Window: Sliding(time.Second)}, app}, []int{-1, 0})
	l.Charge(at(10*ms), []Need{{0, "n", 1}})
	if u := l.Usage(at(10*ms), 1, "a"); u.Out != 3 || u.Free != 0 || u.InFlight != 1 {
		t.Errorf("after the limit was lowered below what is out: %+v", u)
	}
	if u := l.Usage(at(10*ms), 1, "b"); !u.PausedUntil.Equal(at(500 * ms)) {
		t.Errorf("the pause was lost: %+v", u)
	}
	now := []Need{{0, "n", 1}, {1, "a", 1}}
	l.Return(at(100*ms), now, Attempt{Sent: at(0), End: at(100 * ms)})
	if got := l.Next(at(100*ms), now[1]); !got.Equal(at(1000 * ms)) {
		t.Errorf("next permit at %v, want 1s, when one of 2 is out", got.Sub(start))
	}
	if u := l.Usage(at(100*ms), 0, "n"); u.Out != 1 || u.Free != 1 {
		t.Errorf("the new limit does not count what was in flight: %+v", u)
	}
}

// TestSuccessor: until it begins, a successor tells when needs could be met under its limits,
// and the ledger before it goes by its own.
func TestSuccessor(t *testing.T) {
	app := Limit{Name: "app", Calls: 2, Window: Sliding(time.Second)}
	l := New(start, app)
	l.Take(at(0), one(0))
	l.Take(at(0), one(0))
	app.Calls = 3
	s := l.Successor(at(0), []Limit{{Name: "new", Calls: 1, Window: Sliding(time.Second)}, app}, []int{-1, 0})
	more := Need{Limit: 1, Cost: 1}
	if got := s.Next(at(0), more); !got.Equal(at(0)) {
		t.Errorf("a third permit in the successor: %v", got)
	}
	if got := l.Next(at(0), one(0)[0]); !got.IsZero() {
		t.Errorf("a third permit in the ledger: %v", got)
	}
	l.Return(at(10*ms), one(0), Attempt{Sent: at(0), End: at(10 * ms)})
	l.Take(at(2*time.Second), one(0))
	l.PauseKey(at(2*time.Second), 0, "", at(5*time.Second))
	s.Begin(at(2 * time.Second))
	if u := s.Usage(at(2*time.Second), 1, ""); u.Out != 2 || !u.PausedUntil.Equal(at(5*time.Second)) {
		t.Errorf("the successor goes on with %+v", u)
	}
	if s.Calls(1) != 3 || s.Calls(0) != 1 {
		t.Error("the limits of a successor that has begun are not its own")
	}
}

// TestNewLimitOfASuccessor: a limit that a successor adds is as it is configured before it begins.
func TestNewLimitOfASuccessor(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second)})
	s := l.Successor(at(0), []Limit{{Calls: 2, Window: Sliding(time.Second)}}, nil)
	if n := s.Calls(0); n != 2 {
		t.Errorf("before it begins a new limit has %d permits, want 2", n)
	}
	if next := s.Next(at(0), one(0)[0]); !next.Equal(at(0)) {
		t.Errorf("before it begins a permit of a new limit is free after %v", next.Sub(start))
	}
}

// TestGuardOfOldAccounts: a guard that a limit gets, or loses, holds for the permits that are
// out before.
func TestGuardOfOldAccounts(t *testing.T) {
	limit := Limit{Calls: 1, Window: Sliding(time.Second)}
	for _, guard := range []time.Duration{100 * ms, 0} {
		l := New(start, limit)
		l.Take(at(0), one(0))
		limit.Guard = guard
		l.Replace(at(0), []Limit{limit}, []int{0})
		l.Return(at(500*ms), one(0), Attempt{Sent: at(0), End: at(500 * ms), Fate: Answered})
		want := at(1500 * ms)
		if guard > 0 {
			want = at(guard + time.Second)
		}
		if got := l.Next(at(500*ms), one(0)[0]); !got.Equal(want) {
			t.Errorf("with a guard of %v from then on the permit is back after %v", guard, got.Sub(start))
		}
	}
}

// TestPausedKeys: the ledger tells of the keys that are paused themselves, until the pause
// ends or is over, and keeps nothing of the others.
func TestPausedKeys(t *testing.T) {
	l := New(start, Limit{Calls: 1, Window: Sliding(time.Second)})
	paused := func(now time.Duration) string {
		var keys []string
		for u := range l.PausedKeys(at(now), 0) {
			keys = append(keys, u.Key+fmt.Sprint(u.PausedUntil.Sub(start)))
		}
		slices.Sort(keys)
		return strings.Join(keys, " ")
	}
	check := func(now time.Duration, want string) {
		t.Helper()
		if got := paused(now); got != want {
			t.Errorf("after %v these are paused: %q, want %q", now, got, want)
		}
	}
	l.Take(at(0), []Need{{0, "free", 1}})
	for _, key := range []string{"a", "b", "c"} {
		l.PauseKey(at(0), 0, key, at(5*time.Second))
	}
	l.PauseKey(at(0), 0, "d", at(2*time.Second))
	check(0, "a5s b5s c5s d2s")
	l.PauseLimit(0, at(time.Second))
	l.PauseKey(at(0), 0, "a", time.Time{})
	check(0, "b5s c5s d2s")
	check(2*time.Second-1, "b5s c5s d2s")
	check(2*time.Second, "b5s c5s")
	n := 0
	for range l.PausedKeys(at(0), 0) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d keys came, want 2", n)
	}
	for i := range 10 { // the accounts are visited
		l.Take(at(time.Duration(6+i)*time.Second), []Need{{0, fmt.Sprint(i), 1}})
	}
	check(20*time.Second, "")
	if n := len(l.limits[0].pausedKeys); n > 0 {
		t.Errorf("%d keys are kept", n)
	}
}

func TestAudit(t *testing.T) {
	limit := Limit{Calls: 2, Window: Sliding(time.Second), Guard: 100 * ms}
	l := New(start, limit)
	for i := range 4 { // answered after 600 ms, but given back after 100 ms + 1 s
		sent := at(time.Duration(i) * 600 * ms)
		l.Replace(sent, []Limit{limit}, []int{0}) // the record goes on
		if _, ok := l.Take(sent, one(0)); !ok {
			t.Fatal("no permit", i)
		}
		l.Return(sent.Add(600*ms), one(0), Attempt{Sent: sent, End: sent.Add(600 * ms)})
	}
	a := l.Audit(0)
	if a.Most != 3 { // sent at 0, 600, 1200: the first may have arrived at 600, the last at 1200
		t.Errorf("most is %d, want 3: the guard was too short", a.Most)
	}
	hold, wins := a.Cost(time.Second)
	if want := 0.6 / 1.6; hold < want-1e-9 || hold > want+1e-9 {
		t.Errorf("the hold costs %v, want %v", hold, want)
	}
	if want := 0.5 / 1.6; wins[2] < want-1e-9 || wins[2] > want+1e-9 {
		t.Errorf("a guard of 100ms wins %v, want %v", wins[2], want)
	}
}

// TestAuditCountsWhatIsOut: permits in flight and those that cool, none that are back.
func TestAuditCountsWhatIsOut(t *testing.T) {
	l := New(start, Limit{Calls: 9, Window: Sliding(time.Second)})
	for _, tt := range []struct {
		at   time.Duration
		most int
	}{{0, 1}, {500 * ms, 2}, {1400 * ms, 2}, {3 * time.Second, 2}, {3100 * ms, 2}, {3200 * ms, 3}} {
		l.Take(at(tt.at), one(0))
		l.Return(at(tt.at), one(0), Attempt{Sent: at(tt.at), End: at(tt.at)})
		if most := l.Audit(0).Most; most != tt.most {
			t.Errorf("%v: most is %d, want %d", tt.at, most, tt.most)
		}
	}
}

// TestAuditOfAnotherN: a limit that was kept is audited anew with another N. One that was exceeded
// stays so.
func TestAuditOfAnotherN(t *testing.T) {
	for _, c := range []struct {
		name       string
		guard      time.Duration
		calls      int // from then on
		then, last int
	}{
		{"fewer", 0, 1, 0, 1},
		{"more", 0, 5, 0, 1},
		{"the same", 0, 2, 2, 2},
		{"fewer, exceeded before", 10 * ms, 1, 3, 3},
	} {
		limit := Limit{Calls: 2, Window: Sliding(time.Second), Guard: c.guard}
		l := New(start, limit)
		for i := range 2 {
			l.Take(at(time.Duration(i)*ms), one(0))
		}
		for range 2 {
			l.Return(at(500*ms), one(0), Attempt{Sent: at(0), End: at(500 * ms)})
		}
		l.Take(at(1100*ms), one(0)) // with the guard too early
		l.Return(at(1100*ms), one(0), Attempt{Sent: at(1100 * ms), End: at(1100 * ms), Fate: Uncounted})
		limit.Calls = c.calls
		l.Replace(at(1200*ms), []Limit{limit}, []int{0})
		if most := l.Audit(0).Most; most != c.then {
			t.Errorf("%s: most is %d after it, want %d", c.name, most, c.then)
		}
		l.Take(at(5*time.Second), one(0))
		if most := l.Audit(0).Most; most != c.last {
			t.Errorf("%s: most is %d at last, want %d", c.name, most, c.last)
		}
	}
}

// TestAuditGuards: a guard wins the part of a trip that is longer.
func TestAuditGuards(t *testing.T) {
	for _, tt := range []struct {
		trip time.Duration
		want [len(Guards)]time.Duration
	}{
		{5 * ms, [len(Guards)]time.Duration{}},
		{30 * ms, [...]time.Duration{2 * 20 * ms, 0, 0, 0, 0}},
		{250 * ms, [...]time.Duration{2 * 240 * ms, 2 * 220 * ms, 2 * 150 * ms, 0, 0}},
		{2 * time.Second, [...]time.Duration{2 * 1990 * ms, 2 * 1970 * ms, 2 * 1900 * ms, 2 * 1700 * ms, 2 * time.Second}},
	} {
		var a Audit
		a.add(2, tt.trip)
		if a.Permits != 2 || a.Held != 2*tt.trip || a.Cut != tt.want {
			t.Errorf("a trip of %v: %+v, want %v", tt.trip, a, tt.want)
		}
	}
}

// TestLongWindowNeedsLittleRoom counts a day's calls in grains: never more than
// the limit, and a key needs no room for each of them.
func TestLongWindowNeedsLittleRoom(t *testing.T) {
	const day = 24 * time.Hour
	l := New(start, Limit{Calls: 100_000, Window: Sliding(day)})
	now, n := start, 0
	for ; now.Before(at(day)); now = now.Add(500 * ms) {
		if _, ok := l.Take(now, one(0)); ok {
			n++
			l.Return(now, one(0), Attempt{Sent: now, End: now})
		}
	}
	if n != 100_000 {
		t.Errorf("%d calls in the first day, want 100000", n)
	}
	if got := len(l.limits[0].accounts[""].cooling.ring); got > grains+1 {
		t.Errorf("%d batches, want at most %d", got, grains+1)
	}
	back := l.Next(now, one(0)[0])
	if lost := back.Sub(at(day)); lost < 0 || lost > day/grains {
		t.Errorf("the first permit comes back %v after a day, want at most %v", lost, day/grains)
	}
}

func TestETA(t *testing.T) {
	const trip = 10 * ms
	limit := Limit{Calls: 2, Window: Sliding(time.Second)}
	need := one(0)[0]
	l := New(start, limit)
	for i, want := range []time.Duration{0, 0, 1010 * ms, 1010 * ms, 2020 * ms} {
		if got := l.ETA(at(0), need, i, trip).Sub(start); got != want {
			t.Errorf("fresh, %d ahead: ETA %v, want %v", i, got, want)
		}
	}
	l.Take(at(0), one(0))
	l.Return(at(30*ms), one(0), Attempt{Sent: at(0), End: at(30 * ms)})
	l.Take(at(40*ms), one(0))
	for i, want := range []time.Duration{1030 * ms, 1060 * ms, 2040 * ms} {
		if got := l.ETA(at(50*ms), need, i, trip).Sub(start); got != want {
			t.Errorf("one cooling and one in flight, %d ahead: ETA %v, want %v", i, got, want)
		}
	}
	l.PauseLimit(0, at(5*time.Second))
	if got := l.ETA(at(50*ms), need, 0, trip).Sub(start); got != 5*time.Second {
		t.Errorf("paused: ETA %v, want 5s", got)
	}
}

// TestEstimateWithHungAttempts: permits that are not expected back are not counted upon.
func TestEstimateWithHungAttempts(t *testing.T) {
	const trip = 10 * ms
	for _, tt := range []struct {
		name   string
		limit  Limit
		flying int
		hung   int
		want   []time.Duration // by how many calls are ahead; below 0: it is not known
	}{
		{"none hangs", Limit{Calls: 3, Window: InFlight()}, 3, 0, []time.Duration{trip, trip, trip, 2 * trip}},
		{"one hangs", Limit{Calls: 3, Window: InFlight()}, 3, 1, []time.Duration{trip, trip, 2 * trip}},
		{"two hang", Limit{Calls: 3, Window: InFlight()}, 3, 2, []time.Duration{trip, 2 * trip, 3 * trip}},
		{"all hang", Limit{Calls: 3, Window: InFlight()}, 3, 3, []time.Duration{-1, -1}},
		{"more hang than there are since", Limit{Calls: 2, Window: InFlight()}, 2, 3, []time.Duration{-1}},
		{"one hangs, one is free", Limit{Calls: 2, Window: InFlight()}, 1, 1, []time.Duration{0, trip, 2 * trip}},
		{"one of a window hangs", Limit{Calls: 2, Window: Sliding(time.Second)}, 1, 1, []time.Duration{0, time.Second + trip, 2 * (time.Second + trip)}},
		{"all of a window hang", Limit{Calls: 2, Window: Sliding(time.Second)}, 2, 2, []time.Duration{-1}},
		{"one hangs of a limit of which not all count", Limit{Calls: 2, Window: Sliding(time.Second), Partly: true}, 2, 1, []time.Duration{trip, 2 * trip}},
	} {
		l := New(start, tt.limit)
		for range tt.flying {
			l.Take(at(0), one(0))
		}
		for ahead, want := range tt.want {
			got, known := l.Estimate(at(0), one(0)[0], Outlook{Ahead: ahead, Trip: trip, Hung: tt.hung})
			if known != (want >= 0) || known && got.Sub(start) != want {
				t.Errorf("%s, %d ahead: %v, %v, want %v", tt.name, ahead, got.Sub(start), known, want)
			}
		}
	}
	l := New(start, Limit{Calls: 3, Window: InFlight()})
	if _, known := l.Estimate(at(0), Need{0, "", 2}, Outlook{Trip: trip, Hung: 2}); known {
		t.Error("two permits are expected of one")
	}
	if got, _ := l.Estimate(at(0), Need{0, "", 1}, Outlook{Ahead: 3, Trip: trip, From: at(time.Minute)}); got.Sub(start) != time.Minute+trip {
		t.Errorf("after a minute, with three ahead: %v", got.Sub(start))
	}
}

// TestETAOfOtherLimits: limits of concurrency, those whose answers do not all count, and
// spaced ones.
func TestETAOfOtherLimits(t *testing.T) {
	const trip = 10 * ms
	flying := func(l *Ledger) { l.Take(at(0), one(0)) }
	counted := func(l *Ledger) {
		l.Take(at(0), one(0))
		l.Return(at(0), one(0), Attempt{Sent: at(0), End: at(0)})
	}
	partly := Limit{Calls: 2, Window: Sliding(time.Second), Partly: true}
	spaced := Limit{Calls: 10, Window: Sliding(time.Second), Burst: 2}
	for _, tt := range []struct {
		name  string
		limit Limit
		calls []func(*Ledger)
		want  []time.Duration // by how many calls are ahead
	}{
		{"one counted", Limit{Calls: 2, Window: Sliding(time.Second)}, []func(*Ledger){counted}, []time.Duration{0, time.Second, time.Second + trip}},
		{"concurrency", Limit{Calls: 2, Window: InFlight()}, nil, []time.Duration{0, 0, trip, trip, 2 * trip}},
		{"concurrency, one in flight", Limit{Calls: 2, Window: InFlight()}, []func(*Ledger){flying}, []time.Duration{0, trip, trip, 2 * trip}},
		{"partly", partly, nil, []time.Duration{0, 0, trip, trip, 2 * trip}},
		{"partly, one in flight", partly, []func(*Ledger){flying}, []time.Duration{0, trip, trip, 2 * trip}},
		{"partly, one counted", partly, []func(*Ledger){counted}, []time.Duration{0, trip, 2 * trip}},
		{"partly, one counted and one in flight", partly, []func(*Ledger){counted, flying}, []time.Duration{trip, 2 * trip}},
		{"partly, all counted", partly, []func(*Ledger){counted, counted}, []time.Duration{time.Second, time.Second, 2*time.Second + trip}},
		{"spaced", spaced, nil, []time.Duration{0, 0, 100 * ms, 200 * ms, 300 * ms}},
		{"spaced, the burst gone", spaced, []func(*Ledger){counted, counted}, []time.Duration{100 * ms, 200 * ms, 300 * ms}},
		{"spaced, the burst in flight", spaced, []func(*Ledger){flying, flying}, []time.Duration{100 * ms, 200 * ms, 300 * ms}},
	} {
		l := New(start, tt.limit)
		for _, call := range tt.calls {
			call(l)
		}
		for ahead, want := range tt.want {
			if got := l.ETA(at(0), one(0)[0], ahead, trip).Sub(start); got < want || got > want+10 {
				t.Errorf("%s, %d ahead: ETA %v, want %v", tt.name, ahead, got, want)
			}
		}
	}
	if got := New(start, Limit{Calls: 1, Window: InFlight()}).ETA(start, one(0)[0], 3, 1).Sub(start); got != 3 {
		t.Errorf("three attempts of a nanosecond ahead: ETA %v, want 3ns", got)
	}
}

func TestTakeAllocatesNothing(t *testing.T) {
	l := New(start, mixed...)
	needs := []Need{{0, "app", 1}, {1, "app", 1}, {2, "T1", 1}}
	now := start
	take := func() {
		now = now.Add(3 * time.Second)
		if _, ok := l.Take(now, needs); !ok {
			t.Fatal("no permits")
		}
		l.Return(now, needs, Attempt{Sent: now, End: now})
	}
	take()
	if n := testing.AllocsPerRun(1000, take); n != 0 {
		t.Errorf("%v allocations per permit, want 0", n)
	}
}

// TestShortageIsExact: a call that is refused is refused until the instant that the ledger
// names, and not at it, also where a bucket and a window hold it both. The bucket computes in
// floating point: some nanoseconds are its own.
func TestShortageIsExact(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 6))
		calls := 1 + r.IntN(6)
		l := New(start, Limit{Calls: calls, Window: Sliding(time.Second), Burst: 1 + r.IntN(calls)})
		now, refused := start, 0
		for range 60 {
			need := []Need{{Cost: 1 + r.IntN(calls)}}
			short, ok := l.Take(now, need)
			if ok {
				l.Return(now, need, Attempt{Sent: now, End: now})
				now = now.Add(time.Duration(r.Int64N(int64(300 * ms))))
				continue
			}
			refused++
			if !short.Until.Equal(l.Next(now, need[0])) || !l.Next(short.Until.Add(-10), need[0]).After(short.Until.Add(-10)) {
				t.Fatalf("seed %d: refused until %v, which is too late", seed, short.Until)
			}
			if _, ok := l.Take(short.Until, need); !ok {
				t.Fatalf("seed %d: refused until %v, and refused then", seed, short.Until)
			}
			now = short.Until
			l.Return(now, need, Attempt{Sent: now, End: now})
		}
		if refused == 0 {
			t.Fatalf("seed %d: nothing was refused", seed)
		}
	}
}

// TestTwoNeedsOfOneLimit: the ledger could meet each of two needs of one limit, but not
// both, so no call may have two.
func TestTwoNeedsOfOneLimit(t *testing.T) {
	for _, keys := range [][2]string{{"a", "a"}, {"a", "b"}} {
		for name, use := range map[string]func(*Ledger, []Need){
			"Take":   func(l *Ledger, needs []Need) { l.Take(start, needs) },
			"Charge": func(l *Ledger, needs []Need) { l.Charge(start, needs) },
		} {
			func() {
				l := New(start, Limit{Name: "app", Calls: 1, Window: Sliding(time.Second), MaxKeys: 1})
				defer func() {
					if v := recover(); v == nil || !strings.Contains(fmt.Sprint(v), `limit "app" is needed twice`) {
						t.Errorf("%s of keys %q: %v, want a panic that names the limit", name, keys, v)
					}
					if u := l.Usage(start, 0, "a"); u.Out != 0 {
						t.Errorf("%s of keys %q: %d permits are out", name, keys, u.Out)
					}
				}()
				use(l, []Need{{Key: keys[0], Cost: 1}, {Key: keys[1], Cost: 1}})
			}()
		}
	}
}
