package scheduler

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// answer is the fake upstream's reaction to one request.
type answer struct {
	after  time.Duration
	status int
	header http.Header
	body   string
	err    error // instead of a response
}

// fake is an upstream in the bubble that records the arrival of each request.
type fake struct {
	mu       sync.Mutex
	start    time.Time
	arrivals []arrival
	serve    func(n int, r *http.Request) answer // n from 1
}

type arrival struct {
	at     time.Duration // since the start of the bubble
	target string
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.arrivals = append(f.arrivals, arrival{time.Since(f.start), r.URL.RequestURI()})
	n := len(f.arrivals)
	f.mu.Unlock()
	a := answer{after: 10 * time.Millisecond}
	if f.serve != nil {
		a = f.serve(n, r)
	}
	select {
	case <-time.After(a.after):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: cmp.Or(a.status, 200), Header: a.headers(), Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// at returns the arrival times of the requests, rounded to milliseconds.
func (f *fake) at() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []time.Duration
	for _, a := range f.arrivals {
		at = append(at, a.at.Round(time.Millisecond))
	}
	return at
}

func (f *fake) targets() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ts []string
	for _, a := range f.arrivals {
		ts = append(ts, strings.TrimPrefix(a.target, "/"))
	}
	return strings.Join(ts, " ")
}

var errDial = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// bubble runs a test in a synctest bubble with a scheduler of one upstream, "api".
// Times are those of the bubble's clock, which stands still while any goroutine can
// run.
func bubble(t *testing.T, u Upstream, test func(t *testing.T, s *Scheduler, f *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now()}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s, f)
	})
}

// steady has limited calls pause for as long as answers say, and slows none down.
func steady(s *Scheduler) {
	for _, u := range s.loop.upstreams {
		u.slow.steady = true
	}
}

func submit(t *testing.T, s *Scheduler, r Request) *Call {
	t.Helper()
	r.Upstream = "api"
	if r.Target == "" {
		r.Target = "/"
	}
	c, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wait(t *testing.T, s *Scheduler, id string) *Call {
	t.Helper()
	c, err := s.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reason(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// sameTimes compares arrival times up to a millisecond, for the wheel's tick and the
// rounding.
func sameTimes(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	ok := slices.EqualFunc(got, want, func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
	if !ok {
		t.Errorf("requests came in at %v, want %v", got, want)
	}
}

const (
	ms  = time.Millisecond
	sec = time.Second

	firstProbe = 500 * ms // the waits of the circuit breaker
	lastProbe  = 30 * sec
)

func perSecond(n int) []Limit { return []Limit{{Name: "app", Calls: n, Window: sec}} }

func (a answer) headers() http.Header {
	if a.header == nil {
		return make(http.Header)
	}
	return a.header
}

func second[T any](_ T, err error) error { return err }

func upstreams(t *testing.T, s *Scheduler) []UpstreamStatus {
	t.Helper()
	all, err := s.Upstreams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func limits(t *testing.T, s *Scheduler) []LimitStatus {
	t.Helper()
	all, err := s.Limits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s *Scheduler) mustGet(t *testing.T, id string) *Call {
	t.Helper()
	c, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func tenant(name string) http.Header { return http.Header{"X-Tenant": {name}} }

// busiest returns the largest number of instants in any window (t-w, t].
func busiest(at []time.Duration, w time.Duration) int {
	at = slices.Sorted(slices.Values(at))
	best, from := 0, 0
	for i, last := range at {
		for last-at[from] >= w {
			from++
		}
		best = max(best, i+1-from)
	}
	return best
}

// most returns the largest number of arrivals in any window (t-w, t].
func most(arrivals []time.Time, w time.Duration) int {
	best := 0
	for _, last := range arrivals {
		n := 0
		for _, a := range arrivals {
			if d := last.Sub(a); d >= 0 && d < w {
				n++
			}
		}
		best = max(best, n)
	}
	return best
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A stamper is a signer that writes the time of the attempt into the header.
type stamper struct{}

func (stamper) Sign(_ context.Context, r *upstream.Request) error {
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set("Signed", time.Now().String())
	return nil
}

type signFunc func(context.Context, *upstream.Request) error

func (f signFunc) Sign(ctx context.Context, r *upstream.Request) error { return f(ctx, r) }

type downError struct{ error }

func (downError) Temporary() bool { return true }
