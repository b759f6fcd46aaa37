package scheduler

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
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
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Precise: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	do := func() {
		resp, _, err := s.Do(b.Context(), Request{Upstream: "api", Target: "/?app_id=1&method=refund", Method: "POST", Client: staying{}})
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
		if err := s.Pause(b.Context(), Pause{Upstream: "api", Until: time.Now().Add(time.Hour)}); err != nil {
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

// BenchmarkReload measures the longest stand of the loop while a configuration is reloaded
// with 100,000 calls of as many keys waiting, and how long the reload takes. A timeout that
// is always due fires in each turn of the loop, and so sees how long the turns are.
func BenchmarkReload(b *testing.B) {
	const n = 100_000
	limits := func(app, merchant Limit) []Limit {
		app.Name, merchant.Name, merchant.PerKey = "app", "merchant", "path"
		return []Limit{app, {Name: "method", When: `method == "POST"`, Calls: 50, Window: time.Second}, merchant}
	}
	before := limits(Limit{Calls: 100, Window: time.Second}, Limit{Calls: 1, Window: time.Hour})
	for _, bb := range []struct {
		name  string
		after []Limit
	}{
		{"nothing new", before},
		{"calls of one key", limits(Limit{Calls: 60, Window: time.Second}, Limit{Calls: 1, Window: time.Hour})},
		{"window of one key", limits(Limit{Calls: 100, Window: 2 * time.Second}, Limit{Calls: 1, Window: time.Hour})},
		{"calls of each key", limits(Limit{Calls: 100, Window: time.Second}, Limit{Calls: 2, Window: time.Hour})},
		{"window of each key", limits(Limit{Calls: 100, Window: time.Second}, Limit{Calls: 1, Window: time.Minute})},
		{"limit that holds all", []Limit{before[0], before[2], {Name: "roomy", Calls: 1000, Window: time.Second}}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			u := Upstream{MaxWaiting: 2 * n, MaxWaitingBytes: 1 << 40, MaxAge: 300 * 24 * time.Hour, ShareBy: `path[-1:]`, Limits: before}
			u.URL, u.Transport = "http://api.test", immediate{}
			s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Precise: true, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			for i := range n {
				if _, err := s.Submit(b.Context(), Request{Upstream: "api", Method: "POST", Target: fmt.Sprint("/", i)}); err != nil {
					b.Fatal(err)
				}
			}
			p := &pulse{loop: s.loop}
			s.loop.ask(b.Context(), p.Fire)
			runtime.GC()
			for i := 0; b.Loop(); i++ {
				s.loop.ask(b.Context(), func(time.Time) { p.longest = 0 })
				u.Limits = bb.after
				if i%2 == 1 {
					u.Limits = before
				}
				if err := s.Reload(b.Context(), Config{Upstreams: map[string]Upstream{"api": u}}); err != nil {
					b.Fatal(err)
				}
				s.loop.ask(b.Context(), func(time.Time) { p.all = append(p.all, p.longest) })
			}
			slices.Sort(p.all)
			b.ReportMetric(float64(p.all[len(p.all)/2].Microseconds()), "µs/stand")
		})
	}
}

// A pulse is a timeout that is always due.
type pulse struct {
	loop    *loop
	last    time.Time
	longest time.Duration
	all     []time.Duration
}

func (p *pulse) Fire(now time.Time) {
	if !p.last.IsZero() {
		p.longest = max(p.longest, now.Sub(p.last))
	}
	p.last = now
	p.loop.wheel.Insert(now.Sub(p.loop.origin), p)
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
