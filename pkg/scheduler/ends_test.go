package scheduler

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// counter is a till whose cancel ends the payment of its order, and whose query finds nothing.
func counter() Upstream {
	u := till()
	u.Identity = `path == "/pay" ? "pay " + json("no") : nil`
	u.Ends = `path == "/cancel" ? "pay " + json("no") : nil`
	u.Resolve = shop(0).Resolve
	u.Resolve[0].When = `path == "/pay"`
	return u
}

func cancel(no string) Request {
	return Request{Upstream: "api", Method: "POST", Target: "/cancel", Body: []byte(`{"no":"` + no + `"}`)}
}

// statuses answers each path with a status, 200 if it names none.
func statuses(of map[string]int) func(int, *http.Request) answer {
	return func(_ int, r *http.Request) answer { return answer{after: 10 * ms, status: of[r.URL.Path]} }
}

// TestEnds: after a cancel no payment of its order is sent, in whichever state it is.
func TestEnds(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*Upstream)
		answers map[string]int
		before  time.Duration // from the submission of the payment to that of the cancel
		delay   time.Duration // until the earliest instant of the payment
		want    State
		targets string // within a day
	}{
		{"it waits for its time", nil, nil, sec, time.Hour, Cancelled, "cancel"},
		{"it is being signed", func(u *Upstream) { u.Signer = slowPayments{} }, nil, 5 * ms, 0, Cancelled, "cancel"},
		{"it is in flight and done", nil, nil, 5 * ms, 0, Done, "pay cancel"},
		{"it is in flight and failed", nil, map[string]int{"/pay": 400}, 5 * ms, 0, Failed, "pay cancel"},
		{"it is in flight and limited", nil, map[string]int{"/pay": 429}, 5 * ms, 0, Cancelled, "pay cancel"},
		{"it is in flight and unknown", nil, map[string]int{"/pay": 500, "/query": 404}, 5 * ms, 0, Unknown, "pay cancel query query query query"},
		{"it was limited", nil, map[string]int{"/pay": 429}, 100 * ms, 0, Cancelled, "pay cancel"},
		{"it is unknown", nil, map[string]int{"/pay": 500, "/query": 404}, sec, 0, Unknown, "pay cancel query query query query"},
		{"it is unknown, and done", nil, map[string]int{"/pay": 500}, sec, 0, Done, "pay cancel query"},
		{"it is being queried", nil, map[string]int{"/pay": 500, "/query": 404}, 5015 * ms, 0, Unknown, "pay query cancel query query query"},
		{"it waits for a repeat", func(u *Upstream) {
			u.Idempotent, u.Retry = `path == "/pay"`, retry.Policy{Curve: retry.Curve{Min: time.Minute, Max: time.Minute}}
		},
			map[string]int{"/pay": 500, "/query": 404}, sec, 0, Unknown, "pay cancel query query query query"},
		{"the cancel fails", nil, map[string]int{"/cancel": 400}, sec, time.Hour, Cancelled, "cancel"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := counter()
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, After: time.Hour}}
			if tt.change != nil {
				tt.change(&u)
			}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = statuses(tt.answers)
				r := pay(`{"no":"N1"}`)
				if tt.delay > 0 {
					r.NotBefore = time.Now().Add(tt.delay)
				}
				c := submit(t, s, r)
				time.Sleep(tt.before)
				other := submit(t, s, func() Request {
					r := pay(`{"no":"N2"}`)
					r.NotBefore = time.Now().Add(48 * time.Hour)
					r.Deadline = r.NotBefore
					return r
				}())
				by := wait(t, s, submit(t, s, cancel("N1")).ID)
				time.Sleep(20 * ms)
				if _, err := s.Submit(t.Context(), pay(`{"no":"N1"}`)); reason(err) != KeyReused || !strings.Contains(err.Error(), by.ID) {
					t.Errorf("a payment after the cancel: %v, want a refusal that names call %s", err, by.ID)
				}
				time.Sleep(24*time.Hour - time.Minute)
				got := s.mustGet(t, c.ID)
				if got.State != tt.want || f.targets() != tt.targets {
					t.Errorf("%s after %q (%+v), want %s after %q", got.State, f.targets(), got.Attempts, tt.want, tt.targets)
				}
				if ended := got.State == Cancelled || got.State == Unknown; ended && got.EndedBy != by.ID || !ended && got.EndedBy != "" && len(got.Attempts) > 0 && got.Last().Outcome != upstream.Unknown {
					t.Errorf("%s: ended by %q, want call %s", got.State, got.EndedBy, by.ID)
				}
				if o := s.mustGet(t, other.ID); o.State != Waiting {
					t.Errorf("the payment of another order is %s", o.State)
				}
				if got.State == Unknown {
					if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Reason: "once more"}); reason(err) != WrongState || !strings.Contains(err.Error(), by.ID) {
						t.Errorf("a person sends it again: %v, want a refusal that names call %s", err, by.ID)
					}
					if got, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Failed, Reason: "closed"}); err != nil || got.State != Failed {
						t.Errorf("a person resolves it: %+v, %v", got, err)
					}
				}
			})
		})
	}
}

