package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

func TestAnHourOfSchedule(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(2), MaxWaiting: 100_000}, func(t *testing.T, s *Scheduler, f *fake) {
		const calls = 7200
		var last *Call
		for range calls {
			last = submit(t, s, Request{})
		}
		// 3600 windows of a second, and a round trip of 10 ms (and a tick) in each.
		if c := wait(t, s, last.ID); c.State != Done {
			t.Fatalf("last call is %s", c.State)
		}
		at := f.at()
		if len(at) != calls {
			t.Fatalf("%d requests, want %d", len(at), calls)
		}
		for i := 2; i < calls; i++ {
			if d := at[i] - at[i-2]; d < sec {
				t.Fatalf("requests %d to %d came within %v, more than 2 in a second", i-2, i, d)
			}
		}
		if took, best := at[calls-1], 3599*(sec+10*ms); took > best+best/1000 {
			t.Errorf("the last call went after %v, want at most %v + 0.1%%", took, best)
		}
		if eta := last.ETA.Sub(f.start); (eta - at[calls-1]).Abs() > 40*sec {
			t.Errorf("the last call's first ETA was %v, it went at %v", eta, at[calls-1])
		}
	})
}

// TestFirstCallOfAllNeverIdles has one limit, costs and priorities. At every instant
// examined, the first waiting call lacks permits.
func TestFirstCallOfAllNeverIdles(t *testing.T) {
	for seed := range uint64(30) {
		u := Upstream{Limits: []Limit{{Name: "app", Calls: 6, Window: sec, Cost: `int(query("c"))`}}}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			r := rand.New(rand.NewPCG(seed, 9))
			for range 80 {
				submit(t, s, Request{Target: fmt.Sprintf("/?c=%d", 1+r.IntN(6)), Priority: r.IntN(3)})
				time.Sleep(time.Duration(r.IntN(400)) * ms)
				s.loop.ask(t.Context(), func(now time.Time) {
					var first *call
					for _, c := range s.loop.calls {
						if c.State == Waiting && (first == nil || before(c, first)) {
							first = c
						}
					}
					if first == nil {
						return
					}
					if at := s.loop.upstreams["api"].ledger.Next(now, first.item.Demand.Needs[1]); !at.IsZero() && now.Sub(at) > tick {
						t.Errorf("seed %d: at %v the first call could have gone at %v", seed, now.Sub(f.start), at.Sub(f.start))
					}
				})
			}
		})
	}
}

// TestNoPermitIdlesWhileACallCouldTakeIt has calls that cost one permit each. At
// every instant examined each waiting call lacks a permit, after lost responses,
// cancels, pauses and resumes.
func TestNoPermitIdlesWhileACallCouldTakeIt(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 11))
		u := Upstream{Concurrency: 1 + r.IntN(6), ShareBy: `header("X-Flow")`, Late: 200 * ms}
		u.Timeout = 300 * ms
		for i := range 1 + r.IntN(3) {
			key := fmt.Sprintf(`header("X-Key-%d")`, i)
			u.Limits = append(u.Limits, Limit{Name: fmt.Sprintf("l%d", i), When: key + ` != ""`, PerKey: key, Calls: 1 + r.IntN(4), Window: time.Duration(50+r.IntN(800)) * ms})
		}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(n int, _ *http.Request) answer {
				switch k := n * 7919 % 1201; { // scattered, and the same in each run
				case k%12 == 0:
					return answer{after: time.Hour}
				case k%12 == 1:
					return answer{after: ms, err: errDial}
				default:
					return answer{after: time.Duration(1+k%100) * ms}
				}
			}
			var ids []string
			for range 100 {
				h := http.Header{"X-Flow": {string(rune('a' + r.IntN(3)))}}
				for i := range u.Limits {
					h.Set(fmt.Sprintf("X-Key-%d", i), []string{"", "x", "y", "z"}[r.IntN(4)])
				}
				ids = append(ids, submit(t, s, Request{Priority: r.IntN(3), Header: h}).ID)
				limit, key := u.Limits[r.IntN(len(u.Limits))].Name, []string{"", "x", "y"}[r.IntN(3)]
				switch r.IntN(8) {
				case 0:
					s.Cancel(t.Context(), ids[r.IntN(len(ids))])
				case 1:
					s.Pause(t.Context(), Pause{Upstream: "api", Limit: limit, Key: key, Until: time.Now().Add(time.Duration(r.IntN(2000)) * ms)})
				case 2:
					s.Resume(t.Context(), "api", limit, key)
				}
				time.Sleep(time.Duration(r.IntN(60))*ms + 50*time.Microsecond)
				noneIdles(t, s, seed)
			}
			for range 400 {
				time.Sleep(37*ms + 3*time.Microsecond)
				noneIdles(t, s, seed)
			}
		})
	}
}

func noneIdles(t *testing.T, s *Scheduler, seed uint64) {
	t.Helper()
	s.loop.ask(t.Context(), func(now time.Time) {
		u := s.loop.upstreams["api"]
		for _, c := range s.loop.calls {
			if c.State != Waiting || !c.item.Queued() || u.circuit.Allow(now.Add(-tick)) == 0 {
				continue
			}
			lacks := false
			for _, n := range c.item.Demand.Needs {
				at := u.ledger.Next(now, n)
				lacks = lacks || at.IsZero() || now.Sub(at) <= tick
			}
			if !lacks {
				t.Errorf("seed %d: a call that needs %v could go and does not", seed, c.item.Demand.Needs)
			}
		}
	})
}

// before reports whether a call goes before another of its flow.
func before(c, o *call) bool {
	return c.Priority > o.Priority || c.Priority == o.Priority && c.item.Seq < o.item.Seq
}
