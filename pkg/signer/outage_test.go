package signer

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// An api is an upstream in a bubble. It takes all tokens but the first.
type api struct{ used map[string]int }

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.used[r.Header.Get("Authorization")]++
	status := 0
	if r.Header.Get("Authorization") == "Bearer t1" {
		status = 401
	}
	return &http.Response{StatusCode: cmp.Or(status, 200), Header: make(http.Header), Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// TestOAuth2Outage: the endpoint fails for an hour, just as the API refuses the token. The
// calls wait, and the endpoint is asked less and less often; then all are done.
func TestOAuth2Outage(t *testing.T) {
	oauth2Bubble(t, Config{}, func(t *testing.T, s *bearer, e *endpoint) {
		signed(t, s)
		time.Sleep(young)
		e.status = 503
		a := &api{used: make(map[string]int)}
		u := scheduler.Upstream{}
		u.URL, u.Transport, u.Signer, u.Concurrency = "https://api.example.com", a, s, 1
		sched, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer sched.Close()
		var ids []string
		for i := range 100 {
			c, err := sched.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprintf("/%d", i)})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, c.ID)
		}
		time.Sleep(time.Hour)
		e.mu.Lock()
		fetches := len(e.at) - 1
		e.status = 200
		e.mu.Unlock()
		if fetches < 100 || fetches > 260 { // every 15 s to 30 s, but more often at first
			t.Errorf("%d fetches in an hour", fetches)
		}
		for _, id := range ids {
			if c, err := sched.Wait(t.Context(), id); err != nil || c.State != scheduler.Done {
				t.Fatalf("%+v, %v", c, err)
			}
		}
		if last := fmt.Sprintf("Bearer t%d", fetches+2); len(a.used) != 2 || a.used["Bearer t1"] != 1 || a.used[last] != 100 {
			t.Errorf("requests by token: %v, want 1 by t1 and 100 by %s", a.used, last)
		}
	})
}
