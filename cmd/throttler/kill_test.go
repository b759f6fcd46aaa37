package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/retry"
)

var kills = flag.Int("kills", 10, "how often TestKill ends the sidecar by kill -9")

// killLimits is the configuration of TestKill, with a limit over a short window, one
// per key, and one over a window above long_window.
const killLimits = `
    late: 200ms
    timeout: 2s
    max_wait: 5s
    max_waiting: 100000
    idempotent: 'path startsWith "/safe"'
    durable: 'path startsWith "/keyed"'
    limits:
      - {name: app, calls: 20, window: 200ms}
      - {name: key, per_key: 'query("key")', calls: 7, window: 200ms}
      - {name: long, calls: 180, window: 2s}
`

var killWindows = []struct {
	name  string
	calls int
	w     time.Duration
	key   bool
}{{"app", 20, 200 * time.Millisecond, false}, {"key", 7, 200 * time.Millisecond, true}, {"long", 180, 2 * time.Second, false}}

// A bank is an upstream that counts arrivals and executions by itself.
type bank struct {
	mu       sync.Mutex
	arrivals []time.Time
	keys     map[string][]time.Time
	executed map[string]int
}

func (b *bank) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	b.mu.Lock()
	b.arrivals = append(b.arrivals, now)
	key := r.URL.Query().Get("key")
	b.keys[key] = append(b.keys[key], now)
	if !strings.HasPrefix(r.URL.Path, "/safe") || b.executed[r.URL.Path] == 0 { // a repeat of /safe is recognised
		b.executed[r.URL.Path]++
	}
	b.mu.Unlock()
	time.Sleep(rand.N(20 * time.Millisecond))
	io.WriteString(w, r.URL.Path)
}

// mostIn returns the most arrivals in any window.
func mostIn(arrivals []time.Time, w time.Duration) int {
	slices.SortFunc(arrivals, time.Time.Compare)
	best, first := 0, 0
	for i, t := range arrivals {
		for t.Sub(arrivals[first]) >= w {
			first++
		}
		best = max(best, i-first+1)
	}
	return best
}

// lives are the processes of one store, one after the other.
type lives struct {
	*testing.T
	binary, config string
	upstream       string
	data, admin    string
	cmd            *exec.Cmd
	log            *lockedBuffer
}

func (l *lives) start(args ...string) {
	l.Helper()
	l.log = &lockedBuffer{}
	l.cmd = exec.Command(l.binary, append([]string{"serve", "-c", l.config}, args...)...)
	l.cmd.Stdout, l.cmd.Stderr = l.log, l.log
	if err := l.cmd.Start(); err != nil {
		l.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		if log := l.log.String(); strings.Contains(log, "msg=ready") {
			l.admin, l.data = listening(log, "admin"), listening(log, "upstreams.bank.listen")
			return
		}
		if time.Since(begin) > 30*time.Second {
			l.cmd.Process.Kill()
			l.cmd.Wait()
			l.Fatalf("the sidecar is not ready:\n%s", l.log)
		}
	}
}

func (l *lives) kill() {
	l.cmd.Process.Kill()
	l.cmd.Wait()
}

