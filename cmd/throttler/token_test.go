package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A tokenBank is an API with OAuth 2.0, and its token endpoint.
type tokenBank struct {
	mu       sync.Mutex
	down     bool // the endpoint
	life     int  // of new tokens, in seconds
	revoked  int  // so many of the first tokens
	deaf     bool // the API takes no token
	fetches  []time.Time
	own      int            // token requests of an SDK
	executed map[string]int // by path
	refused  int
}

const (
	tokenSecret = "hunter2-hunter2"
	tokenText   = "tok-of-the-bank-"
)

func (b *tokenBank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.URL.Path == "/oauth2/token" {
		b.give(w, r)
		return
	}
	var n int
	_, err := fmt.Sscanf(r.Header.Get("Authorization"), "Bearer "+tokenText+"%d", &n)
	if err != nil || n <= b.revoked || b.deaf {
		b.refused++
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	b.executed[r.URL.Path]++
	io.WriteString(w, r.URL.Path)
}

// give answers a request for a token.
func (b *tokenBank) give(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	switch {
	case id == "sdk":
		b.own++
		io.WriteString(w, `{"access_token":"of-the-sdk","expires_in":3600}`)
	case id != "shop" || secret != tokenSecret || r.FormValue("grant_type") != "client_credentials" || r.FormValue("scope") != "pay":
		http.Error(w, `{"error":"invalid_client"}`, http.StatusUnauthorized)
	case b.down:
		http.Error(w, tokenSecret+" is right, but the database is down", http.StatusServiceUnavailable)
	default:
		b.fetches = append(b.fetches, time.Now())
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"%s%d","token_type":"Bearer","expires_in":%d}`, tokenText, len(b.fetches), b.life)
	}
}

// set changes the bank, and get reads it.
func (b *tokenBank) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *tokenBank) get(value func() int) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return value()
}

func (b *tokenBank) given() int { return b.get(func() int { return len(b.fetches) }) }

// pay makes a call through the sidecar, whose client waits.
func (p *process) pay(t *testing.T, path, authorization string) answer {
	t.Helper()
	return send(t, http.MethodPost, p.data+path, "grant_type=client_credentials", "Content-Type", "application/x-www-form-urlencoded", "Authorization", authorization)
}

// payAll makes 100 calls at once, all of which must succeed.
func (p *process) payAll(t *testing.T, path string) {
	t.Helper()
	var calls sync.WaitGroup
	for i := range 100 {
		calls.Go(func() {
			if got := p.pay(t, fmt.Sprint(path, i), "Bearer of-the-sdk"); got.status != 200 || got.outcome() != "done" {
				t.Errorf("%s%d: %d %s %s", path, i, got.status, got.outcome(), got.body)
			}
		})
	}
	calls.Wait()
}

// TestTokens sends calls with access tokens of a bank: 100 at once take one, also after the
// token was revoked; without a token calls wait, over a kill -9 too. Each is executed once,
// and neither the client's secret nor a token is seen anywhere.
func TestTokens(t *testing.T) {
	t.Parallel()
	bank := &tokenBank{life: 3600, executed: make(map[string]int)}
	url, dir := serve(t, bank), t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte(tokenSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := oneUpstream(filepath.Join(dir, "throttler.db"), "alipay", url, fmt.Sprintf(`
    durable: "true"
    signer: {kind: oauth2, token_url: %s/oauth2/token, client_id: shop, client_secret: 'file:%s', scopes: [pay]}
`, url, secret))
	p := launch(t, yaml)
	var logs, pages bytes.Buffer
	look := func() { // notes all that a person can see
		logs.WriteString(p.log.String())
		for _, page := range []string{"/metrics", "/v1/upstreams", "/v1/calls?page_size=100", "/v1/limits"} {
			pages.WriteString(p.body(page))
		}
	}

	p.payAll(t, "/first/")
	if n := bank.given(); n != 1 {
		t.Errorf("%d tokens for 100 calls at once", n)
	}
	if got := p.pay(t, "/oauth2/token", "Basic c2RrOng="); got.status != 200 || got.outcome() != "done" || !strings.Contains(got.body, "of-the-sdk") || bank.get(func() int { return bank.own }) != 1 {
		t.Errorf("the SDK's own token: %d %s %s", got.status, got.outcome(), got.body)
	}

	time.Sleep(11 * time.Second) // a token that is refused before is young
	bank.set(func() { bank.revoked = 1 })
	p.payAll(t, "/revoked/")
	if n, refused := bank.given(), bank.get(func() int { return bank.refused }); n != 2 || refused == 0 || refused > 100 {
		t.Errorf("%d tokens, %d requests with the revoked one", n, refused)
	}
	bank.set(func() { bank.deaf, bank.refused = true, 0 })
	if got := p.pay(t, "/refused", ""); got.status != 401 || got.outcome() != "failed" {
		t.Errorf("no token is taken: %d %s, want the answer of the bank", got.status, got.outcome())
	}
	if refused := bank.get(func() int { return bank.refused }); refused > 2 {
		t.Errorf("the refused call was sent %d times", refused)
	}
	look()

	bank.set(func() { bank.deaf, bank.down, bank.life = false, true, 4 })
	p.kill9()
	p = launch(t, yaml) // without a token: they are in memory only
	if got := p.pay(t, "/down", ""); got.status != 502 || got.outcome() != "not_executed" || !strings.Contains(got.body, "token endpoint") || strings.Contains(got.body, tokenSecret) {
		t.Errorf("the endpoint is down: %d %s %s", got.status, got.outcome(), got.body)
	}
	for i := range 20 {
		p.accepted(t, fmt.Sprintf(`{"upstream":"alipay","method":"POST","path":"/submitted/%d"}`, i))
	}
	p.until(t, "down", func() bool { return strings.Contains(p.body("/v1/upstreams"), `"state":"down"`) })
	look()
	p.kill9()
	p = launch(t, yaml)
	unknown := 0 // the kill may have come while a call had its intent stored, and fetched a token
	p.until(t, "waiting", func() bool {
		states := p.states(t)
		unknown = states["unknown"]
		return states["waiting"]+unknown == 20
	})
	if unknown > 1 {
		t.Errorf("%d calls are unknown, one may be", unknown)
	}
	before := bank.given()
	bank.set(func() { bank.down = false })
	p.until(t, "done", func() bool { return p.states(t)["waiting"]+p.states(t)["sending"] == 0 })
	n := 0
	p.until(t, "using another token", func() bool {
		n++
		got := p.pay(t, fmt.Sprintf("/late/%d", n), "")
		if got.status != 200 || got.outcome() != "done" {
			t.Fatalf("payment %d: %d %s %s", n, got.status, got.outcome(), got.body)
		}
		return bank.given() >= before+2
	})
	look()
	p.kill9()
	bank.check(t, before, 100+100+20-unknown+n)
	store, err := filepath.Glob(filepath.Join(dir, "throttler.db*"))
	if err != nil || len(store) == 0 {
		t.Fatalf("no store: %v", err)
	}
	for _, name := range store {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(text)
	}
	for _, canary := range []string{tokenSecret, tokenText, "c2hvcDp"} { // the last one begins the Basic credentials
		if strings.Contains(logs.String(), canary) || bytes.Contains(pages.Bytes(), []byte(canary)) {
			t.Errorf("%q can be seen", canary)
		}
	}
	if !strings.Contains(logs.String(), "token endpoint ") {
		t.Error("the log does not tell that the endpoint is down")
	}
}

// check counts the executions, and the time between the tokens of the last process, which
// live for 4 s.
func (b *tokenBank) check(t *testing.T, before, want int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for path, times := range b.executed {
		if times != 1 {
			t.Errorf("%s was executed %d times", path, times)
		}
	}
	if len(b.executed) != want {
		t.Errorf("%d calls were executed, want %d", len(b.executed), want)
	}
	if gap := b.fetches[before+1].Sub(b.fetches[before]); gap < 2900*time.Millisecond {
		t.Errorf("a token of 4 s was replaced after %v", gap)
	}
}
