package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// copyLimits is the configuration of TestCopy: one short limit, and one whose permits are
// leased.
const copyLimits = `
    late: 100ms
    timeout: 2s
    idempotent: 'path startsWith "/safe"'
    limits:
      - {name: app, calls: 10, window: 300ms}
      - {name: long, calls: 25, window: 2s}
`

// A copying is a sidecar whose store is copied while calls wait in it, and that goes on
// and is killed after that.
type copying struct {
	*lives
	bank   *bank
	db     string
	before map[string]string // paths by id, of calls acknowledged before the copy
	after  map[string]string // likewise, after it
}

// TestCopy puts copies of a store in its place, in all ways that people and their tools
// have. A copy is refused, with the next step. By --restored it sends no call that waited
// in it, exceeds no limit, and loses no call that it has.
func TestCopy(t *testing.T) {
	copies := map[string]func(c *copying, to string){
		"cp of file and log":      func(c *copying, to string) { c.duplicate(to, "", "-wal") },
		"cp of the file alone":    func(c *copying, to string) { c.duplicate(to, "") },
		"cp of all files":         func(c *copying, to string) { c.duplicate(to, "", "-wal", "-lock") },
		"throttler store backup":  func(c *copying, to string) { c.command("store", "backup", "-c", c.config, to) },
		"backup of a stopped one": func(c *copying, to string) { c.stopped(to) },
	}
	places := map[string]func(c *copying, from string){
		"over the file":   func(c *copying, from string) { c.place(from, os.WriteFile) },
		"in its place":    func(c *copying, from string) { c.place(from, replaceFile) },
		"at another path": func(c *copying, from string) { c.configure(from) },
	}
	for i, made := range slices.Sorted(maps.Keys(copies)) {
		for j, put := range slices.Sorted(maps.Keys(places)) {
			if !*chaos && j != i%len(places) { // each way to copy, and each place
				continue
			}
			duplicate, place := copies[made], places[put]
			t.Run(made+" "+put, func(t *testing.T) {
				t.Parallel()
				c := newCopying(t)
				from := filepath.Join(t.TempDir(), "copy.db")
				c.start()
				c.before = c.submit("/safe", 5)
				maps.Copy(c.before, c.submit("/once", 30))
				c.until("calls have arrived", func() bool { return c.arrived() >= 10 })
				duplicate(c, from)
				c.after = c.submit("/later", 5)
				c.until("the limit is used up", func() bool { return c.arrived() >= 25 })
				c.kill()
				place(c, from)
				if put == "over the file" && c.complete() {
					return
				}
				c.refused("--restored")
				c.refused("--restored") // the first refusal has changed nothing
				c.restore(made == "cp of the file alone")
			})
		}
	}
}

func newCopying(t *testing.T) *copying {
	binary, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	upstream := httptest.NewServer(b)
	t.Cleanup(upstream.Close)
	dir := t.TempDir()
	c := &copying{lives: &lives{T: t, binary: binary, config: filepath.Join(dir, "throttler.yaml"), upstream: upstream.URL}, bank: b}
	c.configure(filepath.Join(dir, "throttler.db"))
	t.Cleanup(func() {
		if c.cmd != nil {
			c.kill()
		}
	})
	return c
}

// configure writes the configuration with a store.
func (c *copying) configure(db string) {
	c.db = db
	yaml := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nlong_window: 1s\nupstreams:\n  bank:\n    listen: 127.0.0.1:0\n    url: %s%s", db, c.upstream, copyLimits)
	if err := os.WriteFile(c.config, []byte(yaml), 0o600); err != nil {
		c.Fatal(err)
	}
}

// submit submits calls, and returns their paths by id.
func (c *copying) submit(kind string, n int) map[string]string {
	acked := make(map[string]string)
	for i := range n {
		path := fmt.Sprintf("%s/%d", kind, i)
		body, _ := json.Marshal(map[string]any{"upstream": "bank", "method": "POST", "path": path + "?key=" + path, "body": path})
		resp, err := http.Post(c.admin+"/v1/calls", "application/json", bytes.NewReader(body))
		if err != nil {
			c.Fatal(err)
		}
		var call struct{ ID string }
		if err := json.NewDecoder(resp.Body).Decode(&call); err != nil || resp.StatusCode != http.StatusAccepted {
			c.Fatalf("status %d, %v", resp.StatusCode, err)
		}
		resp.Body.Close()
		acked[call.ID] = path
	}
	return acked
}

