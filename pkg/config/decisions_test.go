package config

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// What a query's answer makes of a call.
const (
	paid  = "done"
	lost  = "failed"
	anew  = "sent again"
	stays = "unknown"
)

// A decision is an answer to a query about a call without an answer.
type decision struct {
	row    string // a name of sources, and the case
	call   *upstream.Request
	answer answer
	want   string
}

var decisions = map[string][]decision{"alipay": alipayDecisions(), "alipay-v3": alipayV3Decisions()}

// TestDecisions sends each call once, without an answer. Each query about it gets the
// answer of the row. Each rule of a preset's queries decides a row.
func TestDecisions(t *testing.T) {
	for preset, rows := range decisions {
		var reasons []string
		for _, d := range rows {
			t.Run(preset+" "+d.row, func(t *testing.T) {
				if source, _, _ := strings.Cut(d.row, ":"); sources[source] == "" {
					t.Errorf("no source %q", source)
				}
				synctest.Test(t, func(t *testing.T) { reasons = append(reasons, testDecision(t, preset, d)) })
			})
		}
		c, err := Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(reasons, "\n")
		for _, r := range c.Scheduler.Upstreams["a"].Resolve {
			for _, rule := range r.Outcomes {
				if !strings.Contains(all, rule.When) {
					t.Errorf("%s: no row is decided by %s", preset, rule.When)
				}
			}
		}
	}
}

// testDecision returns the reason of the first attempt.
func testDecision(t *testing.T, preset string, d decision) string {
	var mu sync.Mutex
	var first *http.Request
	var sent, asked int
	s := facing(t, preset, func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		body, _ := io.ReadAll(r.Body)
		if first == nil {
			first = r
		}
		if first.Method == r.Method && first.URL.String() == r.URL.String() && string(body) == string(d.call.Body) {
			sent++
			return nil, errLost
		}
		asked++
		return d.answer.RoundTrip(r)
	}, ", retry: {attempts: 1}")
	made, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: d.call.Method, Target: d.call.Target, Header: d.call.Header, Body: d.call.Body})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(65 * time.Second)
	synctest.Wait()
	c, err := s.Get(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	got := string(c.State)
	if sent > 1 {
		got = anew
	}
	if asked == 0 || got != d.want {
		t.Errorf("%s after %d queries and %d sendings, want %s: %+v", got, asked, sent, d.want, c.Attempts)
	}
	return c.Attempts[0].Reason
}

// A shop whose buyers all type their passwords has no broken upstream: the circuit breaker
// stays closed. It opens at as many answers of a server that fails.
func TestBreakerOverOpenPayments(t *testing.T) {
	for name, tt := range map[string]struct {
		preset string
		call   *upstream.Request
		answer answer
		opens  bool
	}{
		"waiting buyers":   {"alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), coded("10003", ""), false},
		"numbers in use":   {"alipay-v3", rest("POST", "/v3/alipay/trade/pay", `{"out_trade_no":"T1"}`), failure(400, "ACQ.TRADE_HAS_SUCCESS"), false},
		"stored failures":  {"stripe", rest("POST", "/v1/refunds", "", "Idempotency-Key", "k"), answered(500, "{}", "Idempotent-Replayed", "true"), true},
		"a broken gateway": {"alipay", call("alipay.trade.pay", `{"out_trade_no":"T1"}`), coded("20000", ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const calls = 30
				var sent atomic.Int32
				s := facing(t, tt.preset, func(r *http.Request) (*http.Response, error) {
					sent.Add(1)
					return tt.answer.RoundTrip(r)
				}, ", concurrency: 1")
				for range calls {
					if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "a", Method: tt.call.Method, Target: tt.call.Target, Header: tt.call.Header, Body: tt.call.Body}); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Second)
				synctest.Wait()
				if n := sent.Load(); (n < calls) != tt.opens {
					t.Errorf("%d of %d calls were sent within a second", n, calls)
				}
			})
		})
	}
}
