package signer

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// An endpoint gives tokens t1, t2, … in a bubble.
type endpoint struct {
	mu      sync.Mutex
	start   time.Time
	at      []time.Duration // of the requests
	after   time.Duration
	life    int // of tokens, in seconds; 0: the answer names none
	status  int
	kind    string // of the answer's content
	body    string // instead of a token
	header  http.Header
	request string // the last one
}

func (e *endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	e.mu.Lock()
	e.at = append(e.at, time.Since(e.start))
	e.request = r.Header.Get("Authorization") + " " + string(body)
	n, status := len(e.at), cmp.Or(e.status, 200)
	e.mu.Unlock()
	select {
	case <-time.After(e.after):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	text := e.body
	if text == "" {
		text = fmt.Sprintf(`{"access_token":"t%d","token_type":"bearer","expires_in":%d}`, n, e.life)
	}
	header := http.Header{"Content-Type": {cmp.Or(e.kind, "application/json")}}
	for name, values := range e.header {
		header[name] = values
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), Request: r}, nil
}

// oauth2Bubble runs a test in virtual time with a signer and its token endpoint.
func oauth2Bubble(t *testing.T, c Config, test func(*testing.T, *bearer, *endpoint)) {
	t.Helper()
	t.Setenv("CLIENT_SECRET", "s3cr=t")
	synctest.Test(t, func(t *testing.T) {
		c.Kind, c.TokenURL, c.ClientID, c.ClientSecret = "oauth2", "https://api.example.com/oauth2/token", "shop:1", "env:CLIENT_SECRET"
		s := newSigner(t, c).(*bearer)
		e := &endpoint{start: time.Now(), life: 3600}
		s.client.Transport = wholeSeconds{e}
		test(t, s, e)
	})
}

// signed returns the Authorization that a request gets.
func signed(t *testing.T, s *bearer) string {
	t.Helper()
	r := &upstream.Request{Method: "POST", Target: "/orders"}
	if err := s.Sign(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r.Header.Get("Authorization")
}

// unsigned returns the error of a signer, which must be temporary.
func unsigned(t *testing.T, s *bearer) string {
	t.Helper()
	r := &upstream.Request{Method: "POST", Target: "/orders"}
	err := s.Sign(t.Context(), r)
	var temporary interface{ Temporary() bool }
	if err == nil || !errors.As(err, &temporary) || r.Header.Get("Authorization") != "" {
		t.Fatalf("Sign = %v, %q; want a temporary error", err, r.Header)
	}
	if strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "canary") {
		t.Errorf("the error shows a secret: %v", err)
	}
	return err.Error()
}

func TestOAuth2OneFetchForManyCalls(t *testing.T) {
	oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
		e.after = time.Second
		var calls sync.WaitGroup
		for range 100 {
			calls.Go(func() {
				if got := signed(t, s); got != "Bearer t1" {
					t.Errorf("Authorization %q", got)
				}
			})
		}
		calls.Wait()
		if len(e.at) != 1 || time.Since(e.start) != time.Second {
			t.Errorf("%d fetches in %v", len(e.at), time.Since(e.start))
		}
	})
}

// TestOAuth2TokensEnd: a token is used until 30 s before its end, or for three quarters of
// a short life; without expires_in until the API refuses it.
func TestOAuth2TokensEnd(t *testing.T) {
	for life, used := range map[int]time.Duration{3600: 3570 * time.Second, 60: 45 * time.Second, 1: time.Second} {
		oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
			e.life = life
			for i := range 3 {
				if got, want := signed(t, s), fmt.Sprintf("Bearer t%d", i+1); got != want {
					t.Errorf("life %d: %q, want %q", life, got, want)
				}
				if life > 1 {
					time.Sleep(used - time.Nanosecond)
					if got := signed(t, s); len(e.at) != i+1 {
						t.Errorf("life %d: %q shortly before the end", life, got)
					}
					time.Sleep(time.Nanosecond)
					continue
				}
				time.Sleep(750 * time.Millisecond) // the interval is longer
			}
			for i, at := range e.at {
				if want := time.Duration(i) * used; at != want {
					t.Errorf("life %d: fetch %d at %v, want %v", life, i+1, at, want)
				}
			}
		})
	}
	oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
		e.body = `{"access_token":"t1"}`
		signed(t, s)
		time.Sleep(1000 * time.Hour)
		if signed(t, s); len(e.at) != 1 {
			t.Errorf("%d fetches of a token without an end", len(e.at))
		}
	})
}

