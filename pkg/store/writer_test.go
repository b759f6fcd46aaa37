//go:build linux && (amd64 || arm64)

package store

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestPowerCut takes away all writes that were not synced, at random moments.
func TestPowerCut(t *testing.T) {
	cuts := 10 * *faults
	for _, mode := range []string{"FULL", "NORMAL"} {
		gone, all := 0, 0
		for range cuts {
			disk.use()
			s := &shadow{files: make(map[string][]byte)}
			cut := rand.N(int64(100)) + 1
			syncs := int64(0)
			disk.synced = s.take
			path, after := file(t), t.TempDir()
			o := Options{vfs: disk.name, longLog: 40} // not only in idle moments
			if mode != "FULL" {
				o.longLog = 0 // each checkpoint is a sync
				o.raw = "_pragma=synchronous(" + mode + ")"
			}
			d := open(t, path, o)
			var once sync.Once
			var before map[string]bool
			var mu sync.Mutex
			acked := make(map[string]bool)
			var seq atomic.Int64
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for range 40 {
						e := storetest.NewEntry(seq.Add(1))
						if _, err := d.Accept(context.Background(), e); err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						acked[e.Call.ID] = true
						if syncs++; syncs == cut {
							once.Do(func() { // the acknowledged calls are on disk now
								before = make(map[string]bool)
								for id := range acked {
									before[id] = true
								}
								if err := s.leave(after); err != nil {
									t.Error(err)
								}
							})
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			d.Close()
			gone += lost(t, filepath.Join(after, filepath.Base(path)), before)
			all += len(before)
		}
		t.Logf("synchronous=%s: %d power cuts, %d acknowledged, %d lost", mode, cuts, all, gone)
		if mode == "FULL" && gone > 0 {
			t.Errorf("%d of %d acknowledged calls were lost", gone, all)
		}
		if mode == "NORMAL" && gone == 0 {
			t.Error("nothing was lost with synchronous=NORMAL: the rig does not work")
		}
	}
}

// TestFailedSync lets one sync fail, at a random place: with nothing of it on disk, or
// with all of it. No change is acknowledged after it, and one that may be on disk is told as in doubt.
func TestFailedSync(t *testing.T) {
	for place := range 17 * *faults {
		does := []fault{fails, written}[place%2]
		disk.use()
		var syncs, failed atomic.Int64
		nth := rand.N(int64(200)) + 1
		path := file(t)
		d := open(t, path, Options{vfs: disk.name, longLog: 40})
		disk.fail(func() fault {
			if failed.Load() == 0 && syncs.Add(1) == nth {
				failed.Store(1)
				return does
			}
			return works // as SQLite would go on
		})
		late := atomic.Int64{}
		var wg sync.WaitGroup
		var seq atomic.Int64
		var mu sync.Mutex
		acked, refused := make(map[string]bool), make(map[string]bool)
		for range 8 {
			wg.Go(func() {
				for errs := 0; errs < 3 && late.Load() == 0; {
					after := failed.Load()
					e := storetest.NewEntry(seq.Add(1))
					_, err := d.Accept(context.Background(), e)
					switch {
					case err == nil:
						late.Add(after)
						mu.Lock()
						acked[e.Call.ID] = true
						mu.Unlock()
					case !errors.Is(err, scheduler.ErrBroken):
						t.Errorf("after a failed sync: %v, want ErrBroken", err)
						return
					default:
						errs++
						if doubt := new(inDoubt); !errors.As(err, doubt) {
							mu.Lock()
							refused[e.Call.ID] = true
							mu.Unlock()
						}
					}
				}
			})
		}
		wg.Wait()
		crash := copyOf(t, d, filepath.Join(t.TempDir(), "crash.db")) // before Close, whose checkpoint drops the batch that failed
		d.Close()
		if n := late.Load(); n > 0 {
			t.Errorf("%d calls were acknowledged after sync %d failed", n, nth)
		}
		disk.use()
		if n := lost(t, path, acked); n > 0 {
			t.Errorf("%d of %d acknowledged calls are not in the file", n, len(acked))
		}
		for _, path := range []string{path, crash} {
			if n := len(refused) - lost(t, path, refused); n > 0 {
				t.Errorf("%d of %d refused calls are in the file", n, len(refused))
			}
		}
	}
}

// TestDiskFull fills the disk. New calls are refused, the outcomes of attempts in
// flight are recorded, and the store goes on when there is room again.
func TestDiskFull(t *testing.T) {
	t.Run("simulated", func(t *testing.T) {
		disk.use()
		var full atomic.Bool
		path := file(t)
		disk.write = func() fault { // without the reserve there is room
			if _, err := os.Stat(path + "-reserve"); full.Load() && err == nil {
				return fails
			}
			return works
		}
		diskFull(t, path, Options{vfs: disk.name, longLog: 40}, func() func() { full.Store(true); return func() { full.Store(false) } })
	})
	t.Run("tmpfs", func(t *testing.T) {
		dir := t.TempDir()
		if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", dir).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED, NOT TESTED: no tmpfs can be mounted here: %v, %s", err, out)
		}
		t.Cleanup(func() { exec.Command("umount", dir).Run() })
		diskFull(t, filepath.Join(dir, "throttler.db"), Options{longLog: 40}, func() func() {
			filler := filepath.Join(dir, "filler")
			f, err := os.Create(filler)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for chunk := make([]byte, 4096); err == nil; {
				_, err = f.Write(chunk)
			}
			return func() { os.Remove(filler) }
		})
	})
}

