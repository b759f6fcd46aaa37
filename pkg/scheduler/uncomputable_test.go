package scheduler

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// uncomputable plays an upstream with one answer, in a bubble of its own.
func uncomputable(t *testing.T, u Upstream, serve func(n int, r *http.Request) answer, play func(t *testing.T, s *Scheduler, f *fake)) (log string) {
	t.Helper()
	var lines bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), serve: serve}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&lines, nil))})
		if err != nil {
			t.Fatal(err)
		}
		play(t, s, f)
		s.Close()
	})
	return lines.String()
}

// counted returns the counts of rules without a value.
func counted(t *testing.T, s *Scheduler) map[string]int64 {
	st, err := s.Status(t.Context(), "api")
	if err != nil {
		t.Error(err)
	}
	return st.Uncomputable
}

// TestUncomputableOutcome: a rule that cannot be computed leaves its call unknown, is named in the
// attempt, in the log and in the counts, and shuts no upstream. No payment is repeated for it.
func TestUncomputableOutcome(t *testing.T) {
	const calls = 30
	u := Upstream{Retry: retry.Policy{Attempts: 4}}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{{When: `body("errcode") > 0`, Is: upstream.Failed}}
	const reason = `rule outcomes[0] cannot be computed: a text is compared with a number (in 'body("errcode") > 0')`
	log := uncomputable(t, u, func(int, *http.Request) answer { return answer{body: `{"errcode":"s3cret"}`} }, func(t *testing.T, s *Scheduler, f *fake) {
		for range calls {
			c := wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay"}).ID)
			if c.State != Unknown || len(c.Attempts) != 1 || c.Last().Reason != reason {
				t.Fatalf("%s after %+v", c.State, c.Attempts)
			}
		}
		if st, err := s.Status(t.Context(), "api"); err != nil || st.State != "up" {
			t.Errorf("the upstream is %s, %v", st.State, err)
		}
		if got := counted(t, s); len(got) != 1 || got["outcomes[0]"] != calls {
			t.Errorf("%v, want %d of outcomes[0]", got, calls)
		}
	})
	if n := strings.Count(log, `rule=outcomes[0]`); n != calls || strings.Contains(log, "s3cret") {
		t.Errorf("%d lines name the rule, want %d:\n%s", n, calls, log)
	}
}

// TestUnreadableAnswer: of an answer that cannot be read the log does not blame the rule.
func TestUnreadableAnswer(t *testing.T) {
	u := Upstream{Config: upstream.Config{Outcomes: []upstream.Rule{{When: `body("errcode") > 0`, Is: upstream.Failed}}}}
	const mend = "mend the rule, or look the call up"
	for name, tt := range map[string]struct {
		answer answer
		says   string
	}{
		"no gzip":  {answer{header: http.Header{"Content-Encoding": {"gzip"}}, body: `{"errcode":1}`}, "the answer or the request cannot be read: look the call up"},
		"cut off":  {answer{body: `{"errcode":`}, "the answer or the request cannot be read: look the call up"},
		"the rule": {answer{body: `{"errcode":"1"}`}, mend},
	} {
		log := uncomputable(t, u, func(int, *http.Request) answer { return tt.answer }, func(t *testing.T, s *Scheduler, f *fake) {
			if c := wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay"}).ID); c.State != Unknown {
				t.Errorf("%s: the call is %s", name, c.State)
			}
		})
		if !strings.Contains(log, "may have been executed; "+tt.says) || tt.says != mend && strings.Contains(log, mend) {
			t.Errorf("%s: want %q:\n%s", name, tt.says, log)
		}
	}
}

// TestPagesOfAGateway: one page in place of an answer shuts nothing, and its payment is repeated under
// its key. Many in a row say that calls do not get there, and open the breaker.
func TestPagesOfAGateway(t *testing.T) {
	u := Upstream{Retry: retry.Policy{Attempts: 2, Curve: retry.Curve{Min: sec, Max: sec}}}
	u.Idempotent = "true"
	u.Proof = []upstream.Proof{{Holds: `body("state") == "paid"`, After: 3 * sec}}
	page := answer{header: http.Header{"Content-Type": {"text/html"}}, body: "<html></html>"}
	broken := false
	log := uncomputable(t, u, func(n int, _ *http.Request) answer {
		if n == 1 || broken {
			return page
		}
		return answer{header: http.Header{"Content-Type": {"application/json"}}, body: `{"state":"paid"}`}
	}, func(t *testing.T, s *Scheduler, f *fake) {
		c := wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay"}).ID)
		if c.State != Done || len(c.Attempts) != 2 || !strings.HasSuffix(c.Attempts[0].Reason, "does not prove success: its media type is text/html, not application/json") {
			t.Errorf("%s after %+v", c.State, c.Attempts)
		}
		sameTimes(t, f.at(), 0, 3*sec)
		broken = true
		for range 10 {
			submit(t, s, Request{Method: "POST", Target: "/pay"})
		}
		time.Sleep(time.Minute)
		if st, err := s.Status(t.Context(), "api"); err != nil || st.State != "tripped" {
			t.Errorf("after many pages the upstream is %s, %v", st.State, err)
		}
	})
	if !strings.Contains(log, "does not prove success") {
		t.Errorf("the log does not say why:\n%s", log)
	}
}