// slowPayments takes a second to sign a payment.
type slowPayments struct{}

func (slowPayments) Sign(_ context.Context, r *upstream.Request) error {
	if r.Target == "/pay" {
		time.Sleep(sec)
	}
	return nil
}

// TestEndsForAClient: a client whose payment waits is told which call has ended it.
func TestEndsForAClient(t *testing.T) {
	u := counter()
	u.Limits = []Limit{{Name: "pay", Calls: 1, Window: 10 * sec, When: `path == "/pay"`}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		doing(t.Context(), s, pay(`{"no":"N0"}`))()
		first, second := doing(t.Context(), s, pay(`{"no":"N1"}`)), doing(t.Context(), s, pay(`{"no":"N1"}`))
		synctest.Wait()
		by := wait(t, s, submit(t, s, cancel("N1")).ID)
		results := make(map[string]bool)
		for _, result := range []func() (string, *Call){first, second} {
			text, c := result()
			results[text] = true
			if c != nil && (c.State != Cancelled || c.EndedBy != by.ID) {
				t.Errorf("%s: %+v, want it ended by call %s", text, c, by.ID)
			}
		}
		if !results["wrong_state"] || !results["key_reused"] {
			t.Errorf("the client and its repeat are told %v", results)
		}
		if got := f.targets(); got != "pay cancel" {
			t.Errorf("sent %q", got)
		}
	})
}

// TestCancelInDoubt: no query sends a call again that a person has taken back, but a person may.
func TestCancelInDoubt(t *testing.T) {
	u := shop(4)
	u.Idempotent, u.Retry.Curve = `path == "/pay"`, retry.Curve{Min: time.Minute, Max: time.Minute}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = statuses(map[string]int{"/pay": 500, "/query": 404})
		c := submit(t, s, Request{Method: "POST", Target: "/pay"})
		time.Sleep(sec)
		if got, err := s.Cancel(t.Context(), c.ID); err != nil || got.State != Unknown || got.EndedBy != c.ID {
			t.Fatalf("%+v, %v; want it unknown, and ended by itself", got, err)
		}
		time.Sleep(time.Hour)
		if got := f.targets(); got != "pay query query query query" {
			t.Errorf("sent %q", got)
		}
		synctest.Wait()
		f.serve = statuses(nil)
		if got, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Reason: "it was not executed"}); err != nil || got.EndedBy != "" {
			t.Errorf("%+v, %v", got, err)
		}
		if got := wait(t, s, c.ID); got.State != Done || got.EndedBy != "" {
			t.Errorf("sent again: %+v", got)
		}
	})
}

// TestEndsIsBounded: the store in memory keeps as many marks as finished calls.
func TestEndsIsBounded(t *testing.T) {
	m := newMemory(10, 1<<20)
	for i := range 1000 {
		identity := strings.Repeat("x", i)
		for range 2 {
			if err := m.End(t.Context(), identity, "c"); err != nil {
				t.Fatal(err)
			}
		}
		if by, _ := m.EndedBy(t.Context(), identity); by != "c" {
			t.Errorf("%d: ended by %q", i, by)
		}
	}
	if len(m.ended) > 10 || len(m.endedOrder) > 10 {
		t.Errorf("%d marks in a list of %d, want 10", len(m.ended), len(m.endedOrder))
	}
}
