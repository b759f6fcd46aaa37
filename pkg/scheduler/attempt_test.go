package scheduler

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestUnknownIsNotSentAgain(t *testing.T) {
	for name, a := range map[string]answer{
		"status 500":     {status: 500},
		"lost answer":    {err: io.ErrUnexpectedEOF},
		"no answer ever": {after: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return a }
				c := wait(t, s, submit(t, s, Request{}).ID)
				if c.State != Unknown {
					t.Errorf("state %s, want unknown", c.State)
				}
				time.Sleep(48 * time.Hour)
				if got, err := s.Get(t.Context(), c.ID); err != nil || got.State != Unknown || len(f.at()) != 1 {
					t.Errorf("two days later: %v, %v, %d requests; want it unknown still, sent once", got, err, len(f.at()))
				}
			})
		})
	}
}

// TestGuardCountsFromTheFirstByte: the guard counts from the first byte of the
// request, not from the start of the signing.
func TestGuardCountsFromTheFirstByte(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: sec, Guard: 100 * ms}}}
	asked := 0
	u.Signer = signFunc(func(context.Context, *upstream.Request) error {
		if asked++; asked == 1 {
			time.Sleep(500 * ms)
		}
		return nil
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		if at := f.at(); at[1]-at[0] < sec {
			t.Errorf("arrivals at %v: two in one second, one may", at)
		}
	})
}

// TestBodyIsReadAfterClose: the caller can read a body that is longer than MaxInspect
// to its end, also after the scheduler was closed.
func TestBodyIsReadAfterClose(t *testing.T) {
	const size = 4 << 20
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, size)) }))
	defer server.Close()
	u := Upstream{}
	u.URL, u.MaxInspect = server.URL, 100
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	resp, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	s.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Errorf("%d bytes, %v; want all %d", n, err, size)
	}
}

type panicky struct{}

func (panicky) RoundTrip(*http.Request) (*http.Response, error) { panic("in a user's RoundTripper") }

func TestPanicHarmsItsCallAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := Upstream{Concurrency: 1}
		u.URL, u.Transport = "http://api.test", panicky{}
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 2 {
			if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Unknown {
				t.Errorf("it is %s, want unknown: it may have been sent", c.State)
			}
		}
	})
}

// TestKeptAnswersStayWhole: an answer in memory is passed on as a whole, also if it is kept.
func TestKeptAnswersStayWhole(t *testing.T) {
	r := &upstream.Result{Response: &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("answer"))}}
	kept := keepCopy(r)
	_, whole := r.Response.Body.(io.WriterTo)
	body, err := io.ReadAll(r.Response.Body)
	if string(kept.Body) != "answer" || kept.Truncated || !whole || string(body) != "answer" || err != nil {
		t.Errorf("kept %q, truncated %v, in memory %v, passed on %q, %v", kept.Body, kept.Truncated, whole, body, err)
	}
}

// TestAnswerAboveTheBound: an answer that ended a little above the bound was read whole,
// and is kept in part all the same: it says so.
func TestAnswerAboveTheBound(t *testing.T) {
	for body, want := range map[string]Response{
		"abc":  {Status: 200, Body: []byte("abc")},
		"abcd": {Status: 200, Body: []byte("abc"), Truncated: true},
	} {
		r := &upstream.Result{Response: &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(body))}}
		if got := keep(r, 3); string(got.Body) != string(want.Body) || got.Truncated != want.Truncated {
			t.Errorf("of %q is kept %q, truncated %v", body, got.Body, got.Truncated)
		}
	}
}
