package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// TestRemovedUpstream takes an upstream out of the configuration while its calls wait: by a
// reload, and for the next process. It keeps them, sends none, and can be looked at and
// paused.
func TestRemovedUpstream(t *testing.T) {
	var sent atomic.Int64
	old := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { sent.Add(1) }))
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams:\n  alipay: {listen: 127.0.0.1:0, url: %s, limits: [{name: app, calls: 1, window: 200ms}]}\n",
		filepath.Join(t.TempDir(), "throttler.db"), url)
	p := launch(t, yaml+fmt.Sprintf("  old: {listen: 127.0.0.1:0, url: %s, limits: [{name: app, calls: 1, window: 200ms}]}\n", old))
	const calls = 200
	for range calls {
		p.submitTo(t, "old")
	}
	if err := os.WriteFile(p.file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	p.until(t, "without the upstream", func() bool {
		u := p.upstream(t, "old")
		return u.State == "removed" && u.Sending == 0
	})
	before := sent.Load()
	looks := func(p *process) {
		t.Helper()
		for range 5 { // a second by the other upstream's limit
			if r := <-get(t.Context(), p.data); r.status != 200 {
				t.Fatalf("%+v", r)
			}
		}
		if n := sent.Load(); n != before {
			t.Errorf("%d calls were sent without the upstream", n-before)
		}
		left := calls - int(before)
		if u := p.upstream(t, "old"); u.State != "removed" || u.Waiting != left {
			t.Errorf("%+v, want %d waiting", u, left)
		}
		for path, want := range map[string]string{
			"/v1/limits?upstream=old":              "[", // its limits are known in the process that removed it
			"/v1/calls?upstream=old&state=waiting": `"removed":true`,
			"/metrics":                             fmt.Sprintf(`throttler_calls_waiting{upstream="old"} %d`, left),
		} {
			got := p.body(path)
			if !strings.Contains(got, want) || strings.Contains(got, "is not configured") {
				t.Errorf("%s: no %s in %.500s", path, want, got)
			}
		}
		page := p.page(t, "upstream=old&state=waiting&page_size=1000")
		if len(page.Calls) != left {
			t.Errorf("%d calls are listed, want %d", len(page.Calls), left)
		}
		for _, c := range page.Calls {
			if c.WaitingFor == nil || !c.WaitingFor.Removed || !c.ETA.IsZero() {
				t.Fatalf("%+v", c)
			}
		}
		out, err := p.throttler(t, "calls", "list", "--upstream", "old", "--page-size", "1", "--state", "waiting").Output()
		if err != nil || !strings.Contains(string(out), "not known  the upstream, removed\n") {
			t.Errorf("%v\n%s", err, out)
		}
		p.pause(t, `{"upstream":"old","for":"1h"}`)
		if u := p.upstream(t, "old"); u.PausedUntil.IsZero() {
			t.Errorf("it is not paused: %+v", u)
		}
	}
	looks(p)
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.exit(t)
	p = launch(t, yaml)
	looks(p)
	p.resume(t, "old", "")
	if err := os.WriteFile(p.file, []byte(yaml+fmt.Sprintf("  old: {listen: 127.0.0.1:0, url: %s, limits: [{name: app, calls: 500, window: 1s}]}\n", old)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.until(t, "done", func() bool { return sent.Load() == calls })
	if err := os.WriteFile(p.file, []byte(yaml), 0o600); err != nil { // its calls have finished
		t.Fatal(err)
	}
	p.until(t, "without its limits", func() bool { return !strings.Contains(p.body("/v1/limits?upstream=old"), `"limit":"app"`) })
	if page := p.page(t, "upstream=old&page_size=5"); len(page.Calls) != 5 {
		t.Errorf("%d finished calls are listed", len(page.Calls))
	}
}

// upstream returns the state of an upstream as the admin API tells it.
func (p *process) upstream(t *testing.T, name string) api.Upstream {
	t.Helper()
	var all api.Upstreams
	if err := json.Unmarshal([]byte(p.body("/v1/upstreams")), &all); err != nil {
		t.Fatal(err)
	}
	for _, u := range all.Upstreams {
		if u.Name == name {
			return u
		}
	}
	t.Fatalf("there is no upstream %s", name)
	return api.Upstream{}
}

// page returns a list of calls by a query.
func (p *process) page(t *testing.T, query string) api.Calls {
	t.Helper()
	var page api.Calls
	if text := p.body("/v1/calls?" + query); json.Unmarshal([]byte(text), &page) != nil || page.Calls == nil {
		t.Fatal(text)
	}
	return page
}

// TestBacklogOnDisk has more calls than are in memory. What lists, single calls and the
// upstream tell of them agrees, for those on disk too. Calls go so seldom that the time of
// the test itself does not count.
func TestBacklogOnDisk(t *testing.T) {
	const calls, each = 3000, 6 * time.Second // ten a minute
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := launch(t, fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nupstreams:\n  alipay: {listen: 127.0.0.1:0, url: %s, limits: [{name: app, calls: 10, window: 1m}]}\n",
		filepath.Join(t.TempDir(), "throttler.db"), url))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range calls / 20 {
				p.submitTo(t, "alipay")
			}
		})
	}
	all.Wait()
	near := func(what string, eta api.Instant, ahead int) {
		t.Helper()
		if d := time.Until(eta.Time) - time.Duration(ahead)*each; d.Abs() > 5*time.Minute {
			t.Errorf("%s goes %v later than it should", what, d)
		}
	}
	near("the last call, by its upstream,", p.upstream(t, "alipay").ETA, calls)
	seen, cursor, last := 0, "", ""
	for more := true; more; more = cursor != "" {
		page := p.page(t, "state=waiting&order=oldest&page_size=1000&cursor="+cursor)
		for _, c := range page.Calls {
			if c.State != api.Waiting || c.ETA.IsZero() || c.WaitingFor == nil || c.WaitingFor.Limit != "app" {
				t.Fatalf("call %d: %+v", seen, c)
			}
			near(fmt.Sprintf("call %d", seen), c.ETA, seen)
			seen, last = seen+1, c.ID
		}
		cursor = page.Next
	}
	if seen < calls-100 {
		t.Errorf("%d calls are listed, want about %d", seen, calls)
	}
	var call api.Call
	if err := json.Unmarshal([]byte(p.body("/v1/calls/"+last)), &call); err != nil {
		t.Fatal(err)
	}
	near("the last call", call.ETA, calls)
	p.pause(t, `{"upstream":"alipay","for":"10h"}`)
	near("the last call after a pause", p.upstream(t, "alipay").ETA, calls+6000)
}

