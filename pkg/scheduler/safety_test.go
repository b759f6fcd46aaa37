package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A stamper is a signer that writes the time of the attempt into the header.
type stamper struct{}

func (stamper) Sign(_ context.Context, r *upstream.Request) error {
	if r.Header == nil {
		r.Header = make(http.Header)
	}
	r.Header.Set("Signed", time.Now().String())
	return nil
}

// Timestamps are good for 3 s and the queue is 10 s long: with a signer every call
// succeeds, without one nothing stale is sent, and whoever cannot go in time is
// told so at once.
func TestSignaturesDoNotAge(t *testing.T) {
	const calls, life = 40, 3 * sec
	u := Upstream{Limits: perSecond(4), Signature: Signature{Life: life}, MaxWait: time.Minute}
	for _, async := range []bool{true, false} {
		t.Run(fmt.Sprintf("with a signer, async %v", async), func(t *testing.T) {
			signed := u
			signed.Signer = stamper{}
			bubble(t, signed, func(t *testing.T, s *Scheduler, f *fake) {
				testAging(t, s, f, calls, async, func(_, age time.Duration, signature string) bool { return signature != "" }, calls)
			})
		})
		t.Run(fmt.Sprintf("without, async %v", async), func(t *testing.T) {
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				testAging(t, s, f, calls, async, func(_, age time.Duration, _ string) bool { return age < life }, 12)
			})
		})
	}
}

func testAging(t *testing.T, s *Scheduler, f *fake, calls int, async bool, fresh func(at, age time.Duration, signature string) bool, atLeast int) {
	f.serve = func(_ int, r *http.Request) answer {
		at := time.Since(f.start)
		if !fresh(at, at, r.Header.Get("Signed")) {
			t.Errorf("a stale request came in after %v", at)
		}
		return answer{after: 10 * ms}
	}
	results := make(chan string, calls)
	refused := 0
	for i := range calls {
		r := Request{Upstream: "api", Target: fmt.Sprintf("/%d", i)}
		if async {
			c, err := s.Submit(t.Context(), r)
			if reason(err) == PastDeadline {
				refused++
				results <- string(Expired)
				continue
			}
			go func() {
				c, _ := s.Wait(t.Context(), c.ID)
				results <- string(c.State)
			}()
			continue
		}
		go func() {
			resp, c, err := s.Do(t.Context(), r)
			if err == nil {
				resp.Body.Close()
			}
			results <- string(c.State)
		}()
	}
	n := map[string]int{}
	for range calls {
		n[<-results]++
	}
	if n["done"] < atLeast || n["done"]+n["expired"]+n["waiting"] != calls || len(f.at()) != n["done"] {
		t.Errorf("%v, %d requests; want at least %d done and the rest refused", n, len(f.at()), atLeast)
	}
	if async && n["done"] < calls && refused == 0 {
		t.Error("nobody was told at once")
	}
}

// A nonce is good once: what was limited does not go again as it is.
func TestOneTimeSignatures(t *testing.T) {
	u := Upstream{Signature: Signature{Once: true}, Resend: true}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	for status, want := range map[int]State{429: Exhausted, 500: Unknown} {
		bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{status: status} }
			c := wait(t, s, submit(t, s, Request{}).ID)
			if c.State != want || len(f.at()) != 1 {
				t.Errorf("status %d: %s after %d requests, want %s after one", status, c.State, len(f.at()), want)
			}
			if want == Unknown {
				if _, err := s.Resolve(t.Context(), c.ID, Waiting, ""); reason(err) != WrongState || !strings.Contains(err.Error(), "one sending") {
					t.Errorf("sent again by hand: %v", err)
				}
			}
		})
		signed := u
		signed.Signer = stamper{}
		bubble(t, signed, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(n int, _ *http.Request) answer {
				if n == 1 {
					return answer{status: status}
				}
				return answer{}
			}
			if c := wait(t, s, submit(t, s, Request{}).ID); c.State != Done || len(f.at()) != 2 {
				t.Errorf("status %d, signed anew: %s after %d requests", status, c.State, len(f.at()))
			}
		})
	}
}

