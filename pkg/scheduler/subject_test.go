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

// TestSubjects: two attempts have one subject, or two, by the first of its names that a call has.
func TestSubjects(t *testing.T) {
	type made struct {
		intent  Call
		names   *identities
		key     string
		account string
	}
	subject := func(m made) uint64 {
		a := &attempt{intent: &m.intent, call: &call{identities: m.names, request: &upstream.Request{Header: http.Header{"Authorization": {m.account}}}}}
		return a.subject(&upstream.Result{Key: m.key})
	}
	pay := made{intent: Call{ID: "1", Method: "POST", Path: "/pay", Flow: "f", IdempotencyKey: "k"}, key: "p", account: "Bearer a"}
	but := func(change func(*made)) made {
		m := pay
		change(&m)
		return m
	}
	own, ends, asks := &identities{own: "o"}, &identities{ends: "o"}, &identities{asks: "o"}
	for name, tt := range map[string]struct {
		one, other made
		same       bool
	}{
		"two calls of a key":          {pay, but(func(m *made) { m.intent.ID = "2" }), true},
		"other keys of the platform":  {pay, but(func(m *made) { m.key = "q" }), false},
		"other keys of Throttler":     {pay, but(func(m *made) { m.intent.IdempotencyKey = "l" }), false},
		"other accounts":              {pay, but(func(m *made) { m.account = "Bearer b" }), false},
		"another signature":           {but(func(m *made) { m.account = `Signature keyId="a",signature="1"` }), but(func(m *made) { m.account = `Signature keyId="a",signature="2"` }), true},
		"other flows":                 {pay, but(func(m *made) { m.intent.Flow = "g" }), false},
		"other methods":               {pay, but(func(m *made) { m.intent.Method = "PUT" }), false},
		"other paths":                 {pay, but(func(m *made) { m.intent.Path = "/refund" }), false},
		"an identity, with two keys":  {but(func(m *made) { m.names = own }), but(func(m *made) { m.names, m.key = own, "q" }), true},
		"a call and its end":          {but(func(m *made) { m.names = own }), but(func(m *made) { m.names = ends }), false},
		"a call and a query about it": {but(func(m *made) { m.names = own }), but(func(m *made) { m.names = asks }), false},
		"two ends of one payment":     {but(func(m *made) { m.names = ends }), but(func(m *made) { m.names, m.key = ends, "q" }), true},
		"two queries of Resolve":      {made{intent: Call{ID: "3", Resolves: "1"}}, made{intent: Call{ID: "4", Resolves: "1"}}, true},
		"queries about two calls":     {made{intent: Call{ID: "3", Resolves: "1"}}, made{intent: Call{ID: "4", Resolves: "2"}}, false},
		"attempts of a call":          {made{intent: Call{ID: "1"}}, made{intent: Call{ID: "1"}}, true},
		"calls without a key":         {made{intent: Call{ID: "1"}}, made{intent: Call{ID: "2"}}, false},
	} {
		if (subject(tt.one) == subject(tt.other)) != tt.same {
			t.Errorf("%s: one subject is %v, want %v", name, !tt.same, tt.same)
		}
	}
}
