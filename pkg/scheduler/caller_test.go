package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func TestCancel(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for _, target := range []string{"/a", "/b", "/c"} {
			ids = append(ids, submit(t, s, Request{Target: target}).ID)
		}
		synctest.Wait()
		if _, err := s.Cancel(t.Context(), ids[0]); reason(err) != WrongState {
			t.Errorf("cancelling a call that is being sent: %v, want wrong_state", err)
		}
		if c, err := s.Cancel(t.Context(), ids[1]); err != nil || c.State != Cancelled {
			t.Fatalf("Cancel = %v, %v", c, err)
		}
		if _, err := s.Cancel(t.Context(), ids[1]); reason(err) != WrongState {
			t.Errorf("cancelling twice: %v, want wrong_state", err)
		}
		if _, err := s.Cancel(t.Context(), "nobody"); reason(err) != NotFound {
			t.Errorf("cancelling an unknown id: %v, want not_found", err)
		}
		wait(t, s, ids[2])
		sameTimes(t, f.at(), 0, sec+10*ms) // its slot went to the next
		if got := f.targets(); got != "a c" {
			t.Errorf("sent %q, want a c", got)
		}
	})
}

func TestDeadline(t *testing.T) {
	u := Upstream{Limits: perSecond(1), MaxWait: 2 * sec}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 3 { // at 0, 1.01 and 2.02 s
			submit(t, s, Request{})
		}
		time.Sleep(20 * ms) // the first answer tells how long a round trip takes
		// The next could go at 3.03 s: refused at once.
		began := time.Now()
		_, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: f.start.Add(3 * sec)})
		if reason(err) != PastDeadline || time.Since(began) > ms {
			t.Errorf("Submit = %v after %v, want past_deadline at once", err, time.Since(began))
		}
		_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if reason(err) != PastDeadline || c == nil || time.Since(began) > ms {
			t.Errorf("Do = %v after %v, want past_deadline at once", err, time.Since(began))
		}
		var e *Error
		if errors.As(err, &e); e.Limit != "app" || e.RetryAfter.Round(10*ms) != 1010*ms {
			t.Errorf("refused by limit %q, retry after %v; want app, 1.01s", e.Limit, e.RetryAfter)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		if _, _, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Priority: 100}); reason(err) != PastDeadline {
			t.Errorf("Do with a short context = %v, want past_deadline", err)
		}
		// In time as it looks, but then an urgent one comes.
		late := submit(t, s, Request{Target: "/late", Deadline: f.start.Add(3500 * ms)})
		submit(t, s, Request{Target: "/urgent", Priority: 1})
		if c := wait(t, s, late.ID); c.State != Expired || c.FinishedAt.Sub(f.start).Round(10*ms) != 3500*ms {
			t.Errorf("%s at %v, want expired at 3.5s", c.State, c.FinishedAt.Sub(f.start))
		}
	})
}

func TestRefusals(t *testing.T) {
	u := Upstream{MaxWaiting: 2, MaxBody: 10, Limits: []Limit{
		{Name: "app", PerKey: `param("app_id")`, Calls: 1, Window: sec},
		{Name: "cost", When: `path == "/costly"`, Calls: 3, Window: sec, Cost: "4"},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for name, tt := range map[string]struct {
			r    Request
			want Reason
		}{
			"unknown upstream": {Request{Upstream: "nope", Target: "/"}, NotFound},
			"no key":           {Request{Target: "/"}, BadKey},
			"too dear":         {Request{Target: "/costly?app_id=1"}, CostTooHigh},
			"body":             {Request{Target: "/?app_id=1", Body: make([]byte, 11)}, TooLarge},
			"priority":         {Request{Target: "/?app_id=1", Priority: 101}, BadRequest},
			"path":             {Request{Target: "/../?app_id=1"}, BadRequest},
			"times":            {Request{Target: "/?app_id=1", NotBefore: f.start.Add(2 * sec), Deadline: f.start.Add(sec)}, BadRequest},
		} {
			if tt.r.Upstream == "" {
				tt.r.Upstream = "api"
			}
			if _, err := s.Submit(t.Context(), tt.r); reason(err) != tt.want {
				t.Errorf("%s: %v, want %s", name, err, tt.want)
			}
			if _, _, err := s.Do(t.Context(), tt.r); reason(err) != tt.want {
				t.Errorf("%s: Do: %v, want %s", name, err, tt.want)
			}
		}
		for range 3 { // one goes, two wait
			submit(t, s, Request{Target: "/?app_id=1"})
			synctest.Wait()
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/?app_id=1"}); reason(err) != Full {
			t.Errorf("the fourth: %v, want full", err)
		}
		time.Sleep(10 * sec)
		if n := len(f.at()); n != 3 {
			t.Errorf("%d requests, want 3", n)
		}
	})
}

