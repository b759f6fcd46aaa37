package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRecordHoldsNoSecret puts canaries into every part of requests, also into those
// that keys and flows are computed from, and looks for them in the recording.
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

	// The recording can be played under its own configuration.
	yaml := fmt.Sprintf("upstreams:\n  alipay:\n    url: %s\n    %s\n", url, strings.Join(lines, "\n    "))
	config := filepath.Join(t.TempDir(), "throttler.yaml")
	if err := os.WriteFile(config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(p.cmd.Path, "plan", "-c", config, "--load", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("calls                    %d in ", strings.Count(text, "\n"))) || !strings.Contains(string(out), "gold") {
		t.Errorf("plan of the recording: %v\n%s", err, out)
	}
	// It is not overwritten.
	if out, err := p.throttler(t, "record", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "file exists") {
		t.Errorf("a second recording: %v, %s", err, out)
	}
}

// TestRecordOfSubmittedCalls: deadlines and not_before are in the recording, and a
// preview does the same as the sidecar.
func TestRecordOfSubmittedCalls(t *testing.T) {
	url, _, answer := stall(t)
	close(answer)
	p := start(t, url, "limits: [{name: app, calls: 100, window: 1s}]")
	file := filepath.Join(t.TempDir(), "load.jsonl")
	cmd := p.throttler(t, "record", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	submit := func(more string) {
		t.Helper()
		resp, err := http.Post(p.admin+"/v1/calls", "application/json", strings.NewReader(`{"upstream":"alipay","method":"GET","path":"/"`+more+`}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 202 {
			t.Fatal(resp.Status)
		}
	}
	recorded := func() string {
		text, _ := os.ReadFile(file)
		return string(text)
	}
	p.until(t, "recorded", func() bool {
		submit("")
		return strings.Contains(recorded(), `"upstream":"alipay"`)
	})
	if text := recorded(); strings.Contains(text, "wait") || strings.Contains(text, "delay") {
		t.Errorf("a call without a deadline and not_before:\n%s", text)
	}
	now := time.Now()
	submit(fmt.Sprintf(`,"not_before":%q,"deadline":%q`, now.Add(90*time.Minute).Format(time.RFC3339Nano), now.Add(2*time.Hour).Format(time.RFC3339Nano)))
	submit(fmt.Sprintf(`,"not_before":%q`, now.Add(90*time.Minute).Format(time.RFC3339Nano)))
	p.until(t, "recorded", func() bool { return strings.Count(recorded(), `"delay"`) == 2 })
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(recorded()), "\n")
	for i, want := range []string{`"delay":"1h(30m0|29m59\.?\d*)s".*"wait":"(2h0m0|1h59m59\.?\d*)s"`, `"delay":"1h(30m0|29m59\.?\d*)s".*"upstream":"alipay"}`} {
		if line := lines[len(lines)-2+i]; !regexp.MustCompile(want).MatchString(line) {
			t.Errorf("no %s in %s", want, line)
		}
	}
	out, err := exec.Command(p.cmd.Path, "plan", "-c", p.file, "--load", file).CombinedOutput()
	if err != nil || !regexp.MustCompile(`(?m)^makespan +1h(30m|29m59)`).Match(out) {
		t.Errorf("plan of the recording: %v\n%s", err, out)
	}
}

// TestRecordOfNothing: a recording that fails, or of nothing, leaves no file.
func TestRecordOfNothing(t *testing.T) {
	p := start(t, "http://127.0.0.1:1")
	file := filepath.Join(t.TempDir(), "load.jsonl")
	for _, try := range []struct {
		args  []string
		want  string
		fails bool
	}{
		{[]string{"--upstream", "nope"}, `upstream "nope" is not configured`, true},
		{[]string{"--for", "-1s"}, "--for is -1s, must not be negative", true},
		{[]string{"--for", "100ms"}, "0 calls recorded", false},
	} {
		out, err := p.throttler(t, append([]string{"record", file}, try.args...)...).CombinedOutput()
		if (err != nil) != try.fails || !strings.Contains(string(out), try.want) {
			t.Errorf("%q: %v, %s", try.args, err, out)
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("%q leaves a file: %v", try.args, err)
		}
	}
	cmd := exec.Command(p.cmd.Path, "record", file, "--addr", "127.0.0.1:1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "no admin API") {
		t.Errorf("without a sidecar: %v, %s", err, out)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("without a sidecar there is a file: %v", err)
	}
}
