package workload_test

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func Example() {
	alipay := scheduler.Upstream{Limits: []scheduler.Limit{
		{Name: "app", PerKey: `param("app_id")`, Calls: 100, Window: time.Second},
		{Name: "refund", When: `param("method") == "alipay.trade.refund"`, Calls: 5, Window: time.Second},
	}}
	alipay.URL = "https://openapi.alipay.com"
	cfg := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"alipay": alipay}}
	dir, err := os.MkdirTemp("", "workload")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "load.csv")
	os.WriteFile(file, []byte(`at,param.app_id,param.method
2026-11-21T09:00:00Z,2021001,alipay.trade.query
2026-11-21T09:00:00.25Z,2021002,alipay.trade.refund
`), 0o600)

	load, err := workload.Open(file, cfg)
	if err != nil {
		panic(err)
	}
	defer load.Close()
	for {
		at, arrival, err := load.Next()
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v: %s %q\n", at, arrival.Upstream, arrival.Route.Keys)
	}
	// Output:
	// 0s: alipay map["app":"2021001"]
	// 250ms: alipay map["app":"2021002" "refund":""]
	// EOF
}
