package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

const slowLimit = "    limits: [{name: app, calls: 10, window: 500ms}]\n"

var slowBound = bound{10, 500 * time.Millisecond, false}

// replaceByCopy does as editors and some backups do: a copy takes the place of the file.
func replaceByCopy(path string) error {
	text, err := os.ReadFile(path)
	return errors.Join(err, replaceFile(path, text, 0o600))
}

// TestChaosFileIsGone deletes or replaces files of a store under load. The sidecar ends and
// says why, and acknowledges no call that comes after it.
func TestChaosFileIsGone(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(r *rig) error
		want string
	}{
		{"deleted", func(r *rig) error { return os.Remove(r.file("")) }, "was deleted, or replaced"},
		{"replaced", func(r *rig) error { return replaceByCopy(r.file("")) }, "was deleted, or replaced"},
		{"its log is deleted", func(r *rig) error { return os.Remove(r.file("-wal")) }, "lost its log"},
		{"its log is replaced", func(r *rig) error { return replaceByCopy(r.file("-wal")) }, "lost its log"},
		{"its directory is moved", func(r *rig) error { return os.Rename(r.dir, r.dir+"2") }, "was deleted, or replaced"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, binary, slowLimit)
			r.start()
			r.submit(40)
			r.arrived(10)
			if err := tt.harm(r); err != nil {
				t.Fatal(err)
			}
			if n := r.submit(20); n > 0 {
				t.Errorf("%d calls were acknowledged without a file", n)
			}
			r.exits(tt.want)
			r.acked = nil // the file had them: that it is gone was said
			r.judge(slowBound)
		})
	}
}

// TestChaosSecondProcess starts a second sidecar on a file that is in use, by each path
// that leads to it. It is refused, and the first one is not harmed.
func TestChaosSecondProcess(t *testing.T) {
	r := newRig(t, binary, slowLimit)
	r.start()
	r.submit(40)
	r.arrived(5)
	beside := t.TempDir()
	link := func(to string, link func(old, new string) error) func() (string, error) {
		return func() (string, error) { return to, link(r.file(""), to) }
	}
	for _, tt := range []struct {
		name  string
		path  func() (string, error)
		mount bool
		want  string
	}{
		{"the same path", func() (string, error) { return r.file(""), nil }, false, "in use by another process"},
		{"a path with dots", func() (string, error) { return filepath.Join(r.dir) + "/../s/throttler.db", nil }, false, "in use by another process"},
		{"a symbolic link", link(filepath.Join(beside, "a.db"), os.Symlink), false, "in use by another process"},
		{"a symbolic link to the directory", func() (string, error) {
			dir := filepath.Join(beside, "dir")
			return filepath.Join(dir, "throttler.db"), os.Symlink(r.dir, dir)
		}, false, "in use by another process"},
		{"without the lock beside it", func() (string, error) { return r.file(""), os.Remove(r.file("-lock")) }, false, "in use by another process"},
		{"a hard link", link(filepath.Join(beside, "b.db"), os.Link), false, "has 2 hard links"},
		{"a mount of the file", func() (string, error) {
			to := filepath.Join(beside, "c.db")
			return to, os.WriteFile(to, nil, 0o600)
		}, true, "is mounted by itself"},
	} {
		path, err := tt.path()
		if err != nil {
			t.Fatal(tt.name, err)
		}
		file := r.configFor(filepath.Join(beside, "second.yaml"), path, "http://127.0.0.1:1", slowLimit)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		second := exec.CommandContext(ctx, r.binary, "serve", "-c", file)
		if tt.mount {
			second = exec.CommandContext(ctx, "/bin/sh", "-c", `mount --bind "$1" "$2" && shift 2 && exec "$@"`, "sh", r.file(""), path, r.binary, "serve", "-c", file)
			second.SysProcAttr = namespace()
		}
		out, err := second.CombinedOutput()
		cancel()
		if tt.mount && !bytes.Contains(out, []byte("throttler:")) {
			t.Logf("this machine gives no mount namespace (%v, %s); pkg/store reads a list of mounts in TestMountPoint", err, out)
			continue
		}
		if err == nil || !bytes.Contains(out, []byte(tt.want)) {
			t.Errorf("%s: %v, want a refusal with %q\n%s", tt.name, err, tt.want, out)
		}
		if tt.want == "has 2 hard links" {
			os.Remove(path)
		}
		r.submit(5)
	}
	r.arrived(len(r.acked))
	r.judge(slowBound)
	r.stop(true)
}

