// Command hop measures a request through the sidecar beside other proxies, and beside
// the same request sent straight to the upstream: CPU, rate, added latency, allocations,
// and the memory of calls that wait.
//
//	make bench-hop                                           # all, some 20 minutes
//	make bench-hop ARGS='-rounds 1 -only "3 limits|nginx" -connections 64 -bodies 500'
//
// The sidecar is the real binary. Every proxy is a process of its own, and so is the
// upstream; this process generates the load.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	var p plan
	var connections, bodies string
	flag.StringVar(&p.binary, "throttler", "bin/throttler", "the sidecar's `binary`")
	flag.StringVar(&p.measure, "measure", "all", "hop, memory or all")
	flag.IntVar(&p.rounds, "rounds", 5, "rounds; the figures are their medians")
	flag.DurationVar(&p.time, "time", 1400*time.Millisecond, "how long a proxy is measured in each round, for each number of connections and size of body")
	flag.StringVar(&p.only, "only", "", "only proxies with a name that matches the `regexp`")
	flag.StringVar(&connections, "connections", "1,16,64,512", "numbers of connections")
	flag.StringVar(&bodies, "bodies", "0,500,65536", "sizes of a request's body, in bytes")
	flag.IntVar(&p.waiting, "waiting", 9000, "clients that wait, at most what half of the file limit allows")
	flag.IntVar(&p.submitted, "submitted", 100_000, "submitted calls that wait")
	flag.StringVar(&p.out, "o", "", "write the page to this Markdown `file` too; its part written by hand is kept")
	part := flag.String("as", "", "internal: the part of this process")
	flag.Parse()
	var err error
	if *part != "" {
		err = serveAs(*part, flag.Args())
	} else if err = errors.Join(numbers("-connections", connections, 1, &p.connections), numbers("-bodies", bodies, 0, &p.bodies)); err == nil {
		err = p.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hop:", err)
		os.Exit(1)
	}
}

// serveAs runs another part of this program.
func serveAs(part string, args []string) error {
	if part == "keep" {
		return keep(args)
	}
	serve, ok := parts[part]
	if !ok || len(args) != 3 {
		return fmt.Errorf("-as %q with %d arguments is not known", part, len(args))
	}
	return serve(args[0], args[1], args[2])
}

// A plan has the measurements to make.
type plan struct {
	binary              string
	measure             string
	rounds              int
	time                time.Duration
	only                string
	connections, bodies []int
	waiting, submitted  int
	out                 string
}

// numbers parses a list of numbers, each at least least.
func numbers(name, list string, least int, to *[]int) error {
	for text := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil || n < least {
			return fmt.Errorf("%s: %q is not a number of at least %d", name, text, least)
		}
		*to = append(*to, n)
	}
	return nil
}

// run makes all measurements, and writes the page.
func (p *plan) run() (err error) {
	if p.rounds < 1 || p.time <= 0 || p.waiting < 2 || p.submitted < 2 {
		return errors.New("-rounds and -time must be above 0, -waiting and -submitted above 1")
	}
	if p.measure != "all" && p.measure != "hop" && p.measure != "memory" {
		return fmt.Errorf("-measure %q is none of hop, memory, all", p.measure)
	}
	if p.binary, err = filepath.Abs(p.binary); err != nil {
		return err
	}
	if _, err := os.Stat(p.binary); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("-throttler: %w; make build makes it", err)
	}
	var r results
	if p.measure != "memory" {
		if r.proxies, r.cells, err = p.hops(); err != nil {
			return err
		}
	}
	if p.measure != "hop" {
		if r.memories, err = p.memories(); err != nil {
			return err
		}
	}
	page := r.page(p)
	fmt.Print(page)
	if p.out == "" {
		return nil
	}
	old, err := os.ReadFile(p.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(p.out, []byte(page+kept(string(old))), 0o644)
}

// choose returns the proxies that the plan names. A program that is missing is an error.
func (p *plan) choose() (some []proxy, err error) {
	wanted, err := regexp.Compile(p.only)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	var names []string
	for _, one := range proxies(p.binary) {
		names = append(names, one.name)
		if wanted.MatchString(one.name) {
			some = append(some, one)
		}
	}
	if some == nil {
		return nil, fmt.Errorf("-only: %q matches none of: %s", p.only, strings.Join(names, "; "))
	}
	for _, one := range some {
		if one.needs == "" {
			continue
		}
		if _, err := find(one.needs); err != nil {
			return nil, err
		}
	}
	return some, nil
}
