package store

import (
	"context"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A gate is a store that holds intents back until it is opened.
type gate struct {
	*DB
	open    chan struct{}
	intents atomic.Int64
	holds   atomic.Int64
}

func (g *gate) Intend(ctx context.Context, c *scheduler.Call, take []lease.Hold) error {
	g.intents.Add(1)
	g.holds.Add(int64(len(take)))
	<-g.open
	return g.DB.Intend(ctx, c, take)
}

// TestLeasesComeFirst: no call goes out on a lease that is not stored yet, even if
// another call has taken the lease. A call with a waiting caller costs no sync of its
// own, only its share of a lease's.
func TestLeasesComeFirst(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		d := openTest(t, filepath.Join(dir, "gate.db"))
		g, up := &gate{DB: d, open: make(chan struct{})}, &log{}
		u := scheduler.Upstream{Limits: []scheduler.Limit{
			{Name: "short", Calls: 1000, Window: time.Second},
			{Name: "long", Calls: 2000, Window: time.Hour},
		}}
		u.URL, u.Transport = "http://api.test", up
		s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: g, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		do := func(n int) *sync.WaitGroup {
			var wg sync.WaitGroup
			for range n {
				wg.Go(func() {
					resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
					if err != nil {
						t.Error(err)
						return
					}
					resp.Body.Close()
				})
			}
			return &wg
		}
		first := do(3)
		synctest.Wait()
		if n := len(up.sent()); n != 0 || g.intents.Load() != 3 {
			t.Errorf("%d calls went out before the store knew of their permits; %d intents", n, g.intents.Load())
		}
		close(g.open)
		first.Wait()
		before := g.intents.Load()
		for range 100 { // leases of 4, 8, 16 and then 20
			do(1).Wait()
		}
		if n := g.intents.Load() - before; n != 7 {
			t.Errorf("100 calls made %d intents, want one for each of seven leases", n)
		}
	})
}

// TestCrashWastesOneLease: a crash costs a long limit the unused permits of the leases
// that were taken.
func TestCrashWastesOneLease(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up := filepath.Join(dir, "waste.db"), &log{}
		limit := scheduler.Limit{Name: "long", Calls: 500, Window: time.Hour} // leases of 5
		d := openTest(t, path)
		defer d.Close()
		var dead atomic.Bool
		start := func() *scheduler.Scheduler {
			u := scheduler.Upstream{Limits: []scheduler.Limit{limit}}
			u.URL, u.Transport = "http://api.test", up
			s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: crashes{d, &dead}, Log: quiet})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		s := start()
		for range 12 {
			resp, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		dead.Store(true)
		s.Close()
		dead.Store(false)
		s = start()
		defer s.Close()
		limits, err := s.Limits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range limits {
			if l.Limit == "long" && (l.Out < 12 || l.Out > 15) {
				t.Errorf("%d permits are out after a crash, 12 were used, in leases of 1, 2, 4 and 5", l.Out)
			}
		}
	})
}

// TestCrashWastesLateAndWindow: a crash while all permits of a short limit are out,
// without a response, costs late + window from the restart on, and no more.
func TestCrashWastesLateAndWindow(t *testing.T) {
	const late, window = 200 * time.Millisecond, 200 * time.Millisecond
	for _, async := range []bool{true, false} {
		dir := scratch(t)
		synctest.Test(t, func(t *testing.T) {
			d := openTest(t, filepath.Join(dir, "late.db"))
			defer d.Close()
			var dead atomic.Bool
			up := &log{}
			start := func(answer func(*http.Request) (*http.Response, error)) *scheduler.Scheduler {
				u := scheduler.Upstream{Late: late, Breaker: retry.Trip{Unknown: -1}, Limits: []scheduler.Limit{{Name: "app", Calls: 20, Window: window}}}
				u.URL, u.Transport = "http://api.test", roundTripper(answer)
				s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: crashes{d, &dead}, Log: quiet})
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			ctx, cut := context.WithCancel(t.Context())
			s := start(func(r *http.Request) (*http.Response, error) {
				<-ctx.Done() // no response before the crash
				return nil, errDead
			})
			for range 20 {
				if async {
					hand(t, s, scheduler.Request{Target: "/"})
				} else {
					go s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"})
				}
			}
			synctest.Wait()
			dead.Store(true)
			cut()
			s.Close()
			dead.Store(false)
			restart := time.Now()
			s = start(up.RoundTrip)
			defer s.Close()
			c := hand(t, s, scheduler.Request{Target: "/next"})
			if c := must(s.Wait(t.Context(), c.ID)); c.State != scheduler.Done {
				t.Fatalf("%+v", c)
			}
			if wait := up.at[0].Sub(restart); wait < late+window || wait > late+window+5*time.Millisecond {
				t.Errorf("the next call went %v after the restart, want late + window = %v", wait, late+window)
			}
		})
	}
}

// crashes is a store that gets no change of a dead process.
type crashes struct {
	*DB
	dead *atomic.Bool
}

func (c crashes) Record(ctx context.Context, call *scheduler.Call) error {
	if c.dead.Load() {
		return errDead
	}
	return c.DB.Record(ctx, call)
}

func (c crashes) Restate(ctx context.Context, h []lease.Hold) error {
	if c.dead.Load() {
		return nil
	}
	return c.DB.Restate(ctx, h)
}

func (crashes) Close() error { return nil }
