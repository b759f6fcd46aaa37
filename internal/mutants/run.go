package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A test is one function of the package's tests, with its time and the mutants it reaches.
type test struct {
	name  string
	took  time.Duration
	reach map[int]bool
}

// first is how long the tests take that are tried together before the slower ones.
const first = 500 * time.Millisecond

// run runs the tests of the package against each of the chosen mutants.
func (p *pkg) run(verbose bool) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	binary, err := p.build(dir)
	if err != nil {
		return err
	}
	r := runner{binary: binary, dir: p.dir, temp: filepath.Join(dir, "temp")}
	tests, err := r.tests(p.slow)
	if err != nil {
		return err
	}
	for _, m := range p.chosen {
		var reach []test
		for _, t := range tests {
			if t.reach[m.id] {
				reach = append(reach, t)
			}
		}
		m.reached = len(reach) > 0
		if m.seenBy, err = r.see(m, reach); err != nil {
			return err
		}
		if verbose {
			fmt.Printf("%-12s %s\n", m.verdict(), m.place())
		}
	}
	return nil
}

func (m *mutant) verdict() string {
	switch {
	case !m.reached:
		return "NOT REACHED"
	case m.seenBy == "":
		return "SURVIVED"
	}
	return "by " + m.seenBy
}

type runner struct {
	binary, dir, temp string
}

// tests runs each test but the slow ones once without a mutant. It returns the slowest last.
func (r runner) tests(slow []string) ([]test, error) {
	out, err := r.command(time.Minute, nil, "-test.list", ".").Output()
	if err != nil {
		return nil, fmt.Errorf("list tests: %w", err)
	}
	names := strings.Fields(string(out))
	for _, name := range slow {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("there is no test %s to leave out: mend its target in main.go", name)
		}
	}
	var all []test
	for _, name := range names {
		if strings.HasPrefix(name, "Benchmark") || slices.Contains(slow, name) {
			continue
		}
		log := r.temp + ".reached"
		if err := os.RemoveAll(log); err != nil {
			return nil, err
		}
		begin := time.Now()
		if out, err := r.output(r.command(5*time.Minute, []string{"MUTANTS_REACHED=" + log}, "-test.run", "^"+name+"$")); err != nil {
			return nil, fmt.Errorf("%s fails without a mutant: %w\n%s", name, err, out)
		}
		t := test{name: name, took: time.Since(begin), reach: map[int]bool{}}
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for line := range strings.FieldsSeq(string(text)) {
			id, err := strconv.Atoi(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", log, err)
			}
			t.reach[id] = true
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b test) int { return int(a.took - b.took) })
	return all, nil
}

// see returns which test saw a mutant: the fast ones are tried first, then the others.
func (r runner) see(m *mutant, tests []test) (by string, err error) {
	n, sum := 0, time.Duration(0)
	for n < len(tests) && sum+tests[n].took <= first {
		sum += tests[n].took
		n++
	}
	for _, some := range [][]test{tests[:n], tests[n:]} {
		if len(some) == 0 {
			continue
		}
		if by, err := r.try(m, some); by != "" || err != nil {
			return by, err
		}
	}
	return "", nil
}

// try runs tests with a mutant on. An endless loop is seen by the time of the processor
// that it takes, one that waits for ever by the clock, with room for a busy machine.
func (r runner) try(m *mutant, tests []test) (by string, err error) {
	var names []string
	sum := time.Duration(0)
	for _, t := range tests {
		names = append(names, t.name)
		sum += t.took
	}
	out, err := r.output(r.command(sum, []string{fmt.Sprintf("MUTANT=%d", m.id)}, "-test.failfast", "-test.run", "^("+strings.Join(names, "|")+")$"))
	if err == nil {
		return "", nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			by, _, _ = strings.Cut(name, " ")
			return by, nil
		}
	}
	if exit.ExitCode() == -1 {
		return "time-out", nil
	}
	return "a panic", nil
}

// command is one of the test binary that should take a time. It gets four times as much of
// a processor, ten times as much by the clock, and 8 GB of addresses: a loop may allocate.
func (r runner) command(took time.Duration, env []string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 10*took+30*time.Second)
	limits := fmt.Sprintf(`ulimit -t %d; ulimit -v 8388608; exec "$0" "$@"`, int((4*took + 2*time.Second).Seconds()))
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", limits, r.binary}, args...)...)
	context.AfterFunc(ctx, cancel)
	c.Dir = r.dir
	c.Env = append(append(os.Environ(), "TMPDIR="+r.temp), env...)
	c.WaitDelay = 10 * time.Second
	return c
}

// output runs a command with an empty directory for its files.
func (r runner) output(c *exec.Cmd) ([]byte, error) {
	if err := os.RemoveAll(r.temp); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(r.temp, 0o700); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}