func TestCallerGoes(t *testing.T) {
	t.Run("before its slot: cancelled", func(t *testing.T) {
		bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
			submit(t, s, Request{})
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*ms, cancel)
			_, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/"})
			if !errors.Is(err, context.Canceled) || c == nil || c.State != Cancelled {
				t.Errorf("Do = %+v, %v; want the call cancelled", c, err)
			}
			time.Sleep(10 * sec)
			sameTimes(t, f.at(), 0)
		})
	})
	t.Run("after the first byte: it runs to its end and is recorded", func(t *testing.T) {
		bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{after: 2 * sec} }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*ms, cancel)
			_, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/"})
			if !errors.Is(err, context.Canceled) || c == nil || c.State != Sending {
				t.Fatalf("Do = %+v, %v; want the call being sent", c, err)
			}
			if got := wait(t, s, c.ID); got.State != Done {
				t.Errorf("recorded as %s, want done", got.State)
			}
		})
	})
}

func TestWaitingCallerGetsTheUpstreamsAnswer(t *testing.T) {
	limited := upstream.Rule{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}
	tests := []struct {
		name   string
		resend bool
		serve  func(n int) answer
		status int
		state  State
		sent   []time.Duration // nil: dialled twice
		reason Reason
	}{
		{"done", false, func(int) answer { return answer{body: "ok"} }, 200, Done, []time.Duration{0}, ""},
		{"failed", false, func(int) answer { return answer{status: 400} }, 400, Failed, []time.Duration{0}, ""},
		{"limited: its answer, as it is", false, func(int) answer { return answer{status: 429} }, 429, Exhausted, []time.Duration{0}, ""},
		{"limited, bytes may go again", true, func(n int) answer {
			return map[bool]answer{true: {status: 429}, false: {}}[n == 1]
		}, 200, Done, []time.Duration{0, sec}, ""},
		{"limited for longer than it waits: the last answer", true, func(int) answer { return answer{status: 429} }, 429, Exhausted, []time.Duration{0, sec, 2 * sec, 3 * sec}, ""},
		{"unknown, with an answer", false, func(int) answer { return answer{status: 500} }, 500, Unknown, []time.Duration{0}, ""},
		{"unknown, without", false, func(int) answer { return answer{err: io.EOF} }, 0, Unknown, []time.Duration{0}, NoAnswer},
		{"down: tried twice", false, func(int) answer { return answer{err: errDial} }, 0, Exhausted, nil, Unreachable},
		{"down for a moment", false, func(n int) answer {
			return map[bool]answer{true: {err: errDial}, false: {}}[n == 1]
		}, 200, Done, nil, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := Upstream{Resend: tt.resend, MaxWait: 3500 * ms}
			u.Outcomes = []upstream.Rule{limited}
			u.Retry.Min, u.Retry.Max = 400*ms, 400*ms
			u.Retry.Backoff = func(s retry.Step) time.Duration { return s.Min }
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer { return tt.serve(n) }
				resp, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
				if reason(err) != tt.reason || (resp != nil) != (tt.status != 0) {
					t.Fatalf("Do = %v, %v; want reason %q", resp, err, tt.reason)
				}
				if resp != nil {
					if resp.StatusCode != tt.status {
						t.Errorf("status %d, want %d", resp.StatusCode, tt.status)
					}
					resp.Body.Close()
				}
				if c.State != tt.state {
					t.Errorf("state %s, want %s", c.State, tt.state)
				}
				if at := f.at(); tt.sent != nil {
					sameTimes(t, at, tt.sent...)
				} else if len(at) != 2 || at[1] < 250*ms || at[1] > 501*ms {
					t.Errorf("dialled at %v, want twice, the second time after 0.25 to 0.5 s", at)
				}
			})
		})
	}
}

