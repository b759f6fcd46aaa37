//go:build linux && (amd64 || arm64)

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestPowerCut takes away all that was not synced, at random moments.
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
			o := Options{vfs: disk.name, longLog: 40} // else as it comes
			if mode != "FULL" {
				o.longLog = 0 // each move of the log is a sync
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
							once.Do(func() { // what is acknowledged is on disk now
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

// TestFailedSync lets one sync fail, at random places: once so that nothing of
// it is on disk, once so that it is. Nothing is acknowledged after it.
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
		acked := make(map[string]bool)
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
					}
				}
			})
		}
		wg.Wait()
		d.Close()
		if n := late.Load(); n > 0 {
			t.Errorf("%d calls were acknowledged after sync %d failed", n, nth)
		}
		disk.use()
		if n := lost(t, path, acked); n > 0 {
			t.Errorf("%d of %d acknowledged calls are not in the file", n, len(acked))
		}
	}
}

// counter is an upstream that counts.
type counter struct{ n atomic.Int64 }

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

func run(t *testing.T, d scheduler.Store, transport http.RoundTripper) *scheduler.Scheduler {
	t.Helper()
	u := scheduler.Upstream{}
	u.URL, u.Transport = "http://api.test", transport
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func submit(t *testing.T, s *scheduler.Scheduler) (*scheduler.Call, scheduler.Reason) {
	t.Helper()
	c, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: "/"})
	var refused *scheduler.Error
	if errors.As(err, &refused) {
		return nil, refused.Reason
	} else if err != nil {
		t.Fatal(err)
	}
	return c, ""
}

// TestSchedulerEndsWithItsStore: after a failed sync nothing is accepted or sent.
func TestSchedulerEndsWithItsStore(t *testing.T) {
	disk.use()
	var failing atomic.Bool
	disk.sync = func() fault {
		if failing.Load() {
			return fails
		}
		return works
	}
	up := &counter{}
	s := run(t, open(t, file(t), Options{vfs: disk.name}), up)
	if c, why := submit(t, s); why != "" {
		t.Fatal(why)
	} else if c, err := s.Wait(t.Context(), c.ID); err != nil || c.State != scheduler.Done {
		t.Fatalf("%+v, %v", c, err)
	}
	failing.Store(true)
	if _, why := submit(t, s); why != scheduler.StoreFailed {
		t.Errorf("refused because %q, want %q", why, scheduler.StoreFailed)
	}
	select {
	case <-s.Failed():
	case <-time.After(10 * time.Second):
		t.Fatal("the scheduler goes on without its store")
	}
	before := up.n.Load()
	for range 10 {
		if _, why := submit(t, s); why != scheduler.StoreFailed && why != scheduler.Stopping {
			t.Errorf("refused because %q", why)
		}
		if _, _, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Target: "/"}); err == nil {
			t.Error("a call whose caller waits was sent")
		}
	}
	if n := up.n.Load(); n != before {
		t.Errorf("%d calls were sent after it", n-before)
	}
	if err := s.Close(); !errors.Is(err, scheduler.ErrBroken) {
		t.Errorf("Close: %v, want why", err)
	}
}

// TestDiskFull fills the disk: new calls are refused, what is in flight is
// recorded, and all is well again when there is room.
func TestDiskFull(t *testing.T) {
	t.Run("simulated", func(t *testing.T) {
		disk.use()
		var full atomic.Bool
		path := file(t)
		disk.write = func() fault { // the reserve is what room there is
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
		e.Request.Body = make([]byte, 512<<10) // what is not written anew needs no room
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
	deadline := time.Now().Add(10 * time.Second) // it is tried once a second
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

// TestDamage changes single bytes of a file at random, and in every third one a
// byte of a request: what was damaged is not sent, and nothing is sent that nobody
// handed over.
func TestDamage(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	for n := range int64(40) {
		e := storetest.NewEntry(n + 1)
		e.Request.Body = fmt.Appendf(nil, "intact %d", n+1)
		e.Request.Target = fmt.Sprintf("/%d", n+1)
		if _, err := d.Accept(context.Background(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	refused, harmless := 0, 0
	for n := range 30 * *faults {
		path := file(t)
		damaged := append([]byte(nil), whole...)
		if n%3 == 0 {
			damaged = bytes.ReplaceAll(damaged, fmt.Appendf(nil, "intact %d", 1+n%40), fmt.Appendf(nil, "Intact %d", 1+n%40))
		}
		for range rand.N(3) {
			damaged[rand.N(len(damaged))] ^= byte(1 + rand.N(255))
		}
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if opensAndSends(t, path) {
			harmless++
		} else {
			refused++
		}
	}
	t.Logf("%d files were refused or their store ended; in %d the damage hit nothing that is used", refused, harmless)
	if refused < 3**faults {
		t.Error("damage is hardly ever seen: the test does not work")
	}
}

// opensAndSends tells whether a store goes on with all of its calls; what is sent
// must be intact.
func opensAndSends(t *testing.T, path string) bool {
	d, err := Open(path, Options{Log: quiet})
	if err != nil {
		return false
	}
	up := &checker{t: t}
	u := scheduler.Upstream{}
	u.URL, u.Transport = "http://api.test", up
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		d.Close()
		return false
	}
	defer s.Close()
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		select {
		case <-s.Failed():
			return false
		default:
		}
		if up.n.Load() == 40 {
			return true
		}
	}
	return false // some calls are not seen any more: an index is damaged
}

type checker struct {
	t *testing.T
	n atomic.Int64
}

func (c *checker) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	body, _ := io.ReadAll(r.Body)
	if want := "intact " + strings.TrimPrefix(r.URL.Path, "/"); r.Method != "POST" || string(body) != want || r.Header.Get("X-A") != "1" {
		c.t.Errorf("what was sent is damaged: %s %s %q", r.Method, r.URL.Path, body)
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}
