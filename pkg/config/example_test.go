package config_test

import (
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/config"
)

// A file for one upstream, and the faults of another.
func Example() {
	c, err := config.Parse([]byte(`
upstreams:
  alipay:
    listen: 127.0.0.1:8081
    url: https://openapi.alipay.com
    preset: alipay
    limits:
      - {name: app, per_key: 'param("app_id")', calls: 100, window: 1s}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	alipay := c.Scheduler.Upstreams["alipay"]
	fmt.Println(c.Listeners["alipay"].Listen, len(alipay.Outcomes), "rules", alipay.Limits[0].Window)

	_, err = config.Parse([]byte(`
upstreams:
  alipay:
    url: https://openapi.alipay.com
    preset: alipai
    limit:
      - {name: app, calls: 100, window: 1s}
    limits:
      - {name: app, calls: 100, window: 1 sec}
`))
	fmt.Println(err)
	// Output:
	// 127.0.0.1:8081 24 rules 1s
	// line 5: upstreams.alipay.preset: "alipai" is unknown, must be one of: adyen, alipay, alipay-v3, antom, generic, idempotency-key, paypal, stripe, wechatpay-v2, wechatpay-v3; did you mean alipay?
	// line 6: upstreams.alipay.limit: unknown key; did you mean limits?
	// line 9: upstreams.alipay.limits[0].window: "1 sec" is not a duration; write 1s
}

// Diff tells what a reload would change.
func ExampleConfig_Diff() {
	parse := func(calls int) *config.Config {
		c, err := config.Parse(fmt.Appendf(nil, `
upstreams:
  pay:
    url: https://pay.example
    limits:
      - {name: app, calls: %d, window: 1s}
`, calls))
		if err != nil {
			panic(err)
		}
		return c
	}
	for _, change := range parse(10).Diff(parse(20)) {
		fmt.Println(change)
	}
	// Output: upstreams.pay.limits[app].calls: 10 → 20
}
