package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// small is 25 calls, 10 of them refunds, under limits of 10 and 5 per second.
var small = scenario{
	refunds: 10, queries: 15,
	app:    gateway.Limit{Calls: 10, Window: time.Second},
	refund: gateway.Limit{Calls: 5, Window: time.Second},
}

// arrivals is bursts of n arrivals, each at its offset.
func arrivals(n int, at ...time.Duration) []time.Time {
	var a []time.Time
	for _, d := range at {
		for range n {
			a = append(a, time.Unix(0, 0).Add(d))
		}
	}
	return a
}

// perfect is the run of small that takes the least time.
func perfect() report {
	return report{
		calls: 25, succeeded: 25,
		app:    gateway.Tally{Limit: small.app, Executed: 25, Arrivals: arrivals(5, 0, 0, time.Second, time.Second, 2*time.Second)},
		refund: gateway.Tally{Limit: small.refund, Executed: 10, Arrivals: arrivals(5, 0, time.Second)},
	}
}

func TestBest(t *testing.T) {
	for _, tt := range []struct {
		calls int
		want  time.Duration
	}{{1, 0}, {10, 0}, {11, time.Second}, {20, time.Second}, {21, 2 * time.Second}} {
		if got := best(tt.calls, small.app); got != tt.want {
			t.Errorf("best(%d calls, 10 per 1s) = %v, want %v", tt.calls, got, tt.want)
		}
	}
	if got := small.best(); got != 2*time.Second {
		t.Errorf("with both limits %v", got)
	}
	refunds := small
	refunds.refunds, refunds.queries = 20, 0 // now the refund limit decides
	if got := refunds.best(); got != 3*time.Second {
		t.Errorf("of refunds alone %v", got)
	}
}

func TestUsedAndSpeed(t *testing.T) {
	r := perfect()
	if app, refund := used(r.app), used(r.refund); app != 25.0/30 || refund != 1 {
		t.Errorf("used %v of the app quota, %v of the refund quota", app, refund)
	}
	if got := small.speed(r); got != 1 {
		t.Errorf("speed %v", got)
	}
	r.app.Arrivals = arrivals(5, 0, 0, time.Second, time.Second, 2500*time.Millisecond)
	if got := small.speed(r); got != 0.8 {
		t.Errorf("speed %v of a run half a second late", got)
	}
}

func TestFaults(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*report)
		want   string // all faults, joined by "; "
	}{
		{"perfect", func(*report) {}, ""},
		{"limited", func(r *report) { r.app.Limited, r.refund.Limited, r.succeeded = 1, 2, 22 },
			"3 calls were limited by the gateway; 22 of 25 calls succeeded"},
		{"app over", func(r *report) { r.app.Arrivals = arrivals(11, 0, 2*time.Second) },
			"11 arrivals of the app in a window, 10 allowed"},
		{"refunds over", func(r *report) { r.refund.Arrivals = arrivals(5, 0, time.Second-1) },
			"10 refunds arrived in a window, 5 allowed"},
		{"failed", func(r *report) { r.succeeded, r.reasons = 24, map[string]int{"EOF": 1} },
			"24 of 25 calls succeeded; 1 calls failed: EOF"},
		{"twice", func(r *report) { r.refundedTwice = 1 }, "1 trades were refunded twice"},
		{"just fast enough", func(r *report) { r.app.Arrivals = arrivals(1, 0, 2*time.Second*100/95) }, ""},
		{"slow", func(r *report) { r.app.Arrivals = arrivals(1, 0, 2200*time.Millisecond) },
			"90.91% of the best possible speed, at least 95% expected"},
	} {
		r := perfect()
		tt.change(&r)
		if got := strings.Join(r.faults(small), "; "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestIdle: the gateway must limit most calls of a straight run.
func TestIdle(t *testing.T) {
	for limited, want := range map[int]string{
		13: "", 12: "straight at the gateway only 12 of 25 calls were limited: the comparison says nothing",
	} {
		got := ""
		if err := (report{calls: 25, app: gateway.Tally{Limited: limited}}).idle(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%d limited: %q, want %q", limited, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	straight := report{
		calls: 25, succeeded: 10, reasons: map[string]int{"40005 isv.app-call-limited": 14, "EOF": 1},
		app:    gateway.Tally{Limit: small.app, Executed: 10, Limited: 14, Arrivals: arrivals(25, 0)},
		refund: gateway.Tally{Limit: small.refund, Executed: 4, Arrivals: arrivals(10, 0)},
	}
	var got strings.Builder
	if err := writeVerdict(&got, small, straight, perfect()); err != nil {
		t.Fatal(err)
	}
	const want = `
                               straight   through Throttler
  calls                        25         25
  succeeded                    10         25
  limited by the gateway       14         0
  failed otherwise             1          0
  most arrivals in any 1s      25 of 10   10 of 10
  most refunds in any 1s       10 of 5    5 of 5
  trades refunded twice        0          0
  app quota used               100.0%     83.3%
  refund quota used            80.0%      100.0%
  first to last arrival        0.00s      2.00s
  best possible time           2.00s      2.00s
  of the best possible speed   not done   100.0%
`
	if got.String() != want[1:] {
		t.Errorf("got\n%s\nwant%s", got.String(), want)
	}
}

// TestDemoIsLongEnough checks that the scenario is long enough for a meaningful
// verdict.
func TestDemoIsLongEnough(t *testing.T) {
	for name, l := range map[string]struct {
		calls int
		gateway.Limit
	}{
		"app":    {demo.refunds + demo.queries, demo.app},
		"refund": {demo.refunds, demo.refund},
	} {
		if l.calls < 10*l.Calls {
			t.Errorf("%s: %d calls are fewer than 10 windows of %d", name, l.calls, l.Calls)
		}
		if l.calls%l.Calls == 0 {
			t.Errorf("%s: %d calls are whole windows of %d", name, l.calls, l.Calls)
		}
	}
}