// An attempt that may have executed the call is not forgotten because the next one
// did not.
func TestDoubtStays(t *testing.T) {
	u := Upstream{Resend: true, MaxWait: 20 * sec, MaxAge: time.Minute}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: 2 * time.Hour}}}
	serve := func(n int, _ *http.Request) answer {
		if n == 1 {
			return answer{status: 500}
		}
		return answer{status: 429, body: "limited"}
	}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = serve
		c := wait(t, s, submit(t, s, Request{}).ID)
		if c.State != Unknown || c.Outcome() != upstream.Unknown || len(f.at()) != 2 {
			t.Errorf("submitted: %s, %s after %d requests; want unknown", c.State, c.Outcome(), len(f.at()))
		}
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = serve
		_, c, err := s.Do(t.Context(), Request{Upstream: "api", Target: "/"})
		if reason(err) != NoAnswer || c.State != Unknown || err.(*Error).Outcome() != upstream.Unknown {
			t.Errorf("waiting: %v, %+v; want it told that it may have been executed", err, c)
		}
	})
	u.MaxAge = 24 * time.Hour
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = serve
		c := submit(t, s, Request{})
		time.Sleep(30 * sec)
		if got, err := s.Cancel(t.Context(), c.ID); err != nil || s.mustGet(t, c.ID).State != Unknown {
			t.Errorf("cancelled: %v, %v", got, err)
		}
	})
}

func (s *Scheduler) mustGet(t *testing.T, id string) *Call {
	t.Helper()
	c, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRepeatsWithinRetention(t *testing.T) {
	u := Upstream{}
	u.Idempotency = upstream.Idempotency{Header: "Idempotency-Key", Retention: 10 * sec}
	u.Retry.Attempts, u.Retry.Min, u.Retry.Max = 20, 3*sec, 3*sec
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500} }
		c := wait(t, s, submit(t, s, Request{Header: http.Header{"Idempotency-Key": {"k"}}}).ID)
		at := f.at()
		if c.State != Unknown || len(at) < 4 || at[len(at)-1] >= 10*sec {
			t.Errorf("%s, sent at %v; want repeats in the first 10 s only", c.State, at)
		}
	})
}

// A repeat that is held up goes within the retention, or not at all.
func TestRepeatsThatAreHeldUpStayWithinRetention(t *testing.T) {
	for name, hold := range map[string]func(s *Scheduler, n int) answer{
		"limited after the doubt": func(_ *Scheduler, n int) answer {
			if n == 2 {
				return answer{status: 429, header: http.Header{"Retry-After": {"20"}}}
			}
			return answer{}
		},
		"paused": func(s *Scheduler, _ int) answer {
			go s.Pause(t.Context(), "api", "", "", time.Now().Add(20*sec))
			return answer{}
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{}
			u.Idempotency = upstream.Idempotency{Header: "Idempotency-Key", Retention: 10 * sec}
			u.Retry.Min, u.Retry.Max = sec, sec
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer {
					if n > 1 {
						return hold(s, n)
					}
					if name == "paused" {
						hold(s, n)
					}
					return answer{status: 500}
				}
				c := wait(t, s, submit(t, s, Request{Header: http.Header{"Idempotency-Key": {"k"}}}).ID)
				if at := f.at(); c.State != Unknown || at[len(at)-1] >= 10*sec {
					t.Errorf("%s, sent at %v; want it unknown, and no repeat after 10 s", c.State, at)
				}
			})
		})
	}
}

// What is told of many attempts leaves out none on which the next one depends.
func TestManyAttemptsKeepTheDoubt(t *testing.T) {
	u := Upstream{}
	u.Idempotent = "true"
	u.Outcomes = []upstream.Rule{
		{When: "status == 404 and repeat", Is: upstream.Unknown}, {When: "status == 404", Is: upstream.Failed},
		{When: "status == 429", Is: upstream.NotExecuted, After: sec},
	}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			switch {
			case n == 2:
				return answer{status: 500}
			case n < MaxAttempts+10:
				return answer{status: 429}
			}
			return answer{after: sec, status: 404}
		}
		c := submit(t, s, Request{})
		time.Sleep(time.Hour)
		c = s.mustGet(t, c.ID)
		first, doubt := c.Attempts[0].N, c.Attempts[1]
		if len(c.Attempts) != MaxAttempts || first != 1 || doubt.N != 2 || doubt.Outcome != upstream.Unknown || c.State != Unknown {
			t.Fatalf("%s after %+v; want the first attempt, the doubt, and the last ones", c.State, c.Attempts)
		}
		if f := flightOf(time.Now(), c); !f.doubt || f.burnt == 0 || !f.firstSent.Equal(c.Attempts[0].SentAt) {
			t.Errorf("another process knows %+v of it", f)
		}
		decided, err := s.Resolve(t.Context(), c.ID, Waiting, "nothing came")
		if err != nil {
			t.Fatal(err)
		}
		if f := flightOf(time.Now(), decided); f.doubt || f.burnt != 0 {
			t.Errorf("somebody has decided, and another process knows %+v of it", f)
		}
	})
}

