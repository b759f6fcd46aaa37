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
)

// answer is what the fake upstream does with one request.
type answer struct {
	after  time.Duration
	status int
	header http.Header
	body   string
	err    error // instead of an answer
}

// fake is an upstream in the bubble: it notes when each request came in.
type fake struct {
	mu       sync.Mutex
	start    time.Time
	arrivals []arrival
	serve    func(n int, r *http.Request) answer // n from 1
}

type arrival struct {
	at     time.Duration // since the bubble began
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

// at returns when requests came in, rounded to milliseconds.
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

// bubble runs a test with a scheduler of one upstream, "api", in a bubble. Times
// are those of the bubble's clock, which stands still while anybody can run.
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

// hand is Submit from inside the loop, where nothing comes between its messages, and
// which t.Fatal must not end.
func hand(t *testing.T, s *Scheduler, r Request) *call {
	r.Upstream = "api"
	c, refused := s.newCall(r)
	if refused != nil {
		panic(refused)
	}
	c.Async = true
	if refused := s.loop.admit(time.Now(), c); refused != nil {
		panic(refused)
	}
	if _, err := s.store.Accept(t.Context(), &Entry{Call: c.Call, Request: c.request}); err != nil {
		panic(err)
	}
	s.loop.enqueue(time.Now(), c)
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

// within checks instants up to the wheel's tick and the milliseconds' rounding.
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
