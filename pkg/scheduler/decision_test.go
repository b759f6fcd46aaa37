package scheduler

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// unanswered serves requests whose answers are lost, from the first to the last of them.
func unanswered(f *fake, last int) {
	f.serve = func(n int, _ *http.Request) answer {
		if n <= last {
			return answer{err: io.ErrUnexpectedEOF}
		}
		return answer{}
	}
}

// TestDecisionsNameTheAttempt: a decision about a call that has changed since is refused, and told
// what it has become; one without an attempt is for any.
func TestDecisionsNameTheAttempt(t *testing.T) {
	bubble(t, Upstream{Breaker: retry.Trip{Unknown: -1}}, func(t *testing.T, s *Scheduler, f *fake) {
		unanswered(f, 2)
		c := wait(t, s, submit(t, s, Request{}).ID)
		refused := func(how func(context.Context, string, Decision) (*Call, error), d Decision, became string) {
			t.Helper()
			_, err := how(t.Context(), c.ID, d)
			var e *Error
			if !errors.As(err, &e) || e.Reason != ChangedSince || !strings.Contains(e.Detail, became) || e.Call == nil || e.Call.Last().N != s.mustGet(t, c.ID).Last().N {
				t.Errorf("%+v: %v, want changed_since, and %q", d, err, became)
			}
		}
		seen := Decision{As: upstream.Failed, Attempt: 1, By: "bob"}
		refused(s.Resolve, Decision{As: upstream.Done, Attempt: 2}, "since attempt 2, which the decision is about: it is unknown now, after attempt 1")
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Attempt: 1, By: "alice", Reason: "not in the list"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		refused(s.Resolve, seen, "now, after attempt 2 (attempt 1 was resolved as not_executed by alice: not in the list)")
		wait(t, s, c.ID)
		refused(s.Resolve, seen, "it is unknown now, after attempt 2")
		refused(s.Retry, Decision{Attempt: 1, AcceptDuplicate: true}, "it is unknown now, after attempt 2")
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Done}); err != nil {
			t.Error(err)
		}
		seen.Attempt = 2
		refused(s.Resolve, seen, "it is done now, after attempt 2 (attempt 2 was resolved as done)")
		got := s.mustGet(t, c.ID)
		if len(got.Decisions) != 2 || got.Decisions[0].By != "alice" || got.Decisions[1].Attempt != 2 || len(f.at()) != 2 || !got.Attempts[0].Resolved || got.Attempts[1].Resolved {
			t.Errorf("%+v", got)
		}
		if strings.Contains(got.Attempts[0].Reason, "alice") {
			t.Errorf("the reason of the attempt is %q", got.Attempts[0].Reason)
		}
	})
}

// TestRetryAdmits: Retry sends a call again only where the upstream recognises the repeat, or the
// duplicate is accepted, and does not say that earlier attempts were not executed.
func TestRetryAdmits(t *testing.T) {
	recognised := Upstream{Breaker: retry.Trip{Unknown: -1}, Retry: retry.Policy{Attempts: 1}}
	recognised.Idempotency = upstream.Idempotency{Header: "Key", Retention: time.Hour}
	keyed := http.Header{"Key": {"k"}}
	for name, tt := range map[string]struct {
		header   http.Header
		after    time.Duration
		accepts  bool
		want     Reason
		safe     bool
		accepted bool
	}{
		"recognised":                      {keyed, 0, false, "", true, false},
		"recognised, and accepted":        {keyed, 0, true, "", true, false},
		"not recognised":                  {nil, 0, false, MayExecuteTwice, false, false},
		"not recognised, but accepted":    {nil, 0, true, "", false, true},
		"recognised no more":              {keyed, time.Hour, false, MayExecuteTwice, false, false},
		"recognised no more, is accepted": {keyed, time.Hour, true, "", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, recognised, func(t *testing.T, s *Scheduler, f *fake) {
				unanswered(f, 1)
				c := wait(t, s, submit(t, s, Request{Header: tt.header}).ID)
				time.Sleep(tt.after)
				if p := s.mustGet(t, c.ID).Pending; p == nil || p.RepeatIsSafe != tt.safe || !p.Person || p.Attempt != 1 || !p.Since.Equal(c.Last().EndedAt) || p.Why != "no answer: the connection was closed" {
					t.Errorf("pending: %+v", p)
				}
				if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(sec)}); err != nil {
					t.Fatal(err)
				}
				got, err := s.Retry(t.Context(), c.ID, Decision{Attempt: 1, By: "alice", AcceptDuplicate: tt.accepts})
				if reason(err) != tt.want {
					t.Fatalf("%v, want %q", err, tt.want)
				}
				if err != nil {
					if got := s.mustGet(t, c.ID); got.State != Unknown || len(got.Decisions) != 0 {
						t.Errorf("refused: %+v", got)
					}
					return
				}
				if d := got.Decisions; got.State != Waiting || len(d) != 1 || d[0].As != upstream.Unknown || d[0].AcceptDuplicate != tt.accepted || got.Attempts[0].Resolved || got.Pending != nil {
					t.Errorf("taken: %+v", got)
				}
				if got, err := s.Cancel(t.Context(), c.ID); err != nil || got.State != Unknown { // the first attempt may have executed it
					t.Errorf("cancelled while it waits: %+v, %v", got, err)
				}
				if _, err := s.Retry(t.Context(), c.ID, Decision{AcceptDuplicate: true}); err != nil {
					t.Error(err)
				}
				if got := wait(t, s, c.ID); got.State != Done || len(got.Attempts) != 2 {
					t.Errorf("sent again: %+v", got)
				}
			})
		})
	}
}

