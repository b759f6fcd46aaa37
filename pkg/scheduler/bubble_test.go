package scheduler

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// answer is what the fake upstream does with one request.
type answer struct {
	after  time.Duration
	status int
	header http.Header
	body   string
	err    error // instead of an answer
}

// fake is an upstream in the bubble: it notes when each request came in.
type fake struct {
	mu       sync.Mutex
	start    time.Time
	arrivals []arrival
	serve    func(n int, r *http.Request) answer // n from 1
}

type arrival struct {
	at     time.Duration // since the bubble began
	target string
}

func (f *fake) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	f.arrivals = append(f.arrivals, arrival{time.Since(f.start), r.URL.RequestURI()})
	n := len(f.arrivals)
	f.mu.Unlock()
	a := answer{after: 10 * time.Millisecond}
	if f.serve != nil {
		a = f.serve(n, r)
	}
	select {
	case <-time.After(a.after):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	if a.err != nil {
		return nil, a.err
	}
	return &http.Response{StatusCode: cmp.Or(a.status, 200), Header: a.headers(), Body: io.NopCloser(strings.NewReader(a.body)), Request: r}, nil
}

// at returns when requests came in, rounded to milliseconds.
func (f *fake) at() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []time.Duration
	for _, a := range f.arrivals {
		at = append(at, a.at.Round(time.Millisecond))
	}
	return at
}

func (f *fake) targets() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ts []string
	for _, a := range f.arrivals {
		ts = append(ts, strings.TrimPrefix(a.target, "/"))
	}
	return strings.Join(ts, " ")
}

var errDial = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}

// bubble runs a test with a scheduler of one upstream, "api", in a bubble. Times
// are those of the bubble's clock, which stands still while anybody can run.
func bubble(t *testing.T, u Upstream, test func(t *testing.T, s *Scheduler, f *fake)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now()}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s, f)
	})
}

func submit(t *testing.T, s *Scheduler, r Request) *Call {
	t.Helper()
	r.Upstream = "api"
	if r.Target == "" {
		r.Target = "/"
	}
	c, err := s.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wait(t *testing.T, s *Scheduler, id string) *Call {
	t.Helper()
	c, err := s.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func reason(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return ""
}

// within checks instants up to the wheel's tick and the milliseconds' rounding.
func sameTimes(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	ok := slices.EqualFunc(got, want, func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
	if !ok {
		t.Errorf("requests came in at %v, want %v", got, want)
	}
}

const (
	ms  = time.Millisecond
	sec = time.Second
)

func perSecond(n int) []Limit { return []Limit{{Name: "app", Calls: n, Window: sec}} }

func TestAnHourOfSchedule(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(2), MaxWaiting: 100_000}, func(t *testing.T, s *Scheduler, f *fake) {
		const calls = 7200
		var last *Call
		for range calls {
			last = submit(t, s, Request{})
		}
		// 3600 windows of a second, and a round trip of 10 ms (and a tick) in each.
		if c := wait(t, s, last.ID); c.State != Done {
			t.Fatalf("last call is %s", c.State)
		}
		at := f.at()
		if len(at) != calls {
			t.Fatalf("%d requests, want %d", len(at), calls)
		}
		for i := 2; i < calls; i++ {
			if d := at[i] - at[i-2]; d < sec {
				t.Fatalf("requests %d to %d came within %v, more than 2 in a second", i-2, i, d)
			}
		}
		if took, best := at[calls-1], 3599*(sec+10*ms); took > best+best/1000 {
			t.Errorf("the last call went after %v, want at most %v + 0.1%%", took, best)
		}
		if eta := last.ETA.Sub(f.start); (eta - at[calls-1]).Abs() > 40*sec {
			t.Errorf("the last call's first ETA was %v, it went at %v", eta, at[calls-1])
		}
	})
}

func TestRetryIsANewSingleShotTimeoutWithBackoff(t *testing.T) {
	u := Upstream{}
	u.Idempotent = "true"
	u.Retry.Attempts, u.Retry.Min = 3, sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		c := submit(t, s, Request{Method: "POST"})
		got := wait(t, s, c.ID)
		if got.State != Unknown || len(got.Attempts) != 3 || got.Attempts[2].N != 3 || got.Attempts[2].Outcome != upstream.Unknown {
			t.Errorf("ended as %s after %+v; want unknown after 3 attempts", got.State, got.Attempts)
		}
		at := f.at()
		if len(at) != 3 || at[1]-at[0] < 500*ms || at[1]-at[0] > sec+ms || at[2]-at[1] < sec || at[2]-at[1] > 2*sec+ms {
			t.Errorf("sent at %v; want the second 0.5 to 1 s and the third 1 to 2 s later", at)
		}
		time.Sleep(time.Hour)
		if n := len(f.at()); n != 3 {
			t.Errorf("%d requests an hour later: something is periodic", n)
		}
	})
}

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
				if got, err := s.Get(c.ID); err != nil || got.State != Unknown || len(f.at()) != 1 {
					t.Errorf("two days later: %v, %v, %d requests; want it unknown still, sent once", got, err, len(f.at()))
				}
			})
		})
	}
}

