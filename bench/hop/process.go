package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
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
	stopTimeout  = 10 * time.Second // from SIGTERM to SIGKILL
)

// A process is a program with its own processes, a group, and a directory. A keeper, which is
// this program in another part, starts it and stops it at the end of standard input:
// however this process ends, no other one outlives it.
type process struct {
	name   string
	group  int
	keeper *exec.Cmd
	in     io.Closer
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

// start runs a program in a new directory with one file, which the arguments may name.
func start(name, file, text, path string, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-hop-")
	if err != nil {
		return nil, err
	}
	p := &process{name: name, exited: make(chan struct{})}
	if err := p.start(self, dir, file, text, append([]string{path}, args...)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), os.RemoveAll(dir))
	}
	return p, nil
}

func (p *process) start(self, dir, file, text string, command []string) (err error) {
	if file != "" {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	p.keeper = exec.Command(self, append([]string{"-as", "keep", "--", dir}, command...)...)
	p.keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the terminal's interrupt is for this process
	p.keeper.Stderr = &p.output
	p.keeper.WaitDelay = time.Second // for output, if the keeper is killed
	if p.in, err = p.keeper.StdinPipe(); err != nil {
		return err
	}
	out, err := p.keeper.StdoutPipe()
	if err != nil {
		return err
	}
	if err := p.keeper.Start(); err != nil {
		return err
	}
	_, scanErr := fmt.Fscan(out, &p.group)
	go func() {
		defer close(p.exited)
		p.keeper.Wait()
	}()
	if scanErr != nil {
		return errors.Join(fmt.Errorf("did not start: %s", &p.output), p.stop())
	}
	return nil
}

// keep is the part of the keeper: args are a directory and a command that runs in it.
func keep(args []string) error {
	if len(args) < 2 {
		return errors.New("-as keep needs a directory and a command")
	}
	defer os.RemoveAll(args[0])
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Dir = args[0]
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid)
	exited, ended := make(chan error, 1), make(chan struct{})
	go func() { exited <- cmd.Wait() }()
	go func() { // until the process ends
		io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	group := -cmd.Process.Pid
	defer syscall.Kill(group, syscall.SIGKILL)
	select {
	case err := <-exited:
		return err
	case <-ended:
	}
	syscall.Kill(group, syscall.SIGTERM)
	select {
	case <-exited:
	case <-time.After(stopTimeout):
		syscall.Kill(group, syscall.SIGKILL)
		<-exited
	}
	return nil
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

// stop ends the process. Its keeper removes the directory.
func (p *process) stop() error {
	p.in.Close()
	select {
	case <-p.exited:
		return nil
	case <-time.After(2 * stopTimeout):
		if p.group > 0 {
			syscall.Kill(-p.group, syscall.SIGKILL)
		}
		p.keeper.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not end within %v", p.name, 2*stopTimeout)
	}
}

// answers reports whether a request is answered with 200.
func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// freeAddrs returns free addresses on the loopback interface.
func freeAddrs(n int) (addrs []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // at the end, so that all differ
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}

// find returns the path of a peer's program. Debian has servers in /usr/sbin, which PATH may lack.
func find(name string) (string, error) {
	for _, name := range []string{name, "/usr/sbin/" + name} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; make bench-peers installs it", name)
}
