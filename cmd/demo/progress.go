package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// progress shows a changing line: rewritten in place on a terminal, otherwise a new one
// every two seconds.
type progress struct {
	out      io.Writer
	every    time.Duration
	terminal bool
}

func newProgress(out io.Writer) progress {
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return progress{out, 100 * time.Millisecond, true}
	}
	return progress{out, 2 * time.Second, false}
}

// watch shows line until stop is called, and then once more.
func (p progress) watch(line func() string) (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(p.every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.print(line(), false)
			case <-quit:
				p.print(line(), true)
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

func (p progress) print(line string, last bool) {
	switch {
	case !p.terminal:
		fmt.Fprintf(p.out, "  %s\n", line)
	case last:
		fmt.Fprintf(p.out, "\r\x1b[K  %s\n", line)
	default:
		fmt.Fprintf(p.out, "\r\x1b[K  %s", line)
	}
}
