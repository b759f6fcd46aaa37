package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A platform counts the requests that reach it.
type platform struct {
	*httptest.Server
	mu    sync.Mutex
	at    []time.Time
	paths map[string]int
	order []string      // paths, as they came
	hold  chan struct{} // requests for /held wait for it
}

func newPlatform(t *testing.T) *platform {
	p := &platform{paths: make(map[string]int), hold: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.at = append(p.at, time.Now())
		p.paths[r.URL.Path]++
		p.order = append(p.order, r.URL.Path)
		p.mu.Unlock()
		if r.URL.Path == "/held" {
			<-p.hold
		}
		io.WriteString(w, "ok")
	}))
	t.Cleanup(p.Server.Close)
	t.Cleanup(sync.OnceFunc(func() { close(p.hold) }))
	return p
}

func (p *platform) arrivals(path string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.paths[path]
}

// most returns the most requests in one window.
func (p *platform) most(window time.Duration) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, most := slices.SortedFunc(slices.Values(p.at), time.Time.Compare), 0
	for i := range at {
		n := 0
		for n < len(at)-i && at[i+n].Sub(at[i]) < window {
			n++
		}
		most = max(most, n)
	}
	return most
}

const (
	calls   = 3
	window  = 500 * time.Millisecond
	late    = 100 * time.Millisecond
	timeout = 400 * time.Millisecond
)

// start starts a scheduler over a store, which it closes.
func start(t *testing.T, d *DB, p *platform) *scheduler.Scheduler {
	t.Helper()
	return startWith(t, d, p, timeout)
}

func configOf(p *platform, timeout time.Duration) scheduler.Config {
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: calls, Window: window}}, Late: late}
	u.URL, u.Timeout = p.URL, timeout
	return scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Log: quiet}
}

func startWith(t *testing.T, d *DB, p *platform, timeout time.Duration) *scheduler.Scheduler {
	t.Helper()
	c := configOf(p, timeout)
	c.Store = d
	s, err := scheduler.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func submit(t *testing.T, s *scheduler.Scheduler, path string) *scheduler.Call {
	t.Helper()
	c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: path, IdempotencyKey: path})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func do(t *testing.T, s *scheduler.Scheduler, path string) {
	t.Helper()
	resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: path})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestTakeOver: an owner ends without a word while calls wait, one is in flight, and its short limit is used up. The next
