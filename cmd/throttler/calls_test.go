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

	"github.com/seed-30fe103d/throttler/internal/api"
)

// throttler returns a command of the real binary, for the sidecar's admin API.
func (p *process) throttler(t *testing.T, args ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), p.cmd.Path, append(args, "--addr", strings.TrimPrefix(p.admin, "http://"))...)
}

// submit submits a GET of a path and returns the call's id.
func (p *process) submit(t *testing.T, path string) string {
	t.Helper()
	return p.accepted(t, fmt.Sprintf(`{"upstream":"alipay","method":"GET","path":%q}`, path))
}

// TestCallsGet shows a call that waits: the permit of its key is out for an hour, and
// another call is ahead.
func TestCallsGet(t *testing.T) {
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
		`(?m)^ahead +1 permit goes to a call ahead of it$`,
		`(?m)^first in line +` + first + `$`,
		`(?m)^must be sent by +.* \(in `,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("get: no line is %s in\n%s", want, out)
		}
	}
	out, err = p.throttler(t, "calls", "get", second, "-o", "json").Output()
	var call api.Call
	if err != nil || json.Unmarshal(out, &call) != nil || call.ID != second || call.WaitingFor.Limit != "app" || call.WaitingFor.Next != first {
		t.Errorf("get -o json: %v\n%s", err, out)
	}
	out, err = p.throttler(t, "calls", "get", sent).Output()
	if err != nil || !regexp.MustCompile(`(?m)^attempt 1 +sent .*, done after .*, status 200`).Match(out) || bytes.Contains(out, []byte("held by")) {
		t.Errorf("get of a call that is done: %v\n%s", err, out)
	}

	out, err = p.throttler(t, "calls", "list", "--oldest", "--state", "waiting", "--page-size", "1").Output()
	if err != nil || !regexp.MustCompile(first+` +alipay +waiting .* app "a"\nmore: --cursor [-_A-Za-z0-9]+\n$`).Match(out) {
		t.Errorf("list: %v\n%s", err, out)
	}
	for _, wrong := range []struct{ args, want string }{
		{"calls get none", `call "none" is not known`},
		{"calls list --state lost", `state "lost" is unknown`},
		{"calls list -o xml", `--output is "xml", must be one of: json, name, ndjson, table, yaml`},
		{"calls watch none", `call "none" is not known`},
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
			req, _ := http.NewRequestWithContext(t.Context(), "POST", p.admin+"/v1/calls/"+id+"/cancel", nil)
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
	const addr = "127.0.0.1:1" // no listener there
	for _, args := range [][]string{{"calls", "list"}, {"calls", "watch"}} {
		out, err := exec.Command(path, append(args, "--addr", addr)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no admin API at "+addr) {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}
