package config

import (
	"io"
	"net/http"
	"strings"
	"sync"
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