// TestOAuth2Requests has the requests of both styles, and an answer that is a form.
func TestOAuth2Requests(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	for _, tt := range []struct {
		config Config
		want   string
	}{
		{Config{}, "Basic c2hvcCUzQTE6czNjciUzRHQ= grant_type=client_credentials"},
		{Config{AuthStyle: "params", Scopes: []string{"orders", "refunds"}, EndpointParams: []string{"Audience=a=b"}},
			" Audience=a%3Db&client_id=shop%3A1&client_secret=s3cr%3Dt&grant_type=client_credentials&scope=orders+refunds"},
		{Config{EndpointParams: []string{"grant_type=account_credentials", "account=7"}}, "Basic c2hvcCUzQTE6czNjciUzRHQ= account=7&grant_type=account_credentials"},
	} {
		oauth2Bubble(t, tt.config, func(t *testing.T, s *bearer, e *endpoint) {
			e.kind, e.body = form, "access_token=abc&expires_in=60"
			if got := signed(t, s); got != "Bearer abc" || e.request != tt.want {
				t.Errorf("%q by %q, want %q", got, e.request, tt.want)
			}
			time.Sleep(45 * time.Second)
			if signed(t, s); len(e.at) != 2 {
				t.Errorf("%d fetches", len(e.at))
			}
		})
	}
	oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
		e.body = `{"access_token":"abc","expires_in":"60"}` // a number in quotes, as some write it
		if got := signed(t, s); got != "Bearer abc" || s.token.until.IsZero() {
			t.Errorf("%q until %v", got, s.token.until)
		}
	})
}

// TestExpiresIn: each spelling of a number of seconds counts, in JSON and in a form. Without one, or with 0, the endpoint names no
// end; a token that has ended is an error.
func TestExpiresIn(t *testing.T) {
	const never, ended, form = -1, 0, "application/x-www-form-urlencoded"
	for text, want := range map[string]time.Duration{
		"3600": time.Hour, "3600.0": time.Hour, "3.6e3": time.Hour, "36E2": time.Hour, "3600.9": time.Hour, `"3600"`: time.Hour, `"3600.0"`: time.Hour, `"3.6e3"`: time.Hour,
		"0.5": time.Second, "1e-300": time.Second, "1e300": math.MaxInt32 * time.Second, "99999999999": math.MaxInt32 * time.Second, "1e999": math.MaxInt32 * time.Second,
		"": never, "null": never, "0": never, "0.0": never, "-0.0": never,
		"-1": ended, "-1.0": ended, "-0.1": ended, "-4294967200": ended, "-1e999": ended, `"-3.6e3"`: ended,
	} {
		bare := strings.Trim(text, `"`)
		bodies := map[string]string{form: "access_token=a%2Bb&x=1&expires_in=" + bare, "application/json": `{"x":{"y":[1.0]},"access_token":"a+b","expires_in":` + text + `}`}
		switch text {
		case "":
			bodies["application/json"] = `{"access_token":"a+b"}`
		case "null":
			delete(bodies, form)
		}
		for kind, body := range bodies {
			oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
				e.kind, e.body = kind, body
				if want == ended {
					if got := unsigned(t, s); !strings.Contains(got, "has ended already") {
						t.Errorf("%s: %s", body, got)
					}
					return
				}
				if got := signed(t, s); got != "Bearer a+b" {
					t.Errorf("%s: %q", body, got)
				}
				life := time.Duration(never)
				if until := s.token.until; !until.IsZero() {
					life = until.Sub(s.token.fetched)
					life += min(renewAhead, want/4)
				}
				if life != want {
					t.Errorf("%s: the token lives %v, want %v", body, life, want)
				}
			})
		}
	}
	for _, text := range []string{`"soon"`, `"Infinity"`, `"0x10"`, `""`, "true", "{}", "[3600]", `"3600 "`} { // no number: as package oauth2 has it
		oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
			e.body = `{"access_token":"a","expires_in":` + text + `}`
			if got := unsigned(t, s); !strings.Contains(got, "no token response") {
				t.Errorf("%s: %s", text, got)
			}
		})
	}
}