func TestTransportForAnyClient(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		var got *http.Request
		var sent string
		f.serve = func(_ int, r *http.Request) answer {
			b, _ := io.ReadAll(r.Body)
			got, sent = r, string(b)
			return answer{status: 201, body: "created"}
		}
		client := &http.Client{Transport: s.Transport("api")}
		req, _ := http.NewRequest("POST", "https://platform.example/v1/refunds?a=%2F", strings.NewReader("amount=1"))
		req.Header.Set("Throttler-Priority", "3")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 201 || string(body) != "created" {
			t.Errorf("answer %d %q", resp.StatusCode, body)
		}
		if got.URL.Host != "api.test" || got.URL.RequestURI() != "/v1/refunds?a=%2F" || sent != "amount=1" || got.Header.Get("Throttler-Priority") != "" {
			t.Errorf("sent %s %v %q", got.URL, got.Header, sent)
		}
		if _, err := (&http.Client{Transport: s.Transport("nope")}).Get("http://x/"); reason(err) != NotFound {
			t.Errorf("unknown upstream: %v, want not_found", err)
		}
	})
}

func TestIdempotencyKey(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		r := Request{Target: "/", Body: []byte("amount=1"), IdempotencyKey: "refund-1"}
		first := submit(t, s, r)
		if again := submit(t, s, r); again.ID != first.ID {
			t.Errorf("the same key gave another call")
		}
		done := wait(t, s, first.ID)
		if again := submit(t, s, r); again.ID != first.ID || again.State != done.State {
			t.Errorf("the same key gave %+v after the end", again)
		}
		r.Body, r.Upstream = []byte("amount=2"), "api"
		if _, err := s.Submit(t.Context(), r); reason(err) != KeyReused {
			t.Errorf("other content: %v, want key_reused", err)
		}
		if len(f.at()) != 1 || upstreams(t, s)[0].Waiting != 0 {
			t.Errorf("%d requests, %+v", len(f.at()), upstreams(t, s)[0])
		}
	})
}

func TestResolveAndRetryOfUnknown(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n <= 2 {
				return answer{status: 500}
			}
			return answer{}
		}
		a, b := submit(t, s, Request{}), submit(t, s, Request{})
		wait(t, s, a.ID)
		wait(t, s, b.ID)
		if c, err := s.Resolve(t.Context(), a.ID, Done, "seen on the statement"); err != nil || c.State != Done || !strings.Contains(c.Last().Reason, "seen on the statement") {
			t.Errorf("Resolve = %+v, %v", c, err)
		}
		if _, err := s.Resolve(t.Context(), a.ID, Failed, ""); reason(err) != "" && reason(err) != WrongState && reason(err) != NotFound {
			t.Errorf("a second Resolve = %v", err)
		}
		if _, err := s.Resolve(t.Context(), b.ID, Waiting, "never arrived"); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, b.ID); c.State != Done || len(c.Attempts) != 2 {
			t.Errorf("sent again: %s after %d attempts", c.State, len(c.Attempts))
		}
		if st := upstreams(t, s)[0]; st.Waiting != 0 || st.Bytes != 0 {
			t.Errorf("what waits afterwards: %+v", st)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		if err := s.Pause(t.Context(), "api", "app", "/a", f.start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		a := submit(t, s, Request{Target: "/a"})
		if a.WaitingFor.Limit != "app" || a.WaitingFor.Key != "/a" {
			t.Errorf("a waits for %+v", a.WaitingFor)
		}
		wait(t, s, submit(t, s, Request{Target: "/b"}).ID)
		time.Sleep(2 * sec)
		if err := s.Resume(t.Context(), "api", "app", "/a"); err != nil {
			t.Fatal(err)
		}
		wait(t, s, a.ID)
		sameTimes(t, f.at(), 0, 2*sec+10*ms)
		if err := s.Pause(t.Context(), "api", "nope", "", f.start); reason(err) != NotFound {
			t.Errorf("unknown limit: %v", err)
		}
	})
}