// TestUncomputableQueries: rules of a query, and its when, that cannot be computed settle nothing.
// The call says so, and so do the log and the counts.
func TestUncomputableQueries(t *testing.T) {
	for name, tt := range map[string]struct {
		resolve []Resolve
		state   State
		rule    string
		queries int
		says    func(p *Pending) string
		want    string
	}{
		"a rule": {[]Resolve{{Target: `"/query"`, Outcomes: []upstream.Rule{{When: `body("amount") > 5`, Is: upstream.Failed}, {When: `status == 200`, Is: upstream.Done}}}},
			Unknown, "resolve[0].outcomes[0]", 2, func(p *Pending) string { return p.Answer },
			`status 200, and rule resolve[0].outcomes[0] cannot be computed: a text is compared with a number (in 'body("amount") > 5')`},
		"its when": {[]Resolve{{When: `json("no") > 5`, Target: `"/query"`, Outcomes: []upstream.Rule{{When: `status == 200`, Is: upstream.Done}}}, {Target: `"/other"`, Outcomes: []upstream.Rule{{When: `status == 200`, Is: upstream.Done}}}},
			Unknown, "resolve[0].when", 0, func(p *Pending) string { return p.Why },
			`status 500; rule resolve[0].when cannot be computed: a text is compared with a number (in 'json("no") > 5')`},
		"its when, of an absent member": {[]Resolve{{When: `json("none") > 5`, Target: `"/query"`, Outcomes: []upstream.Rule{{When: `status == 200`, Is: upstream.Failed}}}, {Target: `"/other"`, Outcomes: []upstream.Rule{{When: `status == 200`, Is: upstream.Done}}}},
			Done, "", 1, nil, ""},
		"done by an answer of another format": {[]Resolve{{Target: `"/page"`, Outcomes: []upstream.Rule{{When: `status == 200`, Is: upstream.Done}}}},
			Unknown, "", 2, func(p *Pending) string { return p.Answer },
			"status 200, and rule resolve[0].outcomes[0] gives done, but the answer is no whole JSON or XML"},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range tt.resolve {
				tt.resolve[i].After, tt.resolve[i].Every, tt.resolve[i].Queries = sec, sec, 2
			}
			log := uncomputable(t, Upstream{Resolve: tt.resolve}, func(_ int, r *http.Request) answer {
				switch r.URL.Path {
				case "/pay":
					return answer{status: 500}
				case "/page":
					return answer{body: "<html><body>closed</body></html>"}
				}
				return answer{body: `{"amount":"7"}`}
			}, func(t *testing.T, s *Scheduler, f *fake) {
				id := submit(t, s, Request{Method: "POST", Target: "/pay", Body: []byte(`{"no":"N1"}`)}).ID
				time.Sleep(time.Minute)
				c := s.mustGet(t, id)
				if c.State != tt.state || len(strings.Fields(f.targets())) != 1+tt.queries {
					t.Fatalf("%s after %s", c.State, f.targets())
				}
				if tt.says != nil && tt.says(c.Pending) != tt.want {
					t.Errorf("%+v, want %s", c.Pending, tt.want)
				}
				if got := counted(t, s); tt.rule == "" && len(got) > 0 || tt.rule != "" && got[tt.rule] == 0 {
					t.Errorf("%v, want some of %q", got, tt.rule)
				}
				if tt.rule == "resolve[0].when" {
					if _, err := s.Ask(t.Context(), id, "ann"); err == nil || !strings.Contains(err.Error(), "rule resolve[0].when cannot be computed") {
						t.Errorf("a person that asks gets %v", err)
					}
				}
			})
			if tt.rule != "" && !strings.Contains(log, "rule="+tt.rule) {
				t.Errorf("the log does not name %s:\n%s", tt.rule, log)
			}
		})
	}
}

// TestUncomputableCost: a cost that cannot be computed is counted in full, and told.
func TestUncomputableCost(t *testing.T) {
	log := uncomputable(t, points(`body("cost") - 1`), func(int, *http.Request) answer { return answer{body: `{"cost":"2"}`} }, func(t *testing.T, s *Scheduler, f *fake) {
		wait(t, s, submit(t, s, Request{}).ID)
		if limits, _ := s.Limits(t.Context()); limits[1].Out != 5 {
			t.Errorf("%d permits are out, want all 5", limits[1].Out)
		}
		if got := counted(t, s); got["limits[0].actual_cost"] != 1 {
			t.Errorf("%v, want limits[0].actual_cost", got)
		}
	})
	if !strings.Contains(log, "rule limits[0].actual_cost cannot be computed: - does not work with a text and a number") {
		t.Errorf("the log says %s", log)
	}
}
