package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// throttler returns a command of the real binary that asks the sidecar's admin API.
func (p *process) throttler(t *testing.T, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), p.cmd.Path, append(args, "--admin", strings.TrimPrefix(p.admin, "http://"))...)
}

// submit hands over a call and returns its id.
func (p *process) submit(t *testing.T, path string) string {
	t.Helper()
	resp, err := http.Post(p.admin+"/v1/calls", "application/json", strings.NewReader(fmt.Sprintf(`{"upstream":"alipay","path":%q}`, path)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var call scheduler.Call
	if err := json.NewDecoder(resp.Body).Decode(&call); err != nil || resp.StatusCode != 202 {
		t.Fatal(resp.Status, err)
	}
	return call.ID
}

// TestCallsExplain asks why a call waits: its key is taken for an hour, and another
// call waits for it too.
func TestCallsExplain(t *testing.T) {
	url, arrived, answer := stall(t)
	close(answer)
	p := start(t, url, "limits:", `  - {name: app, per_key: 'query("app")', calls: 1, window: 1h}`)
	sent := p.submit(t, "/?app=a")
	<-arrived
	p.until(t, "done", func() bool { return strings.Contains(p.body("/v1/calls/"+sent), `"state":"done"`) })
	first, second := p.submit(t, "/?app=a"), p.submit(t, "/?app=a")

	out, err := p.throttler(t, "calls", "get", second).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^call +` + second + `$`,
		`(?m)^state +waiting, accepted .* ago\)$`,
		`(?m)^goes +about .* \(in 2h0m0?\.?\d*s\)$|\(in 1h59m`,
		`(?m)^held by +limit app, key "a", until `,
		`(?m)^ahead +1 permit`,
		`(?m)^next there +` + first + `$`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("get: no line is %s in\n%s", want, out)
		}
	}
	out, err = p.throttler(t, "calls", "get", second, "-o", "json").Output()
	var call scheduler.Call
	if err != nil || json.Unmarshal(out, &call) != nil || call.ID != second || call.WaitingFor.Limit != "app" || call.WaitingFor.Next != first {
		t.Errorf("get -o json: %v\n%s", err, out)
	}
	out, err = p.throttler(t, "calls", "get", sent).Output()
	if err != nil || !regexp.MustCompile(`(?m)^attempt 1 +sent .*, done after .*, status 200`).Match(out) || bytes.Contains(out, []byte("held by")) {
		t.Errorf("get of a call that is done: %v\n%s", err, out)
	}

	out, err = p.throttler(t, "calls", "list", "--state", "waiting", "--limit", "1").Output()
	if err != nil || !regexp.MustCompile(first+` +alipay +waiting .* app "a"\nmore: --cursor `+first+`\n$`).Match(out) {
		t.Errorf("list: %v\n%s", err, out)
	}
	for _, wrong := range []struct{ args, want string }{
		{"calls get nobody", `call "nobody" is not known`},
		{"calls list --state lost", `state "lost" is unknown`},
		{"calls list -o xml", `--output "xml" is neither text nor json`},
		{"calls watch nobody", `call "nobody" is not known`},
		{"calls watch --upstream nope", `upstream "nope" is not configured`},
	} {
		cmd := p.throttler(t, strings.Fields(wrong.args)...)
		var errs bytes.Buffer
		cmd.Stderr = &errs
		if err := cmd.Run(); err == nil || !strings.Contains(errs.String(), wrong.want) || strings.Contains(errs.String(), "no admin API") {
			t.Errorf("%s: %v, %q, want %q", wrong.args, err, errs.String(), wrong.want)
		}
	}
}

// TestCallsWatch follows a call that is cancelled.
func TestCallsWatch(t *testing.T) {
	url, arrived, answer := stall(t)
	close(answer)
	p := start(t, url, `limits: [{name: app, calls: 1, window: 1h}]`)
	p.submit(t, "/")
	<-arrived
	id := p.submit(t, "/")
	cmd := p.throttler(t, "calls", "watch", id)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(pipe)
	for _, want := range []string{`  state +waiting  goes .* \(in `, `  ended +cancelled$`} {
		if !lines.Scan() || !regexp.MustCompile(id+`  alipay`+want).MatchString(lines.Text()) {
			t.Fatalf("watch says %q, want %s", lines.Text(), want)
		}
		if strings.Contains(want, "state") {
			req, _ := http.NewRequestWithContext(t.Context(), "DELETE", p.admin+"/v1/calls/"+id, nil)
			if resp, err := http.DefaultClient.Do(req); err != nil || resp.StatusCode != 200 {
				t.Fatal(resp, err)
			}
		}
	}
	if err := cmd.Wait(); err != nil || lines.Scan() {
		t.Errorf("watch ended with %v, more: %q", err, lines.Text())
	}
}

func TestCallsWithoutASidecar(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	const addr = "127.0.0.1:1" // where nobody listens
	for _, args := range [][]string{{"calls", "list"}, {"calls", "watch"}} {
		out, err := exec.Command(path, append(args, "--admin", addr)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no admin API at "+addr) {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestWhen(t *testing.T) {
	now := time.Date(2026, 11, 21, 23, 30, 0, 0, time.Local)
	for want, d := range map[string]time.Duration{
		"23:30:01.000 (in 1s)":              time.Second,
		"00:30:00.000 (23h0m0s ago)":        -23 * time.Hour,
		"2026-11-20 23:29:59 (24h0m0s ago)": -24*time.Hour - time.Second,
		"2026-11-22 00:00:00 (in 30m0s)":    30 * time.Minute,
		"2026-11-22 23:30:00 (in 24h0m0s)":  24 * time.Hour,
	} {
		if got := when(now.Add(d), now); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestHeld(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.Local)
	until := now.Add(1500 * time.Millisecond)
	for want, f := range map[string]scheduler.WaitingFor{
		`limit app, until 09:00:01.500 (in 1.5s)`:                             {Limit: "app"},
		`limit app, key "a", until 09:00:01.500 (in 1.5s)`:                    {Limit: "app", Key: "a"},
		`a pause of limit app, key "a", until 09:00:01.500 (in 1.5s)`:         {Limit: "app", Key: "a", Paused: true},
		`the upstream, which is paused or down, until 09:00:01.500 (in 1.5s)`: {Limit: scheduler.ConcurrencyLimit, Paused: true},
		`its own time: not before 09:00:01.500 (in 1.5s)`:                     {},
	} {
		f.Until = until
		if got := held(&f, now); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	var out bytes.Buffer
	shut := &scheduler.Call{ID: "c", State: scheduler.Waiting, ETA: until, WaitingFor: &scheduler.WaitingFor{Limit: scheduler.ConcurrencyLimit, Paused: true}}
	if err := list(&out, &server.Page{Calls: []*scheduler.Call{shut}}, now); err != nil || !strings.HasSuffix(out.String(), "in 1.5s  the upstream\n") {
		t.Errorf("list: %v, %s", err, &out)
	}
}
