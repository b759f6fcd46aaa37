package scheduler

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestTransportForAnyClient(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		var got *http.Request
		var sent string
		f.serve = func(_ int, r *http.Request) answer {
			b, _ := io.ReadAll(r.Body)
			got, sent = r, string(b)
			return answer{status: 201, body: "created"}
		}
		client := &http.Client{Transport: s.Transport("api")}
		req, _ := http.NewRequest("POST", "https://platform.example/v1/refunds?a=%2F", strings.NewReader("amount=1"))
		req.Header.Set("Throttler-Priority", "3")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 201 || string(body) != "created" {
			t.Errorf("answer %d %q", resp.StatusCode, body)
		}
		if got.URL.Host != "api.test" || got.URL.RequestURI() != "/v1/refunds?a=%2F" || sent != "amount=1" || got.Header.Get("Throttler-Priority") != "" {
			t.Errorf("sent %s %v %q", got.URL, got.Header, sent)
		}
		if _, err := (&http.Client{Transport: s.Transport("nope")}).Get("http://x/"); reason(err) != NotFound {
			t.Errorf("unknown upstream: %v, want not_found", err)
		}
	})
}

func TestTransportReadsNoBodyLongerThanItsCallerWaits(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		body, never := io.Pipe()
		defer never.Close()
		ctx, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, "POST", "http://x/", body)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { _, err := s.Transport("api").RoundTrip(req); ended <- err }()
		select {
		case err := <-ended:
			if err == nil || len(f.at()) > 0 {
				t.Errorf("RoundTrip = %v after %d requests", err, len(f.at()))
			}
		case <-time.After(time.Hour):
			t.Error("RoundTrip still reads an hour after its context ended")
			never.Close()
			<-ended
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// routed is a scheduler of upstreams with URLs, and a client whose requests go by their URL.
// The client's answers have the URL to which the attempt went.
func routed(t *testing.T, urls map[string]string) *http.Client {
	echo := roundTripper(func(r *http.Request) (*http.Response, error) {
		at := r.URL.Scheme + "://" + r.URL.Host + r.URL.RequestURI()
		h := http.Header{"Throttler-Call": {"forged"}}
		return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(at)), Request: r}, nil
	})
	c := Config{Upstreams: make(map[string]Upstream), Log: slog.New(slog.DiscardHandler)}
	for name, u := range urls {
		c.Upstreams[name] = Upstream{Config: upstream.Config{URL: u, Transport: echo}}
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &http.Client{Transport: s.Transport("")}
}

func TestTransportByURL(t *testing.T) {
	client := routed(t, map[string]string{
		"pay": "https://pay.example", "pay-v2": "https://pay.example/v2/", "ship": "http://ship.example:8080",
		"twin-1": "https://twin.example/a", "twin-2": "https://TWIN.example:443/a",
	})
	for to, want := range map[string]string{
		"https://pay.example/refunds?a=%2F":    "",
		"https://PAY.example:443/refunds":      "https://pay.example/refunds",
		"https://pay.example":                  "https://pay.example/",
		"https://pay.example/v2/refunds":       "",
		"https://pay.example/v2":               "",
		"https://pay.example/v20":              "",
		"http://ship.example:8080/%61":         "",
		"http://ship.example/a":                `no upstream has the URL of this request to http://ship.example; the upstreams' are https://pay.example, https://pay.example/v2/, http://ship.example:8080, https://twin.example/a, https://TWIN.example:443/a`,
		"http://pay.example/refunds":           "no upstream has the URL",
		"https://pay.example.evil.example/v2/": "no upstream has the URL",
		"https://twin.example/a/1":             `https://twin.example/a is the URL of upstream "twin-1" and of "twin-2"; use Transport with a name`,
		"https://twin.example/b":               "no upstream has the URL",
	} {
		resp, err := client.Post(to, "text/plain", strings.NewReader("body"))
		if err != nil {
			if want == "" || !strings.Contains(err.Error(), want) || reason(err) == "" {
				t.Errorf("%s: %v, want %q", to, err, want)
			}
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want == "" {
			want = to
		}
		if string(body) != want {
			t.Errorf("%s went to %s, want %s", to, body, want)
		}
	}
}

// TestTransportRefusesForeignRedirects: a redirect leads to no other host.
func TestTransportRefusesForeignRedirects(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer {
			return answer{status: 302, header: http.Header{"Location": {"http://elsewhere.example/"}}}
		}
		_, err := (&http.Client{Transport: s.Transport("")}).Get("http://api.test/")
		if reason(err) != NotFound || len(f.at()) != 1 {
			t.Errorf("%v after %d requests, want not_found after one", err, len(f.at()))
		}
	})
}

func TestTransportTellsTheCall(t *testing.T) {
	bubble(t, Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: sec}}}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return answer{status: 200, header: http.Header{"Throttler-Call": {"forged"}}}
		}
		client := &http.Client{Transport: s.Transport("api")}
		for _, wait := range []string{"0", "1000"} {
			resp, err := client.Get("http://x/")
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			c, err := s.Get(t.Context(), resp.Header.Get("Throttler-Call"))
			if err != nil || c.State != Done || resp.Header.Get("Throttler-Outcome") != "done" || resp.Header.Get("Throttler-Wait") != wait {
				t.Errorf("%v, %v; headers %v, want a wait of %s ms", c, err, resp.Header, wait)
			}
		}
	})
}
