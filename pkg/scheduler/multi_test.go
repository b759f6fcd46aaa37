package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// scanned is how many parked calls the planner looks at in one turn.
const scanned = 128

func TestLargeCostIsNotStarved(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 4, Window: sec, Cost: `path == "/big" ? 4 : 1`}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{Target: "/a"})
		time.Sleep(100 * ms)
		submit(t, s, Request{Target: "/big"})
		for range 8 {
			submit(t, s, Request{Target: "/small"})
			time.Sleep(100 * ms)
		}
		time.Sleep(10 * sec)
		if got := f.targets(); !strings.HasPrefix(got, "a big small") {
			t.Errorf("order %q: smaller calls went ahead of the big one", got)
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/big?x"}); err != nil {
			t.Errorf("a cost of N was refused: %v", err)
		}
	})
}

// TestHalfOfThePermitsAtOnce: a call that takes half of the permits is not starved by
// small calls that could take each permit as it returns, nor by another flow's
// backlog of them.
func TestHalfOfThePermitsAtOnce(t *testing.T) {
	const calls, every = 100, 5 * ms // twice as many as the limit allows
	for _, backlog := range []int{0, 3000} {
		t.Run(fmt.Sprintf("small calls keep coming, %d of another flow wait", backlog), func(t *testing.T) {
			for seed := range uint64(5) {
				u := Upstream{MaxWaiting: 20_000, ShareBy: "path", Limits: []Limit{
					{Name: "app", Calls: calls, Window: sec, Cost: `path == "/dear" ? 50 : 1`},
					{Name: "shop", When: `path == "/small"`, PerKey: `query("shop")`, Calls: 1, Window: 200 * ms},
				}}
				bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
					r := rand.New(rand.NewPCG(seed, 24))
					submitSmall := func() { submit(t, s, Request{Target: fmt.Sprintf("/small?shop=%d", r.IntN(60))}) }
					small := func(since time.Duration) {
						for end := time.Now().Add(since); time.Now().Before(end); time.Sleep(every) {
							submitSmall()
						}
					}
					small(500 * ms) // permits return one by one from here on
					for range backlog {
						submitSmall()
					}
					small(time.Duration(500+r.IntN(1000)) * ms)
					asked := time.Now()
					dear := submit(t, s, Request{Target: "/dear"})
					small(2500 * ms)
					if c := wait(t, s, dear.ID); c.Attempts[0].SentAt.Sub(asked) > 2*sec {
						t.Errorf("seed %d: it waited for %v, want at most two windows", seed, c.Attempts[0].SentAt.Sub(asked))
					}
				})
			}
		})
	}
}

// TestUrgentCallJoinsAClassBehindACostlyOne: three of four permits are free, and a call
// that needs all four waits for the last. An urgent call that needs one is sent at
// once.
func TestUrgentCallJoinsAClassBehindACostlyOne(t *testing.T) {
	for _, joins := range []bool{false, true} {
		u := Upstream{Limits: []Limit{{Name: "app", Calls: 4, Window: 10 * sec, Cost: `path == "/big" ? 4 : 1`}}}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			submit(t, s, Request{Target: "/a"})
			time.Sleep(100 * ms)
			submit(t, s, Request{Target: "/big", Priority: 5})
			if joins { // it opens the class of the urgent call
				submit(t, s, Request{Target: "/low"})
			}
			time.Sleep(100 * ms)
			wait(t, s, submit(t, s, Request{Target: "/urgent", Priority: 10}).ID)
			if d := time.Since(f.start); d > sec {
				t.Errorf("behind one that waits: %v; an urgent call with 3 permits free went at %v", joins, d)
			}
		})
	}
}

