package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// till is a platform whose payments and refunds have identities, and whose queries have none.
func till() Upstream {
	u := Upstream{
		Numbers:  map[string]string{"order": `json("no")`, "refund": `json("refund")`},
		Identity: `path == "/pay" ? "pay " + json("no") : path == "/refund" ? "refund " + json("refund") : nil`,
	}
	u.Idempotency.Same = `[method, path, json("no"), json("refund"), json("amount")]`
	return u
}

func pay(body string) Request {
	return Request{Upstream: "api", Method: "POST", Target: "/pay", Body: []byte(body)}
}

// doing calls Do beside the test; its result has the answer, or the reason of the error.
func doing(ctx context.Context, s *Scheduler, r Request) (result func() (string, *Call)) {
	type end struct {
		text string
		call *Call
	}
	done := make(chan end, 1)
	go func() {
		resp, c, err := s.Do(ctx, r)
		var e *Error
		switch {
		case errors.As(err, &e):
			done <- end{string(e.Reason), e.Call}
		case err != nil:
			done <- end{err.Error(), c}
		default:
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			done <- end{fmt.Sprint(resp.StatusCode, " ", string(body)), c}
		}
	}()
	return func() (string, *Call) { e := <-done; return e.text, e.call }
}

// TestIdentity: the second call of an identity joins the first, while it is under way and
// after its end.
func TestIdentity(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second answer // the second one is sent only if the first was not executed
		again         string // the result of a repeat while the first is sent, and after its end
		after         string
		payments      int
	}{
		{"done", answer{body: "paid"}, answer{}, "200 paid", "200 paid", 1},
		{"unknown", answer{status: 500, body: "oops"}, answer{}, "no_answer", "no_answer", 1},
		{"no answer", answer{err: io.ErrUnexpectedEOF}, answer{}, "no_answer", "no_answer", 1},
		{"failed", answer{status: 400, body: "refused"}, answer{body: "paid"}, "400 refused", "200 paid", 2},
		{"limited", answer{status: 429, body: "limited"}, answer{body: "paid"}, "429 limited", "200 paid", 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, till(), func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer {
					a := tt.first
					if n > 1 {
						a = tt.second
					}
					a.after = sec
					return a
				}
				first := doing(t.Context(), s, pay(`{"no":"N1","amount":7,"nonce":1}`))
				time.Sleep(100 * ms)
				second := doing(t.Context(), s, pay(`{"no":"N1","amount":7,"nonce":2}`))
				submitted := submit(t, s, pay(`{"no":"N1","amount":7,"nonce":3}`))
				_, c := first()
				if text, again := second(); text != tt.again || again == nil || again.ID != c.ID || !again.Repeated {
					t.Errorf("a repeat meanwhile: %s, %+v; want %s of call %s", text, again, tt.again, c.ID)
				}
				if submitted.ID != c.ID || !submitted.Repeated {
					t.Errorf("a submission meanwhile: %+v, want call %s", submitted, c.ID)
				}
				time.Sleep(time.Minute)
				if text, _ := doing(t.Context(), s, pay(`{"no":"N1","amount":7,"nonce":4}`))(); text != tt.after {
					t.Errorf("a repeat a minute later: %s, want %s", text, tt.after)
				}
				if n := len(f.at()); n != tt.payments {
					t.Errorf("%d payments, want %d", n, tt.payments)
				}
			})
		})
	}
}

// TestIdentityAfterAFailedKey: a repeat of a failed call is told of the payment that was made
// since, without its key.
func TestIdentityAfterAFailedKey(t *testing.T) {
	bubble(t, till(), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return []answer{{status: 400, body: "refused"}, {body: "paid"}, {body: "paid twice"}}[n-1]
		}
		keyed := pay(`{"no":"N1","amount":7}`)
		keyed.IdempotencyKey = "k1"
		first := submit(t, s, keyed)
		time.Sleep(time.Minute)
		if again := submit(t, s, keyed); again.ID != first.ID || again.State != Failed {
			t.Errorf("a repeat before the payment: %+v, want call %s, failed", again, first.ID)
		}
		_, paid := doing(t.Context(), s, pay(`{"no":"N1","amount":7}`))()
		if again := submit(t, s, keyed); again.ID != paid.ID || again.State != Done {
			t.Errorf("a repeat after the payment: %+v, want call %s, done", again, paid.ID)
		}
		if n := len(f.at()); n != 2 {
			t.Errorf("%d payments were sent, want 2", n)
		}
	})
}

// TestIdentityTellsCallsApart: other operations and numbers are other calls, other content is
// refused, and calls without an identity have no first one.
func TestIdentityTellsCallsApart(t *testing.T) {
	bubble(t, till(), func(t *testing.T, s *Scheduler, f *fake) {
		to := func(target, body string) Request {
			return Request{Upstream: "api", Method: "POST", Target: target, Body: []byte(body)}
		}
		for _, r := range []Request{
			to("/pay", `{"no":"N1","amount":7}`), to("/pay", `{"no":"N2","amount":7}`),
			to("/refund", `{"no":"N1","refund":"R1"}`), to("/refund", `{"no":"N1","refund":"R2"}`),
			to("/query", `{"no":"N1"}`), to("/query", `{"no":"N1"}`),
			to("/pay", `{"no":"N1","amount":7}`),
		} {
			if text, _ := doing(t.Context(), s, r)(); text != "200 " {
				t.Errorf("%s %s: %s", r.Target, r.Body, text)
			}
		}
		if got, want := f.targets(), "pay pay refund refund query query"; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
		_, err := s.Submit(t.Context(), pay(`{"no":"N1","amount":8}`))
		if reason(err) != KeyReused || !strings.Contains(err.Error(), "business number of its own") || strings.Contains(err.Error(), "N1") {
			t.Errorf("another amount: %v, want key_reused without the number", err)
		}
		for _, body := range []string{`{"no":"N3","no":"N4"}`, `{"no":["N3"]}`, `{"no":"` + strings.Repeat("9", upstream.MaxKey) + `"}`} {
			if _, err := s.Submit(t.Context(), pay(body)); reason(err) != BadKey {
				t.Errorf("%.40s: %v, want bad_key", body, err)
			}
		}
	})
}