// TestDecisionsAreBounded: a call keeps its last decisions, and no text of one is long.
func TestDecisionsAreBounded(t *testing.T) {
	bubble(t, Upstream{Breaker: retry.Trip{Unknown: -1}}, func(t *testing.T, s *Scheduler, f *fake) {
		unanswered(f, 1000)
		c := wait(t, s, submit(t, s, Request{}).ID)
		for n := range 2 * maxDecisions {
			if _, err := s.Retry(t.Context(), c.ID, Decision{Attempt: n + 1, AcceptDuplicate: true}); err != nil {
				t.Fatal(err)
			}
			wait(t, s, c.ID)
		}
		if got := s.mustGet(t, c.ID); len(got.Decisions) != maxDecisions || got.Decisions[maxDecisions-1].Attempt != 2*maxDecisions || got.Last().N != 2*maxDecisions+1 {
			t.Errorf("%d decisions: %+v", len(got.Decisions), got)
		}
		for name, d := range map[string]Decision{
			"reason":  {As: upstream.Done, Reason: strings.Repeat("x", maxReason+1)},
			"by":      {As: upstream.Done, By: "al\nice"},
			"attempt": {As: upstream.Done, Attempt: -1},
			"not as":  {As: upstream.Unknown},
		} {
			if _, err := s.Resolve(t.Context(), c.ID, d); reason(err) != BadRequest || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v, want bad_request", name, err)
			}
		}
	})
}

// TestAsk: a person lets a call be queried now: before its queries, beside them, and after them.
func TestAsk(t *testing.T) {
	resolve := Resolve{When: `path == "/pay"`, Target: `"/query"`, After: 10 * sec, Every: 10 * sec, Queries: 2,
		Outcomes: []upstream.Rule{{When: "status == 200", Is: upstream.Done}, {When: "status == 404", Is: upstream.NotExecuted}}}
	for name, tt := range map[string]struct {
		at     time.Duration
		do     bool // a caller waited for it
		status int
		want   State
		sent   string
	}{
		"before":                           {sec, false, 200, Done, "pay query"},
		"after":                            {time.Minute, false, 200, Done, "pay query query query"},
		"not executed":                     {sec, false, 404, Done, "pay query pay"},
		"undecided":                        {sec, false, 503, Unknown, "pay query query query"},
		"its caller had the answer":        {time.Minute, true, 200, Done, "pay query query query"},
		"only its caller can send it anew": {time.Minute, true, 404, Unknown, "pay query query query"},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{Resolve: []Resolve{resolve}, Breaker: retry.Trip{Unknown: -1}, Limits: perSecond(1), Identity: `header("Order")`}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				var status atomic.Int32
				status.Store(503)
				f.serve = func(n int, r *http.Request) answer {
					if r.URL.Path == "/pay" && n == 1 {
						return answer{err: io.ErrUnexpectedEOF}
					} else if r.URL.Path == "/query" {
						return answer{status: int(status.Load())}
					}
					return answer{}
				}
				r := Request{Upstream: "api", Method: "POST", Target: "/pay", Header: http.Header{"Order": {"1"}}}
				var c *Call
				if tt.do {
					_, c, _ = s.Do(t.Context(), r)
				} else {
					c = wait(t, s, submit(t, s, r).ID)
				}
				time.Sleep(tt.at - time.Since(f.start))
				status.Store(int32(tt.status))
				begin := time.Now()
				got, err := s.Ask(t.Context(), c.ID, "alice")
				if err != nil || time.Since(begin) > 6*sec { // under the limit, whose permit is out for late and the window
					t.Fatalf("%+v, %v, after %v", got, err, time.Since(begin))
				}
				if p := got.Pending; got.State == Unknown && (p == nil || p.Queries == 0 && p.LastQuery.IsZero() && !tt.do || p.Attempt != 1) {
					t.Errorf("pending: %+v", p)
				}
				time.Sleep(2 * time.Minute)
				if got := s.mustGet(t, c.ID); got.State != tt.want || f.targets() != tt.sent {
					t.Errorf("%s after %q, want %s after %q", got.State, f.targets(), tt.want, tt.sent)
				} else if n := len(got.Decisions); tt.want == Done && (n != 1 || !strings.HasSuffix(got.Decisions[0].By, ", asked by alice")) {
					t.Errorf("decisions: %+v", got.Decisions)
				}
			})
		})
	}
}

