package main

import (
	"io"
	"os"
	"os/exec"
)

// A child is another process of this program, in another part. It ends with
// its standard input, so it never outlives its parent.
type child struct {
	cmd *exec.Cmd
	in  io.Closer
	out io.Reader
}

func fork(args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(self, args...)}
	c.cmd.Stderr = os.Stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.cmd.Start()
}

func (c *child) stop() {
	c.in.Close()
	c.cmd.Wait()
}
