package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A provider gives tokens that end, and its API wants a valid one.
type provider struct {
	life int // of a token, in seconds
	down atomic.Bool

	given atomic.Int64 // tokens
	mu    sync.Mutex
	used  []string // Authorization headers of the API's requests
}

func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch id, secret, _ := r.BasicAuth(); {
	case r.URL.Path == "/orders":
		p.mu.Lock()
		defer p.mu.Unlock()
		p.used = append(p.used, r.Header.Get("Authorization"))
	case p.down.Load():
		http.Error(w, "client_secret=hunter2 is fine, but the database is down", http.StatusInternalServerError)
	case id != "shop" || secret != "hunter2" || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "orders refunds":
		http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
	default:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"token%d","token_type":"bearer","expires_in":%d}`, p.given.Add(1), p.life)
	}
}

// client returns a client of the provider's API through oauth.yaml and the signer.
func client(t *testing.T, p *provider) *http.Client {
	t.Helper()
	api := httptest.NewServer(p)
	t.Cleanup(api.Close)
	t.Setenv("OAUTH_TOKEN_URL", api.URL+"/token")
	t.Setenv("OAUTH_CLIENT_ID", "shop")
	t.Setenv("OAUTH_CLIENT_SECRET", "hunter2")
	t.Setenv("OAUTH_SCOPES", "orders refunds")
	c, err := credentials()
	if err != nil {
		t.Fatal(err)
	}
	service := httptest.NewServer(sign(c))
	t.Cleanup(service.Close)

	text, err := os.ReadFile("oauth.yaml")
	if err != nil {
		t.Fatal(err)
	}
	yaml := strings.NewReplacer("http://127.0.0.1:9100", service.URL, "https://api.partner.example", api.URL, "calls: 10", "calls: 100").Replace(string(text))
	cfg, err := config.Parse([]byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	s, err := scheduler.New(cfg.Scheduler)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &http.Client{Transport: s.Transport("partner")}
}

// order makes a call that must succeed.
func order(c *http.Client) error {
	resp, err := c.Get("http://partner/orders")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s %w", resp.Status, body, err)
	}
	return nil
}

func TestOneTokenServesManyCalls(t *testing.T) {
	p := &provider{life: 3600}
	c := client(t, p)
	for range 5 {
		if err := order(c); err != nil {
			t.Fatal(err)
		}
	}
	if p.given.Load() != 1 || len(p.used) != 5 || p.used[0] != "Bearer token1" || p.used[4] != "Bearer token1" {
		t.Errorf("%d tokens for %q", p.given.Load(), p.used)
	}
}

// A token that is about to end is not used: another one takes its place.
func TestTokensEnd(t *testing.T) {
	p := &provider{life: 5}
	c := client(t, p)
	for range 3 {
		if err := order(c); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[Bearer token1 Bearer token2 Bearer token3]"; fmt.Sprint(p.used) != want {
		t.Errorf("used %q, want %s", p.used, want)
	}
}

// While the provider gives no token, calls wait, and none is sent without one.
func TestProviderIsDown(t *testing.T) {
	p := &provider{life: 3600}
	p.down.Store(true)
	c := client(t, p)
	done := make(chan error, 1)
	go func() { done <- order(c) }()
	select {
	case err := <-done:
		t.Fatalf("a call ended while there was no token: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	p.down.Store(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if len(p.used) != 1 || p.used[0] != "Bearer token1" {
		t.Errorf("used %q", p.used)
	}
}

func TestReasonsHaveNoSecrets(t *testing.T) {
	p := &provider{}
	p.down.Store(true)
	api := httptest.NewServer(p)
	defer api.Close()
	t.Setenv("OAUTH_TOKEN_URL", api.URL)
	t.Setenv("OAUTH_CLIENT_ID", "shop")
	t.Setenv("OAUTH_CLIENT_SECRET", "hunter2")
	c, err := credentials()
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Token(t.Context())
	if text := reason(err); text != "the provider answers 500 Internal Server Error " {
		t.Errorf("reason %q", text)
	}
}

func TestMissingCredentials(t *testing.T) {
	for _, name := range []string{"OAUTH_TOKEN_URL", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET"} {
		t.Setenv(name, "")
	}
	if err := serve(t.Context(), "127.0.0.1:0"); err == nil || strings.Count(err.Error(), "is not set") != 3 {
		t.Errorf("serve = %v, want all three names", err)
	}
}
