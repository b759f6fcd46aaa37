package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyTimeout = time.Minute      // from start to the first answer
	stopTimeout  = 10 * time.Second // from SIGTERM to SIGKILL
)

// A process is a program that ends with this one.
type process struct {
	cmd    *exec.Cmd
	out    output
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
	return o.b.String()
}

// start runs a program in a directory.
func start(dir, path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.exited)
		p.cmd.Wait()
	}()
	return p, nil
}

// stop ends the process.
func (p *process) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(stopTimeout):
		p.cmd.Process.Kill()
		<-p.exited
	}
}

// line returns the first line of the output.
func (p *process) line() (string, error) {
	var line string
	err := p.wait(func() bool {
		first, _, whole := strings.Cut(p.out.String(), "\n")
		line = first
		return whole
	})
	return line, err
}

// listens waits until an address takes connections.
func (p *process) listens(addr string) error {
	return p.wait(func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
}

// ready waits until a URL answers with status 200.
func (p *process) ready(url string) error {
	return p.wait(func() bool {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil && resp.StatusCode == http.StatusOK
	})
}

// wait waits until a condition holds.
func (p *process) wait(until func() bool) error {
	for deadline := time.Now().Add(readyTimeout); !until(); {
		select {
		case <-p.exited:
			return fmt.Errorf("it ended: %s", p.out.String())
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("it is not ready after %v: %s", readyTimeout, p.out.String())
		}
	}
	return nil
}

// freeAddress returns an address on loopback that is free.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
