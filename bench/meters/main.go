// Command meters measures the sidecar at real rate limiters: each meters 100 calls a second in a way of its own, as
// its documents set it up, and the sidecar is told no more than calls: 100, window: 1s.
//
//	make bench-meters                               # all, some four minutes
//	make bench-meters ARGS='-only nginx -out ""'
//
// 600 clients call at once and wait. The receivers count themselves. The command fails if one gets more than two requests
// for a call, or if a call is not done.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// A plan has the measurements to make, and the programs for them.
type plan struct {
	binary, only, out     string
	calls                 int
	node                  string
	express               string // directory of the receiver in JavaScript
	nginx, haproxy, redis string
}

func main() {
	var p plan
	flag.StringVar(&p.binary, "throttler", "bin/throttler", "the sidecar's `binary`")
	flag.StringVar(&p.express, "express", "bench/meters/express", "`directory` of the receiver in JavaScript")
	flag.StringVar(&p.only, "only", "", "only receivers with a name that matches the `regexp`")
	flag.StringVar(&p.out, "out", "", "write the table to this Markdown `file` too")
	flag.IntVar(&p.calls, "calls", 600, "`number` of clients that call at once")
	flag.Parse()
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, "meters:", err)
		os.Exit(1)
	}
}

var errMissed = errors.New("a requirement is not met")

// find finds the programs of the peers.
func (p *plan) find() (err error) {
	if p.binary, err = filepath.Abs(p.binary); err != nil {
		return err
	}
	if p.express, err = filepath.Abs(p.express); err != nil {
		return err
	}
	for name, path := range map[string]*string{"nginx": &p.nginx, "haproxy": &p.haproxy, "redis-server": &p.redis, "node": &p.node} {
		if *path, err = exec.LookPath(name); err != nil {
			if *path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
				return fmt.Errorf("%s is not installed; make bench-meters-peers installs it", name)
			}
		}
	}
	return nil
}

func (p plan) run() error {
	if err := p.find(); err != nil {
		return err
	}
	only, err := regexp.Compile(p.only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	var rows []row
	for _, r := range receivers() {
		if !only.MatchString(r.name) {
			continue
		}
		began := time.Now()
		one, err := p.measure(r)
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		rows = append(rows, one)
		fmt.Fprintf(os.Stderr, "%s: %v\n", one, time.Since(began).Round(time.Second))
	}
	fmt.Println(table(rows))
	missed := judge(rows)
	fmt.Println(strings.Join(missed, "\n"))
	if p.out != "" {
		if err := p.write(rows); err != nil {
			return err
		}
	}
	if len(missed) > 0 {
		return errMissed
	}
	return nil
}

// judge returns the rows that miss a requirement.
func judge(rows []row) (missed []string) {
	for _, r := range rows {
		if r.Requests > 2*r.calls || r.done != r.calls || r.Accepted != r.calls {
			missed = append(missed, fmt.Sprintf("%s: %d requests for %d calls, %d done, %d executed", r.name, r.Requests, r.calls, r.done, r.Accepted))
		}
	}
	return missed
}