// TestKill ends the sidecar by kill -9 again and again under load. Over all lives no
// acknowledged call is lost, none is executed twice, and no window is over its limit
// at the upstream.
func TestKill(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	upstream := httptest.NewServer(b)
	defer upstream.Close()
	dir := t.TempDir()
	l := &lives{T: t, binary: path, config: filepath.Join(dir, "throttler.yaml")}
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nlong_window: 1s\nupstreams:\n  bank:\n    listen: 127.0.0.1:0\n    url: %s%s", filepath.Join(dir, "kill.db"), upstream.URL, killLimits)
	if err := os.WriteFile(l.config, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	load := &killLoad{lives: l, acked: make(map[string]string)}
	for range *kills {
		l.start()
		load.run(time.Duration(20+rand.N(180)) * time.Millisecond)
	}
	l.start()
	load.drain()
	if err := l.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Wait(); err != nil {
		t.Errorf("the last life ended with %v\n%s", err, l.log)
	}
	b.check(t, load)
}

func (b *bank) check(t *testing.T, load *killLoad) {
	b.mu.Lock()
	defer b.mu.Unlock()
	twice, over := 0, 0
	for path, n := range b.executed {
		if n > 1 {
			t.Errorf("TWICE: %s was executed %d times", path, n)
			twice++
		}
	}
	for _, w := range killWindows {
		counted := map[string][]time.Time{"all": b.arrivals}
		if w.key {
			counted = b.keys
		}
		for key, arrivals := range counted {
			if n := mostIn(arrivals, w.w); n > w.calls {
				t.Errorf("OVER: limit %s, key %s: %d arrivals in %v, at most %d may", w.name, key, n, w.w, w.calls)
				over++
			}
		}
	}
	t.Logf("kills %d, acknowledged %d, lost %d, arrivals %d, executed twice %d, windows over %d, unknown %d",
		*kills, len(load.acked), load.lost, len(b.arrivals), twice, over, load.unknown)
}

// killLoad sends and submits calls of all kinds while the sidecar lives.
type killLoad struct {
	*lives
	next    atomic.Int64
	mu      sync.Mutex
	acked   map[string]string // paths by id
	lost    int
	unknown int
}

func (k *killLoad) run(d time.Duration) {
	var callers sync.WaitGroup
	done := make(chan struct{})
	for range 4 {
		callers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					k.call()
				}
			}
		})
	}
	time.Sleep(d)
	k.kill()
	close(done)
	callers.Wait()
}

func (k *killLoad) call() {
	n := k.next.Add(1)
	kind := []string{"/once", "/safe", "/keyed"}[rand.N(3)]
	path := fmt.Sprintf("%s/%d", kind, n)
	target := fmt.Sprintf("%s?key=%d", path, rand.N(3))
	if rand.N(4) == 0 { // its caller waits
		req, _ := http.NewRequest("POST", k.data+target, strings.NewReader(path))
		if kind == "/keyed" {
			req.Header.Set("Idempotency-Key", path)
		}
		client := http.Client{Timeout: 300 * time.Millisecond}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
		}
		return
	}
	body, _ := json.Marshal(map[string]any{"upstream": "bank", "method": "POST", "path": target, "body": path, "idempotency_key": path})
	resp, err := http.Post(k.admin+"/v1/calls", "application/json", bytes.NewReader(body))
	if err != nil {
		return
	}
	defer resp.Body.Close()
	var call struct{ ID string }
	if resp.StatusCode == 202 && json.NewDecoder(resp.Body).Decode(&call) == nil {
		k.mu.Lock()
		k.acked[call.ID] = path
		k.mu.Unlock()
	}
	time.Sleep(rand.N(10 * time.Millisecond))
}

// drain waits until all acknowledged calls have ended.
func (k *killLoad) drain() {
	deadline := time.Now().Add(5 * time.Minute)
	for id, path := range k.acked {
		var call api.Call
		for call.State == "" || call.State == "waiting" || call.State == "sending" {
			req, _ := http.NewRequest("GET", k.admin+"/v1/calls/"+id, nil)
			req.Header.Set("Prefer", "wait=10")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				k.Fatal(err)
			}
			json.NewDecoder(resp.Body).Decode(&call)
			resp.Body.Close()
			if resp.StatusCode != 200 || time.Now().After(deadline) {
				k.Errorf("LOST: %s (%s): status %d, %s", path, id, resp.StatusCode, call.State)
				k.lost++
				break
			}
		}
		switch {
		case call.State == "unknown" && strings.HasPrefix(path, "/safe") && len(call.Attempts) < retry.DefaultAttempts: // kills may cut off as many
			k.Errorf("%s is unknown after %d attempts, but might have been repeated", path, len(call.Attempts))
		case call.State == "unknown":
			k.unknown++
		case call.State != "done":
			k.Errorf("%s is %s", path, call.State)
		}
	}
}
