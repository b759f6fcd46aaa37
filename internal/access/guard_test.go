package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// callers are tokens of each role; the text of a token is the name of its caller.
func callers() *config.Access {
	rules := &config.Access{}
	for _, role := range Roles {
		rules.Tokens = append(rules.Tokens, tokenOf(string(role), role))
	}
	return rules
}

func tokenOf(text string, role Role) config.Token {
	return config.Token{Name: text, Role: string(role), Sums: [][32]byte{sha256.Sum256([]byte(text))}}
}

// request returns a request that came to an address, with values of Authorization.
func request(local string, authorization ...string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "192.0.2.9:1234"
	if len(authorization) > 0 {
		r.Header["Authorization"] = authorization
	}
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(local))
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
}

const (
	near = "127.0.0.1:9090"
	far  = "192.0.2.7:9090"
)

// reason returns the reason of a refusal, ok if there is none.
func reason(err error) string {
	if err == nil {
		return "ok"
	}
	var refusal *Error
	if !errors.As(err, &refusal) {
		return err.Error()
	}
	return refusal.Reason
}

func TestRolesAreThoseOfTheConfiguration(t *testing.T) {
	var names []string
	for _, role := range Roles {
		names = append(names, string(role))
	}
	if !slices.Equal(names, config.Roles) {
		t.Errorf("the roles are %v, those of the configuration %v", names, config.Roles)
	}
}

// TestScopes: each role and each scope, by a token.
func TestScopes(t *testing.T) {
	want := map[Scope]string{ // of viewer, submitter, operator and admin
		Open: "1111", ReadOwn: "1111", Read: "1011", BodiesOwn: "0111", Bodies: "0001", Submit: "0111", Operate: "0011", Configure: "0001", "unknown": "0000",
	}
	g := NewGuard(callers())
	for scope, may := range want {
		for i, role := range Roles {
			r, leave, err := g.Admit(request(far, "Bearer "+string(role)), scope)
			switch {
			case (err == nil) != (may[i] == '1'):
				t.Errorf("%s, %s: %v", role, scope, err)
			case err != nil && reason(err) != NotPermitted:
				t.Errorf("%s, %s: refused as %s", role, scope, reason(err))
			case err == nil && scope != Open && From(r.Context()) != (Caller{string(role), role, "token"}):
				t.Errorf("%s, %s: the caller is %+v", role, scope, From(r.Context()))
			}
			if err == nil {
				leave()
			}
		}
	}
	if _, _, err := g.Admit(request(far, "Bearer viewer"), Operate); err.Error() != "viewer has the role viewer, and the operation needs the scope operate; roles with it: operator, admin" {
		t.Error(err)
	}
	if len(g.visits) != 0 {
		t.Errorf("%d requests have not left", len(g.visits))
	}
}