// TestOAuth2LeavesOthers: the token requests of an SDK, and other schemes, stay as they are.
func TestOAuth2LeavesOthers(t *testing.T) {
	oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
		for _, tt := range []struct{ target, before, after string }{
			{"/orders", "", "Bearer t1"},
			{"/orders?a=b", "Bearer of-the-sdk", "Bearer t1"},
			{"/orders", "bearer of-the-sdk", "Bearer t1"},
			{"/orders", "Basic abc", "Basic abc"},
			{"/oauth2/token", "Basic abc", "Basic abc"},
			{"/oauth2/token", "", ""},
			{"/oauth2/token?x=y", "", ""},
			{"/oauth2/token/revoke", "", "Bearer t1"},
		} {
			r := &upstream.Request{Method: "POST", Target: tt.target, Header: make(http.Header)}
			if tt.before != "" {
				r.Header.Set("Authorization", tt.before)
			}
			if err := s.Sign(t.Context(), r); err != nil || r.Header.Get("Authorization") != tt.after {
				t.Errorf("%s with %q: %v, %q, want %q", tt.target, tt.before, err, r.Header.Get("Authorization"), tt.after)
			}
			time.Sleep(young)
			if again := s.Renew(r) && !strings.HasPrefix(tt.after, "Bearer"); again {
				t.Errorf("%s with %q is sent again", tt.target, tt.before)
			}
			s.token = &accessToken{text: "t1"}
		}
		if len(e.at) != 1 {
			t.Errorf("%d fetches", len(e.at))
		}
	})
}

// TestOAuth2Renew: a refused token is replaced once for all calls that had it, unless it
// is young.
func TestOAuth2Renew(t *testing.T) {
	oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
		first := &upstream.Request{Target: "/orders", Header: http.Header{"Authorization": {signed(t, s)}}}
		if s.Renew(first) {
			t.Error("a young token is replaced")
		}
		time.Sleep(young)
		for range 3 {
			if !s.Renew(first) {
				t.Error("an old token is not replaced")
			}
		}
		if got := signed(t, s); got != "Bearer t2" || len(e.at) != 2 {
			t.Errorf("%q after %d fetches", got, len(e.at))
		}
		if !s.Renew(first) { // its answer came late
			t.Error("a call with the token before is not sent again")
		}
		if got := signed(t, s); got != "Bearer t2" || len(e.at) != 2 {
			t.Errorf("%q after %d fetches: a late answer drops the new token", got, len(e.at))
		}
	})
}

// TestOAuth2Interval: the endpoint is asked once per interval, also after failures, and
// not before its Retry-After.
func TestOAuth2Interval(t *testing.T) {
	for _, tt := range []struct {
		config     Config
		retryAfter string
		want       time.Duration
	}{
		{Config{}, "", time.Second},
		{Config{MinInterval: time.Minute}, "", time.Minute},
		{Config{MinInterval: time.Minute}, "3", time.Minute},
		{Config{}, "90", 90 * time.Second},
		{Config{}, "Sat, 01 Jan 2000 00:02:00 GMT", 2 * time.Minute}, // a bubble begins at midnight
		{Config{}, "9223372036854775807", time.Hour},
		{Config{}, "90.5", 90500 * time.Millisecond},
		{Config{}, "946684920", 2 * time.Minute}, // the same instant as a Unix time
		{Config{MaxPause: 30 * time.Second}, "90", 30 * time.Second},
		{Config{MaxPause: 24 * time.Hour}, "7200", time.Hour},
		{Config{}, "-5", time.Second},
		{Config{}, "soon", time.Second},
	} {
		oauth2Bubble(t, tt.config, func(t *testing.T, s *bearer, e *endpoint) {
			e.status, e.header = 503, http.Header{"Retry-After": {tt.retryAfter}}
			if got := unsigned(t, s); got != "token endpoint api.example.com: status 503" {
				t.Error(got)
			}
			e.status = 200
			for e.at = e.at[:1]; len(e.at) == 1; {
				r := &upstream.Request{Target: "/orders"}
				if err := s.Sign(t.Context(), r); err != nil {
					time.Sleep(100 * time.Millisecond)
				}
			}
			if got := e.at[1]; got < tt.want || got > tt.want+100*time.Millisecond {
				t.Errorf("%+v: the second fetch is after %v, want %v", tt, got, tt.want)
			}
		})
	}
}

