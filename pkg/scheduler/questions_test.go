package scheduler

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// asked is a till whose payments and refunds stay unknown until a query says PAID.
func asked() Upstream {
	u := till()
	u.Resolve = []Resolve{{
		When: `path != "/close"`, Target: `"/query/" + json("no")`, After: time.Hour, Every: time.Hour, Queries: 2,
		Outcomes: []upstream.Rule{{When: `body("status") == "PAID"`, Is: upstream.Done}, {When: `status == 404`, Is: upstream.NotExecuted}},
	}}
	return u
}

// notices are the numbers of a notification.
func notices(pairs ...string) map[string]string {
	numbers := make(map[string]string)
	for i := 0; i < len(pairs); i += 2 {
		numbers[pairs[i]] = pairs[i+1]
	}
	return numbers
}

// unclear answers payments and refunds with 500, and queries with a body.
func unclear(answers ...string) func(int, *http.Request) answer {
	var queries atomic.Int64 // some are sent at once
	return func(_ int, r *http.Request) answer {
		if !strings.HasPrefix(r.URL.Path, "/query/") {
			return answer{status: 500}
		}
		return answer{body: answers[min(int(queries.Add(1)), len(answers))-1]}
	}
}

// TestNotified: a notification queries the calls of its numbers at once, and no others; the
// answer of the query decides, and nothing else does.
func TestNotified(t *testing.T) {
	for _, tt := range []struct {
		name    string
		numbers map[string]string
		calls   int // that are queried
		targets string
	}{
		{"the order", notices("order", "N1"), 3, "query/N1 query/N1 query/N1"},
		{"one refund of the order", notices("order", "N1", "refund", "R1"), 2, "query/N1 query/N1"},
		{"a refund alone", notices("refund", "R2"), 1, "query/N1"},
		{"a refund of another order", notices("order", "N2", "refund", "R2"), 0, ""},
		{"another order", notices("order", "N9"), 0, ""},
		{"another name", notices("trade", "N1"), 0, ""},
		{"no numbers", nil, 0, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, asked(), func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = unclear(`{}`)
				var calls []*Call
				for _, r := range [][2]string{{"/pay", `{"no":"N1"}`}, {"/refund", `{"no":"N1","refund":"R1"}`}, {"/refund", `{"no":"N1","refund":"R2"}`}, {"/close", `{"no":"N1"}`}} {
					calls = append(calls, wait(t, s, submit(t, s, Request{Method: "POST", Target: r[0], Body: []byte(r[1])}).ID))
				}
				synctest.Wait()
				if n := s.Notified("other", tt.numbers); n != 0 {
					t.Errorf("%d calls of another upstream", n)
				}
				if n := s.Notified("api", tt.numbers); n != tt.calls {
					t.Errorf("%d calls, want %d", n, tt.calls)
				}
				synctest.Wait()
				if got := strings.TrimSpace(strings.TrimPrefix(f.targets(), "pay refund refund close")); got != tt.targets {
					t.Errorf("sent %q, want %q", got, tt.targets)
				}
				for _, c := range calls {
					if got := s.mustGet(t, c.ID); got.State != Unknown {
						t.Errorf("%s is %s: no answer decided it", got.ID, got.State)
					}
				}
			})
		})
	}
}