func TestUnansweredPermitIsHeldUntilLate(t *testing.T) {
	u := Upstream{Limits: perSecond(1), Late: 5 * sec}
	u.Timeout = 2 * sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{after: time.Hour}
			}
			return answer{}
		}
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		sameTimes(t, f.at(), 0, 2*sec+5*sec+sec) // time-out, late, window
	})
}

func TestRetryAfterPausesAndBurnsNoAttempt(t *testing.T) {
	u := Upstream{Concurrency: 1, Limits: []Limit{{Name: "app", PerKey: "path", Calls: 100, Window: sec}}}
	u.Retry.Attempts = 1
	u.Outcomes = []upstream.Rule{
		{When: `status == 429 && path == "/key"`, Is: upstream.NotExecuted, Pause: &upstream.Pause{Limit: "app", For: sec}},
		{When: `status == 429`, Is: upstream.NotExecuted},
	}
	limitOnce := func(seconds string) func(int, *http.Request) answer {
		return func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{status: 429, header: http.Header{"Retry-After": {seconds}}}
			}
			return answer{}
		}
	}
	t.Run("the upstream, in seconds", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce("3")
			first := submit(t, s, Request{Target: "/a"})
			time.Sleep(sec)
			waits := submit(t, s, Request{Target: "/b"})
			if w := waits.WaitingFor; w == nil || w.Limit != ConcurrencyLimit || w.Until.Sub(f.start).Round(100*ms) != 3*sec {
				t.Errorf("the second call waits for %+v, want the upstream's pause until 3s", w)
			}
			c := wait(t, s, first.ID)
			wait(t, s, waits.ID)
			if c.State != Done || len(c.Attempts) != 2 || c.Attempts[0].Outcome != upstream.NotExecuted {
				t.Errorf("%s after %+v", c.State, c.Attempts)
			}
			sameTimes(t, f.at(), 0, 3*sec, 3*sec)
			if got := f.targets(); got != "a a b" { // what comes back keeps its age
				t.Errorf("order %q, want a a b", got)
			}
		})
	})
	t.Run("a date", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce(f.start.Add(7 * sec).UTC().Format(http.TimeFormat))
			wait(t, s, submit(t, s, Request{Target: "/a"}).ID)
			sameTimes(t, f.at(), 0, 7*sec)
		})
	})
	t.Run("only the key that was limited", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce("3")
			first := submit(t, s, Request{Target: "/key"})
			time.Sleep(sec)
			wait(t, s, submit(t, s, Request{Target: "/other"}).ID)
			wait(t, s, first.ID)
			sameTimes(t, f.at(), 0, sec, 3*sec)
		})
	})
	t.Run("by the rule's own time", func(t *testing.T) {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitOnce("")
			wait(t, s, submit(t, s, Request{Target: "/key"}).ID)
			sameTimes(t, f.at(), 0, sec)
		})
	})
}

func TestUpstreamDown(t *testing.T) {
	u := Upstream{Limits: perSecond(10)}
	u.Retry.Attempts = 1
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer {
			if time.Since(f.start) < 60*sec {
				return answer{after: ms, err: errDial}
			}
			return answer{after: 10 * ms}
		}
		var ids []string
		for range 50 {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(30 * sec)
		if st := s.Upstreams()[0]; st.State != "down" || st.Waiting+st.Sending != 50 {
			t.Errorf("in the middle: %+v; want it down and 50 calls waiting", st)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("a call ended as %s after %+v", c.State, c.Attempts)
			}
		}
		var probes, inRow int
		at := f.at()
		for i, d := range at {
			if d >= 60*sec {
				break
			}
			if probes++; i >= 10 && d-at[i-1] < 250*ms {
				inRow++
			}
		}
		// 10 went at once before it was known, then one for each step of 0.5, 1, 2, 4 … 30 s
		if probes > 10+9 || inRow > 0 {
			t.Errorf("%d dials while it was down, %d of them too soon after another: %v", probes, inRow, at[:probes])
		}
		after := at[probes:]
		if len(after) != 50 {
			t.Errorf("%d requests after it came back, want 50", len(after))
		}
		for i := 10; i < len(after); i++ {
			if after[i]-after[i-10] < sec {
				t.Errorf("more than 10 in a second when it came back: %v", after)
				break
			}
		}
		if st := s.Upstreams()[0]; st.State != "up" {
			t.Errorf("afterwards: %+v", st)
		}
	})
}