// TestOAuth2BadAnswers: none of them is a token, and errors show neither them nor secrets.
func TestOAuth2BadAnswers(t *testing.T) {
	for _, tt := range []struct {
		status     int
		body, want string
	}{
		{500, "canary", "status 500"},
		{302, "", "status 302"},
		{401, `{"error":"invalid_client","error_description":"canary"}`, "status 401, invalid_client; look at client_id"},
		{400, `{"error":"canary"}`, "status 400"},
		{200, `{"error":"invalid_scope"}`, "status 200, invalid_scope"},
		{200, `canary`, "no token response"},
		{200, `{"expires_in":60}`, "no token response"},
		{200, `{"access_token":"a","expires_in":"canary"}`, "no token response"},
		{200, `{"access_token":"canary\r\nX: y"}`, "no visible ASCII"},
		{200, `{"access_token":"canary é"}`, "no visible ASCII"},
		{200, `{"access_token":"` + strings.Repeat("canary", 3000) + `"}`, "longer than 16384 bytes"},
		{200, `{"access_token":"a","expires_in":-1}`, "has ended already"},
		{200, `{"access_token":"` + strings.Repeat("canary", 1<<20), "no token response"},
	} {
		oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
			e.status, e.body = tt.status, tt.body
			if got := unsigned(t, s); !strings.HasPrefix(got, "token endpoint api.example.com: ") || !strings.Contains(got, tt.want) {
				t.Errorf("%d %.60s: %s, want %s", tt.status, tt.body, got, tt.want)
			}
		})
	}
	oauth2Bubble(t, Config{Timeout: 3 * time.Second}, func(t *testing.T, s *bearer, e *endpoint) {
		e.after = time.Minute
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if got := unsigned(t, s); !strings.Contains(got, "no answer within 3s (timeout)") {
					t.Error(got)
				}
			})
		}
		calls.Wait()
		if len(e.at) != 1 || time.Since(e.start) != 3*time.Second {
			t.Errorf("%d fetches in %v", len(e.at), time.Since(e.start))
		}
	})
}

// TestOAuth2Redirects: the secret goes to no other host, and an endpoint that is down
// is told by its address.
func TestOAuth2Redirects(t *testing.T) {
	t.Setenv("CLIENT_SECRET", "canary")
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect is followed") }))
	defer other.Close()
	e := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	c := Config{Kind: "oauth2", TokenURL: e.URL + "/token?canary=canary", ClientID: "shop", ClientSecret: "env:CLIENT_SECRET", AuthStyle: "params"}
	if got := unsigned(t, newSigner(t, c).(*bearer)); !strings.HasSuffix(got, ": status 307") {
		t.Error(got)
	}
	e.Close()
	if got := unsigned(t, newSigner(t, c).(*bearer)); !strings.Contains(got, "connection refused") {
		t.Error(got)
	}
}

