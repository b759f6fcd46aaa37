package scheduler

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// points is a limit of 10 points per second; a call may cost 5.
func points(actual string) Upstream {
	return Upstream{Limits: []Limit{{Name: "points", Calls: 10, Window: sec, Cost: "5", ActualCost: actual}}}
}

// TestActualCost: what a call has not used is free with its answer, and the next call goes at
// that instant.
func TestActualCost(t *testing.T) {
	bubble(t, points(`body("cost.actual")`), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer {
			return answer{after: 10 * ms, body: `{"cost":{"actual":1}}`}
		}
		var last *Call
		for range 7 {
			last = submit(t, s, Request{})
		}
		wait(t, s, last.ID)
		// With one call in flight, up to 5 points may be out. After six answers 6 are, and the
		// seventh call waits for the first of them.
		sameTimes(t, f.at(), 0, 0, 10*ms, 20*ms, 30*ms, 40*ms, 1010*ms)
	})
}

// TestActualCostIsNone: an answer that tells no cost from 0 to the call's counts with all
// of it, and impossible ones are logged once.
func TestActualCostIsNone(t *testing.T) {
	const header, body = `header("X-Cost")`, `body("cost")`
	for _, tt := range []struct {
		name, actual string
		answer       answer
		used         int
		warned       string
	}{
		{"header", header, answer{header: http.Header{"X-Cost": {" 2 "}}}, 2, ""},
		{"body", body, answer{body: `{"cost":2}`}, 2, ""},
		{"nothing used", body, answer{body: `{"cost":0}`}, 0, ""},
		{"all used", body, answer{body: `{"cost":5}`}, 5, ""},
		{"by status", `status == 404 ? 5 : 1`, answer{status: 200}, 1, ""},
		{"of a failed call", `status == 404 ? 5 : 1`, answer{status: 404}, 5, ""},
		{"of a request", `len(query("ids") ?? "")`, answer{}, 0, ""},
		{"no header", header, answer{}, 5, ""},
		{"no member", body, answer{body: `{}`}, 5, ""},
		{"no JSON", body, answer{body: `cost: 3`}, 5, ""},
		{"half of JSON", body, answer{body: `{"cost":`}, 5, `rule limits[0].actual_cost cannot be computed: the answer's body is cut off`},
		{"another type", body + ` - 1`, answer{body: `{"cost":"3"}`}, 5, "- does not work with a text and a number"},
		{"null", body, answer{body: `{"cost":null}`}, 5, ""},
		{"an expression that fails", body + ` - 1`, answer{body: `{}`}, 5, ""},
		{"above the cost", body, answer{body: `{"cost":6}`}, 5, "actual_cost=6"},
		{"below 0", body, answer{body: `{"cost":-1}`}, 5, `error="-1, below 0"`},
		{"a fraction", body, answer{body: `{"cost":1.5}`}, 2, ""},
		{"a text", body, answer{body: `{"cost":"s3cret"}`}, 5, `error="no number"`},
		{"a list", body, answer{body: `{"cost":[1]}`}, 5, `error="no number"`},
		{"beyond all numbers", body, answer{body: `{"cost":1e300}`}, 5, `error="a number that is not finite, or above 2^53"`},
		{"cut off", body, answer{body: `{"cost":1` + strings.Repeat(" ", 100) + `}`}, 5, ""},
		{"of a gateway", `0`, answer{status: 502}, 5, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fake{start: time.Now(), serve: func(int, *http.Request) answer { return tt.answer }}
				var log bytes.Buffer
				u := points(tt.actual)
				u.URL, u.Transport, u.MaxInspect = "http://api.test", f, 64
				s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
				if err != nil {
					t.Fatal(err)
				}
				for n := range 3 {
					wait(t, s, submit(t, s, Request{}).ID)
					if limits, _ := s.Limits(t.Context()); n == 0 && limits[1].Out != tt.used {
						t.Errorf("%d permits are out, want %d", limits[1].Out, tt.used)
					}
					time.Sleep(10 * sec)
				}
				s.Close()
				const once = "an answer tells"
				if n := strings.Count(log.String(), once); n > 1 || (n == 1) != (tt.warned != "") || !strings.Contains(log.String(), tt.warned) || strings.Contains(log.String(), "s3cret") {
					t.Errorf("the log says %q, want %q once", &log, tt.warned)
				}
			})
		})
	}
}