// TestReservationEndsWithAPauseElsewhere: a call's claim on permits of one limit ends when
// the call also lacks permits of another limit.
func TestReservationEndsWithAPauseElsewhere(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 4, Window: 10 * sec, Cost: `path == "/big" ? 4 : 1`},
		{Name: "key", When: `query("k") != ""`, PerKey: `query("k")`, Calls: 1, Window: time.Hour},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{Target: "/a"})
		time.Sleep(100 * ms)
		submit(t, s, Request{Target: "/big?k=x", Deadline: f.start.Add(2 * time.Hour)})
		time.Sleep(100 * ms)
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: "key", Key: "x", Until: f.start.Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{Target: "/small"}).ID)
		sameTimes(t, f.at(), 0, 200*ms)
	})
}

// TestYoungCallsDoNotOvertakeAParkedOne: calls that arrive after permits have returned, and
// before the timer fires, do not overtake an older call that needs several permits of two limits.
func TestYoungCallsDoNotOvertakeAParkedOne(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "a", Calls: 2, Window: sec, Cost: `path == "/big" ? 2 : 1`},
		{Name: "b", Calls: 2, Window: sec, Cost: `path == "/big" ? 2 : 1`},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{} }
		submit(t, s, Request{Target: "/first"})
		submit(t, s, Request{Target: "/big"})
		time.Sleep(10 * ms)
		s.loop.ask(t.Context(), func(time.Time) { s.loop.slot.Stop() }) // as if the timer is late
		time.Sleep(time.Until(f.start.Add(sec + 10*ms)))
		for _, target := range []string{"/young", "/other"} {
			submit(t, s, Request{Target: target})
		}
		time.Sleep(5 * sec)
		if got := f.targets(); !strings.HasPrefix(got, "first big ") {
			t.Errorf("sent %s, want first, big and then the others", got)
		}
	})
}

// TestManyParkedCallsBlockNoOther has more calls waiting for permits of two
// limits than one pass of the planner examines. Calls with free permits are sent
// nevertheless.
func TestManyParkedCallsBlockNoOther(t *testing.T) {
	key := `query("k")`
	u := Upstream{Limits: []Limit{
		{Name: "hour", When: `path == "/refund"`, PerKey: key, Calls: 2, Window: time.Hour, Cost: "2"},
		{Name: "day", When: `path == "/refund"`, PerKey: key, Calls: 2, Window: 2 * time.Hour, Cost: "2"},
		{Name: "m", When: `path == "/batch"`, PerKey: key, Calls: 2, Window: sec, Cost: "2"},
		{Name: "n", When: `path == "/batch"`, PerKey: key, Calls: 2, Window: sec, Cost: "2"},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 20 * ms} }
		for i := range 4 * scanned {
			for range 2 {
				submit(t, s, Request{Target: fmt.Sprintf("/refund?k=%d", i)})
			}
		}
		first := submit(t, s, Request{Target: "/batch?k=v"})
		second := submit(t, s, Request{Target: "/batch?k=v"})
		time.Sleep(2 * sec)
		for i, id := range []string{first.ID, second.ID} {
			c := s.mustGet(t, id)
			if want := time.Duration(i) * 1020 * ms; c.State != Done || c.Attempts[0].SentAt.Sub(f.start).Round(10*ms) != want {
				t.Errorf("batch %d is %s (%+v), want it sent at %v", i, c.State, c.Attempts, want)
			}
		}
	})
}

func TestAPauseThatEndsLetsAllGoAtOnce(t *testing.T) {
	u := Upstream{Concurrency: 4000, Limits: []Limit{
		{Name: "app", Calls: 2000, Window: sec},
		{Name: "m", PerKey: `path`, Calls: 2, Window: sec, Cost: "2"},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 3 * sec} }
		until := time.Now().Add(10 * sec)
		for _, limit := range []string{"app", "m"} {
			if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: limit, Until: until}); err != nil {
				t.Fatal(err)
			}
		}
		const calls = 4*scanned - 12
		for i := range calls {
			submit(t, s, Request{Target: fmt.Sprint("/", i)})
		}
		time.Sleep(10*sec + 10*ms)
		synctest.Wait()
		if n := len(f.at()); n != calls {
			t.Errorf("%d of %d calls were sent when the pauses ended", n, calls)
		}
	})
}
