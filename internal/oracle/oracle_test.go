package oracle_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/oracle"
	"github.com/seed-30fe103d/throttler/pkg/quota"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// Three calls under "2 per second": the third waits for the first permit that comes
// back, a window after the response.
func Example() {
	done := []oracle.Try{{Trip: 20 * ms, Result: oracle.Done}}
	call := func(due time.Duration) *oracle.Call {
		return &oracle.Call{Due: due, Flow: "a", Keys: []string{"app"}, Costs: []int{1}, Tries: done}
	}
	h := oracle.Run(&oracle.Load{
		Limits:  []oracle.Limit{{Calls: 2, Window: time.Second}},
		Calls:   []*oracle.Call{call(0), call(5 * ms), call(10 * ms)},
		Weights: map[string]float64{"a": 1},
	})
	fmt.Println(h.Sent(0), h.Sent(1), h.Sent(2))
	// Output: [0s] [5ms] [1.02s]
}

// call returns a call of flow a under the first limit, which is answered after 10ms.
func call(change func(c *oracle.Call)) *oracle.Call {
	c := &oracle.Call{Flow: "a", Keys: []string{"x", ""}, Costs: []int{1, 1}, Tries: []oracle.Try{{Trip: 10 * ms, Result: oracle.Done}}}
	change(c)
	return c
}

func plain(*oracle.Call) {}

