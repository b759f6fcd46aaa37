package store

import (
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// BenchmarkLife accepts a call, stores its intent and records its outcome, without
// syncs: the figures are the processor's work. One caller pays for a transaction
// with each step; 64 callers share them.
func BenchmarkLife(b *testing.B) {
	for _, bench := range []struct {
		name    string
		callers int
	}{{"1 caller", 1}, {"64 callers", 64}} {
		b.Run(bench.name, func(b *testing.B) {
			d := openTest(b, filepath.Join(scratch(b), "bench.db"))
			defer d.Close()
			if _, err := d.Recover(b.Context(), 0, nil); err != nil {
				b.Fatal(err)
			}
			var seq atomic.Int64
			run := func() {
				e := storetest.NewEntry(seq.Add(1))
				if _, err := d.Accept(b.Context(), e); err != nil {
					b.Error(err)
				}
				sent := storetest.Sent(e.Call, lease.Hold{Upstream: "api", Limit: "app", Permits: 1})
				if err := d.Intend(b.Context(), sent, nil); err != nil {
					b.Error(err)
				}
				ended := storetest.Ended(sent, scheduler.Done)
				ended.Outstanding = []lease.Hold{{Upstream: "api", Limit: "app", Permits: 1, Back: time.Now()}}
				if err := d.Record(b.Context(), ended); err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			b.ResetTimer()
			if bench.callers == 1 {
				for range b.N {
					run()
				}
				return
			}
			b.SetParallelism(bench.callers / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					run()
				}
			})
		})
	}
}

// BenchmarkRead reads a finished call, and a page of calls that wait.
func BenchmarkRead(b *testing.B) {
	d := openTest(b, filepath.Join(scratch(b), "bench.db"))
	defer d.Close()
	for n := range int64(2000) {
		e := storetest.NewEntry(n + 1)
		if _, err := d.Accept(b.Context(), e); err != nil {
			b.Fatal(err)
		}
	}
	ended := storetest.NewEntry(3000)
	if _, err := d.Accept(b.Context(), ended); err != nil {
		b.Fatal(err)
	}
	sent := storetest.Sent(ended.Call, lease.Hold{Upstream: "api", Limit: "app", Permits: 1})
	if err := d.Intend(b.Context(), sent, nil); err != nil {
		b.Fatal(err)
	}
	if err := d.Record(b.Context(), storetest.Ended(sent, scheduler.Done)); err != nil {
		b.Fatal(err)
	}
	b.Run("Get", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := d.Get(b.Context(), ended.Call.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Scan", func(b *testing.B) {
		b.ReportAllocs()
		any := func(scheduler.Position, int64) bool { return true }
		for range b.N {
			page, err := d.Scan(b.Context(), "api", scheduler.Position{Priority: scheduler.MaxPriority + 1}, time.Now(), 1000, any)
			if err != nil || len(page.Entries) != 1000 {
				b.Fatal(len(page.Entries), err)
			}
		}
	})
}

// BenchmarkSubmit submits calls under idempotency keys, 64 at once and with syncs: new
// ones, and repeats of calls that are done or wait, most of them on disk. A repeat should
// take no longer than a new call.
func BenchmarkSubmit(b *testing.B) {
	const keys = 20_000
	d := open(b, file(b), Options{Log: quiet})
	u := scheduler.Upstream{MaxAge: 100 * time.Hour, MaxWaiting: 1e6, MaxWaitingBytes: 1 << 40}
	u.URL, u.Transport = "http://api.test", roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("answer")), Request: r}, nil
	})
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	submit := func(b *testing.B, key int64) *scheduler.Call {
		c, err := s.Submit(b.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/", Body: make([]byte, 400), IdempotencyKey: strconv.FormatInt(key, 10)})
		if err != nil {
			b.Error(err)
		}
		return c
	}
	var next atomic.Int64
	run := func(name string, key func() int64) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(64 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					submit(b, key())
				}
			})
		})
	}
	var last *scheduler.Call
	for key := range int64(keys) {
		last = submit(b, -key)
	}
	if _, err := s.Wait(b.Context(), last.ID); err != nil {
		b.Fatal(err)
	}
	run("known, done", func() int64 { return -(next.Add(1) % keys) })
	if err := s.Pause(b.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Hour)}); err != nil {
		b.Fatal(err)
	}
	next.Store(0)
	run("new", func() int64 { return next.Add(1) })
	n := next.Load()
	run("known, waiting", func() int64 { return next.Add(1)%n + 1 })
}
