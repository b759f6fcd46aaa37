package preview

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// BenchmarkRun measures a call of a preview, from its drawing to its report: three limits,
// 1,000 keys and 20 flows at 99% of the greatest throughput, so that calls queue at each
// limit, and some hundred classes at the first.
func BenchmarkRun(b *testing.B) {
	c := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": {
		MaxWaiting: 1 << 30, ShareBy: `header("X-Tenant")`,
		Limits: []scheduler.Limit{
			{Name: "app", PerKey: `param("app_id")`, Calls: 100, Window: time.Second},
			{Name: "refund", When: `param("method") == "refund"`, PerKey: `param("app_id")`, Calls: 20, Window: time.Second},
			{Name: "merchant", PerKey: `param("merchant")`, Calls: 1, Window: time.Second},
		},
	}}}
	u := c.Upstreams["api"]
	u.URL = "http://api.test"
	c.Upstreams["api"] = u
	length := time.Duration(float64(b.N) / 94.3 * float64(time.Second)) // 100 calls in a window and a round trip
	const fields = " tenants=20 keys=1000 param.app_id=a param.merchant={key} header.X-Tenant={tenant} "
	load, err := workload.Generate([]string{
		"rate=76.3/s" + fields + "param.method=query for=" + length.String(),
		"rate=18/s" + fields + "param.method=refund for=" + length.String(),
	}, 1, c)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	if _, err := Run(b.Context(), c, load, Options{RoundTrip: 50 * time.Millisecond}); err != nil {
		b.Fatal(err)
	}
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) == nil {
		b.ReportMetric(float64(used.Maxrss)/1024, "MiB-peak") // on Linux it is in KiB
	}
	b.ReportMetric(b.Elapsed().Seconds(), "s")
}

// BenchmarkSimulation measures a call of a simulation under three limits, with a third of
// the calls late.
func BenchmarkSimulation(b *testing.B) {
	const keys = 1000
	u := scheduler.Upstream{MaxWaiting: 1 << 30, Limits: []scheduler.Limit{
		{Name: "app", Calls: 1000, Window: sec}, {Name: "method", Calls: 800, Window: sec}, {Name: "merchant", Calls: 10, Window: sec},
	}}
	s := simulationOf(b, u)
	s.roundTrip = func(*workload.Arrival) time.Duration { return 50 * ms }
	r := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(r, 1.1, 10, keys-1)
	var routes []*scheduler.Route
	for i := range keys {
		routes = append(routes, &scheduler.Route{Keys: map[string]string{"app": "", "method": "", "merchant": fmt.Sprint(i)}})
	}
	at := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		at += time.Duration(r.ExpFloat64() * float64(sec/700))
		arrive(b, s, at, workload.Arrival{Route: routes[zipf.Uint64()]})
	}
}
