package upstream

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A renewer sets the token n, and may renew it so often.
type renewer struct {
	signer
	left  int
	panic bool
	asked []string // Authorization of the requests that were refused
}

func (r *renewer) Renew(signed *Request) bool {
	r.asked = append(r.asked, signed.Header.Get("Authorization"))
	if r.panic {
		panic("no")
	}
	r.left--
	return r.left >= 0
}

// TestRenewal: a 401 is not_executed if the signer has other credentials, once for a call,
// before every rule; else rules and status decide.
func TestRenewal(t *testing.T) {
	status := http.StatusUnauthorized
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(status)
	}))
	defer s.Close()
	sign := signer(func(r *Request) error { r.Header.Set("Authorization", "Bearer t1"); return nil })
	for _, tt := range []struct {
		name    string
		status  int
		signer  *renewer
		renewed bool
		want    Outcome
		asked   int
	}{
		{"an old token", 401, &renewer{signer: sign, left: 1}, false, NotExecuted, 1},
		{"a fresh token", 401, &renewer{signer: sign}, false, Failed, 1},
		{"renewed before", 401, &renewer{signer: sign, left: 1}, true, Failed, 0},
		{"a signer that panics", 401, &renewer{signer: sign, panic: true}, false, Failed, 1},
		{"forbidden", 403, &renewer{signer: sign, left: 1}, false, Failed, 0},
		{"done", 200, &renewer{signer: sign, left: 1}, false, Done, 0},
	} {
		status = tt.status
		rules := []Rule{{When: "status == 401", Is: Failed}}
		u := newUpstream(t, Config{URL: s.URL, Signer: tt.signer, Outcomes: rules})
		res := do(t, u, &Request{Method: "POST", Target: "/", Header: http.Header{}, Renewed: tt.renewed})
		again := tt.want == NotExecuted
		if res.Outcome != tt.want || res.Unprocessed != again || !res.Sent || !res.Answered || res.Response == nil || len(tt.signer.asked) != tt.asked {
			t.Errorf("%s: %+v, Renew for %q", tt.name, res, tt.signer.asked)
		}
		if again && (res.RetryAfter != 0 || tt.signer.asked[0] != "Bearer t1") {
			t.Errorf("%s: after %v, Renew for %q", tt.name, res.RetryAfter, tt.signer.asked)
		}
		res.Response.Body.Close()
	}
	status = 401
	plain := newUpstream(t, Config{URL: s.URL, Signer: sign})
	if res := do(t, plain, &Request{Method: "POST", Target: "/", Header: http.Header{}}); res.Outcome != Failed {
		t.Errorf("a signer that cannot renew: %+v", res)
	}
}
