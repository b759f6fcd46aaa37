package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"
)

// A memory has the resident memory of the sidecar for each call that waits.
type memory struct {
	name  string
	calls int
	bytes float64 // resident, for a call
	inUse float64 // of these in the Go heap and in stacks
}

// Names of what takes memory.
const (
	waitingClient = "waiting client, its connection included"
	submittedCall = "submitted waiting call, SQLite"
	memoryCall    = "submitted waiting call, store in memory"
)

const (
	first   = 500             // calls that wait before the measurement, so that memory that does not grow is not in it
	settle  = 3 * time.Second // for garbage, and work beside the calls
	callers = 64              // that submit
)

// waitYAML makes calls wait: the upstream never answers the first.
const waitYAML = `    timeout: 1h
    max_waiting: 10000000
    max_waiting_bytes: 8GiB
    limits: [{name: one, concurrency: 1}]
`

// memories measures the memory of calls that wait, in new processes in each round.
func (p *plan) memories() ([]memory, error) {
	kinds := []struct {
		name, store string
		calls       int
		add         func(h *hop, n int) ([]*client, error)
	}{
		{waitingClient, "memory", p.clients(), wait},
		{memoryCall, "memory", p.submitted, submit},
		{submittedCall, "throttler.db", p.submitted, submit},
	}
	rounds := make([][]memory, len(kinds))
	for range p.rounds {
		for i, kind := range kinds {
			m, err := p.hold(kind.store, kind.calls, kind.add)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", kind.name, err)
			}
			rounds[i] = append(rounds[i], m)
		}
	}
	var all []memory
	for i, kind := range kinds {
		all = append(all, memory{
			name: kind.name, calls: kind.calls,
			bytes: median(rounds[i], func(m memory) float64 { return m.bytes }),
			inUse: median(rounds[i], func(m memory) float64 { return m.inUse }),
		})
	}
	return all, nil
}

// clients returns how many clients wait: the sidecar gives its listeners at most half of
// the files, and an eighth of that to the admin API.
func (p *plan) clients() int {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return p.waiting
	}
	half := int(min(files.Cur, 1<<30)) / 2
	return min(p.waiting, half-half/8)
}

// hold measures the memory of calls that wait. Some wait before.
func (p *plan) hold(store string, calls int, add func(*hop, int) ([]*client, error)) (m memory, err error) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return m, err
	}
	ended := make(chan struct{})
	go accept(silent, ended)
	defer func() {
		silent.Close()
		<-ended
	}()
	yaml := fmt.Sprintf(throttlerYAML, "%s", store, "%s", silent.Addr()) + waitYAML
	h, err := openThrottler("Throttler", p.binary, yaml)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, h.process.stop()) }()
	before := min(first, calls/2)
	some, err := add(h, before)
	defer func() { hangUp(some) }()
	if err != nil {
		return m, err
	}
	resident, inUse, err := h.memory(before)
	if err != nil {
		return m, err
	}
	others, err := add(h, calls-before)
	defer func() { hangUp(others) }()
	if err != nil {
		return m, err
	}
	resident2, inUse2, err := h.memory(calls)
	n := float64(calls - before)
	return memory{bytes: (resident2 - resident) / n, inUse: (inUse2 - inUse) / n}, err
}

// accept holds connections and never answers.
func accept(l net.Listener, ended chan<- struct{}) {
	defer close(ended)
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
	}
}

// memory waits until so many calls wait, but for the one being sent, and returns the
// memory of the process, and that of its heap and stacks.
func (h *hop) memory(calls int) (resident, inUse float64, err error) {
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		m, err := metrics(h.admin)
		if err != nil {
			return 0, 0, err
		}
		if m[waitingMetric] >= float64(calls-1) {
			break
		}
		if time.Now().After(deadline) {
			return 0, 0, fmt.Errorf("%.0f calls wait, and not %d; output: %s", m[waitingMetric], calls-1, &h.process.output)
		}
	}
	time.Sleep(settle)
	m, err := metrics(h.admin)
	if err != nil {
		return 0, 0, err
	}
	_, rss, err := usage(h.process.group)
	return float64(rss), m[heapMetric] + m[stackMetric], err
}

// wait lets n more clients wait.
func wait(h *hop, n int) ([]*client, error) {
	all, err := dialAll(h.addr, n, request{target: "/gateway.do", body: content(typical), status: http.StatusOK})
	for _, c := range all {
		err = errors.Join(err, c.send())
	}
	return all, err
}

// submit submits n more calls.
func submit(h *hop, n int) ([]*client, error) {
	body := fmt.Appendf(nil, `{"upstream":"bench","method":"POST","path":"/gateway.do","body":"%s"}`, content(typical))
	all, err := dialAll(h.admin, min(n, callers), request{target: "/v1/calls", body: body, status: http.StatusAccepted})
	if err != nil {
		return nil, err
	}
	var begun atomic.Int64
	_, err = drive(all, func() bool { return begun.Add(1) <= int64(n) })
	return all, err
}
