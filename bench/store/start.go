package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// first is an upstream that reports when a request comes in.
type first struct{ sent chan time.Time }

func (f first) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case f.sent <- time.Now():
	default:
	}
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

func on(d *store.DB, f first) *scheduler.Scheduler {
	u := scheduler.Upstream{MaxWaiting: 10 << 20, MaxWaitingBytes: 8 << 30, Limits: []scheduler.Limit{{Name: "app", Calls: 100, Window: time.Second}}}
	u.URL, u.Transport = "http://api.test", f
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Precise: true, Log: slog.New(slog.DiscardHandler)})
	check(err)
	return s
}

// start fills a store, and starts new processes on it.
func start(path string) {
	d := openStore(path)
	var wg sync.WaitGroup
	for i := range 256 {
		wg.Go(func() {
			for n := i; n < *pending; n += 256 {
				e := storetest.NewEntry(int64(n + 1))
				e.Request.Body, e.Call.Deadline = body, time.Now().Add(24*time.Hour)
				_, err := d.Accept(context.Background(), e)
				check(err)
			}
		})
	}
	wg.Wait()
	check(d.Close())
	say("\n## Start with %d pending calls, after a clean stop\n\n| open | ready | ≤ 100 ms | first send | ≤ 150 ms | peak RSS | ≤ 256 MiB |\n| --- | --- | --- | --- | --- | --- | --- |\n", *pending)
	for range 3 {
		out, err := exec.Command(os.Args[0], "-start", path).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		check(err)
		say("%s", out)
	}
}

// startOn is the main function of a process started on a store.
func startOn(path string) {
	begin := time.Now()
	d, err := store.Open(path, store.Options{Log: slog.New(slog.DiscardHandler)})
	check(err)
	opened := time.Since(begin)
	f := first{make(chan time.Time, 1)}
	s := on(d, f)
	ready := time.Since(begin)
	sent := (<-f.sent).Sub(begin)
	time.Sleep(2 * time.Second) // until the calls due soon are read
	peak := 0                   // KiB
	if status, err := os.ReadFile("/proc/self/status"); err == nil {
		for line := range strings.Lines(string(status)) {
			if kib, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				fmt.Sscan(kib, &peak)
			}
		}
	}
	fmt.Printf("| %v | %v | %s | %v | %s | %d MiB | %s |\n",
		opened.Round(time.Millisecond), ready.Round(time.Millisecond), verdict(ready <= 100*time.Millisecond),
		sent.Round(time.Millisecond), verdict(sent <= 150*time.Millisecond), peak>>10, verdict(peak <= 256<<10))
	check(s.Close())
}

// due prints how long after its due time a call goes out in an idle process, beside a timer of
// the runtime and an intent of the bare writer at the same pace.
func due(dir string) {
	const pace = 15 * time.Millisecond
	b := newBare(filepath.Join(dir, "due_bare"))
	defer b.close()
	f := first{make(chan time.Time, 1)}
	d, err := store.Open(filepath.Join(dir, "due.db"), store.Options{Log: slog.New(slog.DiscardHandler)})
	check(err)
	s := on(d, f)
	defer s.Close()
	var floor, ours times
	n := int64(0)
	for range turns {
		var bare, calls []time.Duration
		for range 300 {
			n++
			b.change(accept, n)
			at := time.Now().Add(pace)
			<-time.After(pace)
			b.change(intend, n)
			bare = append(bare, time.Since(at))

			at = time.Now().Add(pace)
			_, err = s.Submit(context.Background(), scheduler.Request{Upstream: "api", Target: "/", NotBefore: at})
			check(err)
			calls = append(calls, (<-f.sent).Sub(at))
		}
		floor.add(bare)
		ours.add(calls)
	}
	compare("due to first byte, idle", floor, ours)
}
