package access

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// TestPassedOn: of a request that another replica passes on, the caller is the one that the replica has seen, or that
// its token shows; its own connection shows none.
func TestPassedOn(t *testing.T) {
	rules := &config.Access{Anyone: "viewer"}
	shown := &Caller{Name: "ops", Role: Operator, Via: "socket"}
	for name, tt := range map[string]struct {
		rules  *config.Access
		shown  *Caller
		header string
		want   string
	}{
		"shown":                        {nil, shown, "", "ops"},
		"none, without rules":          {nil, nil, "", "refused"},
		"none, with a role for anyone": {rules, nil, "", "refused"}, // the other replica tells it
		"shown, with rules":            {rules, shown, "", "ops"},
		"a wrong token":                {rules, shown, "Bearer x", "refused"},
	} {
		r := httptest.NewRequest("GET", "/v1/calls", nil)
		loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}
		r = r.WithContext(PassedOn(context.WithValue(r.Context(), http.LocalAddrContextKey, loopback), tt.shown))
		if tt.header != "" {
			r.Header.Set("Authorization", tt.header)
		}
		got := "refused"
		if admitted, leave, err := NewGuard(tt.rules).Admit(r, Read); err == nil {
			got = From(admitted.Context()).Name
			leave()
		}
		if got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	if c, ok := NewGuard(rules).Shown(r); !ok || c.Role != Viewer {
		t.Errorf("anyone: %+v, %v", c, ok)
	}
}
