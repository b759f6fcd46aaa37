package scheduler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestErrorsAreFoundByIs(t *testing.T) {
	full := fmt.Errorf("%w: no space left on device", ErrFull)
	for _, tt := range []struct {
		err   error
		is    []error
		isNot []error
	}{
		{&Error{Reason: NotFound}, []error{NotFound, ErrNotFound}, []error{Full, ErrFull}},
		{&Error{Reason: Full}, []error{Full}, []error{ErrFull, NotFound}},
		{&Error{Reason: DiskFull, cause: full}, []error{DiskFull, ErrFull, full}, []error{ErrBroken}},
		{&Error{Reason: KeyReused, cause: ErrKeyReused}, []error{KeyReused, ErrKeyReused}, nil},
		{fmt.Errorf("wrapped: %w", &Error{Reason: Paused}), []error{Paused}, []error{PastDeadline}},
	} {
		for _, target := range tt.is {
			if !errors.Is(tt.err, target) {
				t.Errorf("%#v is not %v", tt.err, target)
			}
		}
		for _, target := range tt.isNot {
			if errors.Is(tt.err, target) {
				t.Errorf("%#v is %v", tt.err, target)
			}
		}
	}
}

func TestErrorTimeout(t *testing.T) {
	var late error = &url.Error{Op: "Get", URL: "http://x/", Err: &Error{Reason: PastDeadline}}
	var timeout net.Error
	if !errors.As(late, &timeout) || !timeout.Timeout() {
		t.Error("a slot past the deadline is no time-out for net/http")
	}
	if (&Error{Reason: Paused}).Timeout() {
		t.Error("a pause is a time-out")
	}
}

// doubt is the error of a store that has ended while it stored a call.
type doubt struct{ error }

func (doubt) InDoubt() bool   { return true }
func (d doubt) Unwrap() error { return d.error }

// TestStoredInDoubt: of a call, a decision, a pause or a record that may have been stored its caller hears so.
func TestStoredInDoubt(t *testing.T) {
	cause, j := errors.New("the term is over"), newJournal(nil, slog.New(slog.DiscardHandler))
	in := fmt.Errorf("wrapped: %w", doubt{cause})
	for change, err := range map[string]error{
		"call": unstored(j, &Call{ID: "c"}, &Request{Upstream: "api"}, in), "decision": j.told(in, "the decision could not be stored"),
		"pause": storeFailed(in, "api", "the pause could not be stored"),
	} {
		var e *Error
		if !errors.As(err, &e) || e.Reason != NoAnswer || e.Outcome() != upstream.Unknown || !errors.Is(err, cause) {
			t.Errorf("%s: %#v, want %s", change, err, NoAnswer)
		}
		if change == "call" && (e.Call == nil || e.Call.ID != "c" || e.Call.State != Unknown) {
			t.Errorf("the error names call %+v; want the one that may have been stored", e.Call)
		}
	}
}

// TestEndedContext: each method that may wait returns the context's error, and the
// scheduler goes on.
func TestEndedContext(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		c := submit(t, s, Request{})
		for name, err := range map[string]error{
			"Do":        second(second3(s.Do(ended, Request{Upstream: "api", Target: "/"}))),
			"Submit":    second(s.Submit(ended, Request{Upstream: "api", Target: "/"})),
			"Pause":     s.Pause(ended, Pause{Upstream: "api", Until: time.Now().Add(time.Hour)}),
			"Get":       second(s.Get(ended, c.ID)),
			"List":      second(s.List(ended, Filter{})),
			"Cancel":    second(s.Cancel(ended, c.ID)),
			"Resolve":   second(s.Resolve(ended, c.ID, Decision{As: upstream.Done})),
			"Reload":    s.Reload(ended, Config{Upstreams: s.Config()}),
			"Status":    second(s.Status(ended, "api")),
			"Upstreams": second(s.Upstreams(ended)),
			"Limits":    second(s.Limits(ended)),
		} {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want that the context is cancelled", name, err)
			}
		}
		if got := s.mustGet(t, wait(t, s, c.ID).ID); got.State != Done {
			t.Errorf("the call is %s", got.State)
		}
	})
}

func second3(_ *http.Response, c *Call, err error) (*Call, error) { return c, err }

func TestListOfAnEmptyFilter(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		for range 3 {
			submit(t, s, Request{})
		}
		if all, err := s.List(t.Context(), Filter{}); err != nil || len(all.Calls) != 3 {
			t.Errorf("%d calls, %v; want all three", len(all.Calls), err)
		}
	})
}