// TestNotifiedDecides: a query because of a notification decides as any other, does not use
// one of the queries up, comes after the last of them too, and never touches a call that has
// its end.
func TestNotifiedDecides(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answers []string
		after   []time.Duration // instants of notifications
		want    State
		queries int
	}{
		{"at once", []string{`{"status":"PAID"}`}, []time.Duration{0}, Done, 1},
		{"never", []string{`{}`}, nil, Unknown, 2},
		{"undecided", []string{`{}`}, []time.Duration{0}, Unknown, 3},
		{"the second decides", []string{`{}`, `{"status":"PAID"}`}, []time.Duration{0, time.Minute}, Done, 2},
		{"after the last query", []string{`{}`, `{}`, `{"status":"PAID"}`}, []time.Duration{5 * time.Hour}, Done, 3},
		{"after the end", []string{`{"status":"PAID"}`}, []time.Duration{0, time.Minute, 5 * time.Hour}, Done, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, asked(), func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = unclear(tt.answers...)
				c := wait(t, s, submit(t, s, pay(`{"no":"N1"}`)).ID)
				synctest.Wait()
				start := time.Now()
				for _, at := range tt.after {
					time.Sleep(at - time.Since(start))
					s.Notified("api", notices("order", "N1"))
					synctest.Wait()
				}
				time.Sleep(12 * time.Hour)
				got := s.mustGet(t, c.ID)
				if n := strings.Count(f.targets(), "query"); got.State != tt.want || n != tt.queries || strings.Count(f.targets(), "pay") != 1 {
					t.Errorf("%s after %q, want %s after %d queries", got.State, f.targets(), tt.want, tt.queries)
				}
				if n := len(s.followUps.questions.byID); (n == 0) != (tt.want == Done) || n != len(s.followUps.questions.byNumber) {
					t.Errorf("%d entries, %d numbers", n, len(s.followUps.questions.byNumber))
				}
			})
		})
	}
}

// TestNotifiedMeanwhile: notifications that come while a query is under way make one more,
// and a person's decision takes the entry away.
func TestNotifiedMeanwhile(t *testing.T) {
	bubble(t, asked(), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(_ int, r *http.Request) answer {
			if r.URL.Path == "/pay" {
				return answer{status: 500}
			}
			return answer{body: `{}`, after: sec}
		}
		c := wait(t, s, submit(t, s, pay(`{"no":"N1"}`)).ID)
		synctest.Wait()
		for range 5 {
			s.Notified("api", notices("order", "N1"))
			time.Sleep(100 * ms)
		}
		time.Sleep(10 * sec)
		if got := f.targets(); got != "pay query/N1 query/N1" {
			t.Errorf("sent %q", got)
		}
		time.Sleep(5 * time.Hour) // the queries are used up
		if n := len(s.followUps.questions.byID); n != 1 {
			t.Fatalf("%d entries", n)
		}
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Failed, Reason: "seen on the statement"}); err != nil {
			t.Fatal(err)
		}
		sent := len(f.at())
		if n := s.Notified("api", notices("order", "N1")); n != 0 || len(s.followUps.questions.byNumber) != 0 {
			t.Errorf("%d calls, %d numbers after the decision", n, len(s.followUps.questions.byNumber))
		}
		time.Sleep(time.Hour)
		if got := s.mustGet(t, c.ID); got.State != Failed || len(f.at()) != sent {
			t.Errorf("%s, %d requests more", got.State, len(f.at())-sent)
		}
	})
}

// TestNotifiedGoesAgain: a call that a query of a notification has found nothing of goes
// again, and is asked about anew.
func TestNotifiedGoesAgain(t *testing.T) {
	bubble(t, asked(), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return []answer{{status: 500}, {status: 404}, {status: 500}, {body: `{"status":"PAID"}`}}[min(n, 4)-1]
		}
		c := wait(t, s, submit(t, s, pay(`{"no":"N1"}`)).ID)
		synctest.Wait()
		for i := range 2 {
			if n := s.Notified("api", notices("order", "N1")); n != 1 {
				t.Fatalf("notification %d: %d calls; %q, %+v", i, n, f.targets(), s.mustGet(t, c.ID))
			}
			time.Sleep(time.Minute)
		}
		if got := s.mustGet(t, c.ID); got.State != Done || f.targets() != "pay query/N1 pay query/N1" {
			t.Errorf("%s after %q", got.State, f.targets())
		}
	})
}

func TestContradicts(t *testing.T) {
	for want, of := range map[bool][][2]map[string]string{
		true:  {{notices("a", "1"), notices("a", "2")}, {notices("a", "1", "b", "2"), notices("a", "1", "b", "3")}},
		false: {{nil, nil}, {notices("a", "1"), notices("b", "1")}, {notices("a", "1"), notices("a", "1", "b", "2")}},
	} {
		for _, pair := range of {
			if contradicts(pair[0], pair[1]) != want || contradicts(pair[1], pair[0]) != want {
				t.Error(fmt.Sprint(pair), !want)
			}
		}
	}
}

