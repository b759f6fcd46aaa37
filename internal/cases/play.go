package cases

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Names and times of a play.
const (
	name  = "case"
	span  = time.Hour   // of a call, with its repeats and queries
	pause = time.Minute // between the end of a call and a repeat of it
	soon  = time.Second // between the first attempt of a call and a second one
)

// inBubble runs f in a bubble of testing/synctest, where time advances when all goroutines wait:
// the scheduler of a case is that of the sidecar, which has no clock as an argument. The bubble
// uses its test only for failures, and f reports none there.
func inBubble(f func()) {
	synctest.Test(new(testing.T), func(*testing.T) { f() })
}

// unsigned stands for the signer of an upstream, whose key a case does not need.
type unsigned struct{}

func (unsigned) Sign(context.Context, *upstream.Request) error { return nil }

// start starts a scheduler whose upstream is the platform of the case. The case fails if the
// scheduler is nil.
func (r *Result) start() (*Platform, *scheduler.Scheduler) {
	p, up := NewPlatform(r.Case), r.Upstream
	up.Transport, up.TLS, up.Signer = transport{p}, nil, nil
	if r.Signed {
		up.Signer = unsigned{}
	}
	if r.Query != nil { // only a query leads to a second sending
		up.Idempotent, up.Idempotency.Header, up.Idempotency.Field = "", "", ""
		up.Retry.Attempts = 2
	}
	s, err := scheduler.New(scheduler.Config{
		Upstreams: map[string]scheduler.Upstream{name: up},
		Log:       slog.New(slog.DiscardHandler),
		Observe: func(e scheduler.Event) {
			if e.Kind == scheduler.EventPaused {
				p.Paused()
			}
		},
	})
	if err != nil {
		r.fail("%v", err)
		return p, nil
	}
	return p, s
}

// awaitNow waits until the time of the case.
func (r *Result) awaitNow() {
	if !r.Now.IsZero() {
		time.Sleep(time.Until(r.Now))
	}
}

// playCall submits the request of a case, and compares the steps that follow.
func (r *Result) playCall() {
	r.awaitNow()
	p, s := r.start()
	if s == nil {
		return
	}
	defer s.Close()
	made, err := s.Submit(context.Background(), request(r.Request))
	if err != nil {
		r.fail("the request is refused: %v", err)
		return
	}
	if r.Second != nil {
		time.Sleep(soon)
		if _, err := s.Submit(context.Background(), request(r.Second)); err != nil {
			r.fail("the second request is refused: %v", err)
		}
	}
	time.Sleep(max(span, r.After+pause, r.Wait+pause))
	synctest.Wait()
	call, err := s.Get(context.Background(), made.ID)
	if err != nil || len(call.Attempts) == 0 {
		r.fail("the request is not sent: %+v, %v", call, err)
		return
	}
	for _, a := range call.Attempts {
		r.Reasons = append(r.Reasons, a.Reason)
	}
	for _, d := range call.Decisions {
		r.Reasons = append(r.Reasons, d.String())
	}
	r.Failures = append(r.Failures, Compare(p, call.Attempts[0].Outcome, call.Attempts[0].Reason, call.State)...)
}

// playRepeat sends two calls whose callers wait, the second one after the end of the first.
func (r *Result) playRepeat() {
	r.awaitNow()
	p, s := r.start()
	if s == nil {
		return
	}
	defer s.Close()
	before, _, err := do(s, r.Request)
	if err != nil {
		r.fail("the request has no answer: %v", err)
		return
	}
	time.Sleep(pause)
	sent := p.Sent()
	after, repeated, err := do(s, r.Second)
	got := "sent"
	switch {
	case p.Sent() == sent && err != nil:
		got = "refused"
	case p.Sent() == sent && repeated && after == before:
		got = "answered"
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	r.differs("becomes", r.Becomes, got, why)
}

// do sends a request whose caller waits, and returns the whole answer.
func do(s *scheduler.Scheduler, r *upstream.Request) (answer string, repeated bool, err error) {
	resp, call, err := s.Do(context.Background(), request(r))
	if resp == nil {
		return "", false, err
	}
	defer resp.Body.Close()
	body, readErr := io.ReadAll(resp.Body)
	if err == nil {
		err = readErr
	}
	return fmt.Sprint(resp.StatusCode, string(body)), call.Repeated, err
}
