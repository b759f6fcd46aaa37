package main

import (
	"net/http"
	"strings"
	"testing"
)

// TestCompletion asks for completions as a shell does.
func TestCompletion(t *testing.T) {
	p := start(t, serve(t, http.NotFoundHandler()), "limits:", "  - {name: app, calls: 5, window: 1s}", "  - {name: day, calls: 500, window: 24h}")
	complete := func(line string) string {
		t.Helper()
		out, messages, code := command(t, append([]string{"__complete"}, strings.Split(line, " ")...)...)
		if code != 0 || !strings.HasSuffix(out, ":4\n") { // no files
			t.Errorf("%s: exit code %d: %s%s", line, code, out, messages)
		}
		return strings.TrimSuffix(out, ":4\n")
	}
	t.Setenv(addrVariable, p.admin)
	run := func(args ...string) string {
		t.Helper()
		out, messages, code := command(t, args...)
		if code != 0 {
			t.Fatalf("exit code %d: %s%s", code, out, messages)
		}
		return strings.TrimSpace(out)
	}
	pause := run("pause", "alipay", "--limit", "app", "--for", "1h", "--reason", "maintenance", "-o", "name")
	waiting := run("calls", "submit", "alipay", "/refund", "-o", "name")
	for line, want := range map[string]string{
		"calls get ":                    waiting + "\twaiting alipay GET /refund\n",
		"calls get " + waiting + " ":    "",
		"calls cancel ":                 waiting + "\twaiting alipay GET /refund\n",
		"calls cancel " + waiting + " ": "",
		"calls edit ":                   waiting + "\twaiting alipay GET /refund\n",
		"calls resolve ":                "",
		"calls resolve x --as ":         "done\nfailed\nnot_executed\n",
		"calls submit ":                 "alipay\n",
		"calls submit alipay ":          "",
		"calls list --upstream ":        "alipay\n",
		"calls list --limit ":           "app\nconcurrency\nday\n",
		"limits --upstream ":            "alipay\n",
		"flows ":                        "alipay\n",
		"flows alipay ":                 "",
		"pause ":                        "alipay\n",
		"pause alipay ":                 "",
		"pause alipay --limit ":         "app\nconcurrency\nday\n",
		"resume ":                       pause + "\tlimit app of upstream alipay\n",
	} {
		if got := complete(line); got != want {
			t.Errorf("%q is completed by %q, want %q", line, got, want)
		}
	}
	run("pause", "alipay", "--limit", "concurrency", "--for", "1h", "--reason", "maintenance")
	run("resume", "alipay", "--limit", "concurrency") // it is the pause of the upstream
	if out, _, _ := command(t, "__complete", "calls", "get", "--addr", "127.0.0.1:1", ""); out != ":1\n" {
		t.Errorf("without a sidecar: %q", out)
	}
}
