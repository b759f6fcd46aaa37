package scheduler

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestResolve(t *testing.T) {
	resolve := Resolve{
		When: `method == "POST"`, Target: `"/query/" + json("no")`, Header: map[string]string{"X-App": `header("X-App")`},
		After: 5 * sec, Every: 10 * sec, Queries: 3,
		Outcomes: []upstream.Rule{
			{When: `body("status") == "PAID" and body("amount") == json("amount")`, Is: upstream.Done},
			{When: `body("status") == "CLOSED"`, Is: upstream.Failed},
			{When: `status == 404`, Is: upstream.NotExecuted},
			{When: `body("status") == "PENDING"`, Is: upstream.Unknown},
		},
	}
	tests := []struct {
		name    string
		queries []answer // in order; the last one repeats
		want    State
		targets string
		at      []time.Duration
	}{
		{"done", []answer{{body: `{"status":"PAID","amount":7}`}}, Done, "pay query/N1", []time.Duration{0, 5010 * ms}},
		{"failed", []answer{{body: `{"status":"CLOSED"}`}}, Failed, "pay query/N1", nil},
		{"not executed: it goes again", []answer{{status: 404}}, Done, "pay query/N1 pay", nil},
		{"still unknown at first", []answer{{body: `{"status":"PENDING"}`}, {status: 500}, {body: `{"status":"PAID","amount":7}`}}, Done, "pay query/N1 query/N1 query/N1", []time.Duration{0, 5010 * ms, 15020 * ms, 25030 * ms}},
		{"no answer", []answer{{err: io.ErrUnexpectedEOF}}, Unknown, "pay query/N1 query/N1 query/N1", nil},
		{"another amount", []answer{{body: `{"status":"PAID","amount":8}`}}, Unknown, "pay query/N1 query/N1 query/N1", nil},
		{"the query is limited", []answer{{status: 429}, {body: `{"status":"PAID","amount":7}`}}, Done, "pay query/N1 query/N1", []time.Duration{0, 5010 * ms, 7020 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := Upstream{Resolve: []Resolve{resolve}, Limits: perSecond(1)}
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: 2 * sec}}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				payments, queries := 0, 0
				f.serve = func(_ int, r *http.Request) answer {
					a := answer{}
					if r.URL.Path == "/pay" {
						if payments++; payments == 1 {
							a.status = 500
						}
					} else {
						if r.Header.Get("X-App") != "2021" || r.Method != "GET" {
							t.Errorf("query %s %v", r.Method, r.Header)
						}
						a = tt.queries[min(queries, len(tt.queries)-1)]
						queries++
					}
					a.after = 10 * ms
					return a
				}
				c := submit(t, s, Request{Method: "POST", Target: "/pay", Header: http.Header{"X-App": {"2021"}}, Body: []byte(`{"no":"N1","amount":7}`)})
				time.Sleep(2 * time.Minute)
				if got := s.mustGet(t, c.ID); got.State != tt.want || f.targets() != tt.targets {
					t.Errorf("%s after %q (%+v), want %s after %q", got.State, f.targets(), got.Attempts, tt.want, tt.targets)
				}
				if p := s.mustGet(t, c.ID).Pending; tt.want == Unknown {
					last, err := s.Get(t.Context(), p.Query)
					want := "status 200"
					if tt.queries[0].err != nil {
						want = "no answer: the connection was closed"
					}
					if err != nil || last.Resolves != c.ID || p.Answer != want || p.Queries != 3 {
						t.Errorf("the last query is %+v, %v; want its answer to be %s", p, err, want)
					}
				}
				if tt.at != nil {
					sameTimes(t, f.at(), tt.at...)
				}
			})
		})
	}
	for name, tt := range map[string]struct {
		after    time.Duration
		requests int
	}{"somebody decides first": {0, 1}, "somebody decides while the query is under way": {resolve.After + ms, 2}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Upstream{Resolve: []Resolve{resolve}}, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return answer{after: 10 * ms, status: 500} }
				c := wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay", Body: []byte(`{"no":"N1"}`)}).ID)
				synctest.Wait() // until the first query is submitted
				time.Sleep(tt.after)
				if got, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Done, Reason: "seen on the statement"}); err != nil || got.State != Done {
					t.Fatal(got, err)
				}
				time.Sleep(time.Minute)
				if n := len(f.at()); n != tt.requests || upstreams(t, s)[0].Waiting != 0 {
					t.Errorf("%d requests, want %d; %+v", n, tt.requests, upstreams(t, s)[0])
				}
			})
		})
	}
	t.Run("without the signer that it needs", func(t *testing.T) {
		needs := resolve
		needs.Signed = true
		bubble(t, Upstream{Resolve: []Resolve{needs}}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{status: 500} }
			wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay", Body: []byte(`{"no":"N1"}`)}).ID)
			time.Sleep(time.Minute)
			if n := len(f.at()); n != 1 {
				t.Errorf("%d requests, want the call alone", n)
			}
		})
	})
}

// TestRefusedQueriesAreNotCounted: a query that was not taken, because the upstream is paused, was not made.
func TestRefusedQueriesAreNotCounted(t *testing.T) {
	u := Upstream{Resolve: []Resolve{{When: `method == "POST"`, Target: `"/query"`, After: time.Hour, Outcomes: []upstream.Rule{{When: "status == 200", Is: upstream.Done}}}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		unanswered(f, 1)
		c := wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay"}).ID)
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(30 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ask(t.Context(), c.ID, "jo"); err == nil {
			t.Error("the query was taken")
		}
		if p := s.mustGet(t, c.ID).Pending; p.Queries != 0 || !p.LastQuery.IsZero() || p.Query != "" {
			t.Errorf("pending: %+v", p)
		}
		time.Sleep(2 * time.Hour)
		if got := s.mustGet(t, c.ID); got.State != Done || f.targets() != "pay query" {
			t.Errorf("%s after %q", got.State, f.targets())
		}
	})
}