// TestAskIsRefused: where no query can be made, or has no slot, the error says why.
func TestAskIsRefused(t *testing.T) {
	u := Upstream{Breaker: retry.Trip{Unknown: -1}, MaxWait: 10 * sec, Resolve: []Resolve{{When: `path == "/pay"`, Target: `"/query"`, After: time.Hour,
		Outcomes: []upstream.Rule{{When: "status == 200", Is: upstream.Done}}}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		unanswered(f, 2)
		pay, other := wait(t, s, submit(t, s, Request{Target: "/pay"}).ID), wait(t, s, submit(t, s, Request{Target: "/other"}).ID)
		ended := wait(t, s, submit(t, s, Request{Target: "/third"}).ID)
		ask := func(id string, want Reason, text string) {
			t.Helper()
			if _, err := s.Ask(t.Context(), id, ""); reason(err) != want || !strings.Contains(err.Error(), text) {
				t.Errorf("%v, want %s, %q", err, want, text)
			}
		}
		ask(other.ID, WrongState, "has no query for it (resolve)")
		ask(ended.ID, WrongState, "only an unknown call")
		ask("nobody", NotFound, "nobody")
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(time.Minute)}); err != nil {
			t.Fatal(err)
		}
		ask(pay.ID, Paused, "is paused until")
		bounded, cancel := context.WithTimeout(t.Context(), sec)
		defer cancel()
		if err := s.Resume(t.Context(), "api", "", ""); err != nil {
			t.Fatal(err)
		}
		f.serve = func(int, *http.Request) answer { return answer{after: 5 * sec} }
		two := make(chan error, 2)
		for range 2 { // they share a query
			go func() { two <- second(s.Ask(bounded, pay.ID, "")) }()
		}
		if err := errors.Join(<-two, <-two); err != nil || s.mustGet(t, pay.ID).State != Unknown {
			t.Errorf("when its ctx ends: %v, %+v", err, s.mustGet(t, pay.ID))
		}
		time.Sleep(10 * sec)
		if got := s.mustGet(t, pay.ID); got.State != Done || len(f.at()) != 4 {
			t.Errorf("the query has gone on: %+v, after %d requests", got, len(f.at()))
		}
	})
}

// TestAskIsStale: the answer to a query decides no attempt that was sent after it was asked.
func TestAskIsStale(t *testing.T) {
	u := Upstream{Breaker: retry.Trip{Unknown: -1}, Resolve: []Resolve{{When: `path == "/pay"`, Target: `"/query"`, After: time.Hour,
		Outcomes: []upstream.Rule{{When: "status == 404", Is: upstream.NotExecuted}}}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(_ int, r *http.Request) answer {
			if r.URL.Path == "/query" {
				return answer{after: 5 * sec, status: 404}
			}
			return answer{err: io.ErrUnexpectedEOF}
		}
		c := wait(t, s, submit(t, s, Request{Target: "/pay"}).ID)
		asked := make(chan *Call, 1)
		go func() {
			got, err := s.Ask(t.Context(), c.ID, "alice")
			if err != nil {
				t.Error(err)
			}
			asked <- got
		}()
		time.Sleep(sec)
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Attempt: 1, By: "bob"}); err != nil {
			t.Fatal(err)
		}
		if got := <-asked; got.State != Unknown || got.Last().N != 2 || len(got.Decisions) != 1 {
			t.Errorf("%+v", got)
		}
		time.Sleep(time.Minute)
		if got := f.targets(); got != "pay query pay" {
			t.Errorf("sent %q", got)
		}
	})
}
