package main

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// TestSubmitBatch submits the calls of a file and of standard input, in each form of the output.
func TestSubmitBatch(t *testing.T) {
	p := start(t, serve(t, http.NotFoundHandler()), "limits:", "  - {name: app, calls: 5, window: 1s}")
	run := func(in string, args ...string) (out, errs string, code int) {
		t.Helper()
		cmd := p.throttler(t, append([]string{"calls", "submit"}, args...)...)
		var stdout, stderr strings.Builder
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
		err := cmd.Run()
		if _, exited := err.(*exec.ExitError); err != nil && !exited {
			t.Fatal(err)
		}
		return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
	}
	line := func(key string) string {
		return fmt.Sprintf(`{"upstream":"alipay","method":"POST","target":"/pay","body":"canary","not_before":"2099-01-01T00:00:00Z","deadline":"2100-01-01T00:00:00Z","idempotency_key":%q}`+"\n", key)
	}
	good := file(t, "refunds.ndjson", line("1")+line("2"))
	out, errs, code := run("", "--batch", good)
	rows := strings.Split(out, "\n")
	if code != 0 || errs != "" || len(rows) != 4 || !strings.HasPrefix(rows[0], "LINE  RESULT") || !strings.HasPrefix(rows[1], "1     accepted  ") || !strings.HasPrefix(rows[2], "2     accepted  ") || !strings.HasSuffix(rows[2], "  waiting") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	id := strings.Fields(rows[1])[2]
	bad := line("1") + "\n" + line("3") + `{"upstream":"alipay"}`
	out, errs, code = run(bad, "--batch", "-")
	rows = strings.Split(out, "\n")
	if code != exitRefused || !strings.Contains(errs, "1 of 3 lines refused") || len(rows) != 5 || !strings.Contains(rows[1], "there already  "+id) || !strings.HasPrefix(rows[3], "4     refused ") || !strings.Contains(rows[3], "bad_request: method is missing") || strings.Contains(out+errs, "canary") {
		t.Errorf("with a bad line: exit code %d: %s%s", code, out, errs)
	}
	for form, want := range map[string]string{"json": `{"line":1,"call":{"id":"` + id, "ndjson": `{"line":1,"call":{"id":"` + id, "yaml": "results:\n  - line: 1\n", "name": id + "\n"} {
		out, errs, code := run(bad, "--batch", "-", "-o", form)
		if code != exitRefused || !strings.HasPrefix(out, want) || errs == "" {
			t.Errorf("-o %s: exit code %d: %s%s", form, code, out, errs)
		}
		if lines := strings.Count(out, "\n"); lines != 3 && strings.HasSuffix(form, "json") || lines != 2 && form == "name" {
			t.Errorf("-o %s has %d lines: %s", form, lines, out)
		}
	}
	for _, tt := range []struct {
		args, in, want string
		code           int
	}{
		{"--batch -", strings.Repeat(line("k"), 1001), "1001 lines, at most 1000", exitFailed},
		{"--batch -", "", "empty", exitFailed},
		{"--batch -", "[" + line("k") + "]", "no NDJSON", exitFailed},
		{"--batch /nonexistent", "", "no such file", exitFailed},
		{"--batch - alipay /pay", "", "argument too many", exitUsage},
		{"--batch - --priority 3", "", "--priority is one of a single call", exitUsage},
		{"--batch - -d x", "", "--data is one of a single call", exitUsage},
		{"--batch - -o xml", "", "--output", exitUsage},
		{"alipay", "", "TARGET is missing", exitUsage},
	} {
		if out, errs, code := run(tt.in, strings.Fields(tt.args)...); code != tt.code || out != "" || !strings.Contains(errs, tt.want) || strings.Contains(errs, "canary") {
			t.Errorf("%s: exit code %d: %s%s, want %d with %q", tt.args, code, out, errs, tt.code, tt.want)
		}
	}
	if strings.Contains(p.log.String(), "canary") {
		t.Error("the log has a body")
	}
}
