package store

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var million = flag.Int("million", 0, "finished calls of TestMillion, such as 1000000; it takes some minutes")

// A paid is a call n of a big store: one of two upstreams, a hundred flows, a hundred thousand keys and two
// numbers of its own.
func paid(n int, at time.Time) *scheduler.Entry {
	e := storetest.NewEntry(int64(n + 1))
	c := e.Call
	var id [16]byte
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16|0x7000)
	binary.BigEndian.PutUint64(id[8:], 1<<63|uint64(n))
	text := hex.EncodeToString(id[:])
	c.ID = text[:8] + "-" + text[8:12] + "-" + text[12:16] + "-" + text[16:20] + "-" + text[20:]
	c.AcceptedAt = at
	if n%100 == 0 {
		c.Upstream = "rare"
	}
	c.Method, c.Path, c.Origin, c.Flow, c.SubmittedBy = "POST", "/v1/refunds", scheduler.OriginAdmin, "shop"+strconv.Itoa(n%100), "till"
	c.Permits = []scheduler.Permit{{Limit: "app", Key: "2021", Cost: 1}, {Limit: "order", Key: "o" + strconv.Itoa(n%100_000), Cost: 1}}
	c.Numbers = map[string]string{"order": "2026112200" + strconv.Itoa(n), "refund": "R-" + strconv.Itoa(n)}
	return e
}

// TestMillion fills a store, and prints how long a find and lists take: after the calls have finished,
// and after the store is opened again. It asserts that each find has its call.
func TestMillion(t *testing.T) {
	finished := *million
	if finished == 0 {
		t.Skip("give -million")
	}
	waiting, unknown := finished/5, finished/200
	path := filepath.Join(t.TempDir(), "million.db")
	d := openTest(t, path)
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	first := began.Add(-time.Duration(finished+waiting+unknown) * time.Millisecond)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for n := int(next.Add(1) - 1); n < finished+waiting+unknown; n = int(next.Add(1) - 1) {
				e := paid(n, first.Add(time.Duration(n)*time.Millisecond))
				if _, err := d.Accept(context.Background(), e); err != nil {
					t.Error(err)
					return
				}
				end := scheduler.Done
				switch {
				case n >= finished+unknown:
					continue
				case n%((finished+unknown)/unknown) == 0:
					end = scheduler.Unknown
				case n%500 == 1:
					end = scheduler.Failed
				}
				sent := storetest.Sent(e.Call)
				if err := d.Intend(context.Background(), sent, nil); err != nil {
					t.Error(err)
				}
				if err := d.Record(context.Background(), storetest.Ended(sent, end)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d calls in %v, %d blocks", finished+waiting+unknown, time.Since(began).Round(time.Second), len(d.index.look().blocks))
	measureLists(t, d, finished+waiting+unknown, first)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	d = openTest(t, path)
	defer d.Close()
	t.Logf("opened again in %v", time.Since(began).Round(time.Millisecond))
	measureLists(t, d, finished+waiting+unknown, first)
}

func measureLists(t *testing.T, d *DB, calls int, first time.Time) {
	t.Helper()
	states := func(s ...scheduler.State) scheduler.Filter { return scheduler.Filter{States: s, Max: 100} }
	at := func(n int) time.Time { return first.Add(time.Duration(n) * time.Millisecond) }
	for _, m := range []struct {
		name string
		f    func(n int) scheduler.Filter
	}{
		{"find by a number", func(n int) scheduler.Filter { return scheduler.Filter{Number: "R-" + strconv.Itoa(n), Max: 100} }},
		{"find by q", func(n int) scheduler.Filter { return scheduler.Filter{Q: "2026112200" + strconv.Itoa(n), Max: 100} }},
		{"all", func(int) scheduler.Filter { return scheduler.Filter{Max: 100} }},
		{"key", func(n int) scheduler.Filter {
			return scheduler.Filter{Limit: "order", Key: "o" + strconv.Itoa(n%100_000), Max: 100}
		}},
		{"flow", func(n int) scheduler.Filter { return scheduler.Filter{Flow: "shop" + strconv.Itoa(n%100), Max: 100} }},
		{"limit", func(int) scheduler.Filter { return scheduler.Filter{Limit: "app", Max: 100} }},
		{"upstream", func(int) scheduler.Filter { return scheduler.Filter{Upstream: "rare", Max: 100} }},
		{"unknown", func(int) scheduler.Filter { return states(scheduler.Unknown) }},
		{"failed of a flow", func(n int) scheduler.Filter {
			f := states(scheduler.Failed)
			f.Flow = "shop1"
			return f
		}},
		{"waiting", func(int) scheduler.Filter { return states(scheduler.Waiting) }},
		{"done", func(int) scheduler.Filter { return states(scheduler.Done) }},
		{"waiting, oldest", func(int) scheduler.Filter { f := states(scheduler.Waiting); f.Oldest = true; return f }},
		{"accepted in a second", func(n int) scheduler.Filter {
			return scheduler.Filter{AcceptedAfter: at(n), AcceptedBefore: at(n + 1000), Max: 100}
		}},
		{"finished in a second", func(n int) scheduler.Filter {
			return scheduler.Filter{FinishedAfter: time.Now().Add(-time.Second), Max: 100}
		}},
		{"path, none", func(n int) scheduler.Filter { return scheduler.Filter{PathPrefix: "/none", Max: 100} }},
	} {
		var took []time.Duration
		found := 0
		for i := range 200 {
			n := int(uint64(i) * 2_654_435_761 % uint64(calls))
			began := time.Now()
			page, err := d.List(t.Context(), m.f(n))
			took = append(took, time.Since(began))
			if err != nil {
				t.Fatal(err)
			}
			if found += len(page.Calls); strings.HasPrefix(m.name, "find") && len(page.Calls) != 1 {
				t.Errorf("%s %d: %d calls", m.name, n, len(page.Calls))
			}
		}
		slices.Sort(took)
		t.Logf("%-22s p50 %8s  p99 %8s  %5.1f calls", m.name, took[100].Round(time.Microsecond), took[198].Round(time.Microsecond), float64(found)/200)
	}
}

// BenchmarkAccept accepts calls with and without two numbers, 64 at once and without syncs, in turns:
// the ratio of both, in percent, is that of calls per second.
func BenchmarkAccept(b *testing.B) {
	d := openTest(b, filepath.Join(scratch(b), "bench.db"))
	defer d.Close()
	if _, err := d.Recover(b.Context(), 0, nil); err != nil {
		b.Fatal(err)
	}
	n := 0
	round := func(numbers bool) time.Duration {
		entries := make([]*scheduler.Entry, 4096)
		for i := range entries {
			n++
			if entries[i] = paid(n, time.Now()); !numbers {
				entries[i].Call.Numbers = nil
			}
		}
		var next atomic.Int64
		var wg sync.WaitGroup
		began := time.Now()
		for range 64 {
			wg.Go(func() {
				for i := next.Add(1) - 1; i < int64(len(entries)); i = next.Add(1) - 1 {
					if _, err := d.Accept(context.Background(), entries[i]); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	var with, without time.Duration
	for range b.N {
		without += round(false)
		with += round(true)
	}
	per := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / float64(4096*b.N) }
	b.ReportMetric(per(without), "ns/0")
	b.ReportMetric(per(with), "ns/2")
	b.ReportMetric(100*per(without)/per(with), "%")
}
