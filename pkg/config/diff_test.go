package config

import (
	"slices"
	"testing"
)

// TestDiff: the place of a limit does not matter, changes that need a restart say
// so, and possible secrets are not shown.
func TestDiff(t *testing.T) {
	parse := func(text string) *Config {
		t.Helper()
		c, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := parse(`
store: memory
keep_calls: 48h
upstreams:
  alipay:
    url: https://openapi.alipay.com
    preset: alipay
    limits:
      - {name: app, calls: 100, window: 1s}
      - {name: refund, calls: 20, window: 1s}
`)
	after := parse(`
store: memory
keep_calls: 24h
keep_keys: 1h
long_window: 5m
log: {level: debug}
upstreams:
  alipay:
    url: https://other.alipay.com
    hosts: [payments.internal]
    preset: alipay
    limits:
      - {name: zero, calls: 5, window: 1m}
      - {name: refund, calls: 20, window: 1s}
      - {name: app, calls: 200, window: 1s}
`)
	want := []string{
		"keep_calls: 48h → 24h; stays as it is until a restart",
		"keep_keys: new, 1h; stays as it is until a restart",
		"log.level: new, not shown; stays as it is until a restart",
		"long_window: new, 5m; stays as it is until a restart",
		"upstreams.alipay.hosts[0]: new, not shown",
		"upstreams.alipay.limits[app].calls: 100 → 200",
		"upstreams.alipay.limits[zero].calls: new, 5",
		"upstreams.alipay.limits[zero].name: new, zero",
		"upstreams.alipay.limits[zero].window: new, 1m",
		"upstreams.alipay.url: changed",
	}
	if got := before.Diff(after); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := after.Diff(after); len(got) > 0 {
		t.Errorf("of the same: %q", got)
	}
}
