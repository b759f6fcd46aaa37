package scheduler

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

type immediate struct{}

func (immediate) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

// BenchmarkDo measures a call that does not wait, without a network.
func BenchmarkDo(b *testing.B) {
	u := Upstream{Limits: []Limit{
		{Name: "app", PerKey: `query("app_id")`, Calls: quota.MaxCalls, Window: time.Second},
		{Name: "method", When: `query("method") == "refund"`, PerKey: `query("app_id")`, Calls: quota.MaxCalls, Window: time.Second},
	}}
	u.URL, u.Transport = "http://api.test", immediate{}
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	do := func() {
		resp, _, err := s.Do(b.Context(), Request{Upstream: "api", Target: "/?app_id=1&method=refund", Method: "POST"})
		if err != nil {
			b.Fatal(err)
		}
		resp.Body.Close()
	}
	b.Run("one caller", func(b *testing.B) {
		for b.Loop() {
			do()
		}
	})
	b.Run("64 callers", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				do()
			}
		})
	})
}

// BenchmarkWaiting measures the heap of a waiting call without its body and headers,
// with a million calls of ten flows under three limits, and the time of an ETA there
// compared with that of taking a call's permits.
func BenchmarkWaiting(b *testing.B) {
	const n = 1_000_000
	u := Upstream{MaxWaiting: n, MaxWaitingBytes: 1 << 40, MaxAge: 300 * 24 * time.Hour, ShareBy: `path[-1:]`, Limits: []Limit{
		{Name: "app", Calls: 100, Window: time.Second},
		{Name: "method", When: `method == "POST"`, Calls: 50, Window: time.Second},
		{Name: "merchant", PerKey: `path`, Calls: 10, Window: time.Second},
	}}
	u.URL = "http://127.0.0.1:1"
	for b.Loop() {
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Pause(b.Context(), "api", "", "", time.Now().Add(time.Hour), ""); err != nil {
			b.Fatal(err)
		}
		targets := make([]string, 10_000)
		for i := range targets {
			targets[i] = fmt.Sprint("/", i)
		}
		before := heapInUse()
		for i := range n {
			if _, err := s.Submit(b.Context(), Request{Upstream: "api", Method: "POST", Target: targets[i%len(targets)]}); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heapInUse()-before)/n, "B/call")
		const asked = 1000
		var eta, permit time.Duration
		for range asked {
			s.loop.ask(b.Context(), func(now time.Time) {
				u := s.loop.upstreams["api"]
				for _, c := range s.loop.calls { // any
					began := time.Now()
					u.forecast(now, c, nil)
					eta += time.Since(began)
					needs := c.item.Demand.Needs[1:] // the upstream is paused
					began = time.Now()
					if _, ok := u.ledger.Take(now, needs); ok {
						u.ledger.Return(now, needs, quota.Attempt{Sent: now, End: now, Fate: quota.Uncounted})
					}
					permit += time.Since(began)
					break
				}
			})
		}
		b.ReportMetric(float64(eta.Nanoseconds())/asked, "ns/ETA")
		b.ReportMetric(float64(permit.Nanoseconds())/asked, "ns/permit")
		s.Close()
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
