package main

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// workers enqueue, and as many handle jobs, at once.
const workers = 64

// A queue stores jobs durably and hands each to handle.
type queue struct {
	enqueue func() error
	keyed   func() error // enqueues under an idempotency key, which is a new one; nil where there is none
	close   func()
}

// A contender is a job queue, with its promise about an enqueued job.
type contender struct {
	name, promise string
	needs         string // a program
	open          func(dir string, handle func()) (*queue, error)
}

var contenders = []contender{
	{"Throttler", "synced", "", openThrottler},
	{"asynq, appendfsync always", "synced", "redis-server", openAsynq("always")},
	{"asynq, appendfsync everysec", "up to a second is lost", "redis-server", openAsynq("everysec")},
	{"River", "synced", "postgres", openRiver(0)},
	{"River, polled every ms", "synced", "postgres", openRiver(time.Millisecond)},
}

// peers measures well-known job queues, and this store as one of them.
func peers(dir string) {
	say("\n## Enqueue to finish\n\n%d jobs of 450 bytes that do nothing, %d enqueue and %d handle at once; then one at a time.\n\n", *jobs, workers, workers)
	say("| queue | a job that was enqueued is | jobs/s | idle: enqueue to handler p50 | p99 |\n| --- | --- | --- | --- | --- |\n")
	for i, c := range contenders {
		if c.needs != "" {
			if _, err := exec.LookPath(c.needs); err != nil {
				say("| %s | NOT MEASURED: there is no %s on this machine | | | |\n", c.name, c.needs)
				continue
			}
		}
		at := filepath.Join(dir, fmt.Sprint("peer", i))
		check(os.Mkdir(at, 0o755))
		rate, p50, p99, err := c.measure(at)
		if err != nil {
			say("| %s | NOT MEASURED: %v | | | |\n", c.name, err)
			continue
		}
		say("| %s | %s | %.0f | %v | %v |\n", c.name, c.promise, rate, p50, p99)
	}
}

func (c contender) measure(dir string) (rate float64, p50, p99 time.Duration, err error) {
	var handled atomic.Int64
	all, one := make(chan struct{}), make(chan struct{}, 1)
	q, err := c.open(dir, func() {
		switch n := handled.Add(1); {
		case n == int64(*jobs):
			close(all)
		case n > int64(*jobs):
			one <- struct{}{}
		}
	})
	if err != nil {
		return 0, 0, 0, err
	}
	defer q.close()
	begin := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for next.Add(1) <= int64(*jobs) {
				check(q.enqueue())
			}
		})
	}
	wg.Wait()
	select {
	case <-all:
	case <-time.After(2 * time.Minute):
		return 0, 0, 0, fmt.Errorf("only %d of %d jobs were handled in two minutes", handled.Load(), *jobs)
	}
	rate = float64(*jobs) / time.Since(begin).Seconds()
	time.Sleep(2 * time.Second) // until it is idle
	var waits []time.Duration
	for range 50 {
		begin := time.Now()
		check(q.enqueue())
		<-one
		waits = append(waits, time.Since(begin))
		time.Sleep(20 * time.Millisecond)
	}
	p50, p99 = quantiles(waits)
	return rate, p50, p99, nil
}

// handler is an upstream that only calls a function.
type handler func()

func (h handler) RoundTrip(r *http.Request) (*http.Response, error) {
	h()
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("ok")), Request: r}, nil
}

func openThrottler(dir string, handle func()) (*queue, error) {
	d, err := store.Open(filepath.Join(dir, "throttler.db"), store.Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	s, err := throttler(d, handle)
	if err != nil {
		return nil, err
	}
	return submitter(s), nil
}

// throttler returns a scheduler over a store, whose upstream only calls a function.
func throttler(kept scheduler.Store, handle func()) (*scheduler.Scheduler, error) {
	u := scheduler.Upstream{MaxWaiting: 10 << 20, MaxWaitingBytes: 8 << 30, Concurrency: workers}
	u.URL, u.Transport = "http://api.test", handler(handle)
	return scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: kept, Log: slog.New(slog.DiscardHandler)})
}

// serve starts the server of a peer, and returns when it listens.
func serve(cmd *exec.Cmd, addr string) (stop func(), err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	}
	for begin := time.Now(); time.Since(begin) < 20*time.Second; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return stop, nil
		}
	}
	stop()
	return nil, fmt.Errorf("%s does not listen on %s", cmd.Path, addr)
}

// free returns a port that is free now.
func free() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
