package scheduler

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A strict receiver allows one call per gap, and answers all others with 429.
type strict struct {
	sync.Mutex
	gap     time.Duration
	next    time.Time
	refused int
	whole   func(path string) bool // paths that are refused whenever they come
}

func (s *strict) serve(_ int, r *http.Request) answer {
	s.Lock()
	defer s.Unlock()
	now := time.Now()
	if s.whole != nil && s.whole(r.URL.Path) || now.Before(s.next) {
		s.refused++
		return answer{status: 429, after: ms}
	}
	s.next = now.Add(s.gap)
	return answer{after: ms}
}

// TestSlowedDown: 600 calls go to a platform that limits bursts. They need no 1,200 requests, all are done, the
// estimates hold, and the log, the status and the reason why a call waits tell of it.
func TestSlowedDown(t *testing.T) {
	const calls = 600
	synctest.Test(t, func(t *testing.T) {
		receiver := &strict{gap: 10 * ms}
		f := &fake{start: time.Now(), serve: receiver.serve}
		u := Upstream{Limits: perSecond(100), MaxWaiting: 2 * calls}
		u.URL, u.Transport = "http://api.test", f
		u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
		var log bytes.Buffer
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for range calls {
			ids = append(ids, submit(t, s, Request{}).ID)
		}
		time.Sleep(2 * sec)
		last := s.mustGet(t, ids[calls-1])
		if w := last.WaitingFor; w == nil || w.Limit != ConcurrencyLimit || w.Paused || w.Slowed == nil || !strings.HasPrefix(w.Slowed.String(), "slowed to ") || !strings.HasSuffix(w.Slowed.String(), " answers limited calls within 100 per 1s") {
			t.Errorf("the last call waits for %+v", w)
		}
		if left := last.ETA.Sub(f.start); left < 5*sec || left > 12*sec {
			t.Errorf("the last call is to go after %v", left)
		}
		u.Limits[0].Name = "other"
		if err := s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
			t.Fatal(err)
		}
		st := upstreams(t, s)[0]
		if len(st.Slowed) != 1 || st.Slowed[0].Limit != "" || st.Slowed[0].FullPerSecond != 100 || st.Slowed[0].CallsPerSecond > 100 || !st.Slowed[0].Since.Equal(f.start.Add(ms)) || st.Slowed[0].Limited < 99 {
			t.Errorf("after a reload: %+v", st.Slowed)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("%s after %+v", c.State, c.Attempts)
			}
		}
		took, requests := time.Since(f.start), len(f.at())
		if requests > calls+calls/2 || took > 14*sec {
			t.Errorf("%d requests for %d calls, in %v", requests, calls, took)
		}
		for i, at := range f.at() {
			if i >= 100 && at-f.at()[i-100] < sec {
				t.Fatalf("101 requests within %v", at-f.at()[i-100])
			}
		}
		time.Sleep(time.Minute)
		wait(t, s, submit(t, s, Request{}).ID)
		if st := upstreams(t, s)[0]; len(st.Slowed) > 0 {
			t.Errorf("a minute later: %+v", st.Slowed)
		}
		s.Close()
		if n := strings.Count(log.String(), "the upstream limited a call"); n != 1 {
			t.Errorf("%d lines tell that it begins", n)
		}
		if n := strings.Count(log.String(), "goes on limiting"); n > 10 {
			t.Errorf("%d lines for %d refusals", n, receiver.refused)
		}
		if n := strings.Count(log.String(), "they go at full speed again"); n != 1 {
			t.Errorf("%d lines tell that it is over: %s", n, log.String())
		}
	})
}

// TestAcceptedIsNotLimited: an answer that leaves one call unknown, such as that of a refund which is accepted, ends a slow-down
// as a success does: the upstream has not limited the call.
func TestAcceptedIsNotLimited(t *testing.T) {
	u := Upstream{Limits: perSecond(100), MaxWaiting: 1000}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}, {When: "status == 202", Is: upstream.Unknown, Park: true}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			return answer{after: ms, status: map[bool]int{true: 429, false: 202}[n == 1]}
		}
		submit(t, s, Request{})
		time.Sleep(sec)
		for range 100 {
			submit(t, s, Request{})
			time.Sleep(sec)
		}
		if st := upstreams(t, s)[0]; len(st.Slowed) > 0 {
			t.Errorf("after 100 calls that were not limited: %+v", st.Slowed)
		}
	})
}

