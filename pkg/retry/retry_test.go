package retry

import (
	"errors"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

var now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	p := Policy{Attempts: 3, Curve: Curve{Min: time.Second, Max: 10 * time.Second}}
	never := p
	never.Check = func(Attempt) bool { return false }
	tests := []struct {
		name   string
		policy Policy
		a      Attempt
		want   Decision
	}{
		{"done is the end", p, Attempt{Number: 1, Outcome: Done}, Decision{Counted: true}},
		{"failed is the end", p, Attempt{Number: 1, Outcome: Failed, Repeatable: true}, Decision{Counted: true}},
		{"limited comes back and does not count", p, Attempt{Number: 9, Outcome: NotExecuted, RetryAfter: 3 * time.Second}, Decision{Again: true, At: now.Add(3 * time.Second)}},
		{"unknown is not sent again", p, Attempt{Number: 1, Outcome: Unknown}, Decision{Counted: true}},
		{"unknown is sent again where the upstream recognises it", p, Attempt{Number: 1, Outcome: Unknown, Repeatable: true}, Decision{Again: true, At: now.Add(750 * time.Millisecond), Counted: true}},
		{"the backoff grows", p, Attempt{Number: 2, Outcome: Unknown, Repeatable: true}, Decision{Again: true, At: now.Add(1500 * time.Millisecond), Counted: true}},
		{"a longer Retry-After wins", p, Attempt{Number: 1, Outcome: Unknown, Repeatable: true, RetryAfter: time.Minute}, Decision{Again: true, At: now.Add(time.Minute), Counted: true}},
		{"attempts used up", p, Attempt{Number: 3, Outcome: Unknown, Repeatable: true}, Decision{Counted: true}},
		{"Check ends a repeat", never, Attempt{Number: 1, Outcome: Unknown, Repeatable: true}, Decision{Counted: true}},
		{"Check is not asked about what was limited", never, Attempt{Number: 1, Outcome: NotExecuted}, Decision{Again: true, At: now}},
		{"within the time in which it is recognised", p, Attempt{Number: 1, Outcome: Unknown, Repeatable: true, Until: now.Add(751 * time.Millisecond)}, Decision{Again: true, At: now.Add(750 * time.Millisecond), Counted: true}},
		{"later it would be a second call", p, Attempt{Number: 1, Outcome: Unknown, Repeatable: true, Until: now.Add(750 * time.Millisecond)}, Decision{Counted: true}},
		{"what was limited has all the time", p, Attempt{Number: 1, Outcome: NotExecuted, Until: now}, Decision{Again: true, At: now}},
		{"the zero policy has defaults", Policy{}, Attempt{Number: 1, Outcome: Unknown, Repeatable: true}, Decision{Again: true, At: now.Add(375 * time.Millisecond), Counted: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.policy.Next(now, tt.a, 0.5); got != tt.want {
				t.Errorf("Next = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDelayStaysWithinItsBounds(t *testing.T) {
	for name, curve := range map[string]Backoff{"exponential": Exponential, "linear": Linear} {
		c := Curve{Min: 100 * time.Millisecond, Max: 5 * time.Second, Backoff: curve}
		last := time.Duration(0)
		for n := 1; n <= 2000; n++ {
			lo, hi := c.Delay(n, 0, 0), c.Delay(n, 0, 0.999999)
			if lo < 50*time.Millisecond || hi > 5*time.Second || lo > hi || hi < last {
				t.Fatalf("%s: after failure %d between %v and %v; want within [50ms, 5s] and growing", name, n, lo, hi)
			}
			last = hi
		}
		if last < 4900*time.Millisecond {
			t.Errorf("%s: never reaches its maximum, ends at %v", name, last)
		}
	}
}

func TestHooksOfRetryablehttp(t *testing.T) {
	p := Policy{
		Curve: Curve{Min: time.Second, Max: time.Minute, Backoff: FromBackoff(retryablehttp.DefaultBackoff)},
		Check: FromCheckRetry(retryablehttp.DefaultRetryPolicy),
	}
	busy := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"7"}}}
	tests := []struct {
		name string
		a    Attempt
		want time.Duration // 0: not again
	}{
		{"its backoff, counted from 0", Attempt{Number: 3, Err: errors.New("reset")}, 4 * time.Second},
		{"its reading of Retry-After", Attempt{Number: 1, Response: busy}, 7 * time.Second},
		{"its no to a 501", Attempt{Number: 1, Response: &http.Response{StatusCode: http.StatusNotImplemented}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.a.Outcome, tt.a.Repeatable = Unknown, true
			got := p.Next(now, tt.a, 0.5)
			if got.Again != (tt.want > 0) || got.Again && got.At.Sub(now) != tt.want {
				t.Errorf("Next = %+v, want again after %v", got, tt.want)
			}
		})
	}
}

func TestDecorrelated(t *testing.T) {
	c := Curve{Min: 100 * time.Millisecond, Max: 5 * time.Second, Backoff: Decorrelated}
	for _, tt := range []struct {
		last   time.Duration
		random float64
		want   time.Duration
	}{
		{0, 0, 100 * time.Millisecond},
		{0, 0.5, 200 * time.Millisecond}, // between min and three times min
		{time.Second, 0, 100 * time.Millisecond},
		{time.Second, 0.5, 1550 * time.Millisecond},
		{4 * time.Second, 0.9, 5 * time.Second},
	} {
		if got := c.Delay(1, tt.last, tt.random); got != tt.want {
			t.Errorf("after %v by %v: %v, want %v", tt.last, tt.random, got, tt.want)
		}
	}
	// Over many steps the waits stay within the bounds, and vary.
	random := rand.New(rand.NewPCG(1, 2))
	last, seen := time.Duration(0), make(map[time.Duration]bool)
	for n := 1; n <= 1000; n++ {
		last = c.Delay(n, last, random.Float64())
		seen[last/(100*time.Millisecond)] = true
		if last < c.Min || last > c.Max {
			t.Fatalf("wait %d is %v", n, last)
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d different waits", len(seen))
	}
}

func TestLimitedCurve(t *testing.T) {
	p := Policy{Curve: Curve{Min: time.Second}}
	if got := p.LimitedCurve(); got.Min != time.Second {
		t.Errorf("without one of its own: %+v, want the curve of the policy", got)
	}
	p.Limited = &Curve{Min: time.Minute}
	if got := p.LimitedCurve(); got.Min != time.Minute {
		t.Errorf("with one of its own: %+v", got)
	}
}

// TestBudgetForetells: a repeat that is refused is earned at the instant that is given, less
// a nanosecond.
func TestBudgetForetells(t *testing.T) {
	b := Budget{Share: 0.25, Floor: time.Second, Most: 1}
	b.Take(now)
	for _, wait := range []time.Duration{time.Second, 750 * time.Millisecond, 500 * time.Millisecond} {
		if ok, next := b.Take(now); ok || next.Sub(now) < wait || next.Sub(now) > wait+2 {
			t.Errorf("%v, next after %v, want %v", ok, next.Sub(now), wait)
		}
		b.First()
	}
	if ok, _ := b.Take(now.Add(250*time.Millisecond - 10)); ok {
		t.Error("a repeat before it is earned")
	}
	if ok, _ := b.Take(now.Add(250*time.Millisecond + 10)); !ok {
		t.Error("no repeat after three first attempts and a quarter of the floor")
	}
	if ok, _ := b.Take(now); ok {
		t.Error("a clock that goes back earns a repeat")
	}
}

// TestBudget uses a plain model: in every stretch of time, repeats are at most the saved
// ones, plus the share of the first attempts in it, plus the floor.
func TestBudget(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	b := Budget{Share: 0.2, Floor: time.Second, Most: 10}
	type event struct {
		at    time.Time
		first bool
	}
	var events []event
	at := now
	for range 3000 {
		at = at.Add(time.Duration(random.IntN(int(200 * time.Millisecond))))
		if random.IntN(3) == 0 {
			b.First()
			events = append(events, event{at, true})
		} else if ok, next := b.Take(at); ok {
			events = append(events, event{at, false})
		} else if !next.After(at) {
			t.Fatalf("refused at %v until %v", at, next)
		}
	}
	for i := 0; i < len(events); i += 50 {
		firsts, repeats := 0, 0
		for _, e := range events[i:] {
			if e.first {
				firsts++
				continue
			}
			repeats++
			if most := 10 + 0.2*float64(firsts) + e.at.Sub(events[i].at).Seconds(); float64(repeats) > most+1e-6 {
				t.Fatalf("%d repeats after %d first attempts in %v, at most %v", repeats, firsts, e.at.Sub(events[i].at), most)
			}
		}
	}

	b = Budget{Share: 0.5}
	for range DefaultMost {
		if ok, _ := b.Take(now); !ok {
			t.Fatal("a new budget is not full")
		}
	}
	ok, next := b.Take(now)
	if ok || next.Sub(now) > DefaultFloor+1 {
		t.Errorf("empty: %v, next after %v", ok, next.Sub(now))
	}
	if ok, _ = b.Take(next); !ok {
		t.Error("nothing at the instant that was foretold")
	}
	b.First()
	b.First()
	if ok, _ = b.Take(next); !ok {
		t.Error("two first attempts earned nothing")
	}
	var free Budget
	for range 1000 {
		if ok, _ := free.Take(now); !ok {
			t.Fatal("the zero budget has a bound")
		}
	}
}
