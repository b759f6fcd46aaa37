package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var chaos = flag.Bool("chaos", false, "TestChaos with every case, and 120,000 waiting calls")

// A rig is a sidecar with a store, the upstream that judges it, and the calls that it has
// acknowledged.
type rig struct {
	*lives
	bank *bank
	dir  string

	mu    sync.Mutex
	acked map[string]string // paths by id
}

// newRig writes the configuration; limits are YAML of the upstream.
func newRig(t *testing.T, build func() (string, error), limits string) *rig {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	upstream := httptest.NewServer(b)
	t.Cleanup(upstream.Close)
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &rig{lives: &lives{T: t, binary: path}, bank: b, dir: dir, acked: make(map[string]string)}
	r.config = r.configFor(filepath.Join(t.TempDir(), "throttler.yaml"), r.file(""), upstream.URL, limits)
	setClock(t, r.config, 0)
	t.Cleanup(func() {
		if r.cmd != nil && r.cmd.ProcessState == nil {
			r.kill()
		}
		if t.Failed() && r.log != nil {
			t.Logf("the last life:\n%s", r.log)
		}
	})
	return r
}

// file returns the path of the store, or of the file beside it with this ending.
func (r *rig) file(ending string) string { return filepath.Join(r.dir, "throttler.db"+ending) }

// configFor writes the configuration of a sidecar with a store.
func (r *rig) configFor(path, store, upstream, limits string) string {
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nlong_window: 1s\ngrace: 5s\nupstreams:\n  bank:\n    listen: 127.0.0.1:0\n    url: %s\n    late: 200ms\n    timeout: 5s\n    max_waiting: 200000\n    max_age: 8000h\n%s", store, upstream, limits)
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		r.Fatal(err)
	}
	return path
}

// submit submits calls, and returns how many of them were acknowledged.
func (r *rig) submit(calls int) (acked int) {
	for range calls {
		r.mu.Lock()
		path := fmt.Sprintf("/once/%d-%d", len(r.acked), time.Now().UnixNano())
		r.mu.Unlock()
		body, _ := json.Marshal(map[string]any{"upstream": "bank", "method": "POST", "path": path, "body": path})
		resp, err := http.Post(r.admin+"/v1/calls", "application/json", bytes.NewReader(body))
		if err != nil {
			return acked
		}
		var call struct{ ID string }
		if json.NewDecoder(resp.Body).Decode(&call) == nil && resp.StatusCode == 202 {
			acked++
			r.mu.Lock()
			r.acked[call.ID] = path
			r.mu.Unlock()
		}
		resp.Body.Close()
	}
	return acked
}

// stop ends the sidecar, by kill -9 or by a signal.
func (r *rig) stop(clean bool) {
	r.Helper()
	if !clean {
		r.kill()
		return
	}
	r.cmd.Process.Signal(os.Interrupt)
	if err := r.cmd.Wait(); err != nil {
		r.Errorf("a clean stop: %v", err)
	}
}

// exits waits for the sidecar's own end, which must be a failure with this text.
func (r *rig) exits(text string) {
	r.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.cmd.Wait() }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(r.log.String(), text) {
			r.Errorf("the sidecar ended with %v, want a failure with %q", err, text)
		}
	case <-time.After(time.Minute):
		r.cmd.Process.Kill()
		<-ended
		r.Errorf("the sidecar goes on, want an end with %q", text)
	}
}

// arrived waits for so many arrivals.
func (r *rig) arrived(n int) {
	r.Helper()
	for end := time.Now().Add(2 * time.Minute); r.bank.count() < n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.Fatalf("%d of %d calls have arrived after 2 minutes", r.bank.count(), n)
		}
	}
}

func (b *bank) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.arrivals)
}

// get returns the state of a call, empty if it is not known.
func (r *rig) get(id string) string {
	resp, err := http.Get(r.admin + "/v1/calls/" + id)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var call struct{ State string }
	json.NewDecoder(resp.Body).Decode(&call)
	return call.State
}

// A bound is a limit as its upstream counts it: so many arrivals in each window, or in each
// unit of the clock.
type bound struct {
	calls   int
	window  time.Duration
	aligned bool
}

// judge counts what may not be: windows with too many arrivals, calls that were executed
// twice, and acknowledged ones that are lost. A lost call is one that the sidecar, which
// runs, does not know, or says done about while the upstream has not seen it.
func (r *rig) judge(bounds ...bound) {
	r.Helper()
	states := make(map[string]string)
	for id := range r.acked {
		states[id] = r.get(id)
	}
	r.bank.mu.Lock()
	defer r.bank.mu.Unlock()
	over, twice, lost := 0, 0, 0
	for _, b := range bounds {
		most := mostIn(r.bank.arrivals, b.window)
		if b.aligned {
			most = mostInUnit(r.bank.arrivals, b.window)
		}
		if most > b.calls {
			over++
			r.Errorf("OVER: %d arrivals in %v, at most %d may", most, b.window, b.calls)
		}
	}
	for path, n := range r.bank.executed {
		if n > 1 {
			twice++
			r.Errorf("TWICE: %s was executed %d times", path, n)
		}
	}
	for id, path := range r.acked {
		sent := r.bank.executed[path] > 0
		switch state := states[id]; {
		case state == "waiting" || state == "sending" || state == "unknown" || state == "done" && sent || state == "cancelled" && !sent:
		default:
			lost++
			r.Errorf("LOST: %s (%s) is %q, arrived: %v", path, id, state, sent)
		}
	}
	r.Logf("arrivals %d, acknowledged %d: over %d, twice %d, lost %d", len(r.bank.arrivals), len(r.acked), over, twice, lost)
}

// mostInUnit returns the most arrivals in a minute, an hour or a day of UTC.
func mostInUnit(arrivals []time.Time, unit time.Duration) (most int) {
	counts := make(map[time.Time]int)
	for _, at := range arrivals {
		at = at.UTC().Truncate(unit)
		counts[at]++
		most = max(most, counts[at])
	}
	return most
}