// TestForgottenPaces: the ledger holds no more keys apart than are known to be slowed down.
func TestForgottenPaces(t *testing.T) {
	const keys = 10_001
	u := Upstream{Limits: []Limit{{Name: "client", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, _ *fake) {
		s.loop.ask(t.Context(), func(now time.Time) {
			up := s.loop.upstreams["api"]
			client := up.limitNamed("client")
			held := 0
			for k := range keys {
				up.slow.limited(now, target{client, fmt.Sprint(k)}, nil, now, sec, 0)
			}
			for k := range keys {
				if up.ledger.Next(now, quota.Need{Limit: client, Key: fmt.Sprint(k), Cost: 1}).After(now) {
					held++
				}
			}
			if slowed := len(slices.Collect(up.slow.pacer.Keys())); held != slowed {
				t.Errorf("%d keys are held, and %d slowed down", held, slowed)
			}
		})
	})
}

// TestResumeEndsTheSlowDown: a person who resumes an upstream lets its calls go at full speed, and so does another
// address.
func TestResumeEndsTheSlowDown(t *testing.T) {
	for name, end := range map[string]func(*Scheduler, Upstream) error{
		"a resume": func(s *Scheduler, _ Upstream) error { return s.Resume(t.Context(), "api", "", "") },
		"another address": func(s *Scheduler, u Upstream) error {
			u.URL += "/v2"
			return s.Reload(t.Context(), Config{Upstreams: map[string]Upstream{"api": u}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{Limits: perSecond(100)}
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer {
					return answer{after: ms, status: map[bool]int{true: 429, false: 200}[n == 1]}
				}
				submit(t, s, Request{})
				time.Sleep(sec)
				u.URL, u.Transport = "http://api.test", f
				if err := end(s, u); err != nil {
					t.Fatal(err)
				}
				if st := upstreams(t, s)[0]; len(st.Slowed) > 0 {
					t.Errorf("%+v", st.Slowed)
				}
				start := time.Since(f.start)
				for range 20 {
					submit(t, s, Request{})
				}
				time.Sleep(10 * ms)
				if at := f.at(); len(at) != 22 || at[21] != start {
					t.Errorf("sent at %v, want 20 at %v", at, start)
				}
			})
		})
	}
}

// A lockedLog is read while the scheduler writes it.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestSlowDownEndsIdle: the log tells, with its key, that a slow-down is over a minute after the last limited call,
// also if no call is sent meanwhile, and once.
func TestSlowDownEndsIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{start: time.Now(), serve: func(int, *http.Request) answer { return answer{after: ms, status: 429} }}
		u := Upstream{Limits: []Limit{{Name: "shop", PerKey: "path", Calls: 100, Window: sec}}, MaxAge: 10 * sec}
		u.URL, u.Transport = "http://api.test", f
		u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
		var log lockedLog
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{Target: "/7"}).ID)
		synctest.Wait()
		if !strings.Contains(log.String(), " paused=shop ") {
			t.Errorf("no line names the key: %s", log.String())
		}
		const over = `msg="the upstream limits no calls any more, and they go at full speed again" upstream=api limit=shop `
		time.Sleep(45 * sec)
		synctest.Wait()
		if strings.Contains(log.String(), over) {
			t.Errorf("it is over too soon: %s", log.String())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if strings.Count(log.String(), over) != 1 || len(upstreams(t, s)[0].Slowed) > 0 {
			t.Errorf("it is not over: %s", log.String())
		}
		s.Close()
	})
}

