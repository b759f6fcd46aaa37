package trial_test

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/internal/trial"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

func Example() {
	cfg, err := config.Parse([]byte(`
store: memory
upstreams:
  pay:
    url: https://pay.example
    limits: [{name: app, per_key: query("app"), calls: 100, window: 1s}]
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	router, err := scheduler.NewRouter("pay", cfg.Scheduler.Upstreams["pay"])
	if err != nil {
		fmt.Println(err)
		return
	}
	request := &upstream.Request{Method: "POST", Target: "/refunds?app=2021"}
	t, err := trial.Of(router, request)
	if err != nil {
		fmt.Println(err)
		return
	}
	v, err := trial.Judge(router, request, 429, nil, nil)
	fmt.Println(t.Permits, v.Outcome, err)
	// Output: [{app 2021 1 100 / 1s}] not_executed <nil>
}
