// Command limits measures limiters at the receiver of the calls: the most
// arrivals in any window, the refusals of a receiver with a sliding log, the
// time of a backlog, and the lateness of calls compared with a greedy oracle.
//
//	make bench-limits                                   # all, eight to nine minutes
//	make bench-limits ARGS='-workload 200ms -busy-runs 0'
//
// The sidecar is the real binary; the receiver is an HTTP server on loopback that
// stamps arrivals with its own monotonic clock. The command fails if the sidecar
// exceeds a limit in any run, or is much slower than a bare hold ledger in the
// same runs.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	var p plan
	flag.StringVar(&p.binary, "throttler", "bin/throttler", "the sidecar's `binary`")
	flag.IntVar(&p.runs, "runs", 5, "runs of each limiter on a quiet machine; 0 for none")
	flag.IntVar(&p.busyRuns, "busy-runs", 1, "runs of each limiter beside busy loops; 0 for none")
	flag.StringVar(&p.workload, "workload", "", "only workloads with a name that matches the `regexp`")
	flag.StringVar(&p.limiter, "limiter", "", "only limiters with a name that matches the `regexp`")
	flag.StringVar(&p.out, "out", "", "write the tables to this Markdown `file` too")
	part := flag.String("as", "", "internal: the part of this process")
	flag.Parse()
	var err error
	switch *part {
	case "receiver":
		err = receive()
	case "spinner":
		spin()
	case "run":
		err = p.one(os.Stdout)
	default:
		err = p.all(os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

// busyLoops is the number of busy loops beside the second half of the runs.
const busyLoops = 4

// A plan has the measurements to make.
type plan struct {
	binary            string
	runs, busyRuns    int
	workload, limiter string
	out               string
}

var errMissed = errors.New("a requirement is not met")

// choose returns the workloads and limiters that the plan names, and a line for
// each limiter that this machine lacks.
func (p *plan) choose() (ws []workload, ls []limiter, missing []string, err error) {
	if p.binary, err = filepath.Abs(p.binary); err != nil {
		return nil, nil, nil, err
	}
	if ws, err = named(workloads(), p.workload, func(w workload) string { return w.name }); err != nil {
		return nil, nil, nil, fmt.Errorf("-workload: %w", err)
	}
	ls, missing = limiters(p.binary)
	if ls, err = named(ls, p.limiter, func(l limiter) string { return l.name }); err != nil {
		return nil, nil, nil, fmt.Errorf("-limiter: %w", err)
	}
	return ws, ls, missing, nil
}

// named returns the values with a name that matches an expression; none is an error.
func named[T any](all []T, expression string, name func(T) string) (some []T, err error) {
	r, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, v := range all {
		names = append(names, name(v))
		if r.MatchString(name(v)) {
			some = append(some, v)
		}
	}
	if some == nil {
		return nil, fmt.Errorf("%q matches none of %s", expression, strings.Join(names, ", "))
	}
	return some, nil
}

// exactly returns an expression for one name.
func exactly(name string) string { return "^" + regexp.QuoteMeta(name) + "$" }

// one measures one limiter once; it is the part of a child process.
func (p plan) one(stdout io.Writer) error {
	ws, ls, _, err := p.choose()
	if err != nil {
		return err
	}
	m, err := run(ws[0], ls[0])
	if err != nil {
		return fmt.Errorf("%s, %s: %w", ls[0].name, ws[0].name, err)
	}
	return json.NewEncoder(stdout).Encode(m)
}

// all measures all tables, and judges them at the end.
func (p plan) all(stdout io.Writer) error {
	ws, ls, missing, err := p.choose()
	if err != nil {
		return err
	}
	var tables []table
	measure := func(busy, runs int) error {
		for _, w := range ws {
			t, err := p.measure(w, busy, runs, ls)
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, t)
			tables = append(tables, t)
		}
		return nil
	}
	if p.runs > 0 {
		if err := measure(0, p.runs); err != nil {
			return err
		}
	}
	if p.busyRuns > 0 {
		if err := beside(busyLoops, func() error { return measure(busyLoops, p.busyRuns) }); err != nil {
			return err
		}
	}
	lines, ok := verdict(tables)
	lines = append(lines, missing...)
	fmt.Fprintln(stdout, strings.Join(lines, "\n"))
	if p.out != "" {
		old, err := os.ReadFile(p.out)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		_, below, _ := strings.Cut(string(old), handWritten)
		if err := os.WriteFile(p.out, append(p.page(tables, lines), below...), 0o644); err != nil {
			return err
		}
	}
	if !ok {
		return errMissed
	}
	return nil
}

// measure makes the table of a workload.
func (p plan) measure(w workload, busy, runs int, ls []limiter) (table, error) {
	began := time.Now()
	var rounds [][]measure
	for range runs {
		measures, err := round(p.binary, w, ls)
		if err != nil {
			return table{}, err
		}
		rounds = append(rounds, measures)
	}
	t := newTable(w, busy, ls, rounds)
	fmt.Fprintf(os.Stderr, "%s: %v\n", t.title(), time.Since(began).Round(time.Second))
	return t, nil
}
