package quota

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/time/rate"
)

var reserved *rate.Reservation // keeps the compiler from dropping the peer's work

// BenchmarkPermit is a permit under three limits, taken and given back, with
// 100,000 live keys of the third, as a ratio to Reserve of one limit of
// golang.org/x/time/rate in the same run.
func BenchmarkPermit(b *testing.B) {
	const keys = 100_000
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, keys-1)
	for _, order := range []struct {
		name string
		next func(i int) int
	}{
		{"keys in turn", func(i int) int { return i % keys }},
		{"keys by Zipf", func(int) int { return int(zipf.Uint64()) }},
		{"keys at random", func(int) int { return rand.IntN(keys) }},
	} {
		b.Run(order.name, func(b *testing.B) {
			// The calls to come, so that neither drawing nor reading them is measured.
			calls := make([]string, 1<<20)
			for i := range calls {
				calls[i] = fmt.Sprint("merchant-", order.next(i))
			}
			now := start
			l := New(now, Limit{Name: "app", Calls: MaxCalls, Window: Sliding(time.Second)}, Limit{Name: "method", Calls: MaxCalls, Window: Sliding(time.Second)},
				Limit{Name: "merchant", Calls: 1000, Window: Sliding(time.Second)})
			for i := range keys { // all are live when it begins
				need := []Need{{2, fmt.Sprint("merchant-", i), 1}}
				l.Take(now, need)
				l.Return(now, need, Attempt{Sent: now, End: now.Add(time.Hour)})
			}
			needs := []Need{{0, "app", 1}, {1, "refund", 1}, {2, "", 1}}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				now = now.Add(10 * time.Microsecond)
				needs[2].Key = calls[i%len(calls)]
				if _, ok := l.Take(now, needs); ok {
					l.Return(now, needs, Attempt{Sent: now, End: now})
				}
				i++
			}
			ours := b.Elapsed()
			peer := rate.NewLimiter(1e9, 1<<30)
			began := time.Now()
			for range i {
				reserved = peer.ReserveN(time.Now(), 1)
			}
			b.ReportMetric(float64(ours)/float64(time.Since(began)), "x-Reserve")
		})
	}
}
