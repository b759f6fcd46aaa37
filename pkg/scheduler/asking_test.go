package scheduler

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// bank is a till whose payments can be asked about: by its own queries every 5 s, and by those
// of callers.
func bank() Upstream {
	u := till()
	u.Asks = `path startsWith "/query/" ? "pay " + split(path, "/")[2] : nil`
	u.MaxWait = 22 * sec
	u.Resolve = []Resolve{{
		When: `path == "/pay"`, Target: `"/query/" + json("no")`, After: 5 * sec, Every: 5 * sec, Queries: 100,
		Outcomes: []upstream.Rule{
			{When: `body("state") == "PAID" and (body("amount") ?? 7) == json("amount")`, Is: upstream.Done},
			{When: `body("state") == "CLOSED"`, Is: upstream.Failed},
			{When: `status == 404`, Is: upstream.NotExecuted},
		},
	}}
	return u
}

// answers gives each path its answers in turn, the last one from then on.
func answers(of map[string][]answer) func(int, *http.Request) answer {
	return func(_ int, r *http.Request) answer {
		all := of[strings.Split(r.URL.Path, "/")[1]]
		if len(all) > 1 {
			of[strings.Split(r.URL.Path, "/")[1]] = all[1:]
		}
		a := all[0]
		a.after = 10 * ms
		return a
	}
}

const payment = `{"no":"N1","amount":7}`

// TestWaitingCallerIsAskedFor: an unknown call is asked about for as long as its caller may wait.
// The caller gets the upstream's own answer, with the state that a query has found.
func TestWaitingCallerIsAskedFor(t *testing.T) {
	busy, pending := answer{status: 500, body: "busy"}, answer{body: `{"state":"PENDING"}`}
	paid, closed := answer{body: `{"state":"PAID"}`}, answer{body: `{"state":"CLOSED"}`}
	for _, tt := range []struct {
		name    string
		change  func(*Upstream)
		pay     []answer
		queries []answer
		text    string
		state   State
		after   time.Duration
		targets string
	}{
		{"done", nil, []answer{busy}, []answer{paid}, "500 busy", Done, 5020 * ms, "pay query/N1"},
		{"pending at first", nil, []answer{busy}, []answer{pending, {status: 500}, paid}, "500 busy", Done, 15040 * ms, "pay query/N1 query/N1 query/N1"},
		{"failed", nil, []answer{busy}, []answer{closed}, "500 busy", Failed, 5020 * ms, "pay query/N1"},
		{"never final", nil, []answer{busy}, []answer{pending}, "500 busy", Unknown, 20050 * ms, "pay query/N1 query/N1 query/N1 query/N1"},
		{"not found: it is not sent again", nil, []answer{busy}, []answer{{status: 404}}, "500 busy", Unknown, 20050 * ms, "pay query/N1 query/N1 query/N1 query/N1"},
		{"another amount", nil, []answer{busy}, []answer{{body: `{"state":"PAID","amount":8}`}}, "500 busy", Unknown, 20050 * ms, "pay query/N1 query/N1 query/N1 query/N1"},
		{"no answer, and done", nil, []answer{{err: io.ErrUnexpectedEOF}}, []answer{paid}, "no_answer", Unknown, 5020 * ms, "pay query/N1"},
		{"the first query would come too late", func(u *Upstream) { u.MaxWait = 5 * sec }, []answer{busy}, nil, "500 busy", Unknown, 10 * ms, "pay"},
		{"it needs a signer", func(u *Upstream) { u.Resolve[0].Signed = true }, []answer{busy}, nil, "500 busy", Unknown, 10 * ms, "pay"},
		{"a final answer", nil, []answer{{status: 400, body: "no"}}, nil, "400 no", Failed, 10 * ms, "pay"},
		// The refusal of the repeat would say "not executed" of a payment that is made.
		{"the repeat is limited", func(u *Upstream) {
			u.Idempotent, u.Resend, u.MaxWait = `path == "/pay"`, true, 22*sec
			u.Retry = retry.Policy{Attempts: 2, Curve: retry.Curve{Min: sec, Max: sec}, Limited: &retry.Curve{Min: time.Minute, Max: time.Minute}}
			u.Outcomes = []upstream.Rule{{When: `status == 429`, Is: upstream.NotExecuted, After: time.Minute}}
		}, []answer{busy, {status: 429}}, []answer{paid}, "no_answer", Unknown, 0, "pay pay query/N1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := bank()
			if tt.change != nil {
				tt.change(&u)
			}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = answers(map[string][]answer{"pay": tt.pay, "query": tt.queries})
				began := time.Now()
				text, c := doing(t.Context(), s, pay(payment))()
				if text != tt.text || c.State != tt.state || c.Outcome() != upstream.Outcome(tt.state) {
					t.Errorf("%s, %s, outcome %s; want %s, %s", text, c.State, c.Outcome(), tt.text, tt.state)
				}
				if took := time.Since(began); tt.after > 0 && (took-tt.after).Abs() > 10*ms { // 0: it is drawn
					t.Errorf("the answer came after %v, want %v", took, tt.after)
				}
				time.Sleep(time.Minute)
				if got := f.targets(); got != tt.targets {
					t.Errorf("sent %q, want %q", got, tt.targets)
				}
			})
		})
	}
}

