package scheduler

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestBreakerCountsCalls: two payments that always fail, repeated under their keys by the policy and by their clients, are two
// outcomes. The next call goes. As many calls that have nothing in common open the breaker.
func TestBreakerCountsCalls(t *testing.T) {
	key := func(n int, name string) http.Header { return http.Header{name: {fmt.Sprint("k", n)}} }
	for name, tt := range map[string]struct {
		up      Upstream
		request func(n, try int) Request
		opens   bool
	}{
		"the platform's header": {Upstream{}, func(n, try int) Request {
			h := key(n, "X-Key")
			h.Set("X-Retry-Count", fmt.Sprint(try)) // as SDKs send it
			return Request{Method: "POST", Header: h}
		}, false},
		"the platform's field": {Upstream{}, func(n, _ int) Request {
			return Request{Method: "POST", Header: http.Header{"Content-Type": {"application/json"}}, Body: fmt.Appendf(nil, `{"payment": {"key": "k%d"}}`, n)}
		}, false},
		"a key of Throttler": {Upstream{}, func(n, _ int) Request {
			return Request{Method: "POST", IdempotencyKey: fmt.Sprint("k", n)}
		}, false},
		"an identity": {Upstream{Identity: `query("order")`}, func(n, _ int) Request {
			return Request{Method: "POST", Target: fmt.Sprint("/?order=", n)}
		}, false},
		"a query of the caller": {Upstream{Identity: `method == "POST" ? query("order") : ""`, Asks: `method == "GET" ? query("order") : ""`}, func(n, _ int) Request {
			return Request{Method: "GET", Target: fmt.Sprint("/?order=", n)}
		}, false},
		"no key": {Upstream{}, func(n, _ int) Request { return Request{Method: "POST"} }, true},
		"other accounts": {Upstream{}, func(n, try int) Request {
			h := key(n, "X-Key")
			h.Set("Authorization", fmt.Sprint("Bearer ", try))
			return Request{Method: "POST", Header: h}
		}, true},
		"other flows": {Upstream{ShareBy: `header("X-Tenant")`}, func(n, try int) Request {
			h := key(n, "X-Key")
			h.Set("X-Tenant", fmt.Sprint("t", try))
			return Request{Method: "POST", Header: h}
		}, true},
		"other operations": {Upstream{}, func(n, try int) Request {
			return Request{Method: "POST", Target: fmt.Sprint("/", try), Header: key(n, "X-Key")}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			u := tt.up
			u.Resend, u.Retry = true, retry.Policy{Attempts: 2}
			u.Idempotency.Header, u.Idempotency.Field = "X-Key", "payment.key"
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return answer{status: 500} }
				for try := range 8 {
					for n := range 2 {
						r := tt.request(n, try)
						if r.Upstream = "api"; r.Target == "" {
							r.Target = "/"
						}
						if resp, _, err := s.Do(t.Context(), r); err == nil {
							resp.Body.Close()
						}
						time.Sleep(sec)
					}
				}
				if st := upstreams(t, s)[0]; (st.State == "tripped") != tt.opens {
					t.Errorf("after %d requests it is %s: %s", len(f.at()), st.State, st.Reason)
				}
			})
		})
	}
}

// TestQueriesAboutOneCall: the queries about an unknown call are one outcome, and the call is another one.
func TestQueriesAboutOneCall(t *testing.T) {
	u := Upstream{Retry: retry.Policy{Attempts: 1}, Resolve: []Resolve{{When: `method == "POST"`, Method: "GET", Target: `"/orders"`, Outcomes: []upstream.Rule{{When: "status == 200", Is: upstream.Done}}, After: sec, Every: sec, Queries: 30}}}
	u.Idempotent = "false"
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		submit(t, s, Request{Method: "POST", Target: "/pay"})
		time.Sleep(time.Hour)
		if st := upstreams(t, s)[0]; st.State != "up" || len(f.at()) < 12 {
			t.Errorf("after %d requests it is %s: %s", len(f.at()), st.State, st.Reason)
		}
	})
}
