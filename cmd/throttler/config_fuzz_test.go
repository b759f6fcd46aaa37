package main

import (
	"context"
	"hash/crc64"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/gateway"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// Values that configurations break on, by the kind of the value in their place.
var (
	hostileDurations = []any{"1s", "1ms", "0s", "-1s", "1ns", "999us", "8784h", "8784h0m0.000000001s", "2562047h47m16.854775807s", "99999999h", "1e3s", "1", 1, "", "0", "100ms", "24h", "minute", "hour", "day", "month", "week", "1m"}
	hostileNumbers   = []any{1, 0, -1, 2, 3, 1000, 65536, 1_000_000, 1_000_000_000, 1_000_000_001, 2_000_000_000, 1 << 31, 1 << 40, 1 << 62, 9223372036854775807, uint64(18446744073709551615), 0.5, 1e300, ".nan", ".inf", "7", "1KiB", "0x10", "1_000"}
	hostileSizes     = []any{"1KiB", "0KiB", "1", 0, -1, "8589934591GiB", "8589934592GiB", "-1GiB", "9223372036854775807", "1 MiB", "1.5MiB", "1TiB", 9223372036854775807}
	hostileTexts     = []any{"", " ", "a", "Ä", "\x00", "a\nb", "x\r\ny: z", "a.b", "A", "%", "{{", "{{.Nope}}", "{{json .Title}}", "{{.Param \"m\"}}", "{{range $i := .}}{{end}}", "{{template \"x\"}}", "concurrency", "UTC", "Asia/Shanghai", "Local", "../../etc/passwd", "posixrules", "done", "failed", "unknown", "not_executed", "exponential", "linear", "decorrelated", strings.Repeat("a", 70_000), "generic", "alipay", "alipay-v3", "wechatpay-v2", "wechatpay-v3", "stripe", "debug", "json", "env:NOPE", "file:/nope", "file:KEY", "GET", "P OST", "CONNECT", "exec", "http", "/bin/true"}
	hostileAddresses = []any{"127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:", "127.0.0.1", ":0", "[::1]:0", "[::1", "0.0.0.0:0", "127.0.0.1:x", "localhost:0", "127.0.0.1:http", "192.0.2.1:0", "a b:0", "127.1:0", "[::ffff:127.0.0.1]:0", "[fe80::1%lo]:0"}
	hostileURLs      = []any{"UPSTREAM", "UPSTREAM/a", "UPSTREAM/a/", "UPSTREAM/%zz", "UPSTREAM?x=1", "UPSTREAM#x", "http://", "http://127.0.0.1:99999", "http://u:p@127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1:1", "http://[::1", "http://127.0.0.1:1/..", "HTTP://127.0.0.1:1", "https://127.0.0.1:1", "http://a_b.invalid", "http://xn--a.invalid", "http://ä.invalid", "http:///x", "http://:1", "http://127.0.0.1:1//"}
	expressions      = []any{"true", "false", "", "nil", "1", "0", "-1", `"x"`, "path", "path()", "method", "Method", `param("m")`, `param("m") == "x"`, `query("k")`, `form("k")`, `header("X-K")`, `json("a.b")`, `json("#")`, `len(json("items"))`, `json("a") ?? 1`, "1 / 0", "1 % 0", `int("x")`, `[1][5]`, `{"a": 1}`, `fromJSON(param("b")).x`, `urlencode(json("a"))`, `xml("a.b")`, `toXML({"a": xml("b")})`, `toXML(json("a"))`, `let x = 1; x`, `let path = 1; path`, `map(1..10, # * 2)`, `filter(1..100000, # > 1)`, `1..10000000`, `repeat("a", 1000000000)`, `"a" matches "("`, `param("m") matches param("m")`, "now()", `date("x")`, "status == 200", `body("x") == 1`, `error == "timeout" and sent`, "repeat", "target", "payload", `params("a")`, `params`, `all([], true)`, `$env`, `$env["path"]`, `get($env, "path")()`, `reduce(1..3, #acc + #)`, strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500), strings.Repeat("not ", 3000) + "true", `"` + strings.Repeat("x", 300) + `"`, `2000000000`, `2 ** 62`, `9223372036854775807 + 1`}
	hostileLists     = []any{[]any{}, []any{"done"}, []any{"done", "done"}, []any{1}, []any{nil}, []any{"10.0.0.0/8"}, []any{"127.0.0.1"}, []any{"::/0"}, []any{"1.2.3.4/33"}, []any{"a", "A", ""}, []any{map[string]any{}}, []any{[]any{}}}
	hostileAnything  = slices.Concat(hostileDurations, hostileNumbers, hostileSizes, hostileTexts, hostileAddresses, hostileURLs, expressions, hostileLists, []any{nil, true, false, map[string]any{}, map[string]any{"a": 1}})
)