// 1,000 calls, of which 30% meet a 5xx and 10% are limited.
func TestRetriesStayWithinTheirBudget(t *testing.T) {
	const calls, share = 1000, 0.2
	u := Upstream{Limits: perSecond(50), MaxWaiting: 2 * calls}
	u.Idempotent = "true"
	u.Retry.Attempts, u.Retry.Min, u.Retry.Max, u.Retry.Share = 30, sec, 5*sec, share
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, After: sec}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		random := rand.New(rand.NewPCG(5, 6)) // used under the lock of the fake's counting: one at a time
		turn := make(chan struct{}, 1)
		f.serve = func(int, *http.Request) answer {
			turn <- struct{}{}
			defer func() { <-turn }()
			switch n := random.IntN(100); {
			case n < 30:
				return answer{after: 10 * ms, status: 500}
			case n < 40:
				return answer{after: 10 * ms, status: 429}
			}
			return answer{after: 10 * ms}
		}
		var ids []string
		for i := range calls {
			ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", i)}).ID)
		}
		unknown, sent := 0, 0
		for _, id := range ids {
			c := wait(t, s, id)
			if c.State != Done {
				t.Fatalf("%s after %+v", c.State, c.Attempts)
			}
			sent += len(c.Attempts)
			for _, a := range c.Attempts {
				if a.Outcome == upstream.Unknown {
					unknown++
				}
			}
		}
		at := f.at()
		for i := 50; i < len(at); i++ {
			if at[i]-at[i-50] < sec {
				t.Fatalf("51 requests within %v", at[i]-at[i-50])
			}
		}
		if len(at) != sent {
			t.Errorf("%d requests, %d attempts", len(at), sent)
		}
		// At any moment: the share of the first sendings so far, what a new budget
		// has, and one for each tenth of a second.
		sentAt, first, repeat := make(map[string]time.Duration), []time.Duration{}, []time.Duration{}
		for i, id := range ids {
			for n, a := range s.mustGet(t, id).Attempts {
				at := a.SentAt.Sub(f.start)
				switch {
				case a.N == 1:
					first, sentAt[fmt.Sprintf("/%d", i)] = append(first, at), at
				case n > 0 && s.mustGet(t, id).Attempts[n-1].Outcome == upstream.Unknown:
					repeat = append(repeat, at)
				}
			}
		}
		slices.Sort(first)
		slices.Sort(repeat)
		for i, at := range repeat {
			firsts, _ := slices.BinarySearch(first, at+ms)
			if most := share*float64(firsts) + retry.DefaultMost + at.Seconds()/retry.DefaultFloor.Seconds(); float64(i+1) > most+1 {
				t.Fatalf("%d repeats among %d first sendings by %v", i+1, firsts, at)
			}
		}
		// The order of ages: first sendings go in the order of acceptance.
		for i := 1; i < calls; i++ {
			if before, at := sentAt[fmt.Sprintf("/%d", i-1)], sentAt[fmt.Sprintf("/%d", i)]; at < before {
				t.Fatalf("call %d went at %v, before the older one, at %v", i, at, before)
			}
		}
		t.Logf("%d requests for %d calls, %d of unknown outcome repeated, over %v", len(at), calls, unknown, at[len(at)-1])
	})
}