// TestRules plays small loads whose course is computed by hand.
func TestRules(t *testing.T) {
	perSecond := oracle.Limit{Calls: 1, Window: sec}
	tests := []struct {
		name    string
		first   oracle.Limit
		calls   []*oracle.Call
		changes []oracle.Change
		want    [][]time.Duration
	}{
		{"a permit comes back at response and window", perSecond, []*oracle.Call{call(plain), call(plain)}, nil,
			[][]time.Duration{{0}, {1010 * ms}}},
		{"a key of its own", perSecond, []*oracle.Call{call(plain), call(func(c *oracle.Call) { c.Keys[0] = "y" })}, nil,
			[][]time.Duration{{0}, {0}}},
		{"priority, then virtual time, then age", perSecond, []*oracle.Call{
			call(plain), call(plain), call(func(c *oracle.Call) { c.Flow = "b" }), call(func(c *oracle.Call) { c.Priority = 1 }),
		}, nil, [][]time.Duration{{2020 * ms}, {3030 * ms}, {1010 * ms}, {0}}},
		{"concurrency", oracle.Limit{Calls: 1}, []*oracle.Call{call(plain), call(plain)}, nil, [][]time.Duration{{0}, {10 * ms}}},
		{"an aligned minute and its skew", oracle.Limit{Calls: 1, Calendar: &quota.Calendar{Unit: quota.Minute, Skew: sec}},
			[]*oracle.Call{call(func(c *oracle.Call) { c.Due = 40 * sec }), call(func(c *oracle.Call) { c.Due = 50 * sec })}, nil,
			[][]time.Duration{{40 * sec}, {61 * sec}}},
		{"a guard", oracle.Limit{Calls: 1, Window: sec, Guard: 4 * ms}, []*oracle.Call{call(plain), call(plain)}, nil,
			[][]time.Duration{{0}, {1004 * ms}}},
		{"failures only", oracle.Limit{Calls: 1, Window: sec, FailedOnly: true},
			[]*oracle.Call{call(plain), call(func(c *oracle.Call) { c.Tries[0].Result = oracle.Failed }), call(plain)}, nil,
			[][]time.Duration{{0}, {10 * ms}, {1020 * ms}}},
		{"a lost answer", perSecond, []*oracle.Call{call(func(c *oracle.Call) { c.Tries[0].Result = oracle.Lost }), call(plain)}, nil,
			[][]time.Duration{{0}, {1310 * ms}}},
		{"a limited answer pauses the key, and the call goes again", oracle.Limit{Calls: 3, Window: sec}, []*oracle.Call{
			call(func(c *oracle.Call) {
				c.Tries = []oracle.Try{{Trip: 10 * ms, Result: oracle.Limited}, {Trip: ms, Result: oracle.Done}}
			}),
			call(func(c *oracle.Call) { c.Due = 20 * ms }),
			call(func(c *oracle.Call) { c.Due, c.Keys[0] = 20*ms, "y" }),
		}, nil, [][]time.Duration{{0, 410 * ms}, {410 * ms}, {20 * ms}}},
		{"a limited call waits again before others are sent", perSecond, []*oracle.Call{ // else the sends of b at 10ms put flow a behind c
			call(func(c *oracle.Call) {
				c.Tries = []oracle.Try{{Trip: 10 * ms, Result: oracle.Limited}, {Trip: 10 * ms, Result: oracle.Done}}
			}),
			call(func(c *oracle.Call) { c.Due, c.Flow, c.Keys[0] = 10*ms, "b", "" }),
			call(func(c *oracle.Call) { c.Due, c.Flow, c.Keys[0] = 10*ms, "b", "" }),
			call(func(c *oracle.Call) { c.Due, c.Flow = 10*ms, "c" }),
		}, nil, [][]time.Duration{{0, 1010 * ms}, {10 * ms}, {10 * ms}, {2020 * ms}}},
		{"a cancelled call", perSecond, []*oracle.Call{call(plain), call(func(c *oracle.Call) { c.Cancel = sec }), call(plain)}, nil,
			[][]time.Duration{{0}, nil, {1010 * ms}}},
		{"a pause that ends early", perSecond, []*oracle.Call{call(func(c *oracle.Call) { c.Due = 5 * ms })}, []oracle.Change{
			{At: ms, Limit: -1, Pause: true, Until: sec}, {At: 20 * ms, Limit: -1, Pause: true},
		}, [][]time.Duration{{20 * ms}}},
		{"a pause of another key", perSecond, []*oracle.Call{call(func(c *oracle.Call) { c.Due = 5 * ms })},
			[]oracle.Change{{At: ms, Pause: true, Key: "y", Until: sec}}, [][]time.Duration{{5 * ms}}},
		{"other calls of a limit", perSecond, []*oracle.Call{call(plain), call(plain)},
			[]oracle.Change{{At: 300 * ms, Calls: 2}}, [][]time.Duration{{0}, {300 * ms}}},
		{"another window counts what is in flight", perSecond, []*oracle.Call{call(plain), call(plain)},
			[]oracle.Change{{At: 5 * ms, Window: 2 * sec}}, [][]time.Duration{{0}, {2010 * ms}}},
		{"another window forgets what has ended", perSecond, []*oracle.Call{call(plain), call(plain)},
			[]oracle.Change{{At: 15 * ms, Window: 2 * sec}}, [][]time.Duration{{0}, {15 * ms}}},
		{"permits of one limit are reserved", oracle.Limit{Calls: 2, Window: sec}, []*oracle.Call{
			call(plain), call(func(c *oracle.Call) { c.Costs[0] = 2 }), call(plain),
		}, nil, [][]time.Duration{{0}, {1010 * ms}, {2020 * ms}}},
		{"permits of two limits are not", oracle.Limit{Calls: 2, Window: sec}, []*oracle.Call{
			call(func(c *oracle.Call) { c.Keys[1], c.Costs[1] = "z", 2 }),
			call(func(c *oracle.Call) { c.Keys[1], c.Costs = "z", []int{2, 2} }),
			call(plain),
		}, nil, [][]time.Duration{{0}, {3010 * ms}, {0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := oracle.Run(&oracle.Load{
				Limits: []oracle.Limit{tt.first, {Calls: 2, Window: 3 * sec}}, Calls: tt.calls, Changes: tt.changes,
				Weights: map[string]float64{"a": 1, "b": 2, "c": 1}, Late: 300 * ms, Pause: 400 * ms,
			})
			for i, want := range tt.want {
				if got := h.Sent(i); !slices.Equal(got, want) {
					t.Errorf("call %d is sent at %v, want %v", i, got, want)
				}
			}
		})
	}
}

func TestDiff(t *testing.T) {
	load := &oracle.Load{Calls: []*oracle.Call{call(plain), call(plain)}}
	h := &oracle.History{Attempts: []*oracle.Attempt{{Call: 1, Sent: 0}, {Call: 0, Sent: 2 * ms}, {Call: 1, Sent: 5 * ms}}}
	for _, tt := range []struct {
		name string
		sent [][]time.Duration
		want string // how the description begins
	}{
		{"equal", [][]time.Duration{{2 * ms}, {0, 5 * ms}}, ""},
		{"late", [][]time.Duration{{2 * ms}, {0, 6 * ms}}, "call 1 "},
		{"missing, after an earlier difference", [][]time.Duration{{3 * ms}, {0}}, "call 0 "},
		{"once too often, before a later difference", [][]time.Duration{{2 * ms, 9 * ms}, {0, 5 * ms, 8 * ms}}, "call 1 "},
	} {
		if got := h.Diff(load, tt.sent); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTied(t *testing.T) {
	for _, tt := range []struct {
		name string
		due  time.Duration
		tied bool
	}{{"a call is due as an answer comes", 10 * ms, true}, {"a call is due later", 11 * ms, false}} {
		h := oracle.Run(&oracle.Load{
			Limits:  []oracle.Limit{{Calls: 5, Window: sec}, {Calls: 5, Window: sec}},
			Calls:   []*oracle.Call{call(plain), call(func(c *oracle.Call) { c.Due = tt.due })},
			Weights: map[string]float64{"a": 1},
		})
		if h.Tied != tt.tied {
			t.Errorf("%s: tied is %v", tt.name, h.Tied)
		}
	}
}

// TestReceiver lets the requests of drawn loads arrive anywhere that their attempts
// allow. No window of a receiver that counts them is over.
func TestReceiver(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds /= 6
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 5))
		load := oracle.Draw(r)
		before, _ := json.Marshal(load)
		h := oracle.Run(load)
		if after, _ := json.Marshal(load); string(after) != string(before) {
			t.Fatalf("seed %d: Run has changed the load", seed)
		}
		if again, _ := json.Marshal(oracle.Draw(rand.New(rand.NewPCG(seed, 5)))); string(again) != string(before) {
			t.Fatalf("seed %d draws two loads", seed)
		}
		for i, l := range load.Limits {
			changed := slices.ContainsFunc(load.Changes, func(ch oracle.Change) bool { return ch.Limit == i && !ch.Pause })
			if changed || l.Window == 0 && l.Calendar == nil {
				continue
			}
			for key, at := range arrivals(r, load, h, i) {
				if n := mostIn(at, l); n > l.Calls {
					t.Errorf("seed %d: limit %d (%+v), key %s: %d arrived in one window", seed, i, l, key, n)
				}
			}
		}
	}
}