func (c *copying) arrived() int {
	c.bank.mu.Lock()
	defer c.bank.mu.Unlock()
	return len(c.bank.arrivals)
}

func (c *copying) until(what string, ok func() bool) {
	c.Helper()
	for begin := time.Now(); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			c.Fatalf("never: %s\n%s", what, c.log)
		}
	}
}

// duplicate copies files of the store while none of them changes, as cp does.
func (c *copying) duplicate(to string, parts ...string) {
	read := func() (all []string) {
		for _, part := range parts {
			text, err := os.ReadFile(c.db + part)
			if err != nil {
				c.Fatal(err)
			}
			all = append(all, string(text))
		}
		return all
	}
	var all []string
	c.until("the files do not change", func() bool {
		all = read()
		return strings.Join(read(), "|") == strings.Join(all, "|")
	})
	for i, part := range parts {
		if err := os.WriteFile(to+part, []byte(all[i]), 0o600); err != nil {
			c.Fatal(err)
		}
	}
}

func (c *copying) command(args ...string) string {
	c.Helper()
	out, err := exec.Command(c.binary, args...).CombinedOutput()
	if err != nil {
		c.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// stopped makes a backup between two lives.
func (c *copying) stopped(to string) {
	c.cmd.Process.Signal(os.Interrupt)
	if err := c.cmd.Wait(); err != nil {
		c.Fatalf("%v\n%s", err, c.log)
	}
	c.command("store", "backup", "-c", c.config, to)
	c.start()
}

func replaceFile(path string, text []byte, mode os.FileMode) error {
	if err := os.WriteFile(path+".new", text, mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// place writes the files of a copy to those of the store; others, such as its log, stay.
func (c *copying) place(from string, write func(string, []byte, os.FileMode) error) {
	for _, part := range []string{"", "-wal", "-lock"} {
		text, err := os.ReadFile(from + part)
		if err == nil && part != "-lock" { // the lock's file is no part of what people restore
			err = write(c.db+part, text, 0o600)
		}
		if err != nil && !os.IsNotExist(err) {
			c.Fatal(err)
		}
	}
}

// serveEnds runs a sidecar that is refused, and returns its words.
func (c *copying) serveEnds(args ...string) string {
	c.Helper()
	cmd := exec.Command(c.binary, append([]string{"serve", "-c", c.config}, args...)...)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err == nil || strings.Contains(out.String(), "msg=ready") {
		c.Fatalf("the copy was served (%v):\n%s", err, out.String())
	}
	return out.String()
}

// refused tries to serve, and wants a refusal that has the next step. A log that was left
// beside an older file is the first thing to say, also to --restored.
func (c *copying) refused(next string) {
	c.Helper()
	said := c.serveEnds()
	if strings.Contains(said, "remove the log") {
		if again := c.serveEnds("--restored"); !strings.Contains(again, "remove the log") {
			c.Errorf("restored with the log of another copy: %s", again)
		}
		if err := os.Remove(c.db + "-wal"); err != nil {
			c.Fatal(err)
		}
		said = c.serveEnds()
	}
	if !strings.Contains(said, next) || !strings.Contains(said, c.db) {
		c.Errorf("the refusal lacks the file or the next step: %s", said)
	}
	if said := c.command("store", "check", "-c", c.config); !strings.Contains(said, next) {
		c.Errorf("store check says %q", said)
	}
}

// complete reports whether file and log are the whole store again: the log that was left may
// have all that the older file lacks. It serves from them then.
func (c *copying) complete() bool {
	cmd := exec.Command(c.binary, "store", "check", "-c", c.config)
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "warning") {
		return false
	}
	c.start()
	for _, acked := range []map[string]string{c.before, c.after} {
		for id, path := range acked {
			if c.state(id) == "" {
				c.Errorf("LOST: %s", path)
			}
		}
		c.until("all calls have ended", func() bool { return c.all(acked, "done", "unknown") })
	}
	c.judge()
	return true
}

func (c *copying) all(ids map[string]string, states ...string) bool {
	for id := range ids {
		if !slices.Contains(states, c.state(id)) {
			return false
		}
	}
	return true
}

// restore serves from the copy, and judges. A copy without its log may lack calls.
func (c *copying) restore(part bool) {
	c.start("--restored")
	unknown := 0
	for id, path := range c.before {
		switch state := c.state(id); {
		case state == "done":
		case state == "unknown":
			unknown++
		case state == "" && part:
		default:
			c.Errorf("%s is %q in the copy, want done or unknown", path, state)
		}
	}
	if unknown == 0 && !part {
		c.Error("no call waited in the copy")
	}
	fresh := c.submit("/new", 20) // the limit is full: the permits that went out since the copy are in no file
	c.until("new calls are done", func() bool { return c.all(fresh, "done") })
	c.judge()
	for path, arrivals := range c.bank.keys { // also those that the upstream would recognise
		if len(arrivals) > 1 {
			c.Errorf("AGAIN: %s arrived %d times", path, len(arrivals))
		}
	}
	c.kill()
	c.start() // the copy is the store now
	if said := c.command("store", "check", "-c", c.config); strings.Contains(said, "warning") {
		c.Errorf("store check says %q", said)
	}
}

func (c *copying) state(id string) string {
	resp, err := http.Get(c.admin + "/v1/calls/" + id)
	if err != nil {
		c.Fatal(err)
	}
	defer resp.Body.Close()
	var call struct{ State string }
	json.NewDecoder(resp.Body).Decode(&call)
	return call.State
}

func (b *bank) executedPaths() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]int)
	for path, n := range b.executed {
		all[path] = n
	}
	return all
}

