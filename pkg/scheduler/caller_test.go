package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// staying is a Client; its functions may be nil.
type staying struct {
	leave func(*Call, error)
	left  func() bool
}

func (s staying) Leave(c *Call, err error) {
	if s.leave != nil {
		s.leave(c, err)
	}
}

func (s staying) Left() bool { return s.left != nil && s.left() }

// TestLeave: a caller that leaves during an attempt is told at once how its call stands, on
// another goroutine; Do returns the same when the attempt and Leave have ended, and no other follows.
// Before and between attempts Do returns at once. Without a Client it always does.
func TestLeave(t *testing.T) {
	limited := answer{after: 2 * sec, status: 429}
	for _, tt := range []struct {
		name    string
		answers []answer
		leaves  time.Duration
		took    time.Duration // of Do
		told    State         // by Leave; none if it is not called
		state   State         // in the end
		sent    int
	}{
		{"stays", []answer{{after: 2 * sec}}, time.Hour, 2 * sec, "", Done, 1},
		{"stays for a repeat", []answer{limited, {after: 2 * sec}}, time.Hour, 5 * sec, "", Done, 2},
		{"leaves during the attempt", []answer{{after: 2 * sec}}, sec, 2 * sec, Sending, Done, 1},
		{"leaves during an attempt that is limited", []answer{limited, {}}, sec, 2 * sec, Sending, Exhausted, 1},
		{"leaves between attempts", []answer{limited, {}}, 2*sec + 500*ms, 2*sec + 500*ms, "", Cancelled, 1},
		{"leaves during the second attempt", []answer{limited, {after: 2 * sec}}, 4 * sec, 5 * sec, Sending, Done, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := Upstream{Resend: true, Config: upstream.Config{Outcomes: []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}}}}
			for _, stays := range []bool{true, false} {
				bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
					f.serve = func(n int, _ *http.Request) answer { return tt.answers[n-1] }
					ctx, leave := context.WithCancel(t.Context())
					defer time.AfterFunc(tt.leaves, leave).Stop()
					r := Request{Upstream: "api", Target: "/"}
					want, told := min(tt.took, tt.leaves), State("")
					if stays {
						want = tt.took
						if tt.told != "" {
							want = max(tt.took, tt.leaves+1500*ms) // the time of Leave
						}
						r.Client = staying{leave: func(c *Call, err error) {
							if time.Since(f.start) != tt.leaves || !errors.Is(err, context.Canceled) {
								t.Errorf("Leave has %v after %v", err, time.Since(f.start))
							}
							time.Sleep(1500 * ms)
							told = c.State
						}}
					}
					resp, c, err := s.Do(ctx, r)
					if resp != nil {
						resp.Body.Close()
					}
					left := tt.leaves < time.Hour
					if took := time.Since(f.start).Round(ms); took != want || errors.Is(err, context.Canceled) != left || (resp == nil) != left {
						t.Errorf("stays is %v: %v after %v, want %v", stays, err, took, want)
					}
					if stays && told != tt.told || told != "" && c.State != told {
						t.Errorf("Leave was told %q, want %q; Do returned %s", told, tt.told, c.State)
					}
					time.Sleep(time.Minute)
					if got := s.mustGet(t, c.ID).State; got != tt.state || len(f.at()) != tt.sent {
						t.Errorf("stays is %v: in the end %s, sent at %v; want %s, %d times", stays, got, f.at(), tt.state, tt.sent)
					}
				})
			}
		})
	}
}

// TestLeaveAtTheGrant: a ctx that ends with the grant of an attempt takes the call back. Nothing is
// sent, and the caller is told so.
func TestLeaveAtTheGrant(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			f := &fake{start: time.Now()}
			u := Upstream{}
			u.URL, u.Transport = "http://api.test", f
			ctx, cancel := context.WithCancel(t.Context())
			s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler), Observe: func(e Event) {
				if e.Kind == EventSending {
					cancel()
				}
			}})
			if err != nil {
				t.Fatal(err)
			}
			resp, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Client: staying{}})
			if resp != nil {
				resp.Body.Close()
			}
			if !errors.Is(err, context.Canceled) || c == nil || c.State != Cancelled || c.Reason != Gone {
				t.Fatalf("%+v, %v", c, err)
			}
			s.Close() // waits for the attempt
			sameTimes(t, f.at())
			if got, err := s.journal.memory.Get(t.Context(), c.ID); err != nil || got.State != Cancelled {
				t.Errorf("%+v, %v; want it cancelled", got, err)
			}
		})
	}
}