// TestAccepted: an answer 202 is unknown if a query can tell the end, and is not sent again.
func TestAccepted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*Upstream)
		queries []answer
		state   State
		targets string
	}{
		{"done", nil, []answer{{body: `{"state":"PENDING"}`}, {body: `{"state":"PAID"}`}}, Done, "pay query/N1 query/N1"},
		{"failed", nil, []answer{{body: `{"state":"CLOSED"}`}}, Failed, "pay query/N1"},
		{"recognised repeats are not made", func(u *Upstream) { u.Idempotent, u.Resend = "true", true }, []answer{{body: `{"state":"CLOSED"}`}}, Failed, "pay query/N1"},
		{"the query is accepted itself", func(u *Upstream) { u.Resolve[0].When, u.Resolve[0].Queries = "", 1 }, []answer{{status: 202}}, Unknown, "pay query/N1"},
		{"without a signer", func(u *Upstream) { u.Resolve[0].Signed = true }, nil, Unknown, "pay"},
		{"no query fits", func(u *Upstream) { u.Resolve[0].When = "false" }, nil, Done, "pay"},
		{"a rule says done", func(u *Upstream) { u.Outcomes = []upstream.Rule{{When: "status == 202", Is: upstream.Done}} }, nil, Done, "pay"},
	} {
		for _, waits := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, ", its caller waits ", waits), func(t *testing.T) {
				u := bank()
				if tt.change != nil {
					tt.change(&u)
				}
				bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
					f.serve = answers(map[string][]answer{"pay": {{status: 202, body: "accepted"}}, "query": tt.queries})
					var id string
					if waits {
						text, c := doing(t.Context(), s, pay(payment))()
						if id = c.ID; text != "202 accepted" || c.State != tt.state {
							t.Errorf("%s, %s; want its own answer and %s", text, c.State, tt.state)
						}
					} else {
						id = submit(t, s, pay(payment)).ID
					}
					time.Sleep(time.Minute)
					if c := s.mustGet(t, id); c.State != tt.state || f.targets() != tt.targets {
						t.Errorf("it is %s after %q, want %s after %q", c.State, f.targets(), tt.state, tt.targets)
					}
				})
			})
		}
	}
}

// TestAskedCallerLeaves: the queries end when the caller leaves, and at a stop, which tells the
// caller that its call is unknown.
func TestAskedCallerLeaves(t *testing.T) {
	bubble(t, bank(), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = answers(map[string][]answer{"pay": {{status: 500, body: "busy"}}, "query": {{status: 500}}})
		ctx, leave := context.WithCancel(t.Context())
		left := doing(ctx, s, pay(payment))
		time.Sleep(6 * sec)
		leave()
		if text, c := left(); c.State != Unknown {
			t.Errorf("%s, %s; want the call unknown", text, c.State)
		}
		time.Sleep(time.Minute)
		if got := f.targets(); got != "pay query/N1" || upstreams(t, s)[0].Waiting != 0 {
			t.Errorf("sent %q, %d calls wait", got, upstreams(t, s)[0].Waiting)
		}
		stays := doing(t.Context(), s, pay(`{"no":"N2","amount":7}`))
		time.Sleep(sec)
		began := time.Now()
		s.Close()
		if text, c := stays(); text != "500 busy" || c.State != Unknown || time.Since(began) > sec {
			t.Errorf("%s, %s after %v; want the answer of an unknown call at once", text, c.State, time.Since(began))
		}
	})
}