func diskFull(t *testing.T, path string, o Options, fill func() (free func())) {
	d := open(t, path, o)
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	var flying []*scheduler.Call
	for n := range int64(60) {
		e := storetest.NewEntry(n + 1)
		e.Request.Body = make([]byte, 512<<10) // big: not written anew with the outcome
		if _, err := d.Accept(context.Background(), e); err != nil {
			t.Fatal(err)
		}
		sent := storetest.Sent(e.Call)
		if err := d.Intend(t.Context(), sent, nil); err != nil {
			t.Fatal(err)
		}
		flying = append(flying, sent)
	}
	free := fill()
	var err error
	acked := make(map[string]bool)
	for n := int64(100); err == nil && n < 20_000; n++ {
		e := storetest.NewEntry(n)
		if _, err = d.Accept(context.Background(), e); err == nil {
			acked[e.Call.ID] = true
		}
	}
	if !errors.Is(err, scheduler.ErrFull) {
		t.Fatalf("on a full disk: %v, want ErrFull", err)
	}
	ends := []scheduler.State{scheduler.Done, scheduler.Unknown, scheduler.Waiting}
	for n, c := range flying {
		if err := d.Record(t.Context(), storetest.Ended(c, ends[n%3])); err != nil {
			t.Fatalf("the outcome of a call in flight: %v", err)
		}
		acked[c.ID] = true
	}
	free()
	deadline := time.Now().Add(10 * time.Second) // it tries once a second
	for err = scheduler.ErrFull; errors.Is(err, scheduler.ErrFull) && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, err = d.Accept(context.Background(), storetest.NewEntry(30_000))
	}
	if err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	if _, err := os.Stat(path + "-reserve"); err != nil {
		t.Errorf("the reserve is not there again: %v", err)
	}
	for n, c := range flying {
		if got, err := d.Get(t.Context(), c.ID); err != nil || got.State != ends[n%3] || (got.Response == nil) != (n%3 == 2) {
			t.Fatalf("recorded while full: %+v, %v", got, err)
		}
	}
	d.Close()
	if n := lost(t, path, acked); n > 0 {
		t.Errorf("%d of %d acknowledged calls were lost", n, len(acked))
	}
}

// TestHeldLock: another program that holds the write lock for longer than SQLite waits
// delays a change, and does not end the store.
func TestHeldLock(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	other, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	other.SetMaxOpenConns(1)
	if _, err := other.Exec("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	stored := make(chan error)
	go func() {
		stored <- d.Intend(context.Background(), nil, []lease.Hold{{ID: 1 << 40, Upstream: "api", Limit: "app", Permits: 1}})
	}()
	select {
	case err := <-stored:
		t.Fatalf("a change while the lock is held: %v", err)
	case <-time.After(3 * time.Second):
	}
	if _, err := other.Exec("ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	if err := <-stored; err != nil {
		t.Errorf("the change after it: %v", err)
	}
}

// TestCheckpointIsDue: while a new file does not say to which file it belongs, not each commit tries to
// move the log, but one in a second.
func TestCheckpointIsDue(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		logged int
		named  bool
		since  time.Duration // the last checkpoint
		want   bool
	}{
		{1, false, time.Hour, true}, {1, false, lookEvery, true}, {1, false, lookEvery - 1, false}, {1, false, 0, false},
		{1, true, time.Hour, false}, {41, true, 0, true}, {41, false, 0, true},
	} {
		w := &writer{longLog: 40, conn: &conn{marks: true}, logged: tt.logged, named: tt.named, tried: now.Add(-tt.since)}
		if got := w.checkpointIsDue(now); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
