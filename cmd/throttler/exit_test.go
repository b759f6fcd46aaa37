package main

import (
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestExitCodes runs a command for each exit code against a real sidecar.
func TestExitCodes(t *testing.T) {
	upstream := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	p := start(t, upstream, "limits:", `  - {name: app, calls: 5, window: 1s}`)
	lost := p.submit(t, "/")
	p.until(t, "an unknown call", func() bool { return p.call(lost).State == "unknown" })
	good, broken := file(t, "good.yaml", triedConfig), file(t, "broken.yaml", "nonsense: 1\n")
	for _, tt := range []struct {
		args, env string
		code      int
	}{
		{args: "upstreams"},
		{args: "limits --keys -o yaml"},
		{args: "flows alipay -o name"},
		{args: "flows", code: exitUsage},
		{args: "flows none", code: exitNotFound},
		{args: "calls list --needs-person -o name"},
		{args: "calls get " + lost + " -o ndjson"},
		{args: "ready"},
		{args: "config show -c " + good},
		{args: "status --check", code: 2},
		{args: "status --check --addr 127.0.0.1:1", code: 3},
		{args: "calls cancel", code: exitUsage},
		{args: "calls cancel --upstream alipay --number= --dry-run", code: exitUsage}, // an unset variable of a script
		{args: "calls cancel " + lost + " --dry-run --yes", code: exitUsage},          // it would cancel
		{args: "calls ask " + lost + " --dry-run", code: exitUsage},
		{args: "calls list --upstream=", code: exitUsage},
		{args: "calls list --state lost", code: exitFailed},
		{args: "calls list -o xml", code: exitUsage},
		{args: "calls resolve " + lost + " --as done --reason bill", code: exitUsage}, // no terminal, no --yes
		{args: "calls resolve " + lost + " --as done --reason bill --yes", code: exitUsage},
		{args: "calls resolve " + lost + " --as nonsense --reason bill --yes --attempt 1", code: exitUsage},
		{args: "pause alipay --for 1h", code: exitUsage}, // no reason
		{args: "calls get 01a20ef8-aabd-7e58-bd65-c25cf01451d2", code: exitNotFound},
		{args: "find R-404", code: exitNotFound},
		{args: "resume alipay", code: exitNotFound},
		{args: "calls resolve " + lost + " --as done --reason bill --yes --attempt 2", code: exitRefused},
		{args: "calls retry " + lost + " --reason none --yes --attempt 1", code: exitRefused},
		{args: "calls edit " + lost + " --priority 3", code: exitRefused},
		{args: "calls list --addr 127.0.0.1:1", code: exitUnreachable},
		{args: "upstreams --addr unix:/nonexistent.sock", code: exitUnreachable},
		{args: "upstreams --addr nonsense", code: exitUsage},
		{args: "check -c " + broken, code: exitConfig},
		{args: "config show -c " + broken, code: exitConfig},
	} {
		cmd := p.throttler(t, strings.Fields(tt.args)...)
		if strings.Contains(tt.args, "--addr") || strings.Contains(tt.args, "-c ") {
			cmd = exec.CommandContext(t.Context(), p.cmd.Path, strings.Fields(tt.args)...)
		}
		out, err := cmd.CombinedOutput()
		code := 0
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		if code != tt.code {
			t.Errorf("%s: exit code %d, want %d: %s", tt.args, code, tt.code, out)
		}
	}
}