// TestLimitedKey: an answer that limits a call pauses the call's key, where one limit has keys, and else the whole
// upstream.
func TestLimitedKey(t *testing.T) {
	app, client := Limit{Name: "app", Calls: 100, Window: sec}, Limit{Name: "client", PerKey: `query("client")`, Calls: 100, Window: sec}
	trade, few := Limit{Name: "trade", PerKey: "path", Calls: 10, Window: sec}, Limit{Name: "few", PerKey: "path", Concurrency: 10}
	for name, tt := range map[string]struct {
		limits []Limit
		pause  *upstream.Pause
		limit  string // that is paused
		whole  bool
	}{
		"one limit has keys":            {[]Limit{app, client}, nil, "client", false},
		"with a time of its own":        {[]Limit{client}, &upstream.Pause{For: sec}, "client", false},
		"another limit is of attempts":  {[]Limit{client, few}, nil, "client", false},
		"none has keys":                 {[]Limit{app}, nil, "", true},
		"two have keys":                 {[]Limit{client, trade}, nil, "", true},
		"the limit is named":            {[]Limit{client, trade}, &upstream.Pause{Limit: "client"}, "client", false},
		"the whole upstream is named":   {[]Limit{client}, &upstream.Pause{Upstream: true}, "", true},
		"a limit that the call has not": {[]Limit{client}, &upstream.Pause{Limit: "other"}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{Limits: tt.limits}
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: tt.pause}}
			if tt.pause != nil && tt.pause.Limit == "other" {
				u.Limits = append(u.Limits, Limit{Name: "other", When: "false", Calls: 1, Window: sec})
			}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				f.serve = func(n int, _ *http.Request) answer {
					if n == 1 {
						return answer{after: ms, status: 429, header: http.Header{"Retry-After": {"5"}}}
					}
					return answer{after: ms}
				}
				submit(t, s, Request{Target: "/a?client=a"})
				time.Sleep(sec)
				if st := upstreams(t, s)[0]; (st.State == "paused") != tt.whole {
					t.Errorf("the upstream is %s", st.State)
				}
				other := wait(t, s, submit(t, s, Request{Target: "/b?client=b"}).ID)
				if sent := other.Attempts[0].SentAt.Sub(f.start); tt.whole != (sent >= 5*sec) || !tt.whole && sent != sec {
					t.Errorf("another key goes at %v", sent)
				}
				time.Sleep(5 * sec)
				if st := upstreams(t, s)[0]; len(st.Slowed) != 1 || st.Slowed[0].Limit != tt.limit {
					t.Errorf("slowed down are %+v", st.Slowed)
				}
			})
		})
	}
}

// TestLimitedAccount: where a platform limits the account, calls of all its keys are limited, so that each by itself
// would be paused alone. Then the whole upstream is.
func TestLimitedAccount(t *testing.T) {
	const keys, calls = 200, 3
	u := Upstream{Limits: []Limit{{Name: "client", PerKey: "path", Calls: 10, Window: sec}}, MaxWaiting: 2 * keys * calls}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		receiver := &strict{gap: 20 * ms}
		f.serve = receiver.serve
		var ids []string
		for n := range calls * keys {
			ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", n%keys)}).ID)
		}
		for _, id := range ids {
			if c := wait(t, s, id); c.State != Done {
				t.Fatalf("%s after %+v", c.State, c.Attempts)
			}
		}
		st := upstreams(t, s)[0]
		if requests := len(f.at()); requests > calls*keys+keys*calls*6/5 || len(st.Slowed) == 0 || st.Slowed[0].Limit != "" {
			t.Errorf("%d requests for %d calls; slowed down are %+v", requests, calls*keys, st.Slowed)
		}
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) { // other keys pass
		receiver := &strict{whole: func(path string) bool { return path < "/2" }}
		f.serve = func(n int, r *http.Request) answer {
			a := receiver.serve(n, r)
			if a.status == 429 {
				a.after = 5 * ms // of one burst the calls that pass are answered first
			}
			return a
		}
		for range 10 {
			for n := range 50 {
				submit(t, s, Request{Target: fmt.Sprintf("/%d", n)})
			}
			time.Sleep(100 * ms)
		}
		for _, slowed := range upstreams(t, s)[0].Slowed {
			if slowed.Limit == "" {
				t.Errorf("keys pass, and all are slowed down: %+v", slowed)
			}
		}
	})
}