func TestMaxAgeEndsWhatIsNeverAnswered(t *testing.T) {
	u := Upstream{MaxAge: time.Hour}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{err: errDial} }
		c := wait(t, s, submit(t, s, Request{}).ID)
		if c.State != Expired || c.FinishedAt.Sub(f.start) > time.Hour+sec {
			t.Errorf("%s at %v, want expired within an hour", c.State, c.FinishedAt.Sub(f.start))
		}
	})
}

func TestCancel(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var ids []string
		for _, target := range []string{"/a", "/b", "/c"} {
			ids = append(ids, submit(t, s, Request{Target: target}).ID)
		}
		synctest.Wait()
		if _, err := s.Cancel(ids[0]); reason(err) != WrongState {
			t.Errorf("cancelling a call that is being sent: %v, want wrong_state", err)
		}
		if c, err := s.Cancel(ids[1]); err != nil || c.State != Cancelled {
			t.Fatalf("Cancel = %v, %v", c, err)
		}
		if _, err := s.Cancel(ids[1]); reason(err) != WrongState {
			t.Errorf("cancelling twice: %v, want wrong_state", err)
		}
		if _, err := s.Cancel("nobody"); reason(err) != NotFound {
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

func TestPriorityAndAge(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		var last *Call
		submit(t, s, Request{Target: "/first"})
		for _, r := range []Request{
			{Target: "/low", Priority: -5}, {Target: "/a"}, {Target: "/b"},
			{Target: "/urgent", Priority: 100}, {Target: "/c"},
		} {
			c := submit(t, s, r)
			if r.Target == "/low" {
				last = c
			}
		}
		wait(t, s, last.ID)
		if got := f.targets(); got != "first urgent a b c low" {
			t.Errorf("order %q", got)
		}
	})
}

func TestFlowsShareFairly(t *testing.T) {
	u := Upstream{Limits: perSecond(1), ShareBy: `header("X-Tenant")`, Weights: map[string]float64{"b": 2}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		var last *Call
		submit(t, s, Request{Target: "/0", Header: http.Header{"X-Tenant": {"z"}}})
		for _, tenant := range []string{"A", "B"} {
			for range 6 {
				last = submit(t, s, Request{Target: "/" + tenant, Header: http.Header{"X-Tenant": {tenant}}})
			}
		}
		wait(t, s, last.ID)
		time.Sleep(20 * sec)
		// B has twice A's weight: two of its calls for each of A's, and then the rest.
		got := f.targets()
		if b, a := strings.Count(got[:len("0 A B B A B B A B B")], "B"), strings.Count(got[:len("0 A B B A B B A B B")], "A"); b != 6 || a != 3 {
			t.Errorf("order %q; among the first nine %d of A and %d of B, want 3 and 6", got, a, b)
		}
	})
}

func TestFullKeyKeepsNobodyElse(t *testing.T) {
	u := Upstream{Limits: []Limit{
		{Name: "app", Calls: 10, Window: sec},
		{Name: "merchant", PerKey: "path", Calls: 1, Window: 5 * sec},
	}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		for range 3 {
			submit(t, s, Request{Target: "/full"})
		}
		for _, target := range []string{"/a", "/b", "/c"} {
			submit(t, s, Request{Target: target})
		}
		time.Sleep(20 * sec)
		sameTimes(t, f.at(), 0, 0, 0, 0, 5*sec+10*ms, 10*sec+20*ms)
		if got := f.targets(); !strings.HasSuffix(got, "full full") {
			t.Errorf("order %q", got)
		}
	})
}

