package scheduler

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestFullKeyBlocksNoOther(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "merchant", PerKey: "path", Calls: 1, Window: 5 * sec},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 3 {
			submit(t, s, Request{Target: "/full"})
		}
		for _, target := range []string{"/a", "/b", "/c"} {
			submit(t, s, Request{Target: target})
		}
		time.Sleep(20 * sec)
		sameTimes(t, f.at(), 0, 0, 0, 0, 5*sec+10*ms, 10*sec+20*ms)
		if got := f.targets(); !strings.HasSuffix(got, "full full") {
			t.Errorf("order %q", got)
		}
	})
}

// TestSpacingLeavesUncountedCallsAlone: a budget of two failures a minute does not
// space calls that are done.
func TestSpacingLeavesUncountedCallsAlone(t *testing.T) {
	u := Upstream{Burst: 2, Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "failed", Calls: 2, Window: time.Minute, Counts: []upstream.Outcome{upstream.Failed}},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 5 {
			wait(t, s, submit(t, s, Request{}).ID)
		}
		sameTimes(t, f.at(), 0, 10*ms, 100*ms, 200*ms, 300*ms)
	})
}

// A load is a list of calls under three limits of one window: of the app, of their
// method and of their merchant. Call i is the request for /i.
type load struct {
	app, method, merchant int // per window
	window                time.Duration
	calls                 []loaded
}

type loaded struct {
	method, merchant string
	trip             time.Duration
}

// zipfLoad draws calls with a Zipf distribution of merchants.
func zipfLoad(seed uint64, calls, methods, merchants int) load {
	r := rand.New(rand.NewPCG(seed, 21))
	shop := rand.NewZipf(r, 1.1, 8, uint64(merchants-1))
	l := load{app: 1000, method: 100, merchant: 20, window: sec}
	for range calls {
		l.calls = append(l.calls, loaded{
			method: strconv.Itoa(r.IntN(methods)), merchant: strconv.FormatUint(shop.Uint64(), 10),
			trip: time.Duration(50+r.IntN(250)) * grain,
		})
	}
	return l
}

func (l load) upstream() Upstream {
	return Upstream{MaxWaiting: 2 * len(l.calls), Limits: []Limit{
		{Name: "app", Calls: l.app, Window: l.window},
		{Name: "method", PerKey: `header("Method")`, Calls: l.method, Window: l.window},
		{Name: "merchant", PerKey: `header("Merchant")`, Calls: l.merchant, Window: l.window},
	}}
}

// run submits all calls at once and returns the time of sending of each.
func (l load) run(t *testing.T, u Upstream) []time.Duration {
	sent := make([]time.Duration, len(l.calls))
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		var mu sync.Mutex
		times := make([]int, len(l.calls))
		f.serve = func(_ int, r *http.Request) answer {
			i, _ := strconv.Atoi(r.URL.Path[1:])
			mu.Lock()
			defer mu.Unlock()
			sent[i] = time.Since(f.start)
			times[i]++
			return answer{after: l.calls[i].trip}
		}
		var ids []string
		for i, c := range l.calls {
			h := http.Header{"Method": {c.method}, "Merchant": {c.merchant}}
			ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i), Header: h}).ID)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("a call is %s", c.State)
			}
		}
		for i, n := range times {
			if n != 1 {
				t.Errorf("call %d was sent %d times", i, n)
			}
		}
	})
	return sent
}

// greedy returns the times of sending of a scheduler that examines all waiting calls,
// oldest first, whenever a permit returns.
func (l load) greedy() []time.Duration {
	sent := make([]time.Duration, len(l.calls))
	out := map[string]int{}
	var back []int // calls, by the return of their permits
	returns := func(i int) time.Duration { return sent[i] + l.calls[i].trip + l.window }
	waiting := make([]int, len(l.calls))
	for i := range waiting {
		waiting[i] = i
	}
	names := func(i int) [2]string {
		return [2]string{"method " + l.calls[i].method, "merchant " + l.calls[i].merchant}
	}
	keys := make([][2]string, len(l.calls))
	for i := range keys {
		keys[i] = names(i)
	}
	for now := time.Duration(0); ; now = returns(back[0]) {
		for len(back) > 0 && returns(back[0]) <= now {
			out["app"]--
			out[keys[back[0]][0]]--
			out[keys[back[0]][1]]--
			back = back[1:]
		}
		left := waiting[:0]
		for _, i := range waiting {
			if out["app"] == l.app || out[keys[i][0]] == l.method || out[keys[i][1]] == l.merchant {
				left = append(left, i)
				continue
			}
			sent[i] = now
			out["app"]++
			out[keys[i][0]]++
			out[keys[i][1]]++
			place, _ := slices.BinarySearchFunc(back, returns(i), func(j int, at time.Duration) int { return int(returns(j) - at) })
			back = slices.Insert(back, place, i)
		}
		if waiting = left; len(waiting) == 0 {
			return sent
		}
	}
}