// TestLimitedTenants: tenants that reach their limits within the same moment wait as long as the platform says, each by itself.
// Others wait no longer than a backoff, although the account may be limited.
func TestLimitedTenants(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "client", PerKey: "path", Calls: 10, Window: sec}}}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		begin := time.Now()
		f.serve = func(_ int, r *http.Request) answer {
			if r.URL.Path < "/4" && time.Since(begin) < time.Hour {
				return answer{after: ms, status: 429, header: http.Header{"Retry-After": {"3600"}}}
			}
			return answer{after: ms}
		}
		var limited []string
		for n := range 4 {
			limited = append(limited, submit(t, s, Request{Target: fmt.Sprintf("/%d", n)}).ID)
			time.Sleep(10 * ms)
		}
		other := wait(t, s, submit(t, s, Request{Target: "/5"}).ID)
		if sent := other.Last().SentAt.Sub(begin); sent < sec || sent > time.Minute+sec {
			t.Errorf("another tenant's call goes after %v", sent)
		}
		for _, id := range limited {
			if c := wait(t, s, id); c.State != Done || len(c.Attempts) != 2 || c.Last().SentAt.Sub(begin) > time.Hour+2*time.Minute {
				t.Errorf("%s after %+v", c.State, c.Attempts)
			}
		}
	})
}

// TestLongWaits: after a wait of an hour calls start as slowly as after a second, also where each key has had a wait of its own.
func TestLongWaits(t *testing.T) {
	const calls = 600
	client := []Limit{{Name: "client", PerKey: "path", Calls: 10, Window: sec}}
	for name, tt := range map[string]struct {
		limits []Limit
		most   int // requests
	}{"one limit": {perSecond(100), 2 * calls}, "200 keys": {client, 2*calls + calls/10}} { // of keys all are sent before the first answer
		t.Run(name, func(t *testing.T) {
			u := Upstream{Limits: tt.limits, MaxWaiting: 2 * calls}
			u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				receiver := &strict{gap: 10 * ms}
				f.serve = func(n int, r *http.Request) answer {
					a := receiver.serve(n, r)
					if a.status == 429 {
						a.header = http.Header{"Retry-After": {"3600"}}
					}
					return a
				}
				var ids []string
				for n := range calls {
					ids = append(ids, submit(t, s, Request{Target: fmt.Sprintf("/%d", n%200)}).ID)
				}
				for _, id := range ids {
					if c := wait(t, s, id); c.State != Done {
						t.Fatalf("%s after %+v", c.State, c.Attempts)
					}
				}
				if n := len(f.at()); n > tt.most {
					t.Errorf("%d requests for %d calls, want at most %d", n, calls, tt.most)
				}
			})
		})
	}
}

// TestSlowDownIsFair: while the upstream is slowed down flows share its speed, and an urgent call goes first.
func TestSlowDownIsFair(t *testing.T) {
	u := Upstream{Limits: perSecond(100), ShareBy: "path", MaxWaiting: 1000}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	u.Retry.Limited = &retry.Curve{Min: 500 * ms, Max: sec}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		receiver := &strict{gap: 10 * ms}
		f.serve = receiver.serve
		for range 300 {
			submit(t, s, Request{Target: "/a"})
		}
		time.Sleep(sec)
		for range 20 {
			submit(t, s, Request{Target: "/b"})
		}
		urgent := submit(t, s, Request{Target: "/c", Priority: 50})
		if sent := wait(t, s, urgent.ID).Attempts[0].SentAt.Sub(f.start); sent > 1500*ms {
			t.Errorf("an urgent call goes at %v", sent)
		}
		time.Sleep(5 * sec)
		if !strings.Contains(f.targets(), "a b a b a b a b a b a b a b a b") {
			t.Errorf("sent were %s", f.targets())
		}
	})
}

// TestAskedWaitIsNoSlowDown: while the wait lasts that the first limited answer has asked for, the status tells of the
// pause alone; then, while calls go slower, of the slow-down.
func TestAskedWaitIsNoSlowDown(t *testing.T) {
	u := Upstream{Limits: perSecond(100)}
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(n int, _ *http.Request) answer {
			if n == 1 {
				return answer{after: ms, status: 429, header: http.Header{"Retry-After": {"600"}}}
			}
			return answer{after: ms}
		}
		id := submit(t, s, Request{}).ID
		time.Sleep(599 * sec)
		if st := upstreams(t, s)[0]; st.State != "paused" || len(st.Slowed) > 0 {
			t.Errorf("%s, slowed: %+v", st.State, st.Slowed)
		}
		wait(t, s, id)
		if st := upstreams(t, s)[0]; st.State != "up" || len(st.Slowed) != 1 {
			t.Errorf("%s, slowed: %+v", st.State, st.Slowed)
		}
	})
}
