package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestReload changes the configuration of a running sidecar in each of the three
// ways: permits that are out stay out, and what is faulty changes nothing.
func TestReload(t *testing.T) {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "paid") }))
	defer platform.Close()
	limits := func(calls int) string { return fmt.Sprintf("limits: [{name: app, calls: %d, window: 1h}]", calls) }
	p := start(t, platform.URL, limits(1))
	call := func(base string, want int) {
		t.Helper()
		req, _ := http.NewRequest("POST", base+"/pay", nil)
		req.Header.Set("Throttler-Max-Wait", "0s")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != want {
			t.Fatalf("status %d, want %d: %s", resp.StatusCode, want, body)
		}
	}
	first, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(p.file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reload := func() (int, string) {
		t.Helper()
		resp, err := http.Post(p.admin+"/v1/reload", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body)
	}
	with := func(calls int, more string) string {
		return strings.Replace(string(first), limits(1), limits(calls), 1) + more
	}

	call(p.data, 200)
	call(p.data, 429)
	other := "  other:\n    listen: 127.0.0.1:0\n    url: " + platform.URL + "\n"
	write(with(2, other))
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.until(t, "reloaded", func() bool { return strings.Contains(p.log.String(), "upstreams.alipay.limits[0].calls: 1 → 2") })
	call(p.data, 200)
	call(p.data, 429)
	call(p.url(t, "upstreams.other.listen"), 200)

	write(strings.Replace(with(5, other), "window: 1h", "window: 1 hour", 1))
	if status, body := reload(); status != 400 || !strings.Contains(body, "upstreams.alipay.limits[0].window") {
		t.Errorf("a faulty configuration: %d %s", status, body)
	}
	call(p.data, 429)

	write(with(3, ""))
	p.until(t, "reloaded by itself", func() bool { return strings.Contains(p.log.String(), "upstreams.alipay.limits[0].calls: 2 → 3") })
	call(p.data, 200)
	call(p.data, 429)
	if resp, err := http.Post(p.url(t, "upstreams.other.listen")+"/pay", "", nil); err == nil {
		resp.Body.Close()
		t.Errorf("an upstream that is gone still answers: %d", resp.StatusCode)
	}
	if status, body := reload(); status != 200 || !strings.Contains(body, `"changes":[]`) {
		t.Errorf("nothing has changed: %d %s", status, body)
	}
}