var isDuration = regexp.MustCompile(`^-?[0-9.]+(ms|s|m|h)`)

// A configDraw decides by bytes; those beyond the last one are random.
type configDraw struct {
	data          []byte
	rest          *rand.Rand
	upstream, dir string
}

func (d *configDraw) n(n int) int {
	if len(d.data) < 2 {
		return d.rest.IntN(n)
	}
	c := int(d.data[0])<<8 | int(d.data[1])
	d.data = d.data[2:]
	return c % n
}

// instead returns a value for the place of another one, of its kind as a rule.
func (d *configDraw) instead(key string, v any) any {
	list := hostileAnything
	if d.n(8) > 0 {
		switch text, _ := v.(string); {
		case key == "url":
			list = hostileURLs
		case key == "listen" || key == "admin":
			list = hostileAddresses
		case slices.Contains([]string{"max_body", "max_waiting_bytes", "bytes"}, key):
			list = hostileSizes
		case slices.Contains([]string{"when", "per_key", "cost", "share_by", "durable", "no_body", "idempotent", "same", "target", "body", "account", "authorization"}, key):
			list = expressions
		case isDuration.MatchString(text):
			list = hostileDurations
		case text != "":
			list = hostileTexts
		default:
			switch v.(type) {
			case int, float64:
				list = hostileNumbers
			case []any:
				list = hostileLists
			case bool:
				list = []any{true, false, "true", 1, nil}
			}
		}
	}
	v = list[d.n(len(list))]
	if text, ok := v.(string); ok {
		return strings.NewReplacer("UPSTREAM", d.upstream, "KEY", filepath.Join(d.dir, "key.pem")).Replace(text)
	}
	return v
}

// change replaces, drops or repeats a part of a section or list, and returns it.
func (d *configDraw) change(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || d.n(20) == 19 {
			break
		}
		names := slices.Sorted(maps.Keys(v))
		name := names[d.n(len(names))]
		changed := maps.Clone(v)
		switch d.n(12) {
		case 11:
			delete(changed, name)
		case 10:
			changed[name+"2"] = v[name]
		default:
			changed[name] = d.change(name, v[name])
		}
		return changed
	case []any:
		if len(v) == 0 || d.n(12) == 11 {
			break
		}
		i := d.n(len(v))
		if d.n(10) == 9 {
			return append(slices.Clone(v), v[i])
		}
		changed := slices.Clone(v)
		changed[i] = d.change(key, v[i])
		return changed
	}
	return d.instead(key, v)
}

// document draws a configuration: some keys of the reference, some of them changed.
func (d *configDraw) document(reference map[string]any) map[string]any {
	doc := maps.Clone(reference)
	upstream := make(map[string]any)
	all := reference["upstreams"].(map[string]any)["example"].(map[string]any)
	keep := 1 + d.n(10) // of 10
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name == "url" || name == "listen" || d.n(10) < keep {
			upstream[name] = all[name]
		}
	}
	upstreams := map[string]any{"example": upstream}
	if d.n(3) == 2 {
		upstreams["other"] = d.change("", all)
	}
	doc["upstreams"] = upstreams
	for range d.n(5) {
		doc["upstreams"] = map[string]any{"example": d.change("", doc["upstreams"].(map[string]any)["example"])}
	}
	if d.n(4) == 3 {
		doc, _ = d.change("", doc).(map[string]any)
	}
	if doc["store"] == "throttler.db" {
		doc["store"] = "memory"
		if d.n(4) == 3 {
			doc["store"] = filepath.Join(d.dir, "throttler.db")
		}
	}
	store, ok := doc["store"]
	if path, text := store.(string); doc != nil && !ok || text && path != "memory" && !strings.HasPrefix(path, d.dir) {
		doc["store"] = "memory" // neither the default, which all fuzzers would share, nor a file anywhere
	}
	return doc
}

// reference returns the reference configuration, with the keys that it has as comments,
// for an upstream of this host.
func reference(f testing.TB, upstream, dir string) map[string]any {
	f.Helper()
	text, err := os.ReadFile("../../configs/throttler.yaml")
	if err != nil {
		f.Fatal(err)
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		f.Fatal(err)
	}
	doc["admin"] = "127.0.0.1:0"
	u := doc["upstreams"].(map[string]any)["example"].(map[string]any)
	u["url"], u["listen"] = upstream, "127.0.0.1:0"
	delete(u, "addresses")
	key := "file:" + filepath.Join(dir, "key.pem")
	u["signer"] = map[string]any{"kind": "alipay", "key": key, "app_id": "1", "timeout": "5s"}
	u["callbacks"] = map[string]any{"shop": map[string]any{
		"url": upstream, "secret": "file:" + filepath.Join(dir, "secret"), "timeout": "30s", "per_second": 50,
		"retry": map[string]any{"attempts": 12, "backoff": "exponential", "min": "10s", "max": "5h"},
	}}
	return doc
}

