package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyTimeout = 15 * time.Second // from start to the first answer
	stopTimeout  = 15 * time.Second // from SIGTERM to the end
)

// A process is a child with a directory of its own.
type process struct {
	name   string
	dir    string
	cmd    *exec.Cmd
	output output
	exited chan struct{}
}

// output collects the output of a process.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimSpace(o.b.String())
}

// start runs a program in a new directory with one file, which the arguments
// may name.
func start(name, file, text, path string, args ...string) (*process, error) {
	dir, err := os.MkdirTemp("", "bench-limits-")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &process{name: name, dir: dir, exited: make(chan struct{})}
	p.cmd = exec.Command(path, args...)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(p.exited)
		p.cmd.Wait()
	}()
	return p, nil
}

// until waits until the process is ready; if it is not ready in time, it is stopped.
func (p *process) until(ready func() bool) error {
	deadline := time.After(readyTimeout)
	for !ready() {
		select {
		case <-p.exited:
			return errors.Join(fmt.Errorf("%s ended at its start: %s", p.name, &p.output), p.stop())
		case <-deadline:
			return errors.Join(fmt.Errorf("%s is not ready after %v: %s", p.name, readyTimeout, &p.output), p.stop())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// stop ends the process and removes its directory.
func (p *process) stop() error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.exited
		err = fmt.Errorf("%s did not end within %v", p.name, stopTimeout)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freeAddr returns a free address on the loopback interface.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
