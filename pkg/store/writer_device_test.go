//go:build linux

package store

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var faults = flag.Int("faults", 1, "how many times more faults the tests put in; CI has 3")

// powerCut makes this test binary the process that loses its power. It submits calls
// and prints the id of each that was acknowledged.
const powerCut = "THROTTLER_TEST_POWERCUT" // mode and path

func TestMain(m *testing.M) {
	flag.Parse()
	if mode, path, ok := strings.Cut(os.Getenv(powerCut), " "); ok {
		o := Options{Log: quiet, longLog: 40} // not only in idle moments
		if mode != "FULL" {
			o.longLog = 0 // each checkpoint is a sync
			o.raw = "_pragma=synchronous(" + mode + ")"
		}
		d, err := Open(path, o)
		if err != nil {
			panic(err)
		}
		var seq atomic.Int64
		for range 8 {
			go func() {
				for {
					e := storetest.NewEntry(seq.Add(1))
					if _, err := d.Accept(context.Background(), e); err != nil {
						panic(err)
					}
					fmt.Println(e.Call.ID)
				}
			}()
		}
		select {}
	}
	os.Exit(m.Run())
}

// TestPowerCutOfADevice cuts the power of a file system on a loop device: it reads
// the device as it was at that moment. TestPowerCut needs no device, and so no
// privilege.
func TestPowerCutOfADevice(t *testing.T) {
	for mode, cuts := range map[string]int{"FULL": 7 * *faults, "NORMAL": *faults} {
		gone, all, n := 0, 0, 0
		// A system that is busy may write all by itself just before the cut, so NORMAL has more of them.
		for n < cuts || mode == "NORMAL" && gone == 0 && n < cuts+30 {
			acked, lost := cutDevice(t, mode)
			all, gone, n = all+acked, gone+lost, n+1
		}
		t.Logf("synchronous=%s: %d power cuts, %d acknowledged, %d lost", mode, n, all, gone)
		if mode == "FULL" && gone > 0 {
			t.Errorf("%d of %d acknowledged calls were lost", gone, all)
		}
		if mode == "NORMAL" && gone == 0 {
			t.Error("nothing was lost with synchronous=NORMAL: the rig does not work")
		}
	}
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// device makes a file system in an image and mounts it.
func device(t *testing.T, dir string) (image, mounted string) {
	t.Helper()
	image, mounted = filepath.Join(dir, "image"), filepath.Join(dir, "mounted")
	err := os.Mkdir(mounted, 0o700)
	if err == nil {
		err = os.WriteFile(image, nil, 0o600)
	}
	if err == nil {
		err = os.Truncate(image, 96<<20)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err = command("mkfs.ext4", "-q", "-F", image); err == nil {
		err = command("mount", "-o", "loop", image, mounted)
	}
	if err != nil {
		t.Skipf("SKIPPED, NOT TESTED: no file system on a loop device here: %v", err)
	}
	return image, mounted
}

// cutDevice returns how many calls were acknowledged before the cut, and how many
// of them were lost by it.
func cutDevice(t *testing.T, mode string) (acked, gone int) {
	t.Helper()
	dir := t.TempDir()
	image, mounted := device(t, dir)
	unmount := func() {
		if err := command("umount", mounted); err != nil {
			t.Error(err)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), powerCut+"="+mode+" "+filepath.Join(mounted, "throttler.db"))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		unmount()
		t.Fatal(err)
	}
	ids, enough := make(map[string]bool), make(chan struct{})
	read := make(chan struct{})
	go func() {
		defer close(read)
		first := 100 + rand.N(1000)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if ids[lines.Text()] = true; len(ids) == first {
				close(enough)
			}
		}
	}()
	select {
	case <-enough:
	case <-time.After(20 * time.Second):
		t.Error("the process is too slow")
	}
	// The calls that it has acknowledged by the time it stands still must be there.
	cmd.Process.Signal(syscall.SIGSTOP)
	for until := time.Now().Add(20 * time.Second); !standsStill(t, cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Error("the process does not stop")
			break
		}
	}
	err = duplicate(image, image+"2")
	cmd.Process.Kill()
	<-read
	cmd.Wait()
	unmount()
	if err == nil {
		err = command("mount", "-o", "loop", image+"2", mounted)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unmount()
	return len(ids), lost(t, filepath.Join(mounted, "throttler.db"), ids)
}

// standsStill reports whether every thread of a process has stopped. A thread in a
// system call goes on to the end of the call.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has no threads: %v", pid, err)
	}
	for _, file := range threads {
		stat, err := os.ReadFile(file)
		if err != nil {
			return false
		}
		if state := stat[bytes.LastIndexByte(stat, ')')+2]; state != 'T' {
			return false
		}
	}
	return true
}

func duplicate(from, to string) error {
	a, err := os.Open(from)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := os.Create(to)
	if err != nil {
		return err
	}
	defer b.Close()
	_, err = io.Copy(b, a)
	return err
}

// lost returns how many of the ids a file does not have.
func lost(t *testing.T, path string, ids map[string]bool) int {
	t.Helper()
	d := open(t, path, Options{})
	defer d.Close()
	n := 0
	for id := range ids {
		if _, err := d.Get(t.Context(), id); err != nil {
			n++
		}
	}
	return n
}