// namespace gives a process mounts of its own; in a name space of users, if this one may not.
func namespace() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		a.Cloneflags |= syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return a
}

// TestChaosHeldLock lets another program hold the write lock of the file, as sqlite3 does
// for a VACUUM. Nothing moves meanwhile, and everything afterwards.
func TestChaosHeldLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, binary, slowLimit)
	r.start()
	r.submit(40)
	r.arrived(10)
	other, err := sql.Open("sqlite", r.file(""))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("PRAGMA busy_timeout = 30000; BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	var later sync.WaitGroup
	later.Go(func() { r.submit(3) })
	held := 3 * time.Second
	if *chaos {
		held = 12 * time.Second
	}
	time.Sleep(held)
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	later.Wait()
	r.arrived(len(r.acked))
	r.judge(slowBound)
	r.stop(true)
}

// TestChaosDamagedLog flips a bit in each frame of the log that a crash has left, one at a
// time. A sidecar that starts has every acknowledged call; else it says why it does not.
func TestChaosDamagedLog(t *testing.T) {
	t.Parallel()
	const header, page = 32, 24 + 4096 // of the log and of a frame, bytes
	r := newRig(t, binary, "    limits: [{name: app, calls: 1, window: 1h}]\n")
	r.start()
	r.submit(1)
	r.arrived(1)
	for id := range r.acked {
		for r.get(id) != "done" {
			time.Sleep(time.Millisecond)
		}
	}
	r.submit(12) // each is a commit of its own: nothing is sent
	r.kill()
	image := r.image()
	log := image["throttler.db-wal"]
	frames := 0
	for at := header; at+page <= len(log) && string(log[at+8:at+16]) == string(log[16:24]); at += page {
		frames++
	}
	refused, started := 0, 0
	for n := range frames {
		for _, at := range some([]int{24 + 100, 9, 17, page - 1}, 1) { // content, salt, checksum, content
			damaged := bytes.Clone(log)
			damaged[header+n*page+at] ^= 0x10
			r.restore(image, damaged)
			if r.startOrEnd() {
				started++
				r.judge()
				r.kill()
			} else if refused++; !strings.Contains(r.log.String(), "damaged") && !strings.Contains(r.log.String(), "is an older copy") {
				t.Errorf("frame %d of %d, byte %d: %s", n, frames, at, r.log)
			}
		}
	}
	if frames < 12 || refused < frames/2 {
		t.Errorf("of %d frames %d damages were refused", frames, refused)
	}
	r.restore(image, log)
	r.start()
	t.Logf("%d frames: %d damages were refused, %d sidecars started", frames, refused, started)
	r.judge(bound{1, time.Hour, false})
	r.stop(true)
}

// image reads all files of the store.
func (r *rig) image() map[string][]byte {
	files := make(map[string][]byte)
	list, err := os.ReadDir(r.dir)
	for _, f := range list {
		if strings.HasSuffix(f.Name(), "-reserve") {
			continue
		}
		text, err2 := os.ReadFile(filepath.Join(r.dir, f.Name()))
		files[f.Name()] = text
		err = errors.Join(err, err2)
	}
	if err != nil {
		r.Fatal(err)
	}
	return files
}

// restore puts all files of the store back as they were, with another log. They stay the
// files that they are.
func (r *rig) restore(files map[string][]byte, log []byte) {
	var err error
	for name, text := range files {
		if name == "throttler.db-wal" {
			text = log
		}
		err = errors.Join(err, os.WriteFile(filepath.Join(r.dir, name), text, 0o600))
	}
	os.Remove(r.file("-shm"))
	if err != nil {
		r.Fatal(err)
	}
}