// TestCallers: each way to show oneself, or not to.
func TestCallers(t *testing.T) {
	open := callers()
	open.Anyone = "viewer"
	rotating := callers()
	rotating.Tokens[0].Sums = append(rotating.Tokens[0].Sums, sha256.Sum256([]byte("next")))
	loopback := Caller{"loopback", Admin, "loopback"}
	for name, tt := range map[string]struct {
		rules  *config.Access
		r      *http.Request
		caller Caller
		reason string
	}{
		"no access, loopback":               {nil, request(near), loopback, "ok"},
		"no access, loopback of IPv6":       {nil, request("[::1]:9090"), loopback, "ok"},
		"no access, a token of before":      {nil, request(near, "Bearer admin"), loopback, "ok"},
		"no access, another address":        {nil, request(far), Caller{}, Unauthenticated},
		"no access, another, with a token":  {nil, request(far, "Bearer admin"), Caller{}, Unauthenticated},
		"loopback shows nothing":            {callers(), request(near), Caller{}, Unauthenticated},
		"loopback shows a token":            {callers(), request(near, "Bearer viewer"), Caller{"viewer", Viewer, "token"}, "ok"},
		"the scheme in other letters":       {callers(), request(far, "bEARER viewer"), Caller{"viewer", Viewer, "token"}, "ok"},
		"the next token":                    {rotating, request(far, "Bearer next"), Caller{"viewer", Viewer, "token"}, "ok"},
		"the token before it":               {rotating, request(far, "Bearer viewer"), Caller{"viewer", Viewer, "token"}, "ok"},
		"a wrong token":                     {callers(), request(far, "Bearer viewe"), Caller{}, Unauthenticated},
		"a token and more":                  {callers(), request(far, "Bearer viewer x"), Caller{}, Unauthenticated},
		"an empty token":                    {callers(), request(far, "Bearer "), Caller{}, Unauthenticated},
		"another scheme":                    {callers(), request(far, "Basic viewer"), Caller{}, Unauthenticated},
		"the hash of a token":               {callers(), request(far, fmt.Sprintf("Bearer %x", sha256.Sum256([]byte("viewer")))), Caller{}, Unauthenticated},
		"two tokens":                        {callers(), request(far, "Bearer viewer", "Bearer viewer"), Caller{}, Unauthenticated},
		"anyone":                            {open, request(far), Caller{Role: Viewer, Via: "anyone"}, "ok"},
		"anyone with a wrong token":         {open, request(far, "Bearer x"), Caller{}, Unauthenticated},
		"anyone with a token":               {open, request(far, "Bearer admin"), Caller{"admin", Admin, "token"}, "ok"},
		"a section without callers":         {&config.Access{}, request(near), Caller{}, Unauthenticated},
		"an empty token, and an empty hash": {&config.Access{Tokens: []config.Token{{Name: "x", Role: "admin", Sums: [][32]byte{sha256.Sum256(nil)}}}}, request(far, "Bearer"), Caller{}, Unauthenticated},
	} {
		r, leave, err := NewGuard(tt.rules).Admit(tt.r, Read)
		if reason(err) != tt.reason {
			t.Errorf("%s: %v, want %s", name, err, tt.reason)
			continue
		}
		if err == nil {
			if got := From(r.Context()); got != tt.caller {
				t.Errorf("%s: the caller is %+v, want %+v", name, got, tt.caller)
			}
			leave()
		}
	}
}

// TestWrongTokens: 5 at once and one more each 12 s are looked at, of each address; the
// right token is always taken.
func TestWrongTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(callers())
		from := func(addr, token string) string {
			r := request(far, "Bearer "+token)
			r.RemoteAddr = addr
			_, leave, err := g.Admit(r, Read)
			if err == nil {
				leave()
			}
			return reason(err)
		}
		for n := range 8 {
			want := Unauthenticated
			if n >= 5 {
				want = TooManyWrong
			}
			if got := from("192.0.2.9:1", "wrong"); got != want {
				t.Errorf("wrong token %d: %s", n, got)
			}
		}
		if got := from("192.0.2.9:2", "viewer"); got != "ok" {
			t.Errorf("the right token after wrong ones: %s", got)
		}
		if got := from("192.0.2.8:1", "wrong"); got != Unauthenticated {
			t.Errorf("another address: %s", got)
		}
		for n := range 6 {
			if got, want := from(fmt.Sprintf("[2001:db8::%x]:1", n), "wrong"), map[bool]string{true: Unauthenticated, false: TooManyWrong}[n < 5]; got != want {
				t.Errorf("address %d of one network: %s", n, got)
			}
		}
		time.Sleep(12 * time.Second)
		if a, b := from("192.0.2.9:3", "wrong"), from("192.0.2.9:3", "wrong"); a != Unauthenticated || b != TooManyWrong {
			t.Errorf("12 s later: %s, then %s", a, b)
		}
	})
}

// TestWrongTokensAreBounded: a crowd of addresses does not use up the memory.
func TestWrongTokensAreBounded(t *testing.T) {
	var a attempts
	now := time.Now()
	for n := range 3 * mostAddresses {
		from := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 32)
		if !a.allow(from, now.Add(time.Duration(n)*time.Millisecond)) || len(a.of) > mostAddresses {
			t.Fatalf("address %d: %d are kept", n, len(a.of))
		}
	}
	at := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 1, 0, 0}), 32)
	if a.allow(at, now.Add(time.Hour)); len(a.of) != 1 {
		t.Errorf("%d addresses are kept an hour later", len(a.of))
	}
}

