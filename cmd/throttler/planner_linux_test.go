package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// long is a preview that takes longer than the test.
const long = `{"settings":["rate=100/s for=10000h"]}`

// TestPlanRunsApart looks at the process of a preview: its priority, its environment, that it is
// the only one, and that it ends when the client leaves.
func TestPlanRunsApart(t *testing.T) {
	t.Setenv("CANARY_VARIABLE", "canary")
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 1000, window: 1s}]")
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", p.admin+"/v1/plan", strings.NewReader(long))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	child := p.preview(t)
	var threads []string
	// A test that runs at the lowest priority itself can see the process before its second thread.
	p.until(t, "threads of the preview", func() bool {
		threads, _ = filepath.Glob("/proc/" + child + "/task/*")
		return len(threads) > 1
	})
	for _, thread := range threads {
		if n := nice(child + "/task/" + filepath.Base(thread)); n != "19" {
			t.Errorf("thread %s has priority %s", thread, n)
		}
	}
	environ, err := os.ReadFile("/proc/" + child + "/environ")
	if err != nil || bytes.Contains(environ, []byte("canary")) || !bytes.Contains(environ, []byte("GOMAXPROCS=1\x00GOMEMLIMIT=268435456\x00")) {
		t.Errorf("its environment is %q, %v", environ, err)
	}
	var problem api.Problem
	if err := json.Unmarshal([]byte(p.post(t, "/v1/plan", long, http.StatusServiceUnavailable)), &problem); err != nil || problem.RetryAfter != 5 {
		t.Errorf("a second one: %+v, %v", problem, err)
	}
	leave()
	<-answered
	p.until(t, "no preview", func() bool {
		_, err := os.Stat("/proc/" + child)
		return os.IsNotExist(err)
	})
	p.until(t, "room for the next one", func() bool {
		resp, err := http.Post(p.admin+"/v1/plan", "application/json", strings.NewReader(`{"settings":["rate=10/s for=1s"]}`))
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// preview waits for the process of a preview, and returns its id.
func (p *process) preview(t *testing.T) (child string) {
	t.Helper()
	p.until(t, "a preview", func() bool {
		all, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.cmd.Process.Pid))
		for _, file := range all {
			text, _ := os.ReadFile(file)
			if words := strings.Fields(string(text)); len(words) > 0 {
				child = words[0]
			}
		}
		if child == "" {
			return false
		}
		line, _ := os.ReadFile("/proc/" + child + "/cmdline")
		return strings.Contains(string(line), bundleCommand) && nice(child) == "19"
	})
	return child
}

// asks asks for a preview in the background, and returns its answer when it has come.
func (p *process) asks(t *testing.T, body string) (answer func() (status int, text string)) {
	type answered struct {
		status int
		text   string
	}
	got := make(chan answered, 1)
	go func() {
		resp, err := http.Post(p.admin+"/v1/plan", "application/json", strings.NewReader(body))
		if err != nil {
			got <- answered{0, err.Error()}
			return
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		got <- answered{resp.StatusCode, fmt.Sprint(string(text), err)}
	}()
	return func() (int, string) { a := <-got; return a.status, a.text }
}

// TestPlanEndsWithTheSidecar: kill -9 of the sidecar ends the preview at once.
func TestPlanEndsWithTheSidecar(t *testing.T) {
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 1000, window: 1s}]")
	answer := p.asks(t, long)
	child := p.preview(t)
	p.kill9()
	answer()
	for killed := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		if stat, err := os.ReadFile("/proc/" + child + "/stat"); err != nil || strings.Contains(string(stat), ") Z ") {
			t.Logf("the preview has ended after %v", time.Since(killed))
			return
		}
		if time.Since(killed) > 20*time.Second {
			t.Fatal("the preview goes on")
		}
	}
}

// TestPlanDoesNotHoldUpTheStop: a preview that runs is answered, and the sidecar stops.
func TestPlanDoesNotHoldUpTheStop(t *testing.T) {
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 1000, window: 1s}]")
	answer := p.asks(t, long)
	p.preview(t)
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status, text := answer(); status != http.StatusServiceUnavailable || !strings.Contains(text, `"reason":"stopping"`) {
		t.Errorf("the preview: %d %s", status, text)
	}
	if code := p.exit(t); code != 0 {
		t.Errorf("the sidecar ended with %d", code)
	}
}

// nice returns the priority of a process or a thread, in the words of proc(5).
func nice(of string) string {
	stat, err := os.ReadFile("/proc/" + of + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)[16]
}

// TestPlanOpensNothing traces the process of a preview of a configuration that names each kind of
// thing that a sidecar opens.
func TestPlanOpensNothing(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed; pkg/config counts the opens of the parser by itself")
	}
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../pkg/config/testdata/closed.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := strings.NewReplacer("DIR", dir, "ADDR", "127.0.0.1:9").Replace(string(text))
	for _, name := range []string{"canary-seal", "canary-rsa", "canary.pem", "canary-ca.pem", "canary-program", "canary-clients.pem"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("content-of-a-canary"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bundle, err := json.Marshal(bundle{Request: api.PlanRequest{Config: config, Alone: true, Settings: []string{"upstream=signed rate=50/s for=10s"}}})
	if err != nil {
		t.Fatal(err)
	}
	traced := filepath.Join(dir, "trace")
	cmd := exec.CommandContext(t.Context(), strace, "-f", "-s", "4096", "-e", "trace=%file,%network,%process", "-o", traced, path, bundleCommand)
	cmd.Env = []string{"CANARY_TLS=content-of-a-canary", "CANARY_RSA=content-of-a-canary"}
	out, err := playBundle(t, cmd, bundle)
	if err != nil && strings.Contains(fmt.Sprint(err, string(out)), syscall.EPERM.Error()) {
		t.Skip("strace may not trace here")
	}
	if err != nil || !bytes.Contains(out, []byte(`"sent":5`)) {
		t.Fatalf("%v: %s", err, out)
	}
	if bytes.Contains(out, []byte("content-of-a-canary")) {
		t.Errorf("the answer has the content of a canary: %s", out)
	}
	trace, err := os.ReadFile(traced)
	if err != nil || !bytes.Contains(trace, []byte("execve")) {
		t.Fatal(err, string(trace))
	}
	for line := range strings.Lines(string(trace)) {
		if strings.Contains(line, "canary") && !strings.Contains(line, "execve(") || strings.Contains(line, "connect(") || strings.Contains(line, "/etc/passwd") || strings.Contains(line, "/etc/group") {
			t.Errorf("a call of the system: %s", line)
		}
		if strings.Contains(line, "execve(") && !strings.Contains(line, bundleCommand) {
			t.Errorf("a program: %s", line)
		}
	}
	t.Logf("%d calls of the system for files, networks and processes", bytes.Count(trace, []byte("\n")))
}
