package store

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// log is an upstream that records the requests.
type log struct {
	mu    sync.Mutex
	paths []string
	at    []time.Time
	lost  bool // answers are lost
}

func (l *log) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	l.paths = append(l.paths, r.URL.Path)
	l.at = append(l.at, time.Now())
	lost := l.lost
	l.mu.Unlock()
	if lost {
		return nil, errors.New("reset")
	}
	body := "answer to " + r.URL.Path
	if r.URL.Path == "/query" { // a query is settled by a whole JSON or XML
		body = "{}"
	}
	return &http.Response{StatusCode: 200, Header: http.Header{"X-N": {"1"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// lose lets answers be lost from now on, or not.
func (l *log) lose(lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = lost
}

func (l *log) sent() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.paths...)
}

// startProcess opens a store in a bubble and a scheduler over it.
func startProcess(t *testing.T, path string, up http.RoundTripper, limits ...scheduler.Limit) *scheduler.Scheduler {
	t.Helper()
	return startOn(t, openTest(t, path), up, limits...)
}

// startOn starts a process on a store that is open.
func startOn(t *testing.T, d scheduler.Store, up http.RoundTripper, limits ...scheduler.Limit) *scheduler.Scheduler {
	t.Helper()
	u := scheduler.Upstream{MaxWaiting: 1 << 20, Limits: limits, Durable: `path startsWith "/durable"`, NoBody: `path startsWith "/card"`}
	u.URL, u.Transport = "http://api.test", up
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func hand(t *testing.T, s *scheduler.Scheduler, r scheduler.Request) *scheduler.Call {
	t.Helper()
	r.Upstream, r.Method = "api", "POST"
	c, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// first returns the status of the first upstream by name.
func first(t *testing.T, s *scheduler.Scheduler) scheduler.UpstreamStatus {
	t.Helper()
	all, err := s.Upstreams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// roundTripper is an upstream that is a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