// TestIdentityOfALeaver: a call whose caller leaves before it is sent gives its place to the
// repeat that has joined it.
func TestIdentityOfALeaver(t *testing.T) {
	u := till()
	u.Limits = perSecond(1)
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		doing(t.Context(), s, Request{Upstream: "api", Target: "/query"})()
		ctx, leave := context.WithCancel(t.Context())
		first := doing(ctx, s, pay(`{"no":"N1"}`))
		synctest.Wait()
		second := doing(t.Context(), s, pay(`{"no":"N1"}`))
		synctest.Wait()
		leave()
		_, left := first()
		if text, c := second(); text != "200 " || left.State != Cancelled || c.ID == left.ID {
			t.Errorf("the first is %s, the second %s %+v; want it sent as a call of its own", left.State, text, c)
		}
		if got := f.targets(); got != "query pay" {
			t.Errorf("sent %q", got)
		}
	})
}

// TestIdentityIsBounded: calls without an identity displace none that have one, and the last
// ones with an identity are kept.
func TestIdentityIsBounded(t *testing.T) {
	m := newMemory(10, 1<<20)
	accept := func(i int, identity string) *Call {
		c := &Call{ID: fmt.Sprint(i), State: Waiting}
		known, err := m.Accept(t.Context(), &Entry{Call: c, Identity: identity, Fingerprint: "f"})
		if err != nil {
			t.Fatal(err)
		}
		if known != nil {
			return known
		}
		end := c.snapshot()
		end.State = Done
		if err := m.Record(t.Context(), end); err != nil {
			t.Fatal(err)
		}
		return nil
	}
	accept(0, "pay")
	for i := 1; i < 1000; i++ {
		accept(i, "")
	}
	if known := accept(1000, "pay"); known == nil || known.ID != "0" {
		t.Errorf("after 999 calls without an identity: %+v", known)
	}
	for i := 1001; i < 1011; i++ {
		accept(i, fmt.Sprint(i))
	}
	if known := accept(2000, "pay"); known != nil {
		t.Errorf("after 10 more with an identity, of which 10 are kept: %+v", known)
	}
	if len(m.calls) > 20 || len(m.keys) > 10 || len(m.keysOf) > 10 {
		t.Errorf("%d calls and %d keys of %d calls are kept", len(m.calls), len(m.keys), len(m.keysOf))
	}
}

// TestNumbers: a call has the numbers that its request gives.
func TestNumbers(t *testing.T) {
	bubble(t, till(), func(t *testing.T, s *Scheduler, f *fake) {
		for body, want := range map[string]map[string]string{
			`{"no":"N1","refund":12}`: {"order": "N1", "refund": "12"},
			`{"no":"N2","refund":""}`: {"order": "N2"},
			`{"refund":["R"]}`:        nil,
		} {
			c := wait(t, s, submit(t, s, Request{Method: "POST", Body: []byte(body)}).ID)
			if !maps.Equal(c.Numbers, want) {
				t.Errorf("%s: %q, want %q", body, c.Numbers, want)
			}
		}
	})
	u := till()
	u.Numbers = map[string]string{"Order": "1 +", "empty": ""}
	for i := range 8 {
		u.Numbers[fmt.Sprint("n", i)] = `"x"`
	}
	u.URL, u.Identity = "http://api.test", `jso("no")`
	err := Config{Upstreams: map[string]Upstream{"api": u}}.Validate()
	for _, want := range []string{"upstreams.api.numbers: has 10 names, at most 8", "upstreams.api.numbers.Order: name", "upstreams.api.numbers.empty: is empty", "upstreams.api.identity: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Identities do not wait for each other, and only those in use are held.
func TestLocksAreOfOneIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newIdentityLocks()
		var unlocks []func()
		for i := range 1000 { // while all others are locked
			unlock, err := l.lock(t.Context(), fmt.Sprint(i))
			if err != nil {
				t.Fatal(err)
			}
			unlocks = append(unlocks, unlock)
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := l.lock(gone, "7"); !errors.Is(err, context.Canceled) {
			t.Errorf("a lock that is held is taken: %v", err)
		}
		next := make(chan struct{})
		go func() {
			unlock, _ := l.lock(t.Context(), "7")
			close(next)
			unlock()
		}()
		synctest.Wait()
		select {
		case <-next:
			t.Error("two hold the lock of one identity")
		default:
		}
		for _, unlock := range unlocks {
			unlock()
		}
		synctest.Wait()
		<-next
		if n := len(l.byIdentity); n != 0 {
			t.Errorf("%d locks are kept that nobody holds", n)
		}
	})
}