func TestResolve(t *testing.T) {
	resolve := Resolve{
		When: `method == "POST"`, Target: `"/query/" + json("no")`, Header: map[string]string{"X-App": `header("X-App")`},
		After: 5 * sec, Every: 10 * sec, Queries: 3,
		Outcomes: []upstream.Rule{
			{When: `body("status") == "PAID" and body("amount") == json("amount")`, Is: upstream.Done},
			{When: `body("status") == "CLOSED"`, Is: upstream.Failed},
			{When: `status == 404`, Is: upstream.NotExecuted},
			{When: `body("status") == "PENDING"`, Is: upstream.Unknown},
		},
	}
	tests := []struct {
		name    string
		queries []answer // one after the other, the last for good
		want    State
		targets string
		at      []time.Duration
	}{
		{"done", []answer{{body: `{"status":"PAID","amount":7}`}}, Done, "pay query/N1", []time.Duration{0, 5010 * ms}},
		{"failed", []answer{{body: `{"status":"CLOSED"}`}}, Failed, "pay query/N1", nil},
		{"not executed: it goes again", []answer{{status: 404}}, Done, "pay query/N1 pay", nil},
		{"still unknown at first", []answer{{body: `{"status":"PENDING"}`}, {status: 500}, {body: `{"status":"PAID","amount":7}`}}, Done, "pay query/N1 query/N1 query/N1", []time.Duration{0, 5010 * ms, 15020 * ms, 25030 * ms}},
		{"another amount", []answer{{body: `{"status":"PAID","amount":8}`}}, Unknown, "pay query/N1 query/N1 query/N1", nil},
		{"the query is limited", []answer{{status: 429}, {body: `{"status":"PAID","amount":7}`}}, Done, "pay query/N1 query/N1", []time.Duration{0, 5010 * ms, 7020 * ms}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := Upstream{Resolve: []Resolve{resolve}, Limits: perSecond(1)}
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: 2 * sec}}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				payments, queries := 0, 0
				f.serve = func(_ int, r *http.Request) answer {
					a := answer{}
					if r.URL.Path == "/pay" {
						if payments++; payments == 1 {
							a.status = 500
						}
					} else {
						if r.Header.Get("X-App") != "2021" || r.Method != "GET" {
							t.Errorf("query %s %v", r.Method, r.Header)
						}
						a = tt.queries[min(queries, len(tt.queries)-1)]
						queries++
					}
					a.after = 10 * ms
					return a
				}
				c := submit(t, s, Request{Method: "POST", Target: "/pay", Header: http.Header{"X-App": {"2021"}}, Body: []byte(`{"no":"N1","amount":7}`)})
				time.Sleep(2 * time.Minute)
				if got := s.mustGet(t, c.ID); got.State != tt.want || f.targets() != tt.targets {
					t.Errorf("%s after %q (%+v), want %s after %q", got.State, f.targets(), got.Attempts, tt.want, tt.targets)
				}
				if tt.at != nil {
					sameTimes(t, f.at(), tt.at...)
				}
			})
		})
	}
	for name, tt := range map[string]struct {
		after    time.Duration
		requests int
	}{"somebody decides first": {0, 1}, "somebody decides while the query is under way": {resolve.After + ms, 2}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Upstream{Resolve: []Resolve{resolve}}, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(int, *http.Request) answer { return answer{after: 10 * ms, status: 500} }
				c := wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay", Body: []byte(`{"no":"N1"}`)}).ID)
				synctest.Wait() // until the first query has been handed over
				time.Sleep(tt.after)
				if got, err := s.Resolve(t.Context(), c.ID, Done, "seen on the statement"); err != nil || got.State != Done {
					t.Fatal(got, err)
				}
				time.Sleep(time.Minute)
				if n := len(f.at()); n != tt.requests || upstreams(t, s)[0].Waiting != 0 {
					t.Errorf("%d requests, want %d; %+v", n, tt.requests, upstreams(t, s)[0])
				}
			})
		})
	}
	t.Run("without the signer that it needs", func(t *testing.T) {
		needs := resolve
		needs.Signed = true
		bubble(t, Upstream{Resolve: []Resolve{needs}}, func(t *testing.T, s *Scheduler, f *fake) {
			f.serve = func(int, *http.Request) answer { return answer{status: 500} }
			wait(t, s, submit(t, s, Request{Method: "POST", Target: "/pay", Body: []byte(`{"no":"N1"}`)}).ID)
			time.Sleep(time.Minute)
			if n := len(f.at()); n != 1 {
				t.Errorf("%d requests, want the call alone", n)
			}
		})
	})
}