// A slowCtx takes a second to tell for the first time that it has ended.
type slowCtx struct {
	context.Context
	asked atomic.Int32
}

func (c *slowCtx) Err() error {
	if c.Context.Err() != nil && c.asked.Add(1) == 1 {
		time.Sleep(sec)
	}
	return c.Context.Err()
}

// TestLeaveBeforeTheGrant: the slot of a call comes between the end of its ctx and the message that
// takes it back. Nothing is sent, and the attempt ends.
func TestLeaveBeforeTheGrant(t *testing.T) {
	bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
		r := Request{Upstream: "api", Target: "/", Client: staying{}}
		resp, _, err := s.Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		ctx, leave := context.WithCancel(t.Context())
		defer time.AfterFunc(500*ms, leave).Stop()
		_, c, err := s.Do(&slowCtx{Context: ctx}, r)
		if err != context.Canceled || c == nil || c.State != Cancelled || c.Reason != Gone {
			t.Errorf("%v, %+v", err, c)
		}
		sameTimes(t, f.at(), 0)
	})
}

// A slow store takes its time to accept a call.
type slow struct{ Store }

func (s slow) Accept(ctx context.Context, e *Entry) (*Call, error) {
	time.Sleep(20 * ms)
	return s.Store.Accept(ctx, e)
}

// TestLeftBeforeItsTurn: a client that leaves while its call is stored is not sent, though its slot
// is free.
func TestLeftBeforeItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now()}
		u := Upstream{}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler), Store: slow{NewMemory(10, 1<<20)}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, leave := context.WithCancel(t.Context())
		_, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/", Client: staying{left: func() bool { leave(); return true }}})
		if err != context.Canceled || c == nil || c.State != Cancelled {
			t.Errorf("%v, %+v", err, c)
		}
		sameTimes(t, f.at())
	})
}

// TestLeftAfterAMoment: the client of a call that has waited, be it for less than atOnce, is asked
// whether it has left; that of a call which goes at once is not.
func TestLeftAfterAMoment(t *testing.T) {
	bubble(t, Upstream{Concurrency: 1}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: atOnce / 2} }
		r := Request{Upstream: "api", Target: "/"}
		var first sync.WaitGroup
		first.Go(func() {
			r := r
			r.Client = staying{left: func() bool { t.Error("the client of a call that has not waited is asked"); return false }}
			resp, _, err := s.Do(t.Context(), r)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		r.Client = staying{left: func() bool { leave(); return true }}
		if _, c, err := s.Do(ctx, r); err != context.Canceled || c == nil || c.State != Cancelled || c.Reason != Gone {
			t.Errorf("%v, %+v", err, c)
		}
		first.Wait()
		sameTimes(t, f.at(), 0)
	})
}

// TestClientPanics: a client that panics when it is asked has not left: its attempt is made.
func TestClientPanics(t *testing.T) {
	bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
		r := Request{Upstream: "api", Target: "/"}
		doing(t.Context(), s, r)()
		r.Client = staying{left: func() bool { panic("left") }}
		resp, _, err := s.Do(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if n := len(f.at()); n != 2 {
			t.Errorf("%d requests came in, want 2", n)
		}
	})
}

// panicking is a log handler with a fault.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (panicking) Handle(context.Context, slog.Record) error { panic("a fault of the log") }

// TestAttemptThatDoesNotEnd: a panic beside an attempt's request ends the process, though the
// goroutine of the caller recovers from panics: the call would be sending for good.
func TestAttemptThatDoesNotEnd(t *testing.T) {
	if os.Getenv("THROTTLER_TEST_ATTEMPT") == "" {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestAttemptThatDoesNotEnd$")
		cmd.Env = append(os.Environ(), "THROTTLER_TEST_ATTEMPT=1")
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "an attempt did not end: a fault of the log") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	u := Upstream{}
	u.URL, u.Transport = "http://api.test", &fake{start: time.Now(), serve: func(int, *http.Request) answer { return answer{err: errors.New("reset")} }}
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(panicking{slog.DiscardHandler})})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { recover() }()
	s.Do(context.Background(), Request{Upstream: "api", Target: "/", Method: "POST"})
}