// arrivals draws when permits of a limit are counted, by key.
func arrivals(r *rand.Rand, load *oracle.Load, h *oracle.History, limit int) map[string][]time.Duration {
	l, arrived := load.Limits[limit], map[string][]time.Duration{}
	for _, a := range h.Attempts {
		key := load.Calls[a.Call].Keys[limit]
		if key == "" || l.FailedOnly && a.Result != oracle.Failed && a.Result != oracle.Lost {
			continue
		}
		last := a.End
		switch {
		case a.Result == oracle.Lost:
			last += load.Late
		case l.Guard > 0:
			last = min(last, a.Sent+l.Guard)
		}
		at := a.Sent + time.Duration(r.Int64N(int64(last-a.Sent)+1))
		switch r.IntN(4) { // a window that is over shows at the ends first
		case 0:
			at = a.Sent
		case 1:
			at = last
		}
		for range a.Costs[limit] {
			arrived[key] = append(arrived[key], at)
		}
	}
	return arrived
}

// mostIn returns how many arrivals a window has at most.
func mostIn(arrived []time.Duration, l oracle.Limit) (most int) {
	unit := time.Minute
	if l.Calendar != nil && l.Calendar.Unit == quota.Hour {
		unit = time.Hour
	}
	for _, last := range arrived {
		n := 0
		for _, at := range arrived {
			if l.Calendar != nil && at.Truncate(unit) == last.Truncate(unit) ||
				l.Calendar == nil && at <= last && last-at < l.Window {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
