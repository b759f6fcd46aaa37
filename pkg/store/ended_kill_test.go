package store

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

var (
	endedCalls = flag.Int("ended.calls", 1000, "how many calls TestEndedThroughKills submits")
	endedKills = flag.Int("ended.kills", 4, "how often TestEndedThroughKills kills the process")
)

// TestEndedThroughKills: a process submits calls and handles their ends, and is ended by
// kill -9 again and again. In the end each call has come to its handler in each of the
// states in which it ended, at least once, and none is lost.
func TestEndedThroughKills(t *testing.T) {
	platform := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(rand.N(5 * time.Millisecond))
		if strings.HasSuffix(r.URL.Path, "7") {
			w.WriteHeader(http.StatusBadRequest)
		}
	}))
	defer platform.Close()
	dir := t.TempDir()
	told, err := os.Create(filepath.Join(dir, "told"))
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	b := &books{lines: bufio.NewReader(told), told: make(map[string]int)}

	var at []int // ends that are handled before each kill
	for range *endedKills {
		at = append(at, rand.N(*endedCalls))
	}
	slices.Sort(at)
	for _, handled := range append(at, *endedCalls) {
		last := handled == *endedCalls
		process := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEndedProcess$")
		process.Env = append(os.Environ(), "THROTTLER_ENDED="+dir, "THROTTLER_URL="+platform.URL, fmt.Sprint("THROTTLER_CALLS=", *endedCalls))
		var log bytes.Buffer
		process.Stdout, process.Stderr = &log, &log
		stdin, err := process.StdinPipe()
		if err == nil {
			err = process.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- process.Wait() }()
		for begin := time.Now(); len(b.told) < handled; time.Sleep(time.Millisecond) {
			b.read()
			if time.Since(begin) > 5*time.Minute {
				process.Process.Kill()
				<-ended
				t.Fatalf("%d ends are handled after 5 minutes, want %d:\n%s", len(b.told), handled, &log)
			}
		}
		if last {
			stdin.Close()
		} else {
			time.Sleep(rand.N(20 * time.Millisecond))
			process.Process.Kill()
		}
		if err := <-ended; last && err != nil {
			t.Fatalf("the last process: %v\n%s", err, &log)
		}
	}
	b.read()
	d, err := Open(filepath.Join(dir, "throttler.db"), Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b.audit(t, d)
}

// books are the ends that handlers have had, by call and state.
type books struct {
	lines *bufio.Reader
	part  string
	told  map[string]int
	all   int
}

// read reads the lines that were written since.
func (b *books) read() {
	for {
		line, err := b.lines.ReadString('\n')
		b.part += line
		if err != nil {
			return
		}
		b.told[strings.TrimSpace(b.part)]++
		b.all++
		b.part = ""
	}
}

// audit compares the books with the calls of a store.
func (b *books) audit(t *testing.T, d *DB) {
	var calls []*scheduler.Call
	for f, more := (scheduler.Filter{}), true; more; more = f.After != "" {
		page, err := d.List(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		calls, f.After = append(calls, page.Calls...), page.Next
	}
	if len(calls) != *endedCalls {
		t.Errorf("%d calls in the store, want %d", len(calls), *endedCalls)
	}
	unknown := 0
	for _, c := range calls {
		if c.State == scheduler.Unknown {
			unknown++
		}
		if b.told[c.Notice()] == 0 {
			t.Errorf("the end of call %s, which is %s, was never handled", c.ID, c.State)
		}
	}
	if left, err := d.PendingEnds(t.Context(), 9); len(left) > 0 || err != nil {
		t.Errorf("ends that are not handled: %v, %v", left, err)
	}
	again := b.all - len(b.told)
	if most := 16 * *endedKills; again > most {
		t.Errorf("%d ends came again, want at most those that were being handled at a kill, %d", again, most)
	}
	t.Logf("%d calls, %d kills: %d ends handled, %d of them again; %d calls are unknown", len(calls), *endedKills, b.all, again, unknown)
}

// TestEndedProcess is a process of TestEndedThroughKills.
func TestEndedProcess(t *testing.T) {
	dir := os.Getenv("THROTTLER_ENDED")
	if dir == "" {
		return
	}
	var n int
	fmt.Sscan(os.Getenv("THROTTLER_CALLS"), &n)
	told, err := os.OpenFile(filepath.Join(dir, "told"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(filepath.Join(dir, "throttler.db"), Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	u := scheduler.Upstream{MaxWaiting: 2 * n}
	u.URL = os.Getenv("THROTTLER_URL")
	s, err := scheduler.New(scheduler.Config{
		Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet,
		Ended: func(ctx context.Context, c *scheduler.Call) error {
			if rand.N(20) == 0 {
				return errors.New("not now")
			}
			_, err := fmt.Fprintln(told, c.Notice())
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for first := range 16 {
		callers.Go(func() {
			for i := first; i < n; i += 16 { // those of an earlier process are known
				r := scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprint("/", i), IdempotencyKey: fmt.Sprint(i)}
				if _, err := s.Submit(t.Context(), r); err != nil {
					t.Error(err)
				}
			}
		})
	}
	io.Copy(io.Discard, os.Stdin) // until the test has seen all ends
	callers.Wait()
	for { // an end that a kill has left comes again, and may wait for its next try
		left, err := d.PendingEnds(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