// mayFail reports whether a check cannot see the fault: it is of this machine, now.
func mayFail(err error) bool {
	return regexp.MustCompile(`cannot listen on .*(in use|cannot assign|permission denied|no such host|invalid argument)`).MatchString(err.Error())
}

// FuzzConfig draws two configurations. Each that passes the check starts, takes calls,
// is reloaded to the other one and back, and stops.
func FuzzConfig(f *testing.F) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"a":{"b":1}}`) }))
	f.Cleanup(upstream.Close)
	dir := f.TempDir()
	for name, text := range map[string]string{"key.pem": gateway.NewKeys().Private, "secret": "whsec_" + strings.Repeat("MfKQ9r8GKYqrTwjUPD8ILPZI", 2)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			f.Fatal(err)
		}
	}
	base := reference(f, upstream.URL, dir)
	r := rand.New(rand.NewPCG(3, 7))
	f.Add([]byte{})
	for range 60 {
		data := make([]byte, r.IntN(100))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var accepted []*config.Config
		for _, data := range [][]byte{data[:len(data)/2], data[len(data)/2:]} {
			d := &configDraw{data, rand.New(rand.NewPCG(crc64.Checksum(data, crc64.MakeTable(crc64.ISO)), 7)), upstream.URL, dir}
			text, err := yaml.Marshal(d.document(base))
			if err != nil {
				return // it is no YAML
			}
			if c, err := config.Parse(text); err == nil {
				t.Logf("accepted:\n%s", text)
				accepted = append(accepted, c)
			}
		}
		if len(accepted) > 0 {
			play(t, accepted)
			files, _ := filepath.Glob(filepath.Join(dir, "throttler.db*"))
			for _, file := range files {
				os.Remove(file)
			}
		}
	})
}

// TestConfigsBeyondBounds: values that no part can hold are faults of the check.
func TestConfigsBeyondBounds(t *testing.T) {
	bound := regexp.MustCompile(` (1000000000|1073741824|1099511627776)\b`)
	for _, line := range []string{"max_waiting: 9223372036854775807", "max_waiting: 1000000001", "concurrency: 2000000000", "concurrency: 9223372036854775807", "limits: [{name: a, concurrency: 1000000001}]",
		"inspect: {bytes: 9223372036854775807}", "inspect: {bytes: 1073741825}", "max_body: 9223372036854775807", "max_waiting_bytes: 9223372036854775807"} {
		text := "admin: 127.0.0.1:0\nstore: memory\nupstreams:\n  example:\n    url: http://127.0.0.1:1\n    listen: 127.0.0.1:0\n    " + line + "\n"
		if _, err := config.Parse([]byte(text)); err == nil || !bound.MatchString(err.Error()) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

var discard = slog.New(slog.DiscardHandler)

// play starts a sidecar with the first configuration, and reloads the others and the
// first one.
func play(t *testing.T, configs []*config.Config) {
	t.Helper()
	within(t, "start, reload and stop", func() {
		next := configs[0]
		sc := &sidecar{cfg: configs[0], log: discard, load: func() (*config.Config, error) { return next, nil }}
		err := sc.enter(t.Context())
		if err == nil {
			if err = sc.begin(t.Context()); err != nil {
				sc.close()
			}
		}
		if err != nil {
			if !mayFail(err) {
				t.Errorf("start: %v", err)
			}
			return
		}
		sc.ask()
		for _, next = range append(configs[1:], configs[0]) {
			if _, _, err := sc.reload(func(_ *config.Config, _ []config.Change, apply func() error) error { return apply() }); err != nil && !mayFail(err) {
				t.Errorf("reload: %v", err)
			}
			sc.ask()
		}
		if err := sc.stop(min(sc.grace(), time.Second)); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
}

// ask sends calls and looks at their state.
func (sc *sidecar) ask() {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	send := func(method, url, body string) {
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Idempotency-Key", "k")
		if resp, err := client.Do(req); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
	admin := sc.admin.url()
	for _, l := range sc.listeners {
		send("POST", "http://"+l.addr+"/x?m=x&k=1", "app_id=1&biz_content={}")
	}
	send("POST", admin+"/v1/calls", `{"upstream":"example","method":"POST","path":"/y?m=x","body":"{}","callback":"shop","idempotency_key":"k2"}`)
	send("GET", admin+"/metrics", "")
	send("GET", admin+"/v1/upstreams", "")
	send("GET", admin+"/v1/limits", "")
}

// within fails if f does not end, and all goroutines with it.
func within(t *testing.T, name string, f func()) {
	t.Helper()
	before := runtime.NumGoroutine()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: no end within a minute", name)
	}
	for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before+4; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%s: %d goroutines before, and %d after it\n%s", name, before, runtime.NumGoroutine(), stacks[:runtime.Stack(stacks, true)])
		}
	}
}