// check draws the arrival of each request between its sending and its response, and
// counts as the receiver does.
func (l load) check(t *testing.T, sent []time.Duration) {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 22))
	for _, ends := range []func(trip time.Duration) time.Duration{
		func(time.Duration) time.Duration { return 0 },
		func(trip time.Duration) time.Duration { return trip },
		func(trip time.Duration) time.Duration { return time.Duration(r.Int64N(int64(trip) + 1)) },
		func(trip time.Duration) time.Duration { return time.Duration(r.IntN(2)) * trip },
	} {
		arrived := map[string][]time.Duration{}
		for i, c := range l.calls {
			at := sent[i] + ends(c.trip)
			for _, key := range []string{"app", "method " + c.method, "merchant " + c.merchant} {
				arrived[key] = append(arrived[key], at)
			}
		}
		for key, at := range arrived {
			most := l.app
			switch key[:3] {
			case "met":
				most = l.method
			case "mer":
				most = l.merchant
			}
			if n := busiest(at, l.window); n > most {
				t.Errorf("%s: %d arrived within %v, at most %d may", key, n, l.window, most)
			}
		}
	}
}

// TestThreeLimitsAtOnceLoseNothing has three limits on each call and a Zipf
// distribution of merchants. No limit is exceeded wherever the requests arrive, and
// the calls are as fast as those of the greedy scheduler.
func TestThreeLimitsAtOnceLoseNothing(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		calls, methods, merchants int
	}{
		{"the app's limit binds", 6000, 14, 2000},
		{"the methods' bind", 4000, 5, 2000},
		{"the merchants' bind", 3000, 14, 40},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := zipfLoad(1, tt.calls, tt.methods, tt.merchants)
			sent, best := l.run(t, l.upstream()), l.greedy()
			l.check(t, sent)
			if took, least := slices.Max(sent), slices.Max(best); float64(took) > float64(least)/0.99 {
				t.Errorf("the last call went at %v, the greedy's at %v", took, least)
			}
			waited, least, same := time.Duration(0), time.Duration(0), 0
			for i := range sent {
				waited, least = waited+sent[i], least+best[i]
				if sent[i] == best[i] {
					same++
				}
			}
			if float64(waited) > float64(least)/0.99 {
				t.Errorf("the calls waited %v in sum, the greedy's %v", waited, least)
			}
			t.Logf("last call at %v, the greedy's at %v; %d of %d went at the very instant of the greedy's", slices.Max(sent), slices.Max(best), same, tt.calls)
		})
	}
}

// others returns the times of sending of the calls of all merchants but the full one.
func (l load) others(sent []time.Duration) (at []time.Duration) {
	for i, c := range l.calls {
		if c.merchant != "full" {
			at = append(at, sent[i])
		}
	}
	return at
}

// withFull puts calls of one merchant ahead of a load.
func (l load) withFull(calls int) load {
	full := make([]loaded, calls)
	for i := range full {
		full[i] = loaded{method: strconv.Itoa(i % 14), merchant: "full", trip: 10 * ms}
	}
	l.calls = append(full, l.calls...)
	return l
}

func TestFullMerchantDelaysNoOther(t *testing.T) {
	t.Run("where others do not share a limit that is full", func(t *testing.T) {
		l := zipfLoad(2, 900, 14, 300)
		alone := l.run(t, l.upstream())
		both := l.withFull(50)
		if beside := both.others(both.run(t, both.upstream())); !slices.Equal(alone, beside) {
			t.Errorf("others went at %v, without the full merchant at %v", beside, alone)
		}
	})
	// Where they share the app's limit, the full merchant takes at most the permits of its own.
	for _, shareBy := range []string{"", `header("Merchant")`} {
		t.Run("by more than its own limit allows, shared by "+shareBy, func(t *testing.T) {
			l := zipfLoad(3, 1500, 14, 300)
			l.app = 200
			less := l
			less.app -= l.merchant
			u := less.upstream()
			u.ShareBy = shareBy
			alone := slices.Sorted(slices.Values(less.run(t, u)))
			both := l.withFull(1000)
			u = both.upstream()
			u.ShareBy = shareBy
			sent := both.run(t, u)
			both.check(t, sent)
			beside := slices.Sorted(slices.Values(both.others(sent)))
			const trip = 30 * ms
			for i := range alone {
				windows := alone[i]/sec + 1
				if beside[i] > alone[i]+windows*trip {
					t.Fatalf("%d others went by %v, with %d permits of their own by %v", i+1, beside[i], less.app, alone[i])
				}
			}
		})
	}
}