// TestLeft: a caller that has left when its slot comes is not sent, at the first attempt or at a
// repeat, and its permits are free at once.
func TestLeft(t *testing.T) {
	limited := upstream.Rule{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}
	u := Upstream{Resend: true, Config: upstream.Config{Outcomes: []upstream.Rule{limited}}, Limits: []Limit{{Name: "app", Calls: 2, Window: time.Minute}}}
	for before := range 2 { // attempts
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(n int, _ *http.Request) answer {
				if n <= before {
					return answer{status: 429}
				}
				return answer{}
			}
			ctx, leave := context.WithCancel(t.Context())
			asked := 0
			_, c, err := s.Do(ctx, Request{Upstream: "api", Target: "/leaves", NotBefore: time.Now().Add(sec), Client: staying{
				func(*Call, error) { t.Error("the caller is told during no attempt") },
				func() bool {
					if asked++; asked <= before {
						return false
					}
					leave()
					return true
				},
			}})
			if err != context.Canceled || c == nil || c.State != Cancelled || c.Reason != Gone || len(c.Attempts) != before+1 || c.Attempts[before].Outcome != upstream.NotExecuted {
				t.Errorf("%v, %+v", err, c)
			}
			for range 2 - before { // the permit of the attempt that was sent is out
				began := time.Now()
				if _, _, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"}); err != nil || time.Since(began) > sec {
					t.Errorf("the next call: %v after %v", err, time.Since(began))
				}
			}
			if n := len(f.at()); n != 2 {
				t.Errorf("%d requests were sent, want 2", n)
			}
		})
	}
}

// TestCalledBeforeItWaits: a caller does not wait if there is something to do by then. One that waits
// is called once, however much there is to do.
func TestCalledBeforeItWaits(t *testing.T) {
	again := 0
	c := &call{caller: &caller{ctx: t.Context(), again: func(*call) { again++ }}}
	c.callAgain()
	if c.goAway() {
		t.Error("a caller waits that has something to do")
	}
	c.caller.presence.Store(present)
	if !c.goAway() {
		t.Error("a caller does not wait that has nothing to do")
	}
	c.callAgain()
	c.callAgain()
	if again != 1 {
		t.Errorf("it is called %d times", again)
	}
	c.caller.unwatch()
}

// A watchedCtx counts the watches of its end.
type watchedCtx struct {
	context.Context
	done    chan struct{}
	watches atomic.Int32
	ended   func() // of the last watch
}

func (c *watchedCtx) Done() <-chan struct{} { return c.done }

func (c *watchedCtx) AfterFunc(ended func()) (stop func() bool) {
	c.watches.Add(1)
	c.ended = ended
	return func() bool { c.watches.Add(-1); return true }
}

// onePerSecond is an upstream whose calls wait, also after an attempt that is limited.
var onePerSecond = Upstream{
	Resend: true, Limits: []Limit{{Name: "app", Calls: 1, Window: sec}},
	Config: upstream.Config{Outcomes: []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: sec}}}},
}

// limitsTheSecond serves all requests but the second.
func limitsTheSecond(n int, _ *http.Request) answer {
	if n == 2 {
		return answer{status: 429}
	}
	return answer{}
}

// TestWatchEnds: a ctx that lives on, as that of a connection, keeps no call that has ended.
func TestWatchEnds(t *testing.T) {
	for _, r := range []Request{{}, {Client: staying{}}} {
		bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = limitsTheSecond
			r.Upstream, r.Target = "api", "/"
			ctx := &watchedCtx{Context: context.Background(), done: make(chan struct{})}
			for range 3 {
				resp, _, err := s.Do(ctx, r)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
			}
			if n := ctx.watches.Load(); n != 0 {
				t.Errorf("client %v: %d watches live on after the calls", r.Client, n)
			}
		})
	}
}