func TestStop(t *testing.T) {
	stored := func(t *testing.T, s *Scheduler, id string) *Call {
		c, err := s.store.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Run("those in flight finish, those that wait are refused", func(t *testing.T) {
		bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{after: 2 * sec} }
			flying := submit(t, s, Request{})
			synctest.Wait()
			refused := make(chan error, 1)
			go func() {
				_, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
				refused <- err
			}()
			synctest.Wait()
			go func() {
				time.Sleep(ms)
				if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/"}); reason(err) != Stopping {
					t.Errorf("Submit while stopping: %v, want stopping", err)
				}
			}()
			s.Close()
			if err := <-refused; reason(err) != Stopping {
				t.Errorf("the waiting caller got %v, want stopping", err)
			}
			if c := stored(t, s, flying.ID); c.State != Done || time.Since(f.start) < 2*sec {
				t.Errorf("the call in flight ended as %s after %v", c.State, time.Since(f.start))
			}
			s.Close() // twice is fine
			for name, err := range map[string]error{
				"Get":     second(s.Get(t.Context(), flying.ID)),
				"List":    second(s.List(t.Context(), Filter{})),
				"Cancel":  second(s.Cancel(t.Context(), flying.ID)),
				"Resolve": second(s.Resolve(t.Context(), flying.ID, Done, "")),
				"Pause":   s.Pause(t.Context(), "api", "", "", time.Now().Add(sec)),
			} {
				if reason(err) != Stopping {
					t.Errorf("%s afterwards: %v, want stopping", name, err)
				}
			}
			if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/"}); reason(err) != Stopping {
				t.Errorf("Submit afterwards: %v, want stopping", err)
			}
			sameTimes(t, f.at(), 0)
		})
	})
	t.Run("a bounded stop cuts attempts off: unknown", func(t *testing.T) {
		bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{after: 20 * sec} }
			c := submit(t, s, Request{})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), sec)
			defer cancel()
			s.Shutdown(ctx)
			if got := stored(t, s, c.ID); got.State != Unknown || time.Since(f.start).Round(ms) != sec {
				t.Errorf("%s after %v, want unknown after 1s", got.State, time.Since(f.start))
			}
		})
	})
}

func TestListAndStatus(t *testing.T) {
	bubble(t, Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 1, Window: sec}}}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for range 5 {
			ids = append(ids, submit(t, s, Request{Target: "/k"}).ID)
			synctest.Wait()
		}
		time.Sleep(500 * ms)
		var got []string
		for after := ""; ; {
			page, err := s.List(t.Context(), Filter{Upstream: "api", After: after, Max: 2})
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, c := range page {
				got = append(got, c.ID)
			}
			after = page[len(page)-1].ID
		}
		if !slices.Equal(got, ids) {
			t.Errorf("listed %v, want %v", got, ids)
		}
		waiting, _ := s.List(t.Context(), Filter{State: Waiting, Max: 10})
		if len(waiting) != 4 || waiting[3].WaitingFor == nil || waiting[3].WaitingFor.Ahead != 3 || waiting[3].ETA.Sub(f.start).Round(10*ms) != 4040*ms {
			t.Errorf("%d waiting, the last %+v; want 4, the last with 3 ahead until 4.04s", len(waiting), waiting[len(waiting)-1])
		}
		st := limits(t, s)
		if len(st) != 2 || st[1].Limit != "app" || st[1].Out != 1 || st[1].Waiting != 4 || st[1].Keys[0].Key != "/k" {
			t.Errorf("limits: %+v", st)
		}
		up := upstreams(t, s)[0]
		if up.Waiting != 4 || up.ETA.Sub(f.start).Round(10*ms) != 4040*ms {
			t.Errorf("upstream: %+v", up)
		}
	})
}

func TestEventsTellTheWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := map[EventKind]int{}
		f := &fake{start: time.Now()}
		u := Upstream{Limits: perSecond(1)}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Observe: func(e Event) { counts[e.Kind]++ }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{}).ID)
		s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: time.Now().Add(ms)})
		s.Close()
		if want := map[EventKind]int{EventAccepted: 1, EventRefused: 1, EventSending: 1, EventAttempt: 1, EventEnded: 1}; !maps.Equal(counts, want) {
			t.Errorf("events %v, want %v", counts, want)
		}
	})
}

// TestLimitsTellOfTheirAudit: two of three permits were ever in one window, and
// answers take a fifth of the window.
func TestLimitsTellOfTheirAudit(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(3)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 250 * ms} }
		for range 2 {
			submit(t, s, Request{})
		}
		time.Sleep(sec)
		l := limits(t, s)[1]
		if l.Most != 2 || l.Margin != 1 || l.HoldCost < 0.199 || l.HoldCost > 0.201 {
			t.Errorf("most %d, margin %d, hold costs %v; want 2, 1 and 0.2", l.Most, l.Margin, l.HoldCost)
		}
		if win := l.GuardWins["100ms"]; win < 0.119 || win > 0.121 {
			t.Errorf("a guard of 100ms wins %v, want 0.15 of 1.25 s", win)
		}
	})
}