// TestActualCostOfAttempts: each attempt of a call has its own cost; one without an answer
// counts with all of it.
func TestActualCostOfAttempts(t *testing.T) {
	u := points(`header("X-Cost")`)
	u.Idempotent = "true"
	u.Retry.Attempts, u.Retry.Min, u.Retry.Max = 3, 10*ms, 10*ms
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return []answer{
				{after: 10 * ms, status: 500, header: http.Header{"X-Cost": {"3"}}},
				{after: 10 * ms, err: fmt.Errorf("broken")},
				{after: 10 * ms, header: http.Header{"X-Cost": {"1"}}},
			}[n-1]
		}
		c := wait(t, s, submit(t, s, Request{Method: "POST"}).ID)
		// 3 of the first and 5 of the second are out: the third waits for the first's.
		if at := f.at(); c.State != Done || len(at) != 3 || at[2] < 1010*ms || at[2] > 1050*ms {
			t.Errorf("%s, sent at %v", c.State, at)
		}
		if limits, err := s.Limits(t.Context()); err != nil || limits[1].Out != 6 {
			t.Errorf("%d permits are out, want 5 of the attempt without an answer and 1: %v", limits[1].Out, err)
		}
	})
}

// TestActualCostAfterAReload: an answer to a call that was sent before counts with all of it:
// its limit may be another one.
func TestActualCostAfterAReload(t *testing.T) {
	bubble(t, points("1"), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 100 * ms} }
		first := submit(t, s, Request{})
		time.Sleep(10 * ms)
		u := points("1")
		u.Config = upstream.Config{URL: "http://api.test", Transport: f}
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
			t.Fatal(err)
		}
		second := submit(t, s, Request{})
		wait(t, s, first.ID)
		wait(t, s, second.ID)
		if limits, err := s.Limits(t.Context()); err != nil || limits[1].Out != 6 {
			t.Errorf("%d permits are out, want 5 of the first and 1 of the second: %v", limits[1].Out, err)
		}
	})
}

// TestActualCostNeverExceeds: a receiver that counts true costs, somewhere between sending and
// answer, never counts more than the limit in a window; and a load whose most would take 20
// windows goes in about as many as it truly costs.
func TestActualCostNeverExceeds(t *testing.T) {
	for seed := range uint64(20) {
		bubble(t, points(`body("cost")`), func(t *testing.T, s *Scheduler, f *fake) {
			r := rand.New(rand.NewPCG(seed, 5))
			type counted struct {
				at   time.Duration
				cost int
			}
			var mu sync.Mutex
			var receiver []counted
			total := 0
			f.serve = func(n int, _ *http.Request) answer {
				mu.Lock()
				defer mu.Unlock()
				a := answer{after: time.Duration(r.IntN(100)) * ms}
				cost := r.IntN(6)
				at := time.Since(f.start) + time.Duration(r.Int64N(int64(a.after)+1))
				receiver, total = append(receiver, counted{at, cost}), total+cost
				a.body = fmt.Sprintf(`{"cost":%d}`, cost)
				return a
			}
			var ids []string
			for range 40 {
				ids = append(ids, submit(t, s, Request{}).ID)
			}
			for _, id := range ids {
				wait(t, s, id)
			}
			end := time.Since(f.start)
			for _, last := range receiver {
				sum := 0
				for _, x := range receiver {
					if d := last.at - x.at; d >= 0 && d < sec {
						sum += x.cost
					}
				}
				if sum > 10 {
					t.Errorf("seed %d: %d points in the second until %v", seed, sum, last.at)
				}
			}
			// A call goes while 5 points are free: at least 6 are used in a window and a round trip.
			if most := time.Duration(total/6+2) * 1300 * ms; end > most {
				t.Errorf("seed %d: %d points took %v, more than %v", seed, total, end, most)
			}
		})
	}
}