// A faultyCtx panics when it is used for the fault-th time since it was armed.
type faultyCtx struct {
	watchedCtx
	over  atomic.Bool
	fault atomic.Int32 // uses until then; not above zero: there is none
}

func (c *faultyCtx) use() {
	if c.fault.Add(-1) == 0 {
		panic("a fault of the context")
	}
}

// end ends the ctx, and arms it. Package context asks it for its error and its cause.
func (c *faultyCtx) end(fault int32) {
	c.over.Store(true)
	c.fault.Store(fault + 2)
	c.ended()
}

func (c *faultyCtx) Err() error {
	c.use()
	if c.over.Load() {
		return context.Canceled
	}
	return nil
}

func (c *faultyCtx) Done() <-chan struct{} { c.use(); return c.done }

func (c *faultyCtx) AfterFunc(ended func()) (stop func() bool) {
	c.use()
	unwatch := c.watchedCtx.AfterFunc(ended)
	return func() bool { c.use(); return unwatch() }
}

// TestFaultOfACaller: a ctx that panics, whenever it is used, gives its call up. Begin tells an error and
// the process goes on; the caller of Do may recover. No attempt stays behind: its permit comes back, and
// Close returns.
func TestFaultOfACaller(t *testing.T) {
	r := Request{Upstream: "api", Target: "/", Client: staying{}}
	for _, tt := range []struct {
		name   string
		client bool
		ends   bool // the ctx, before the slot
		faults int  // uses of the ctx
		unsent int  // those before the attempt
	}{
		{"it ends", false, true, 2, 2},
		{"it ends, with a client", true, true, 2, 2},
		{"its slot comes", true, false, 7, 5},
	} {
		for fault := range int32(tt.faults) + 1 {
			for _, begins := range []bool{true, false} {
				bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
					doing(t.Context(), s, r)()
					ctx, of := &faultyCtx{watchedCtx: watchedCtx{Context: context.Background(), done: make(chan struct{})}}, r
					if !tt.client {
						of.Client = nil
					}
					told := make(chan error, 2)
					tell := func(resp *http.Response, _ *Call, err error) {
						if resp != nil {
							resp.Body.Close()
						}
						told <- err
					}
					if begins {
						s.Begin(ctx, of, tell)
					} else {
						go func() {
							defer func() {
								if v := recover(); v != nil {
									told <- &Error{Reason: NoAnswer}
								}
							}()
							tell(s.Do(ctx, of))
						}()
					}
					synctest.Wait()
					if ctx.fault.Store(fault + 1); tt.ends {
						ctx.end(fault + 1)
					}
					err := <-told
					if faulty := fault < int32(tt.faults); faulty != (reason(err) == NoAnswer) {
						t.Errorf("%s, fault %d, Begin is %v: %v", tt.name, fault+1, begins, err)
					}
					s.Close()
					sent := 1
					if int(fault) >= tt.unsent && !tt.ends {
						sent = 2
					}
					if n := len(f.at()); n != sent || len(s.loop.calls) != 0 || s.loop.upstreams["api"].count != [phases]int{} {
						t.Errorf("%s, fault %d, Begin is %v: %d requests were sent, want %d; the counts are %v", tt.name, fault+1, begins, n, sent, s.loop.upstreams["api"].count)
					}
				})
			}
		}
	}
}

// TestFaultOfAClient: a client that panics when it is asked has not left.
func TestFaultOfAClient(t *testing.T) {
	bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
		r := Request{Upstream: "api", Target: "/", Client: staying{left: func() bool { panic("a fault of the client") }}}
		for n := range 2 {
			resp, c, err := s.Do(t.Context(), r)
			if err != nil || c.State != Done {
				t.Fatalf("call %d: %+v, %v", n+1, c, err)
			}
			resp.Body.Close()
		}
	})
}