// one sends each waiting call once, keeps the limit, and tells the call in flight as unknown. It sends nothing before
// the attempts of the last owner cannot count any more.
func TestTakeOver(t *testing.T) {
	p, url := newPlatform(t), newDatabase(t)
	first := open(t, url, Options{Lease: short})
	s := start(t, first, p)
	held := submit(t, s, "/held")
	eventually(t, "the held call is in flight", func() bool { return p.arrivals("/held") == 1 })
	for n := range calls {
		do(t, s, fmt.Sprint("/sync/", n))
	}
	var waiting []*scheduler.Call
	for n := range 2 * calls {
		waiting = append(waiting, submit(t, s, fmt.Sprint("/waiting/", n)))
	}
	crash(first)
	sent := 0
	for n := range waiting {
		sent += p.arrivals(fmt.Sprint("/waiting/", n))
	}
	second := open(t, url, Options{Lease: short, Wait: true})
	alive := second.after
	begun := time.Now()
	s = start(t, second, p)
	pauses, err := s.Pauses(t.Context())
	if held := time.Since(begun) < late+window; held && (err != nil || len(pauses) == 0 || pauses[0].Limit != "app" || pauses[0].Reason != "permits of attempts of the last process may be out") {
		t.Errorf("the pause of the limit is %+v, %v", pauses, err)
	}
	for n, c := range waiting {
		done, err := s.Wait(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		// A call that was in flight at the crash, and whose end was not stored, is unknown.
		if arrived := p.arrivals(fmt.Sprint("/waiting/", n)); arrived != 1 || done.State != scheduler.Done && done.State != scheduler.Unknown {
			t.Errorf("call %d is %s, and has arrived %d times", n, done.State, arrived)
		}
	}
	p.mu.Lock()
	for _, at := range p.at {
		if after := at.Sub(alive); after > 0 && after < timeout+late+window {
			t.Errorf("a call was sent %v after the last owner was alive", after)
		}
	}
	p.mu.Unlock()
	if most := p.most(window); most > calls {
		t.Errorf("%d calls in %v, at most %d", most, window, calls)
	}
	if c, err := s.Get(t.Context(), held.ID); err != nil || c.State != scheduler.Unknown {
		t.Errorf("the call that was in flight is %+v, %v; want unknown", c, err)
	}
	again, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/waiting/0", IdempotencyKey: "/waiting/0"})
	if err != nil || again.ID != waiting[0].ID {
		t.Errorf("the key of a call of the last owner names %+v, %v", again, err)
	}
}

// TestStopInHold: an owner that has followed a crash stops while its limits hold back for the attempts of the one that
// crashed. The next one holds back for them, too.
func TestStopInHold(t *testing.T) {
	p, url := newPlatform(t), newDatabase(t)
	first := open(t, url, Options{Lease: short})
	do(t, start(t, first, p), "/first")
	crash(first)
	second := open(t, url, Options{Lease: short, Wait: true})
	alive := second.after
	if err := start(t, second, p).Close(); err != nil {
		t.Fatal(err)
	}
	do(t, start(t, open(t, url, Options{Lease: short, Wait: true}), p), "/third")
	p.mu.Lock()
	defer p.mu.Unlock()
	if after := p.at[len(p.at)-1].Sub(alive); after < timeout+late+window {
		t.Errorf("a call was sent %v after the owner that crashed was alive", after)
	}
}

// TestTimeoutsOfTheLastOwner: the next owners hold back for the time-outs of the one that crashed, which its configuration has
// had since a reload; theirs are shorter. They forget them when its attempts have ended.
func TestTimeoutsOfTheLastOwner(t *testing.T) {
	const brief, long = timeout / 4, 4 * timeout
	p, url := newPlatform(t), newDatabase(t)
	first := open(t, url, Options{Lease: short})
	s := startWith(t, first, p, brief)
	if err := s.Reload(t.Context(), configOf(p, long)); err != nil {
		t.Fatal(err)
	}
	do(t, s, "/first")
	crash(first)
	second := open(t, url, Options{Lease: short, Wait: true})
	alive := second.after
	if err := startWith(t, second, p, brief).Close(); err != nil { // while it holds back
		t.Fatal(err)
	}
	third := open(t, url, Options{Lease: short, Wait: true})
	do(t, startWith(t, third, p, brief), "/third")
	p.mu.Lock()
	if after := p.at[len(p.at)-1].Sub(alive); after < long+late+window {
		t.Errorf("a call was sent %v after the owner that crashed was alive", after)
	}
	p.mu.Unlock()
	eventually(t, "the time-outs are forgotten", func() bool {
		var text string
		err := third.db.QueryRow(t.Context(), "SELECT convert_from(value, 'UTF8') FROM meta WHERE name = 'timeouts'").Scan(&text)
		return err == nil && text == fmt.Sprintf(`{"api":%d}`, brief)
	})
}

// TestHandOver: after a stop the next owner waits for the permits that are out, and for no others.
func TestHandOver(t *testing.T) {
	p, url := newPlatform(t), newDatabase(t)
	s := start(t, open(t, url, Options{Lease: MaxLease}), p)
	do(t, s, "/first")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open(t, url, Options{Lease: MaxLease}), p)
	for n := range 2 * calls {
		do(t, s, fmt.Sprint("/next/", n))
	}
	if most := p.most(window); most > calls {
		t.Errorf("%d calls in %v, at most %d", most, window, calls)
	}
}

// TestCutOffOwner: an owner that cannot reach the server sends nothing after the end of its lease, though its
// callers wait; they get their answers when the server is back.
func TestCutOffOwner(t *testing.T) {
	p := newPlatform(t)
	proxy, url := through(t, newDatabase(t))
	d := open(t, url, Options{Lease: short})
	s := start(t, d, p)
	do(t, s, "/before")
	proxy.Shut(true)
	eventually(t, "the lease is over", func() bool { return !d.Allowed() })
	answered := make(chan error, 1)
	go func() {
		resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/after"})
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	var accepting sync.WaitGroup
	accepting.Go(func() {
		s.Submit(context.Background(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/accepted"})
	})
	eventually(t, "the store knows that the server is away", func() bool { return d.writer.away.Load() != nil })
	var refused *scheduler.Error
	if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/refused"}); !errors.As(err, &refused) || refused.Reason != scheduler.StoreFailed || refused.RetryAfter == 0 {
		t.Errorf("a new call, refused for the time being: %v", err)
	}
	if n := p.arrivals("/after"); n != 0 {
		t.Error("a call was sent without a lease")
	}
	proxy.Shut(false)
	accepting.Wait()
	if err := <-answered; err != nil || p.arrivals("/after") != 1 {
		t.Errorf("after the server came back: %v, %d arrivals", err, p.arrivals("/after"))
	}
}

// TestStopWhileAway: a stop waits for a server that is away until its bound, and not much longer. Its term has not ended clean:
// the next owner holds back for the attempt whose end is not stored.
func TestStopWhileAway(t *testing.T) {
	p, database := newPlatform(t), newDatabase(t)
	proxy, url := through(t, database)
	d := open(t, url, Options{Lease: short})
	s := start(t, d, p)
	if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/held"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the attempt arrives", func() bool { return p.arrivals("/held") == 1 })
	proxy.Shut(true)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Shutdown(ended); !errors.Is(err, ErrTermOver) || !errors.Is(err, errAway) {
		t.Errorf("the stop: %v", err)
	}
	next := open(t, database, Options{Lease: short, Wait: true})
	if past := recover0(t, next); past.Alive.IsZero() || past.Interrupted != 1 {
		t.Errorf("%+v, want a crash with an attempt", past)
	}
}
