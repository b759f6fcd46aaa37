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

// first is an upstream that reports the time of a request.
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

// startOn is the part of a process that was started on a store.
func startOn(path string) {
	begin := time.Now()
	d, err := store.Open(path, store.Options{Log: slog.New(slog.DiscardHandler)})
	check(err)
	opened := time.Since(begin)
	f := first{make(chan time.Time, 1)}
	s := on(d, f)
	ready := time.Since(begin)
	sent := (<-f.sent).Sub(begin)
	time.Sleep(2 * time.Second) // the rest of the near calls is read
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

// due prints the time from a call's due instant to its sending in an idle process,
// and that of a timer, a write and a sync alone at the same pace.
func due(dir string) {
	const pace = 15 * time.Millisecond
	plain, err := os.Create(filepath.Join(dir, "paced"))
	check(err)
	defer plain.Close()
	f := first{make(chan time.Time, 1)}
	d, err := store.Open(filepath.Join(dir, "due.db"), store.Options{Log: slog.New(slog.DiscardHandler)})
	check(err)
	s := on(d, f)
	defer s.Close()
	var floor, ours []time.Duration
	for range 300 { // in turns
		at := time.Now().Add(pace)
		<-time.After(pace)
		_, err := plain.Write(make([]byte, 4096))
		check(err)
		check(plain.Sync())
		floor = append(floor, time.Since(at))

		at = time.Now().Add(pace)
		_, err = s.Submit(context.Background(), scheduler.Request{Upstream: "api", Target: "/", NotBefore: at})
		check(err)
		ours = append(ours, (<-f.sent).Sub(at))
	}
	p50, p99 := quantiles(floor)
	say("| a timer, then a write and sync of 4 KiB, idle | %v | %v | | |\n", p50, p99)
	p50, p99 = quantiles(ours)
	say("| due to first byte, idle: with the intent's sync | %v | %v | p99 ≤ 2 ms | %s |\n", p50, p99, verdict(p99 <= 2*time.Millisecond))
}