// TestLeftWithoutItsCtx: a client that has left has the error of a ctx that was cancelled, though its own has
// not ended.
func TestLeftWithoutItsCtx(t *testing.T) {
	bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
		r := Request{Upstream: "api", Target: "/", Client: staying{left: func() bool { return true }}}
		doing(t.Context(), s, r)()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if resp, c, err := s.Do(ctx, r); err != context.Canceled || resp != nil || c == nil || c.State != Cancelled || c.Reason != Gone {
			t.Errorf("%v, %+v, %v", resp, c, err)
		}
		sameTimes(t, f.at(), 0)
	})
}

// A faultyStore panics when it is read.
type faultyStore struct{ Store }

func (faultyStore) Get(context.Context, string) (*Call, error) { panic("a fault of the store") }

// TestFaultOfTheStore: the slot of a call comes as its ctx ends, and the store panics when it is asked how
// the call stands. The attempt ends, unsent.
func TestFaultOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, u := &fake{start: time.Now()}, onePerSecond
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler), Store: faultyStore{NewMemory(10, 1<<20)}})
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Upstream: "api", Target: "/", Client: staying{}}
		doing(t.Context(), s, r)()
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(500*ms, leave)
		var fault any
		func() {
			defer func() { fault = recover() }()
			s.Do(&slowCtx{Context: ctx}, r)
		}()
		if fault == nil {
			t.Error("the store has not been asked")
		}
		s.Close()
		sameTimes(t, f.at(), 0)
	})
}

// TestBegin: the results of a call that goes at once are returned. Those of another one come later,
// once, and no goroutine waits for them.
func TestBegin(t *testing.T) {
	type results struct {
		status int
		call   *Call
		err    error
	}
	of := func(resp *http.Response, c *Call, err error) (r results) {
		if r.call, r.err = c, err; resp != nil {
			resp.Body.Close()
			r.status = resp.StatusCode
		}
		return r
	}
	for _, r := range []Request{{}, {Client: staying{}}} {
		bubble(t, onePerSecond, func(t *testing.T, s *Scheduler, f *fake) {
			r.Upstream, r.Target = "api", "/"
			f.serve = limitsTheSecond
			var mu sync.Mutex
			var later []results
			var leftAfter time.Duration
			begin := func(ctx context.Context, r Request) (waits bool, now results) {
				waits, resp, c, err := s.Begin(ctx, r, func(resp *http.Response, c *Call, err error) {
					mu.Lock()
					defer mu.Unlock()
					later, leftAfter = append(later, of(resp, c, err)), time.Since(f.start)
				})
				return waits, of(resp, c, err)
			}
			if waits, now := begin(t.Context(), r); r.Client != nil && (waits || now.status != 200 || now.err != nil) {
				t.Errorf("a call that goes at once: %v, %+v", waits, now)
			}
			time.Sleep(100 * ms)
			mu.Lock()
			later = nil
			mu.Unlock()
			goroutines := runtime.NumGoroutine()
			ctx, leave := context.WithCancel(t.Context())
			for range 3 {
				if waits, now := begin(ctx, r); !waits || now != (results{}) {
					t.Errorf("a call that waits: %v, %+v", waits, now)
				}
			}
			synctest.Wait()
			if n := runtime.NumGoroutine(); n > goroutines {
				t.Errorf("%d goroutines, and with calls that wait %d", goroutines, n)
			}
			refused := r
			refused.Upstream = "other"
			if waits, now := begin(t.Context(), refused); waits || reason(now.err) != NotFound {
				t.Errorf("a call that is refused: %v, %+v", waits, now)
			}
			time.Sleep(3*sec + 400*ms)
			leave()
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			if len(later) != 3 {
				t.Fatalf("%d results came later: %+v", len(later), later)
			}
			for i, want := range []results{{status: 200}, {status: 200}, {err: context.Canceled}} {
				if got := later[i]; got.status != want.status || got.err != want.err || got.call == nil {
					t.Errorf("results %d: %+v; want %+v", i+1, got, want)
				}
			}
			if c := later[2].call; c.State != Cancelled || c.Reason != Gone || leftAfter != 3*sec+500*ms {
				t.Errorf("the call of a caller that has left is %+v, told after %v", c, leftAfter)
			}
			if first := later[0].call; len(first.Attempts) != 2 {
				t.Errorf("attempts %+v, want one that was limited and another", first.Attempts)
			}
		})
	}
}
