package preview_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/seed-30fe103d/throttler/internal/preview"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// 30 calls at once, and 10 a second at most.
func Example() {
	api := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 10, Window: time.Second}}}
	api.URL = "https://api.example.com"
	cfg := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": api}}
	load, err := workload.Generate([]string{"bursts=30/1h for=1s"}, 1, cfg)
	if err != nil {
		panic(err)
	}
	report, err := preview.Run(context.Background(), cfg, load, preview.Options{Name: "example", RoundTrip: 50 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	preview.Text(os.Stdout, report)
	condition, _ := preview.Compile("wait.max > 2s")
	holds, _ := condition.Holds(report)
	fmt.Println(condition, holds)
	// Output:
	//                          example
	// calls                    30 in 0s
	// sent                     30 (100.0%)
	// refused by Throttler     0
	// limited by the upstream  0
	//   without Throttler      20 (66.7%)
	// wait p50                 1.05s
	// wait p95                 2.1s
	// wait p99                 2.1s
	// longest wait             2.1s
	// peak backlog             20 after 0s
	// makespan                 2.15s
	//
	// LIMIT (example)  PERMITS  KEYS  MOST IN A WINDOW  MOST WAITING  LIMITED WITHOUT US  BINDS
	// app              10/1s    1     10                20            20                  97.7% of the time: 0s–2.1s
	//
	// FLOW (example)  CALLS  SENT  WAIT P50  P95   P99   LONGEST
	// all             30     30    1.05s     2.1s  2.1s  2.1s
	// wait.max > 2s true
}