func TestCallbacks(t *testing.T) {
	var hooks []*http.Request
	var bodies []string
	shop := Callback{}
	shop.URL, shop.Signer = "https://shop.test/hooks/?t=1", stamper{}
	answers := []int{500, 429, 200}
	shop.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		b, _ := io.ReadAll(r.Body)
		hooks, bodies = append(hooks, r), append(bodies, string(b))
		status := 200
		if len(hooks) <= len(answers) {
			status = answers[len(hooks)-1]
		}
		return &http.Response{StatusCode: status, Body: http.NoBody}, nil
	})
	u := Upstream{Callbacks: map[string]Callback{"shop": shop}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 2 {
				return answer{status: 500}
			}
			return answer{body: "paid"}
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Callback: "elsewhere"}); reason(err) != BadRequest {
			t.Errorf("a callback that nobody configured: %v", err)
		}
		if _, err := s.Submit(t.Context(), Request{Upstream: "api/callbacks/shop", Target: "/"}); reason(err) != NotFound {
			t.Errorf("a callback as an upstream: %v", err)
		}
		c := wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		time.Sleep(time.Hour)
		synctest.Wait()
		if len(hooks) != 3 {
			t.Fatalf("%d webhooks, want one sent three times", len(hooks))
		}
		var got struct {
			Type string
			Data Call
		}
		if err := json.Unmarshal([]byte(bodies[2]), &got); err != nil || got.Type != "call.done" || got.Data.ID != c.ID || string(got.Data.Response.Body) != "paid" {
			t.Errorf("webhook %s: %v", bodies[2], err)
		}
		if r := hooks[2]; bodies[0] != bodies[2] || r.URL.RequestURI() != "/hooks/?t=1" || r.Method != "POST" || hooks[0].Header.Get("Signed") == r.Header.Get("Signed") {
			t.Errorf("webhook %s %s %v, want the same, signed anew", r.Method, r.URL, r.Header)
		}

		hooks, bodies, answers = nil, nil, nil
		c = wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := s.Resolve(t.Context(), c.ID, Failed, ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(bodies) != 2 || !strings.Contains(bodies[0], `"call.unknown"`) || !strings.Contains(bodies[1], `"call.failed"`) {
			t.Errorf("webhooks %q, want call.unknown and call.failed", bodies)
		}
	})
}

// An upstream is taken out of the configuration while a call to it is under way:
// the call is asked about, goes again and is told of all the same, and nothing new
// is taken.
func TestWhatFollowsAfterReload(t *testing.T) {
	var told []string
	shop := Callback{}
	shop.URL, shop.Signer = "https://shop.test/hooks", stamper{}
	shop.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		told = append(told, r.Header.Get("Webhook-Id"))
		return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
	})
	u := Upstream{Callbacks: map[string]Callback{"shop": shop}}
	u.Resolve = []Resolve{{When: `path == "/pay"`, Target: `"/query"`, Outcomes: []upstream.Rule{{When: "status == 404", Is: upstream.NotExecuted}}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		paid := 0
		f.serve = func(_ int, r *http.Request) answer {
			switch {
			case r.URL.Path == "/query":
				return answer{status: 404}
			case paid == 0:
				paid++
				return answer{after: sec, status: 500}
			}
			return answer{}
		}
		c := submit(t, s, Request{Target: "/pay", Callback: "shop"})
		time.Sleep(500 * ms)
		other := Upstream{}
		other.URL = "http://other.test"
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"other": other}}); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"api", "api/callbacks/shop"} {
			if _, err := s.Submit(t.Context(), Request{Upstream: name, Target: "/"}); reason(err) != NotFound {
				t.Errorf("a new call to %s: %v", name, err)
			}
		}
		time.Sleep(time.Minute)
		if got := s.mustGet(t, c.ID); got.State != Done || f.targets() != "pay query pay" {
			t.Errorf("%s after %q", got.State, f.targets())
		}
		if want := []string{c.ID + ".unknown.1", c.ID + ".done.2"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"other": other}}); err != nil {
			t.Fatal(err)
		}
		if all := upstreams(t, s); len(all) != 1 {
			t.Errorf("%+v, want the other one alone", all)
		}
	})
}

// What a process without a store takes with it is said at its end: also a webhook
// about a call that ends during the stop.
func TestWhatAStopLoses(t *testing.T) {
	shop := Callback{}
	shop.URL, shop.Signer = "https://shop.test/hooks", stamper{}
	shop.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 500, Body: http.NoBody}, nil // it will be sent again
	})
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), serve: func(n int, _ *http.Request) answer {
			return answer{after: map[int]time.Duration{3: 10 * sec}[n], status: map[int]int{2: 500}[n]}
		}}
		u := Upstream{Callbacks: map[string]Callback{"shop": shop}, Limits: []Limit{{Name: "few", Calls: 3, Window: time.Hour}}}
		u.URL, u.Transport = "http://api.test", f
		var log strings.Builder
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{Callback: "shop"}).ID)
		wait(t, s, submit(t, s, Request{}).ID) // unknown
		submit(t, s, Request{Callback: "shop"})
		submit(t, s, Request{}) // waits for the limit
		time.Sleep(sec)
		s.Close()
		const want = `msg="what is kept in memory ends with this process" waiting_calls=1 unknown_calls=1 webhooks=2`
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log is\n%s, want in it %s", log.String(), want)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