// TestNotifiedOfACaller: a notification also queries a call whose caller had its answer, or has
// left; one that was not executed is not sent again.
func TestNotifiedOfACaller(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave bool
		query answer
		want  State
	}{
		{"paid", false, answer{body: `{"status":"PAID"}`}, Done},
		{"its caller has left", true, answer{body: `{"status":"PAID"}`}, Done},
		{"undecided", false, answer{body: `{}`}, Unknown},
		{"not executed", false, answer{status: 404}, Unknown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, asked(), func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(_ int, r *http.Request) answer {
					if r.URL.Path == "/pay" {
						return answer{status: 500, after: sec}
					}
					a := tt.query
					a.after = sec
					return a
				}
				ctx, leave := context.WithCancel(t.Context())
				result := doing(ctx, s, pay(`{"no":"N1"}`))
				time.Sleep(500 * ms)
				if tt.leave {
					leave()
				}
				_, c := result()
				leave()
				time.Sleep(time.Minute)
				times := 1
				if tt.want == Unknown {
					times = 3
				}
				for i := range times {
					if i == 1 {
						synctest.Wait() // until the query is under way
					}
					if n := s.Notified("api", notices("order", "N1")); n != 1 {
						t.Fatalf("%d calls, want 1; %+v", n, s.mustGet(t, c.ID))
					}
				}
				time.Sleep(time.Minute)
				want := "pay query/N1"
				if tt.want == Unknown { // the notifications that came during the query made one more
					want += " query/N1"
				}
				if got := s.mustGet(t, c.ID); got.State != tt.want || f.targets() != want {
					t.Errorf("%s after %q, want %s after %q", got.State, f.targets(), tt.want, want)
				}
				if n := len(s.followUps.questions.byID); (n == 0) != (tt.want == Done) {
					t.Errorf("%d entries", n)
				}
			})
		})
	}
}

// TestNotifiedWithoutAQuery: a notification counts no call that nothing can query: without a
// signer the caller's own query settles it, and none is made for it.
func TestNotifiedWithoutAQuery(t *testing.T) {
	for name, change := range map[string]func(*Resolve){
		"without a signer": func(r *Resolve) { r.Signed = true },
		"no query fits":    func(r *Resolve) { r.When = `path == "/other"` },
	} {
		t.Run(name, func(t *testing.T) {
			u := asked()
			change(&u.Resolve[0])
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = unclear(`{"status":"PAID"}`)
				calls := []*Call{wait(t, s, submit(t, s, pay(`{"no":"N1"}`)).ID)}
				_, c := doing(t.Context(), s, pay(`{"no":"N2"}`))()
				calls = append(calls, c)
				for _, c := range calls {
					if n := s.Notified("api", c.Numbers); n != 0 {
						t.Errorf("order %s: %d calls, want none", c.Numbers["order"], n)
					}
				}
				time.Sleep(time.Minute)
				for _, c := range calls {
					if got := s.mustGet(t, c.ID); got.State != Unknown {
						t.Errorf("order %s is %s", c.Numbers["order"], got.State)
					}
				}
				if n := len(s.followUps.questions.byID); n != 0 || f.targets() != "pay pay" {
					t.Errorf("%d entries, sent %q", n, f.targets())
				}
			})
		})
	}
}

// TestPartedIsBounded: the entries of the last calls whose callers had their answers are kept.
func TestPartedIsBounded(t *testing.T) {
	qs := newQuestions()
	for i := range maxParted + 5 {
		id := fmt.Sprint(i)
		qs.part(&Call{ID: id, Upstream: "api", Numbers: notices("order", id), Response: &Response{}})
	}
	if n, _ := qs.wake("api", notices("order", "4")); n != 0 || len(qs.byID) != maxParted || len(qs.byNumber) != maxParted || len(qs.parted) != maxParted {
		t.Errorf("%d calls; %d, %d and %d entries", n, len(qs.byID), len(qs.byNumber), len(qs.parted))
	}
	if n, idle := qs.wake("api", notices("order", "5")); n != 1 || len(idle) != 1 || idle[0].Response != nil {
		t.Errorf("%d calls, %v", n, idle)
	}
}
