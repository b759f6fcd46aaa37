package config

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
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
		"keep_keys: 24h → 1h; stays as it is until a restart",
		"log.level: info → debug; stays as it is until a restart",
		"long_window: 1m → 5m; stays as it is until a restart",
		"upstreams.alipay.hosts[0]: new (value hidden)",
		"upstreams.alipay.limits[app].calls: 100 → 200",
		"upstreams.alipay.limits[zero].calls: new, 5",
		"upstreams.alipay.limits[zero].name: new, zero",
		"upstreams.alipay.limits[zero].window: new, 1m",
		"upstreams.alipay.url: changed (values hidden)",
	}
	if got := lines(before.Diff(after)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got := lines(after.Diff(after)); len(got) > 0 {
		t.Errorf("of the same: %q", got)
	}
	if got := lines(after.Diff(before)); !slices.Contains(got, "upstreams.alipay.hosts[0]: removed (value hidden)") || !slices.Contains(got, "upstreams.alipay.limits[zero].calls: removed, was 5") {
		t.Errorf("back again: %q", got)
	}
}

// TestDiffAfterReload: keys that need a restart are compared with the values that are in
// force, which are their defaults where they are absent.
func TestDiffAfterReload(t *testing.T) {
	t.Setenv("TEST_SEAL_KEY", base64.StdEncoding.EncodeToString(make([]byte, 32)))
	running, err := Parse([]byte("keep_calls: 48h\nseal_key: env:TEST_SEAL_KEY\nupstreams: {a: {url: http://127.0.0.1:1, timeout: 5s}}\n"))
	for _, step := range []struct {
		text string
		want []string
	}{
		{"admin: 127.0.0.1:9191\nkeep_calls: 48h\nupstreams: {a: {url: http://127.0.0.1:1, timeout: 6s}}\n", []string{
			"admin: 127.0.0.1:9090 → 127.0.0.1:9191; stays as it is until a restart",
			"seal_key: removed (value hidden); stays as it is until a restart",
			"upstreams.a.timeout: 5s → 6s",
		}},
		{"log: {level: warn}\nupstreams: {a: {url: http://127.0.0.1:1, timeout: 6s}}\n", []string{
			"keep_calls: 48h → 168h; stays as it is until a restart",
			"log.level: info → warn; stays as it is until a restart",
			"seal_key: removed (value hidden); stays as it is until a restart",
		}},
		{"admin: 127.0.0.1:9090\nkeep_calls: 2880m\nkeep_keys: 24h\nseal_key: env:TEST_SEAL_KEY\nlog: {level: info}\nupstreams: {a: {url: http://127.0.0.1:1, timeout: 6s}}\n", nil},
	} {
		if err != nil {
			t.Fatal(err)
		}
		var next *Config
		if next, err = Parse([]byte(step.text)); err != nil {
			t.Fatal(err)
		}
		if got := lines(running.Diff(next)); !slices.Equal(got, step.want) {
			t.Errorf("got  %q\nwant %q", got, step.want)
		}
		next.Reloaded(running)
		running = next
	}
	if fixedKeys["keep_calls"] != shortest(store.DefaultKeepCalls) || fixedKeys["keep_keys"] != shortest(store.DefaultKeepKeys) || fixedKeys["long_window"] != shortest(scheduler.DefaultLongWindow) {
		t.Errorf("the defaults are %v", fixedKeys)
	}
}

// shortest writes a duration without its empty parts.
func shortest(d time.Duration) string {
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}

// lines returns changes as texts.
func lines(changes []Change) (texts []string) {
	for _, c := range changes {
		texts = append(texts, c.String())
	}
	return texts
}
