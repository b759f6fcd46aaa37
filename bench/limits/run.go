package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// A measure has the receiver's figures of one run.
type measure struct {
	Most     int           // arrivals in any window
	Refused  int           // by a receiver that keeps a sliding log
	Makespan time.Duration // from the first arrival to the last
	Late     time.Duration // beyond the greedy oracle, 99th percentile
}

// rest is the time that a limiter rests after its warm-up, beyond a window.
const rest = 200 * time.Millisecond

// run measures one limiter once. A first window of calls, which are not counted,
// opens the connections; then the limiter rests until all of its permits are back.
func run(w workload, l limiter) (m measure, err error) {
	r, err := startReceiver()
	if err != nil {
		return m, err
	}
	defer r.close()
	d, err := l.open(w, r.url)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.drive(time.Now(), make([]time.Duration, w.calls)); err != nil {
		return m, fmt.Errorf("warm-up: %w", err)
	}
	if t, ok := d.(*through); ok && w.backlog {
		if err := t.client.warm(min(len(w.due), maxConns) - w.calls); err != nil {
			return m, err
		}
	}
	time.Sleep(w.window + rest)
	if err := r.mark(); err != nil {
		return m, err
	}
	if err := d.drive(time.Now(), w.due); err != nil {
		return m, err
	}
	arrivals, err := r.arrivals()
	if err != nil {
		return m, err
	}
	if len(arrivals) != len(w.due) {
		return m, fmt.Errorf("%d calls arrived, of %d", len(arrivals), len(w.due))
	}
	return measure{
		Most:     w.most(arrivals),
		Refused:  w.refused(arrivals),
		Makespan: arrivals[len(arrivals)-1] - arrivals[0],
		Late:     w.late(arrivals),
	}, nil
}

// runApart is run in a process of its own, so that limiters share only the
// machine.
func runApart(binary string, w workload, l limiter) (m measure, err error) {
	c, err := fork("-as", "run", "-throttler", binary, "-workload", exactly(w.name), "-limiter", exactly(l.name))
	if err != nil {
		return m, err
	}
	err = json.NewDecoder(c.out).Decode(&m)
	c.stop()
	if err != nil {
		return m, fmt.Errorf("%s, %s: no measure: %w", l.name, w.name, err)
	}
	return m, nil
}

// round measures all limiters once, a group at a time. The limiters of a
// group run at the same time, so that other load meets all alike; their
// phases are shifted, so that their bursts do not coincide.
func round(binary string, w workload, ls []limiter) ([]measure, error) {
	var all []measure
	for _, group := range w.groups(ls) {
		measures, errs := make([]measure, len(group)), make([]error, len(group))
		var running sync.WaitGroup
		for i, l := range group {
			running.Go(func() {
				time.Sleep(w.window * time.Duration(i) / time.Duration(len(group)))
				measures[i], errs[i] = runApart(binary, w, l)
			})
		}
		running.Wait()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		all = append(all, measures...)
	}
	return all, nil
}

// beside runs f beside n busy processes.
func beside(n int, f func() error) error {
	for range n {
		c, err := fork("-as", "spinner")
		if err != nil {
			return err
		}
		defer c.stop()
	}
	return f()
}

// spin is a busy loop until standard input ends.
func spin() {
	go func() {
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}()
	for turns := 0; ; turns++ {
	}
}