func TestLargeCostIsNotStarved(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 4, Window: sec, Cost: `path == "/big" ? 4 : 1`}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{Target: "/a"})
		time.Sleep(100 * ms)
		submit(t, s, Request{Target: "/big"})
		for range 8 {
			submit(t, s, Request{Target: "/small"})
			time.Sleep(100 * ms)
		}
		time.Sleep(10 * sec)
		if got := f.targets(); !strings.HasPrefix(got, "a big small") {
			t.Errorf("order %q: smaller calls went ahead of the big one", got)
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/big?x"}); err != nil {
			t.Errorf("a cost of N was refused: %v", err)
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
		if len(f.at()) != 1 || s.Upstreams()[0].Waiting != 0 {
			t.Errorf("%d requests, %+v", len(f.at()), s.Upstreams()[0])
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
		if c, err := s.Resolve(a.ID, Done, "seen on the statement"); err != nil || c.State != Done || !strings.Contains(c.Last().Reason, "seen on the statement") {
			t.Errorf("Resolve = %+v, %v", c, err)
		}
		if _, err := s.Resolve(a.ID, Failed, ""); reason(err) != "" && reason(err) != WrongState && reason(err) != NotFound {
			t.Errorf("a second Resolve = %v", err)
		}
		if _, err := s.Resolve(b.ID, Waiting, "never arrived"); err != nil {
			t.Fatal(err)
		}
		if c := wait(t, s, b.ID); c.State != Done || len(c.Attempts) != 2 {
			t.Errorf("sent again: %s after %d attempts", c.State, len(c.Attempts))
		}
		if st := s.Upstreams()[0]; st.Waiting != 0 || st.Bytes != 0 {
			t.Errorf("what waits afterwards: %+v", st)
		}
	})
}

func TestPauseAndResume(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		if err := s.Pause("api", "app", "/a", f.start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		a := submit(t, s, Request{Target: "/a"})
		if a.WaitingFor.Limit != "app" || a.WaitingFor.Key != "/a" {
			t.Errorf("a waits for %+v", a.WaitingFor)
		}
		wait(t, s, submit(t, s, Request{Target: "/b"}).ID)
		time.Sleep(2 * sec)
		if err := s.Resume("api", "app", "/a"); err != nil {
			t.Fatal(err)
		}
		wait(t, s, a.ID)
		sameTimes(t, f.at(), 0, 2*sec+10*ms)
		if err := s.Pause("api", "nope", "", f.start); reason(err) != NotFound {
			t.Errorf("unknown limit: %v", err)
		}
	})
}

func TestStop(t *testing.T) {
	stored := func(t *testing.T, s *Scheduler, id string) *Call {
		c, err := s.store.Get(id)
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
				"Get":     second(s.Get(flying.ID)),
				"List":    second(s.List(Filter{})),
				"Cancel":  second(s.Cancel(flying.ID)),
				"Resolve": second(s.Resolve(flying.ID, Done, "")),
				"Pause":   s.Pause("api", "", "", time.Now().Add(sec)),
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
			page, err := s.List(Filter{Upstream: "api", After: after, Max: 2})
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
		waiting, _ := s.List(Filter{State: Waiting, Max: 10})
		if len(waiting) != 4 || waiting[3].WaitingFor == nil || waiting[3].WaitingFor.Ahead != 3 || waiting[3].ETA.Sub(f.start).Round(10*ms) != 4040*ms {
			t.Errorf("%d waiting, the last %+v; want 4, the last with 3 ahead until 4.04s", len(waiting), waiting[len(waiting)-1])
		}
		st := s.Limits()
		if len(st) != 2 || st[1].Limit != "app" || st[1].Out != 1 || st[1].Waiting != 4 || st[1].Keys[0].Key != "/k" {
			t.Errorf("limits: %+v", st)
		}
		up := s.Upstreams()[0]
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

func (a answer) headers() http.Header {
	if a.header == nil {
		return make(http.Header)
	}
	return a.header
}

func second[T any](_ T, err error) error { return err }

// TestLimitsTellOfTheirAudit: two of three permits were ever in one window, and
// answers take a fifth of the window.
func TestLimitsTellOfTheirAudit(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(3)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 250 * ms} }
		for range 2 {
			submit(t, s, Request{})
		}
		time.Sleep(sec)
		l := s.Limits()[1]
		if l.Most != 2 || l.Margin != 1 || l.HoldCost < 0.199 || l.HoldCost > 0.201 {
			t.Errorf("most %d, margin %d, hold costs %v; want 2, 1 and 0.2", l.Most, l.Margin, l.HoldCost)
		}
		if win := l.GuardWins["100ms"]; win < 0.119 || win > 0.121 {
			t.Errorf("a guard of 100ms wins %v, want 0.15 of 1.25 s", win)
		}
	})
}
