package scheduler

import (
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A planned call of the greedy's load: everything about it is drawn beforehand.
type planned struct {
	n        int // seniority, and its path
	due      time.Duration
	priority int
	flow     string
	keys     []string // by limit; empty: not under it
	trip     time.Duration
	lost     bool // no answer: given up after trip, which is the time-out then

	sent, back []time.Duration // when it went, and when its permits come back by limit
}

// greedy decides at every instant, among all calls, which can go: a scheduler
// without queues, gates or a wheel, that looks at everything each time. It fills
// in when each call is sent.
func greedy(calls []*planned, limits []Limit, late time.Duration, weights map[string]float64) {
	virtual, waiting := map[string]float64{}, map[string]int{}
	var last float64
	var instants []time.Duration
	for _, c := range calls {
		instants = append(instants, c.due)
	}
	for i := 0; i < len(instants); i++ {
		slices.Sort(instants[i:])
		now := instants[i]
		if i > 0 && now == instants[i-1] {
			continue
		}
		if waiting["a"]+waiting["b"]+waiting["c"] == 0 { // since the instant before
			last, virtual = 0, map[string]float64{}
		}
		for _, c := range calls {
			if c.due == now {
				if waiting[c.flow]++; waiting[c.flow] == 1 {
					virtual[c.flow] = max(virtual[c.flow], last)
				}
			}
		}
		for {
			var best *planned
			for _, c := range calls {
				if c.sent == nil && c.due <= now && fits(calls, limits, c, now) &&
					(best == nil || rank{c.priority, virtual[c.flow], uint64(c.n)}.before(rank{best.priority, virtual[best.flow], uint64(best.n)})) {
					best = c
				}
			}
			if best == nil {
				break
			}
			best.sent = []time.Duration{now}
			end := now + best.trip
			if best.lost {
				end += late
			}
			for _, l := range limits {
				best.back = append(best.back, end+l.Window)
			}
			instants = append(instants, best.back...)
			waiting[best.flow]--
			last = max(last, virtual[best.flow])
			virtual[best.flow] += 1 / weights[best.flow]
		}
	}
}

// fits tells whether each limit of a call has a permit left for it.
func fits(calls []*planned, limits []Limit, c *planned, now time.Duration) bool {
	for i, l := range limits {
		out := 0
		for _, o := range calls {
			if o.sent != nil && o.keys[i] == c.keys[i] && now < o.back[i] {
				out++
			}
		}
		if c.keys[i] != "" && out >= l.Calls {
			return false
		}
	}
	return true
}

// TestSendsWhenTheGreedyWould compares instants: each call goes exactly when a
// scheduler that looks at everything all the time would send it.
func TestSendsWhenTheGreedyWould(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { compareWithGreedy(t, seed) })
		})
	}
}

func compareWithGreedy(t *testing.T, seed uint64) {
	const late, timeout = 300 * ms, 250 * ms
	r := rand.New(rand.NewPCG(seed, 5))
	var limits []Limit
	for i := range 1 + r.IntN(4) {
		header := fmt.Sprintf(`header("X-Key-%d")`, i)
		limits = append(limits, Limit{
			Name: fmt.Sprintf("l%d", i), When: header + ` != ""`, PerKey: header,
			Calls: 1 + r.IntN(6), Window: time.Duration(50+r.IntN(1000)) * ms,
		})
	}
	weights := map[string]float64{"a": 1, "b": 2, "c": 3}
	var calls []*planned
	for n := range 30 + r.IntN(60) {
		c := &planned{
			n: n, due: time.Duration(1+r.IntN(2000)) * ms, priority: r.IntN(2), flow: string(rune('a' + r.IntN(3))),
			trip: time.Duration(1+r.IntN(100)) * ms, lost: r.IntN(10) == 0,
		}
		if c.lost {
			c.trip = timeout
		}
		if r.IntN(3) == 0 { // many at once
			c.due = ms
		}
		for range limits {
			c.keys = append(c.keys, []string{"", "x", "x", "y", "z"}[r.IntN(5)])
		}
		calls = append(calls, c)
	}
	greedy(calls, limits, late, weights)

	var mu sync.Mutex
	start, sent := time.Now(), map[string]time.Duration{}
	platform := transportFunc(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		if _, twice := sent[req.URL.Path]; twice {
			t.Errorf("%s was sent twice", req.URL.Path)
		}
		sent[req.URL.Path] = time.Since(start)
		mu.Unlock()
		var n int
		fmt.Sscanf(req.URL.Path, "/%d", &n)
		if calls[n].lost {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		time.Sleep(calls[n].trip)
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: req}, nil
	})
	u := Upstream{Limits: limits, Late: late, ShareBy: `header("X-Flow")`, Weights: weights}
	u.URL, u.Transport, u.Timeout = "http://api.test", platform, timeout
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var ids []string
	for _, c := range calls {
		h := http.Header{"X-Flow": {c.flow}}
		for i, key := range c.keys {
			h.Set(fmt.Sprintf("X-Key-%d", i), key)
		}
		got := submit(t, s, Request{Target: fmt.Sprintf("/%d", c.n), Header: h, Priority: c.priority, NotBefore: start.Add(c.due)})
		ids = append(ids, got.ID)
	}
	for i, id := range ids {
		wait(t, s, id)
		mu.Lock()
		got, want := sent[fmt.Sprintf("/%d", i)], calls[i].sent[0]
		mu.Unlock()
		if got != want {
			t.Fatalf("call %d (due %v, priority %d, flow %s, keys %q) was sent at %v, the greedy sends it at %v",
				i, calls[i].due, calls[i].priority, calls[i].flow, calls[i].keys, got, want)
		}
	}
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
