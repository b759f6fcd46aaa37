package scheduler_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A jobsite accepts orders with a Location, and tells their end there.
type jobsite struct {
	mu    sync.Mutex
	began time.Time
	body  string // of the 202
	gets  []time.Duration
}

func (j *jobsite) RoundTrip(r *http.Request) (*http.Response, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	resp := &http.Response{StatusCode: 404, Header: http.Header{}, Body: http.NoBody, Request: r}
	switch {
	case r.Method == http.MethodPost:
		resp.StatusCode, resp.Body = 202, io.NopCloser(strings.NewReader(j.body))
		resp.Header.Set("Location", strings.Replace(r.URL.Path, "/v1/", "/v1/jobs/", 1))
		resp.Header.Set("Retry-After", "300")
	case strings.HasPrefix(r.URL.Path, "/v1/jobs/"):
		j.gets = append(j.gets, time.Since(j.began).Round(time.Second))
		resp.StatusCode, resp.Body = 200, io.NopCloser(strings.NewReader(`{"state":"made"}`))
	}
	return resp, nil
}

func (j *jobsite) asked() []time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.gets)
}

// TestLocationOverRestart: the answer to a call survives the process, and with it the target of its
// query and the wait before it, also a truncated answer and a durable call whose caller has had it.
func TestLocationOverRestart(t *testing.T) {
	for name, tt := range map[string]struct {
		body  string
		do    bool // its caller waits
		stays bool // the process: only it knows which notifications concern calls whose callers have had their answers
		ask   func(t *testing.T, s *scheduler.Scheduler, id string)
		want  []time.Duration
	}{
		"by itself":      {want: []time.Duration{300 * time.Second}},
		"a large answer": {body: strings.Repeat("a", 5000), want: []time.Duration{300 * time.Second}},
		"a person":       {ask: func(t *testing.T, s *scheduler.Scheduler, id string) { must(s.Ask(t.Context(), id, "ann")) }, want: []time.Duration{60 * time.Second}},
		"a notification": {do: true, stays: true, ask: func(t *testing.T, s *scheduler.Scheduler, _ string) {
			s.Notified("api", map[string]string{"order": "/n1"})
		}, want: []time.Duration{60 * time.Second}},
		"a caller's query": {do: true, ask: callersQuery, want: []time.Duration{60 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			onDisk(t, func(t *testing.T, start func(map[string]scheduler.Upstream) (*scheduler.Scheduler, *fullable)) {
				j := &jobsite{began: time.Now(), body: tt.body}
				u := scheduler.Upstream{Durable: "true", Numbers: map[string]string{"order": "path"}}
				u.URL, u.Transport, u.MaxInspect = "http://api.test/v1", j, 4096
				u.Identity, u.Asks = `method == "POST" ? path : nil`, `method == "GET" ? "/" + split(path, "/")[2] : nil`
				u.Resolve = []scheduler.Resolve{{When: "status == 202", Target: "location", Outcomes: []upstream.Rule{{When: `body("state") == "made"`, Is: upstream.Done}}}}
				ups := map[string]scheduler.Upstream{"api": u}
				s, _ := start(ups)
				id := ""
				if request := (scheduler.Request{Upstream: "api", Method: "POST", Target: "/n1"}); tt.do {
					resp, c, err := s.Do(t.Context(), request)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
					id = c.ID
				} else {
					id = must(s.Submit(t.Context(), request)).ID
				}
				time.Sleep(30 * time.Second)
				if !tt.stays {
					s.Close()
					s, _ = start(ups)
				}
				defer func() { s.Close() }()
				time.Sleep(30 * time.Second)
				if got := state(t, s, id); got != scheduler.Unknown {
					t.Fatalf("after a restart %s", got)
				}
				if tt.ask != nil {
					tt.ask(t, s, id)
					synctest.Wait()
				}
				time.Sleep(10 * time.Minute)
				if got, asked := state(t, s, id), j.asked(); got != scheduler.Done || !slices.Equal(asked, tt.want) {
					t.Errorf("%s, asked at %v; want done, %v", got, asked, tt.want)
				}
			})
		})
	}
}

// callersQuery asks about a call as its caller does.
func callersQuery(t *testing.T, s *scheduler.Scheduler, _ string) {
	resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "GET", Target: "/jobs/n1"})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