// TestOAuth2TLS: the endpoint is trusted by the configured roots, under its own name, and
// gets the client's certificate.
func TestOAuth2TLS(t *testing.T) {
	t.Setenv("CLIENT_SECRET", "canary")
	e := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.TLS.PeerCertificates) != 1 {
			t.Error("the client has no certificate")
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"access_token":"abc"}`)
	}))
	e.Config.ErrorLog = log.New(io.Discard, "", 0)
	e.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	e.StartTLS()
	defer e.Close()
	c := Config{Kind: "oauth2", TokenURL: e.URL + "/token", ClientID: "shop", ClientSecret: "env:CLIENT_SECRET"}
	if got := unsigned(t, newSigner(t, c).(*bearer)); !strings.Contains(got, "failed to verify certificate") {
		t.Error(got)
	}
	trusted := e.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	c.TLS = &tls.Config{RootCAs: trusted, Certificates: e.TLS.Certificates, ServerName: "api.example.com"}
	if got := signed(t, newSigner(t, c).(*bearer)); got != "Bearer abc" || c.TLS.ServerName == "" {
		t.Error(got)
	}
}

func TestOAuth2Faults(t *testing.T) {
	t.Setenv("CLIENT_SECRET", "canary")
	good := Config{Kind: "oauth2", TokenURL: "https://api.example.com/token", ClientID: "shop", ClientSecret: "env:CLIENT_SECRET"}
	for _, tt := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { *c = Config{Kind: "oauth2"} }, []string{"token_url: is missing", "client_id: is missing", "client_secret: is missing"}},
		{func(c *Config) { c.Key, c.URL = "env:CLIENT_SECRET", "http://x" }, []string{"key: means nothing", "url: means nothing"}},
		{func(c *Config) { c.ClientSecret = "canary" }, []string{"client_secret: is no reference to a secret"}},
		{func(c *Config) { c.TokenURL = "https://u:canary@x/" }, []string{"token_url: is not a URL with https"}},
		{func(c *Config) { c.TokenURL = "api.example.com/token" }, []string{"token_url: is not a URL with https"}},
		{func(c *Config) { c.TokenURL = "http://api.example.com/token" }, []string{"token_url: sends the client's secret to api.example.com in clear; write https"}},
		{func(c *Config) { c.AuthStyle = "body" }, []string{`auth_style: "body" is unknown, must be header or params`}},
		{func(c *Config) { c.MinInterval = -1 }, []string{"min_interval: is -1ns, must be positive"}},
		{func(c *Config) { c.MinInterval = 2 * time.Hour }, []string{"min_interval: is 2h0m0s, must be positive, and at most 1h0m0s"}},
		{func(c *Config) { c.ClientID = strings.Repeat("x", 5000) }, []string{"client_id: has 5000 bytes, at most 4096"}},
		{func(c *Config) { c.Scopes = []string{"a b", "", "ok", `"`} }, []string{"scopes[0]: is no scope", "scopes[1]: is no scope", "scopes[3]: is no scope"}},
		{func(c *Config) { c.Scopes = make([]string, 101) }, []string{"scopes: are 101, at most 100"}},
		{func(c *Config) {
			c.EndpointParams = []string{"a", "=b", "client_secret=canary", "scope=x", "p=" + strings.Repeat("x", 5000)}
		}, []string{
			"endpoint_params[0]: is no parameter; write NAME=VALUE", "endpoint_params[1]: is no parameter",
			"endpoint_params[2]: belongs to client_secret", "endpoint_params[3]: belongs to scopes", "endpoint_params[4]: has 5002 bytes"}},
		{func(c *Config) { c.EndpointParams = make([]string, 33) }, []string{"endpoint_params: are 33, at most 32"}},
		{func(c *Config) { c.Timeout = -1 }, []string{"timeout: is -1ns"}},
		{func(c *Config) { c.Kind, c.Command = "exec", []string{"/bin/true"} }, []string{"token_url: means nothing", "client_id: means nothing", "client_secret: means nothing"}},
	} {
		c := good
		tt.change(&c)
		_, err := New(c)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("%v, want %q", err, want)
			}
		}
	}
	good.TokenURL, good.MinInterval = "http://[::1]:8080/token", time.Hour
	if _, err := New(good); err != nil {
		t.Error(err)
	}
}
