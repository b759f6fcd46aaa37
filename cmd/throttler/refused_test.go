package main

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestCallsRefused lists calls that were refused by the data listener and by the admin API.
func TestCallsRefused(t *testing.T) {
	p := start(t, serve(t, http.NotFoundHandler()), "limits:", `  - {name: app, per_key: 'header("App")', calls: 5, window: 1s}`)
	resp, err := http.Get(p.data + "/?canary=1")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	id := resp.Header.Get("Throttler-Call")
	t.Setenv(addrVariable, p.admin)
	out, errs, code := command(t, "calls", "refused")
	rows := strings.Split(out, "\n")
	if code != 0 || len(rows) != 3 || !strings.HasPrefix(rows[0], "CALL ") || !strings.HasPrefix(rows[1], id+"  alipay  ") || !strings.Contains(rows[1], "  bad_key  ") || strings.Contains(out, "canary") {
		t.Errorf("exit code %d: %s%s", code, out, errs)
	}
	if out, errs, code := command(t, "calls", "submit", "none", "/"); code != exitNotFound {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	out, _, _ = command(t, "calls", "refused", "--page-size", "1", "-o", "ndjson")
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, `"reason":"not_found"`) {
		t.Errorf("the newest: %s", out)
	}
	if out, _, _ := command(t, "calls", "refused", "--page-size", "1"); !strings.Contains(out, "\nmore: --cursor ") {
		t.Errorf("the first page: %s", out)
	}
	if out, _, _ := command(t, "calls", "refused", "--upstream", "alipay", "--reason", "bad_key", "-o", "name"); out != id+"\n" {
		t.Errorf("by upstream and reason: %s", out)
	}
	for args, want := range map[string]int{"--upstream=": exitUsage, "--upstream none": exitNotFound, "--reason none": exitFailed} {
		if out, errs, code := command(t, append([]string{"calls", "refused"}, strings.Fields(args)...)...); code != want {
			t.Errorf("%s: exit code %d: %s%s, want %d", args, code, out, errs, want)
		}
	}
}

// TestConfigDiff compares a file that was changed, and one that is faulty; a viewer may do that. The
// sidecar does not watch the file.
func TestConfigDiff(t *testing.T) {
	yaml := "admin: 127.0.0.1:0\naccess:\n" + tokenLines() + accessRest
	p := launch(t, yaml, "sh", "-c", `exec "$0" serve -c "$4"`)
	t.Setenv(addrVariable, p.admin)
	t.Setenv(tokenVariable, tokenFor("viewer"))
	write := func(from, to string) {
		t.Helper()
		if err := os.WriteFile(p.file, []byte(strings.Replace(yaml, from, to, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, errs, code := command(t, "config", "diff"); code != 0 || out != "no change\n" {
		t.Errorf("the same: exit code %d: %s%s", code, out, errs)
	}
	write("http://127.0.0.1:1", "http://127.0.0.1:1/canary")
	out, errs, code := command(t, "config", "diff")
	if code != exitFailed || !strings.Contains(out, "upstreams.alipay.url") || strings.Contains(out+errs, "canary") {
		t.Errorf("another path: exit code %d: %s%s", code, out, errs)
	}
	write("calls: 1,", "calls: 2,")
	if out, errs, code := command(t, "config", "diff", "-o", "ndjson"); code != exitFailed || out != `{"path":"upstreams.alipay.limits[app].calls","before":"1","after":"2","kind":"changed"}`+"\n" {
		t.Errorf("another limit: exit code %d: %s%s", code, out, errs)
	}
	write("calls: 1,", "calls: none,")
	if out, errs, code := command(t, "config", "diff"); code != exitConfig || out != "" || !strings.Contains(errs, "upstreams.alipay.limits[0].calls") {
		t.Errorf("a fault: exit code %d: %s%s", code, out, errs)
	}
	if out, errs, code := command(t, "reload", "--dry-run"); code != exitForbidden {
		t.Errorf("a reload by a viewer: exit code %d: %s%s", code, out, errs)
	}
}