// startOrEnd starts the sidecar, and reports whether it became ready. If not, it has ended.
func (r *rig) startOrEnd() bool {
	r.Helper()
	r.log = &lockedBuffer{}
	r.cmd = exec.Command(r.binary, "serve", "-c", r.config)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	if err := r.cmd.Start(); err != nil {
		r.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		log := r.log.String()
		if r.admin = listening(log, "admin"); strings.Contains(log, "msg=ready") {
			return true
		}
		if strings.Contains(log, "throttler: ") {
			r.cmd.Wait()
			return false
		}
	}
	r.Fatalf("the sidecar is neither ready nor at its end:\n%s", r.log)
	return false
}

// TestChaosAskedAtTheStart cancels and polls calls of the end of a long line in the first
// second after a start. No cancelled call arrives, and none passes the others.
func TestChaosAskedAtTheStart(t *testing.T) {
	t.Parallel()
	waiting := 3000
	if *chaos {
		waiting = 120_000
	}
	for _, clean := range []bool{true, false} {
		t.Run(fmt.Sprintf("clean stop: %v", clean), func(t *testing.T) {
			r := newRig(t, binary, "    limits: [{name: app, calls: 20, window: 1s}]\n")
			ids := r.fill(waiting)
			if !clean { // the backlog must be counted anew
				r.start()
				r.kill()
			}
			ahead := r.bank.count()
			var asked atomic.Int64
			r.start()
			var asking sync.WaitGroup
			end := time.Now().Add(time.Second)
			for worker := range 32 {
				asking.Go(func() {
					draw := rand.New(rand.NewPCG(uint64(worker), 13))
					for time.Now().Before(end) {
						n := waiting - 1 - worker%2 - 2*draw.IntN(waiting/8)
						method, path := "GET", r.admin+"/v1/calls/"+ids[n]
						if worker%2 == 0 {
							method, path = "POST", path+"/cancel"
						}
						req, _ := http.NewRequest(method, path, nil)
						req.Header.Set("Prefer", "wait=1")
						resp, err := http.DefaultClient.Do(req)
						if err != nil {
							t.Error(err)
							return
						}
						resp.Body.Close()
						if resp.StatusCode != 200 && r.get(ids[n]) != "cancelled" { // by another worker, before
							t.Errorf("%s of call %d: status %d", method, n, resp.StatusCode)
						}
						asked.Add(1)
					}
				})
			}
			asking.Wait()
			r.arrived(ahead + 60)
			r.kill()
			r.bank.mu.Lock()
			defer r.bank.mu.Unlock()
			passed, last := 0, 0
			for path := range r.bank.executed {
				n, _ := strconv.Atoi(strings.TrimPrefix(path, "/line/"))
				if last = max(last, n); n >= waiting/2 {
					passed++
				}
			}
			if passed > 0 {
				t.Errorf("%d calls of the end of the line have arrived among the first %d", passed, len(r.bank.arrivals))
			}
			if most := mostIn(r.bank.arrivals, time.Second); most > 20 {
				t.Errorf("OVER: %d arrivals in a second, at most 20 may", most)
			}
			t.Logf("%d waiting, %d asked about, %d arrivals, the last is call %d, %d passed others", waiting, asked.Load(), len(r.bank.arrivals), last, passed)
		})
	}
}

// fill makes a store with calls that wait, and returns their ids, the oldest first.
func (r *rig) fill(calls int) (ids []string) {
	d, err := store.Open(r.file(""), store.Options{})
	if err != nil {
		r.Fatal(err)
	}
	if _, err := d.Recover(context.Background(), 0, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false }); err != nil {
		r.Fatal(err)
	}
	entries := make([]*scheduler.Entry, calls)
	for n := range entries {
		e := storetest.NewEntry(int64(n + 1))
		e.Call.Upstream, e.Request.Target, e.Request.Body = "bank", fmt.Sprintf("/line/%d", n), nil
		entries[n], ids = e, append(ids, e.Call.ID)
	}
	var accepting sync.WaitGroup
	const workers = 64
	for worker := range workers {
		accepting.Go(func() {
			for n := worker; n < calls; n += workers {
				if _, err := d.Accept(context.Background(), entries[n]); err != nil {
					r.Error(err)
					return
				}
			}
		})
	}
	accepting.Wait()
	if err := d.Close(); err != nil {
		r.Fatal(err)
	}
	return ids
}
