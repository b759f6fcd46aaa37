package scheduler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

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

// TestNoCertificate: a call that no client certificate fits is refused before it waits.
func TestNoCertificate(t *testing.T) {
	s, err := New(Config{Upstreams: map[string]Upstream{"api": {Config: upstream.Config{
		URL: "https://api.test", OnlyCertified: true, Certificates: []upstream.Certificate{{When: `query("mch") == "1"`}},
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown(t.Context())
	for _, target := range []string{"/?mch=2", "/?mch=1&mch=2"} {
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: target}); reason(err) != BadKey || !strings.Contains(err.Error(), "tls.certificates") {
			t.Errorf("%s: %v, want bad_key", target, err)
		}
	}
}

func TestRefusalsNameTheirReason(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: f.start.Add(-sec)}); reason(err) != BadRequest {
			t.Errorf("a deadline that has passed: %v, want bad_request", err)
		}
		if _, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/", NotBefore: f.start.Add(time.Minute)}); reason(err) != PastDeadline {
			t.Errorf("a not_before after max_wait: %v, want past_deadline", err)
		}
		s.Pause(t.Context(), Pause{Upstream: "api", Limit: "app", Key: "/a", Until: f.start.Add(time.Hour)})
		if _, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/a"}); reason(err) != Paused || !strings.Contains(err.Error(), `"/a"`) {
			t.Errorf("a paused key: %v, want paused, and the key", err)
		}
	})
}

func TestDeadline(t *testing.T) {
	u := Upstream{Limits: perSecond(1), MaxWait: 2 * sec}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 3 { // at 0, 1.01 and 2.02 s
			submit(t, s, Request{})
		}
		time.Sleep(20 * ms) // the first answer gives the length of a round trip
		// The next slot is at 3.03 s: the call is refused at once.
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
		// The ETA is in time, but then an urgent call comes.
		late := submit(t, s, Request{Target: "/late", Deadline: f.start.Add(3500 * ms)})
		submit(t, s, Request{Target: "/urgent", Priority: 1})
		if c := wait(t, s, late.ID); c.State != Expired || c.FinishedAt.Sub(f.start).Round(10*ms) != 3500*ms {
			t.Errorf("%s at %v, want expired at 3.5s", c.State, c.FinishedAt.Sub(f.start))
		}
	})
}

func TestNotBefore(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		c := submit(t, s, Request{NotBefore: f.start.Add(time.Hour)})
		if w := c.WaitingFor; w == nil || w.Limit != "" || !w.Until.Equal(f.start.Add(time.Hour)) || !c.ETA.Equal(w.Until) {
			t.Errorf("it waits for %+v, ETA %v; want the hour", w, c.ETA)
		}
		wait(t, s, c.ID)
		sameTimes(t, f.at(), time.Hour)
	})
}

func TestNotBeforeBeyondMaxAge(t *testing.T) {
	bubble(t, Upstream{MaxAge: 24 * time.Hour}, func(t *testing.T, s *Scheduler, f *fake) {
		c := submit(t, s, Request{NotBefore: f.start.Add(48 * time.Hour)})
		if c = wait(t, s, c.ID); c.State != Done {
			t.Errorf("it is %s", c.State)
		}
		sameTimes(t, f.at(), 48*time.Hour)
	})
}

func TestMaxAgeEndsCallsWithoutAnswer(t *testing.T) {
	u := Upstream{MaxAge: time.Hour}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: errDial} }
		c := wait(t, s, submit(t, s, Request{}).ID)
		if c.State != Expired || c.FinishedAt.Sub(f.start) > time.Hour+sec {
			t.Errorf("%s at %v, want expired within an hour", c.State, c.FinishedAt.Sub(f.start))
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

func TestAcceptedCallHandedOverAgainIsNotRefused(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{})
		r := Request{Upstream: "api", Target: "/refund", IdempotencyKey: "k", Deadline: f.start.Add(5 * sec)}
		first := submit(t, s, r)
		for range 10 { // a new call would be refused from here on
			submit(t, s, Request{})
		}
		if c, err := s.Submit(t.Context(), r); err != nil || c.ID != first.ID {
			t.Errorf("the accepted call, handed over again: %v, %v", c, err)
		}
	})
}

