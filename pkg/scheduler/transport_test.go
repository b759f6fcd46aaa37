package scheduler

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
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