// submitTo hands a durable call over.
func (p *process) submitTo(t *testing.T, upstream string) {
	t.Helper()
	p.post(t, "/v1/calls", fmt.Sprintf(`{"upstream":%q,"method":"POST","path":"/"}`, upstream), 202)
}

// TestReloadOfKeysThatNeedARestart: a reload tells the running value of a key that needs a
// restart and the new one. Back at the running value, there is nothing to restart for.
func TestReloadOfKeysThatNeedARestart(t *testing.T) {
	p := start(t, "http://127.0.0.1:1")
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	reload := func(text, want string) {
		t.Helper()
		if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		want = fmt.Sprintf(`{"file_sha256":"%x",%s`, sha256.Sum256([]byte(text)), want[1:])
		if got := p.post(t, "/v1/config/reload", "", 200); strings.TrimSpace(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	const needs = `{"changes":[{"path":"keep_calls","before":"168h","after":"24h","kind":"changed","restart":true}]}`
	reload(string(text)+"keep_calls: 24h\n", needs)
	reload(string(text)+"keep_calls: 24h\n", needs)
	reload(string(text)+"keep_calls: 168h\n", `{"changes":[]}`)
	reload(string(text), `{"changes":[]}`)
}

// TestHungAttempts: a call whose permits are held by attempts that do not end has no ETA.
// The attempts that it waits for are told instead.
func TestHungAttempts(t *testing.T) {
	url, arrived, answer := stall(t)
	p := start(t, url, "timeout: 25s", "limits: [{name: parallel, concurrency: 3}]")
	var last string
	for range 4 {
		last = p.submit(t, "/")
	}
	for range 3 {
		<-arrived
	}
	var call api.Call
	p.until(t, "waiting without an ETA", func() bool {
		call = api.Call{}
		if err := json.Unmarshal([]byte(p.body("/v1/calls/"+last)), &call); err != nil {
			t.Fatal(err)
		}
		return call.ETA.IsZero()
	})
	f := call.WaitingFor
	if f == nil || f.Limit != "parallel" || f.InFlight != 3 || f.TimeoutMs != 25_000 || f.OldestSentAt.Before(call.AcceptedAt.Add(-time.Minute)) || !f.Until.IsZero() {
		t.Errorf("%+v", f)
	}
	if u := p.upstream(t, "alipay"); !u.ETA.IsZero() || u.Waiting != 1 {
		t.Errorf("%+v", u)
	}
	for what, args := range map[string][]string{
		"when one of 3 in flight ends (the oldest was sent ": {"get", last},
		", time-out 25s)\n":       {"get", last},
		"  not known  parallel\n": {"list", "--state", "waiting"},
	} {
		if out, err := p.throttler(t, append([]string{"calls"}, args...)...).Output(); err != nil || !strings.Contains(string(out), what) {
			t.Errorf("%v, no %q in\n%s", err, what, out)
		}
	}
	close(answer)
	p.until(t, "done", func() bool { return strings.Contains(p.body("/v1/calls/"+last), `"state":"done"`) })
}

// TestLatePermits: permits of attempts without an answer are out and not in flight. The
// limit says so, and the call that waits for them.
func TestLatePermits(t *testing.T) {
	url, _, _ := stall(t)
	p := start(t, url, "timeout: 100ms", "late: 1h", "limits: [{name: parallel, concurrency: 3}]")
	for range 3 {
		p.submit(t, "/")
	}
	p.until(t, "unknown", func() bool { return p.upstream(t, "alipay").Unknown == 3 })
	var limits api.Limits
	if err := json.Unmarshal([]byte(p.body("/v1/limits?upstream=alipay")), &limits); err != nil {
		t.Fatal(err)
	}
	l := limits.Limits[slices.IndexFunc(limits.Limits, func(l api.Limit) bool { return l.Limit == "parallel" })]
	if l.Out != 3 || l.InFlight != 0 || l.Late != 3 || l.Keys[0].Late != 3 || time.Until(l.NextBack.Time) < 30*time.Minute || l.Keys[0].NextBack != l.NextBack {
		t.Errorf("%+v", l)
	}
	waits := p.submit(t, "/")
	out, err := p.throttler(t, "calls", "get", waits).Output()
	if want := "; 3 of its permits had no answer, and stay out for late longer\n"; err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, no %q in\n%s", err, want, out)
	}
}