func packed(text string) string {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

func ask(no string) Request { return Request{Upstream: "api", Target: "/query/" + no} }

// TestCallersQuerySettles: the final answer to a caller's own query settles the unknown call of
// its number, without a signer, waited for or submitted. Then a repeat of a failed call goes, and
// a repeat of a done call does not.
func TestCallersQuerySettles(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer answer
		want   State
		then   string // the result of a repeat
	}{
		{"done", answer{body: `{"state":"PAID"}`}, Done, "500 busy"},
		{"failed", answer{body: `{"state":"CLOSED"}`}, Failed, "200 paid"},
		{"done, packed", answer{header: http.Header{"Content-Encoding": {"gzip"}}, body: packed(`{"state":"PAID"}`)}, Done, "500 busy"},
		{"packed by half", answer{header: http.Header{"Content-Encoding": {"gzip"}}, body: packed(`{"state":"PAID"}`)[:20]}, Unknown, "no_answer"},
		{"pending", answer{body: `{"state":"PENDING"}`}, Unknown, "no_answer"},
		{"not found", answer{status: 404}, Unknown, "no_answer"},
		{"another amount", answer{body: `{"state":"PAID","amount":8}`}, Unknown, "no_answer"},
		{"no answer", answer{err: io.ErrUnexpectedEOF}, Unknown, "no_answer"},
		{"too long", answer{body: `{"state":"PAID","x":"` + strings.Repeat("x", 3<<20) + `"}`}, Unknown, "no_answer"},
	} {
		for _, waits := range []bool{true, false} {
			name := tt.name + ", submitted"
			if waits {
				name = tt.name + ", its caller waited"
			}
			t.Run(name, func(t *testing.T) {
				u := bank()
				u.Resolve[0].Signed = true
				bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
					f.serve = answers(map[string][]answer{"pay": {{status: 500, body: "busy"}, {body: "paid"}}, "query": {tt.answer}})
					var id string
					if waits {
						_, c := doing(t.Context(), s, pay(payment))()
						id = c.ID
					} else {
						id = wait(t, s, submit(t, s, pay(payment)).ID).ID
					}
					time.Sleep(sec)
					other, _ := doing(t.Context(), s, ask("N2"))()
					if c := s.mustGet(t, id); c.State != Unknown {
						t.Fatalf("a query about another number (%.20s) made it %s", other, c.State)
					}
					text, query := doing(t.Context(), s, ask("N1"))()
					if tt.answer.err == nil && !strings.HasSuffix(text, tt.answer.body) {
						t.Errorf("the query's answer is %.60q, want it unchanged", text)
					}
					c := s.mustGet(t, id)
					if c.State != tt.want || c.Outcome() != upstream.Outcome(tt.want) {
						t.Errorf("it is %s, want %s: %s", c.State, tt.want, c.Last().Reason)
					}
					if tt.want != Unknown && (len(c.Decisions) != 1 || c.Decisions[0].By != "query "+query.ID+" of a caller") {
						t.Errorf("the decisions are %v", c.Decisions)
					}
					if text, _ := doing(t.Context(), s, pay(payment))(); text != tt.then {
						t.Errorf("a repeat: %.60s, want %s", text, tt.then)
					}
				})
			})
		}
	}
}

// TestCallersQuerySettlesNothingElse: a query settles neither a call that is final, nor one that is
// in flight, nor one that became unknown after the query was sent.
func TestCallersQuerySettlesNothingElse(t *testing.T) {
	u := bank()
	u.Resolve[0].Signed = true
	t.Run("final", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = answers(map[string][]answer{"pay": {{body: "paid"}}, "query": {{body: `{"state":"CLOSED"}`}}})
			_, c := doing(t.Context(), s, pay(payment))()
			doing(t.Context(), s, ask("N1"))()
			if got := s.mustGet(t, c.ID); got.State != Done {
				t.Errorf("it is %s", got.State)
			}
		})
	})
	t.Run("sent before", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(_ int, r *http.Request) answer {
				if r.URL.Path == "/pay" {
					return answer{after: 10 * ms, status: 500}
				}
				return answer{after: 10 * sec, body: `{"state":"CLOSED"}`}
			}
			query := doing(t.Context(), s, ask("N1"))
			synctest.Wait()
			time.Sleep(ms)
			c := wait(t, s, submit(t, s, pay(payment)).ID)
			query()
			if got := s.mustGet(t, c.ID); got.State != Unknown {
				t.Errorf("it is %s", got.State)
			}
		})
	})
	t.Run("a person first", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = answers(map[string][]answer{"pay": {{status: 500}}, "query": {{body: `{"state":"CLOSED"}`}}})
			_, c := doing(t.Context(), s, pay(payment))()
			if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.Done, Reason: "seen on the statement"}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(sec)
			doing(t.Context(), s, ask("N1"))()
			if got := s.mustGet(t, c.ID); got.State != Done {
				t.Errorf("it is %s", got.State)
			}
		})
	})
}