func TestCallerMayUseItsMemoryAgain(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var got string
		f.serve = func(_ int, r *http.Request) answer {
			b, _ := io.ReadAll(r.Body)
			got = string(b) + r.Header.Get("X")
			return answer{}
		}
		submit(t, s, Request{})
		body, header := []byte("amount=1"), http.Header{"X": {"1"}}
		c := submit(t, s, Request{Method: "POST", Body: body, Header: header})
		copy(body, "amount=9")
		header.Set("X", "9")
		wait(t, s, c.ID)
		if got != "amount=11" {
			t.Errorf("sent %q, want what was handed over", got)
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
			if !errors.Is(err, context.Canceled) || c == nil || c.State != Cancelled || c.Reason != Gone {
				t.Errorf("Do = %+v, %v; want the call cancelled, as its caller is gone", c, err)
			}
			if got := s.mustGet(t, c.ID); got.Reason != Gone {
				t.Errorf("recorded with the reason %q, want gone", got.Reason)
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
			if got := wait(t, s, c.ID); got.State != Done || got.Reason != "" {
				t.Errorf("recorded as %s, %q, want done", got.State, got.Reason)
			}
		})
	})
	t.Run("after a first byte that the upstream refused: it goes no more", func(t *testing.T) {
		u := Upstream{Resend: true}
		u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}}
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{after: sec, status: 429} }
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(500*ms, cancel)
			_, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/"})
			if !errors.Is(err, context.Canceled) || c == nil {
				t.Fatalf("Do = %+v, %v", c, err)
			}
			if got := wait(t, s, c.ID); got.State != Exhausted || got.Reason != Gone {
				t.Errorf("recorded as %s, %q, want exhausted, gone", got.State, got.Reason)
			}
			time.Sleep(10 * sec)
			sameTimes(t, f.at(), 0)
		})
	})
}

// TestReasonsOfEnds: a call that ends without an answer says why.
func TestReasonsOfEnds(t *testing.T) {
	bubble(t, Upstream{MaxAge: 2 * sec, Limits: []Limit{{Name: "app", Calls: 1, Window: time.Minute}}}, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{})
		taken := submit(t, s, Request{Target: "/taken", NotBefore: time.Now().Add(time.Minute)})
		if c, err := s.Cancel(t.Context(), taken.ID); err != nil || c.State != Cancelled || c.Reason != "" {
			t.Errorf("cancelled by a person: %+v, %v", c, err)
		}
		late := submit(t, s, Request{Target: "/late", NotBefore: time.Now().Add(time.Minute)})
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Limit: "app", Until: time.Now().Add(time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, late.ID); c.State != Expired || c.Reason != PastDeadline {
			t.Errorf("no slot: %+v", c)
		}
		paused := submit(t, s, Request{Target: "/paused", NotBefore: time.Now().Add(time.Hour)})
		if err := s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(2 * time.Hour)}); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, paused.ID); c.State != Expired || c.Reason != Paused {
			t.Errorf("paused: %+v", c)
		}
	})
}

func TestAbandonedCallIsNotSent(t *testing.T) {
	bubble(t, Upstream{}, func(t *testing.T, s *Scheduler, f *fake) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Method: "POST"}); err != context.Canceled {
			t.Errorf("Do = %v, want it cancelled", err)
		}
		time.Sleep(sec)
		sameTimes(t, f.at())
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
		sent   []time.Duration // nil if dialled twice
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

func TestBacklogOfOneTenantRefusesNoOther(t *testing.T) {
	u := Upstream{Limits: perSecond(1), ShareBy: `header("X-Tenant")`}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 100 {
			submit(t, s, Request{Priority: DataPriority, Header: tenant("a")})
		}
		time.Sleep(50 * ms)
		resp, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/b", Priority: DataPriority, Header: tenant("b")})
		if err != nil {
			t.Fatalf("the other tenant's only call: %v", err)
		}
		resp.Body.Close()
		if d := time.Since(f.start); d > 3*sec {
			t.Errorf("the other tenant's only call was answered at %v, behind the backlog", d)
		}
	})
}