// TestSetEndsRequests: a request ends when its caller is another one, or none, and others
// go on.
func TestSetEndsRequests(t *testing.T) {
	g := NewGuard(callers())
	ended := func(ctx context.Context) bool { return ctx.Err() != nil }
	admit := func(token string) context.Context {
		t.Helper()
		r, leave, err := g.Admit(request(far, "Bearer "+token), ReadOwn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return r.Context()
	}
	viewer, operator, admin := admit("viewer"), admit("operator"), admit("admin")
	next := callers()
	next.Tokens = slices.DeleteFunc(next.Tokens, func(t config.Token) bool { return t.Name == "viewer" })
	next.Tokens = slices.DeleteFunc(next.Tokens, func(t config.Token) bool { return t.Name == "operator" })
	next.Tokens = append(next.Tokens, tokenOf("operator", Viewer))
	g.Set(next)
	if !ended(viewer) || !ended(operator) || ended(admin) {
		t.Errorf("revoked: ended %v; another role: %v; as before: %v", ended(viewer), ended(operator), ended(admin))
	}
	if _, _, err := g.Admit(request(far, "Bearer viewer"), Read); reason(err) != Unauthenticated {
		t.Errorf("a revoked token: %v", err)
	}
	g.Set(nil)
	if !ended(admin) {
		t.Error("without access, a request at another address goes on")
	}
	if g.wrong.of[netip.MustParsePrefix("192.0.2.9/32")].TokensAt(time.Now()) < 4 {
		t.Error("requests that end count as wrong tokens")
	}
}

func TestAddressed(t *testing.T) {
	named := &config.Access{Hosts: []string{"throttler.pay.internal", "10.9.9.9"}}
	for _, tt := range []struct {
		rules       *config.Access
		local, host string
		ok          bool
	}{
		{nil, near, "127.0.0.1:9090", true},
		{nil, near, "LOCALHOST.", true},
		{nil, near, "[::1]:1", true},
		{nil, near, "", true}, // HTTP/1.0
		{nil, near, "evil.example", false},
		{nil, near, "192.0.2.7", false},
		{nil, far, "192.0.2.7:9090", true},
		{nil, far, "[::ffff:192.0.2.7]:9090", true},
		{nil, far, "192.0.2.8", false},
		{nil, far, "localhost:9090", true},
		{nil, far, "evil.example", false},
		{nil, far, "throttler.pay.internal", false},
		{named, far, "Throttler.Pay.Internal.:9090", true},
		{named, far, "x.throttler.pay.internal", false},
		{named, near, "throttler.pay.internal", true},
		{named, far, "10.9.9.9", true},
	} {
		r := request(tt.local)
		r.Host = tt.host
		err := NewGuard(tt.rules).Addressed(r)
		if (err == nil) != tt.ok || err != nil && reason(err) != Misdirected {
			t.Errorf("%q at %s: %v", tt.host, tt.local, err)
		}
		if err != nil && tt.rules != nil && !strings.Contains(err.Error(), "throttler.pay.internal") {
			t.Errorf("the refusal names no host: %v", err)
		}
	}
}

func TestSees(t *testing.T) {
	for _, tt := range []struct {
		caller    Caller
		submitter string
		sees      bool
	}{
		{Caller{"shop", Submitter, "token"}, "shop", true},
		{Caller{"shop", Submitter, "token"}, "other", false},
		{Caller{"shop", Submitter, "token"}, "", false},
		{Caller{"", Submitter, ""}, "", false},
		{Caller{"x", Viewer, "token"}, "shop", true},
	} {
		if tt.caller.Sees(tt.submitter) != tt.sees {
			t.Errorf("%+v and a call of %q: sees %v", tt.caller, tt.submitter, !tt.sees)
		}
	}
}