// judge fails for calls that were executed twice, and for windows over their limit.
func (c *copying) judge() {
	for path, n := range c.bank.executedPaths() {
		if n > 1 {
			c.Errorf("TWICE: %s was executed %d times", path, n)
		}
	}
	c.bank.mu.Lock()
	defer c.bank.mu.Unlock()
	for window, most := range map[time.Duration]int{300 * time.Millisecond: 10, 2 * time.Second: 25} {
		if n := mostIn(c.bank.arrivals, window); n > most {
			c.Errorf("OVER: %d arrivals in %v, at most %d may", n, window, most)
		}
	}
}

// TestBackupOverwritesNothing: a backup never replaces a file, and only its owner reads it.
func TestBackupOverwritesNothing(t *testing.T) {
	c := newCopying(t)
	if err := makeStore(c.db); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "backup.db")
	c.command("store", "backup", "-c", c.config, to)
	text, err := os.ReadFile(to)
	if info, _ := os.Stat(to); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, mode %v; want 0600", err, info.Mode())
	}
	if left, _ := filepath.Glob(to + "?*"); len(left) > 0 {
		t.Errorf("left beside the backup: %v", left)
	}
	out, err := exec.Command(c.binary, "store", "backup", "-c", c.config, to).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "overwrites nothing") {
		t.Errorf("a second backup to the same file: %v, %s", err, out)
	}
	if after, _ := os.ReadFile(to); !bytes.Equal(after, text) {
		t.Error("the first backup was changed")
	}
	if out, err := exec.Command(c.binary, "store", "backup", "-c", c.config, filepath.Join(to, "x")).CombinedOutput(); err == nil {
		t.Errorf("a backup that cannot be written: %s", out)
	}
	c.configure(to)
	if said := c.command("store", "check", "-c", c.config); !strings.Contains(said, "ok: 2 call(s)") || !strings.Contains(said, "is a backup") {
		t.Errorf("the check of the backup: %s", said)
	}
}

// TestDeletedWhileStopped: an empty store does not take the place of one that is gone.
func TestDeletedWhileStopped(t *testing.T) {
	c := newCopying(t)
	c.start()
	c.submit("/once", 3)
	c.kill()
	for _, part := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(c.db + part); err != nil {
			t.Fatal(err)
		}
	}
	if said := c.serveEnds(); !strings.Contains(said, "and that one is gone") {
		t.Errorf("an empty file in the place of a store: %s", said)
	}
}