func TestBacklogOfOneKeyRefusesNoOther(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "merchant", PerKey: "path", Calls: 1, Window: 5 * sec},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 400 {
			submit(t, s, Request{Target: "/full", Priority: DataPriority})
		}
		time.Sleep(50 * ms)
		resp, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/other", Priority: DataPriority})
		if err != nil {
			t.Fatalf("another key's call: %v", err)
		}
		resp.Body.Close()
		if d := time.Since(f.start); d > 100*ms {
			t.Errorf("another key's call was answered at %v", d)
		}
	})
}

// TestContextThatEndsWhileACallIsAccepted: Do returns the error of the context.
func TestContextThatEndsWhileACallIsAccepted(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			u := Upstream{}
			u.URL, u.Transport = "http://api.test", &fake{start: time.Now()}
			ctx, cancel := context.WithCancel(t.Context())
			s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler), Observe: func(e Event) {
				if e.Kind == EventAccepted {
					cancel()
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/"})
			if !errors.Is(err, context.Canceled) || c == nil || c.State != Cancelled {
				t.Errorf("%+v, %v; want it cancelled, and the error of the context", c, err)
			}
		})
	}
}

// TestReserve: reservations are bounded with the calls that wait, and one that is refused
// takes no room from others.
func TestReserve(t *testing.T) {
	bubble(t, Upstream{MaxWaitingBytes: 1000}, func(t *testing.T, s *Scheduler, f *fake) {
		if _, err := s.Reserve("nope", 1); reason(err) != NotFound {
			t.Errorf("an unknown upstream: %v", err)
		}
		release, err := s.Reserve("api", 900)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Reserve("api", 200); reason(err) != Full {
			t.Errorf("200 bytes more: %v", err)
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Method: "POST", Target: "/", Body: make([]byte, 200)}); reason(err) != Full {
			t.Errorf("a call of 200 bytes beside 900: %v", err)
		}
		release()
		wait(t, s, submit(t, s, Request{Method: "POST", Body: make([]byte, 200)}).ID)
		if release, err = s.Reserve("api", 500); err != nil {
			t.Fatal(err)
		}
		if err := s.Reload(t.Context(), Config{Upstreams: s.Config()}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Reserve("api", 600); reason(err) != Full {
			t.Errorf("600 bytes beside 500 that were reserved before a reload: %v", err)
		}
		release()
		if n := upstreams(t, s)[0].Bytes; n != 0 {
			t.Errorf("%d bytes are held in the end", n)
		}
	})
}

// TestReserveLeavesRoom: bodies on their way in leave a sixteenth of the room to small
// calls, unless that is less than one body needs.
func TestReserveLeavesRoom(t *testing.T) {
	for _, tt := range []struct{ maxBody, most int64 }{{100, 1500}, {1550, 1550}, {5000, 1600}} {
		bubble(t, Upstream{MaxWaitingBytes: 1600, MaxBody: tt.maxBody}, func(t *testing.T, s *Scheduler, f *fake) {
			if _, err := s.Reserve("api", tt.most+1); reason(err) != Full {
				t.Errorf("max_body %d: %d bytes were reserved: %v", tt.maxBody, tt.most+1, err)
			}
			release, err := s.Reserve("api", tt.most)
			if err != nil {
				t.Fatalf("max_body %d: %v", tt.maxBody, err)
			}
			defer release()
			small := Request{Upstream: "api", Method: "POST", Target: "/", Body: make([]byte, 40)}
			if _, err := s.Submit(t.Context(), small); (err == nil) != (tt.most <= 1550) {
				t.Errorf("max_body %d: a small call beside %d bytes: %v", tt.maxBody, tt.most, err)
			}
		})
	}
}

func TestReserveSideBySide(t *testing.T) {
	u := Upstream{MaxWaitingBytes: 1000}
	u.URL, u.Transport = "http://api.test", &fake{start: time.Now()}
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	stop := make(chan struct{})
	var greedy sync.WaitGroup
	greedy.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if _, err := s.Reserve("api", 5000); err == nil {
					t.Error("5000 bytes of 1000 were reserved")
				}
			}
		}
	})
	for range 20_000 {
		release, err := s.Reserve("api", 10)
		if err != nil {
			t.Errorf("ten bytes beside a client that asks for too many: %v", err)
			break
		}
		release()
	}
	close(stop)
	greedy.Wait()
}
