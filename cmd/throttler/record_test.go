package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecordHoldsNoSecret plants canaries in every part of requests, also in those
// that keys and flows are made of, and looks for them in the recording.
func TestRecordHoldsNoSecret(t *testing.T) {
	url, _, answer := stall(t)
	close(answer)
	lines := []string{
		`share_by: 'header("X-Tenant")'`,
		"weights: {gold: 2}",
		"limits:",
		`  - {name: app, per_key: 'query("app")', calls: 1000, window: 1s}`,
		`  - {name: token, per_key: 'header("Authorization")', cost: 'json("cost")', calls: 1000, window: 1s}`,
		`  - {name: refund, when: 'json("kind") == "refund-canary"', calls: 1000, window: 1s}`,
	}
	p := start(t, url, lines...)
	file := filepath.Join(t.TempDir(), "load.jsonl")
	cmd := p.throttler(t, "record", file)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sent := 0
	call := func(tenant string) {
		sent++
		body := fmt.Sprintf(`{"cost": 3, "kind": "refund-canary", "card": "body-canary-%d"}`, sent)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", p.data+"/path-canary?app=query-canary&q=other-canary", strings.NewReader(body))
		req.Header = http.Header{"Authorization": {"Bearer header-canary"}, "X-Tenant": {tenant}, "Cookie": {"cookie-canary"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
	}
	recorded := func() string {
		text, _ := os.ReadFile(file)
		return string(text)
	}
	p.until(t, "recorded", func() bool {
		call("tenant-canary")
		return strings.Count(recorded(), "\n") >= 3
	})
	call("gold")
	p.until(t, "recorded", func() bool { return strings.Contains(recorded(), `"gold"`) })
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil || !strings.Contains(stderr.String(), "calls recorded") {
		t.Fatalf("record: %v, %s", err, &stderr)
	}
	text := recorded()
	if strings.Contains(strings.ToLower(text), "canary") || strings.Contains(text, "Bearer") {
		t.Errorf("a canary is in the recording:\n%s", text)
	}
	for _, want := range []string{`"key.app":"h`, `"key.token":"h`, `"cost.token":3`, `"key.refund":"*"`, `"flow":"h`, `"flow":"gold"`, `"wait":"30s"`, `"priority":10`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is not in the recording:\n%s", want, text)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the recording has mode %v, %v", info.Mode(), err)
	}

	// What was recorded can be played, under the configuration that it came from.
	yaml := fmt.Sprintf("upstreams:\n  alipay:\n    url: %s\n    %s\n", url, strings.Join(lines, "\n    "))
	config := filepath.Join(t.TempDir(), "throttler.yaml")
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(p.cmd.Path, "plan", "-c", config, "--load", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("calls                    %d in ", strings.Count(text, "\n"))) || !strings.Contains(string(out), "gold") {
		t.Errorf("plan of the recording: %v\n%s", err, out)
	}
	// And it is not written over.
	if out, err := p.throttler(t, "record", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "file exists") {
		t.Errorf("a second recording: %v, %s", err, out)
	}
}