// TestAsksOfAnUnreadableQuery: a query whose identity cannot be computed goes all the same.
func TestAsksOfAnUnreadableQuery(t *testing.T) {
	u := bank()
	u.Asks = `"pay " + json("no")`
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		if text, _ := doing(t.Context(), s, Request{Upstream: "api", Method: "POST", Target: "/query/N1", Body: []byte(`{"no":"N3","no":"N4"}`)})(); text != "200 " {
			t.Errorf("%s", text)
		}
	})
	u.Identity, u.URL = "", "http://api.test"
	if err := (Config{Upstreams: map[string]Upstream{"api": u}}).Validate(); err == nil || !strings.Contains(err.Error(), "upstreams.api.asks: needs identity") {
		t.Errorf("%v", err)
	}
}

// TestUnknownRequestsAreBounded: the requests of unknown calls count as answers do, and go with
// their calls.
func TestUnknownRequestsAreBounded(t *testing.T) {
	m := newMemory(100, 10_000)
	end := func(id string, state State) {
		c := &Call{ID: id, State: Waiting}
		if _, err := m.Accept(t.Context(), &Entry{Call: c, Identity: id, Request: &upstream.Request{Body: make([]byte, 1000)}}); err != nil {
			t.Fatal(err)
		}
		c = c.snapshot()
		c.State = state
		if err := m.Record(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		end(string(rune('A'+i)), Unknown)
	}
	if len(m.requests) != 10 || m.bytes != 10_000 {
		t.Errorf("%d requests and %d bytes are kept", len(m.requests), m.bytes)
	}
	for id := range m.requests {
		c := m.calls[id].snapshot()
		c.State = Done
		if err := m.Record(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	end("done", Done)
	if len(m.requests) != 0 || m.bytes != 0 {
		t.Errorf("%d requests and %d bytes are kept of calls that are done", len(m.requests), m.bytes)
	}
}

// TestIdentitiesOutliveAnswers: many long answers take no identity away: a repeat of a
// payment is not sent as a new one.
func TestIdentitiesOutliveAnswers(t *testing.T) {
	m := newMemory(100, 10_000)
	for i := range 120 {
		id := fmt.Sprint("pay ", i)
		c := &Call{ID: id, State: Waiting}
		if known, err := m.Accept(t.Context(), &Entry{Call: c, Identity: id}); known != nil || err != nil {
			t.Fatal(known, err)
		}
		c = c.snapshot()
		c.State, c.Response = Done, &Response{Status: 200, Body: make([]byte, 1000)}
		if err := m.Record(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	whole := 0
	for i := range 120 {
		id := fmt.Sprint("pay ", i)
		c, err := m.Find(t.Context(), &Entry{Call: &Call{}, Identity: id})
		if (c != nil) != (i >= 20) || err != nil {
			t.Fatalf("%s: %+v, %v", id, c, err)
		}
		if c != nil && c.Response.Status != 200 {
			t.Errorf("%s: status %d", id, c.Response.Status)
		}
		if c != nil && !c.Response.Truncated {
			whole++
		}
	}
	if whole != 10 || m.bytes != 10_000 {
		t.Errorf("%d whole answers, %d bytes", whole, m.bytes)
	}
}

// TestAnswerOfADecidedCall: an answer that says less than the call's final state is not passed on.
func TestAnswerOfADecidedCall(t *testing.T) {
	for _, tt := range []struct {
		state    State
		attempts []upstream.Outcome
		answer   bool
		outcome  upstream.Outcome
	}{
		{Done, []upstream.Outcome{upstream.Done}, true, upstream.Done},
		{Done, []upstream.Outcome{upstream.Unknown}, true, upstream.Done},
		{Done, []upstream.Outcome{upstream.Unknown, upstream.NotExecuted}, false, upstream.Done},
		{Failed, []upstream.Outcome{upstream.Unknown, upstream.NotExecuted}, false, upstream.Failed},
		{Failed, []upstream.Outcome{upstream.Unknown}, true, upstream.Failed},
		{Failed, []upstream.Outcome{upstream.NotExecuted}, true, upstream.NotExecuted}, // it was never sent
		{Unknown, []upstream.Outcome{upstream.Unknown, upstream.NotExecuted}, false, upstream.Unknown},
		{Unknown, []upstream.Outcome{upstream.Unknown}, true, upstream.Unknown},
		{Exhausted, []upstream.Outcome{upstream.NotExecuted}, true, upstream.NotExecuted},
		{Waiting, []upstream.Outcome{upstream.NotExecuted}, false, upstream.NotExecuted},
	} {
		c := &Call{State: tt.state, Response: &Response{}}
		for _, o := range tt.attempts {
			c.Attempts = append(c.Attempts, Attempt{Outcome: o})
		}
		if (c.Answer() != nil) != tt.answer || c.Outcome() != tt.outcome {
			t.Errorf("%s after %v: answer %v, outcome %s", tt.state, tt.attempts, c.Answer(), c.Outcome())
		}
	}
}
