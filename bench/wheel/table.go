package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// print writes the whole generated part of the document.
func (b *bench) print(w io.Writer, rounds int) {
	fmt.Fprintf(w, "# pkg/wheel beside other timers\n\n"+
		"`make bench-wheel` wrote this on %s, in %d rounds.\nThe machine: %s, %s/%s, %s.\n"+
		"Load average at the end: %s; a run alone on it would have about 1.\n"+
		"The peers: %s. go-zero takes too long to fill with 10M.\n\n"+
		"Medians; in parentheses the ratio to time.AfterFunc, the median of the rounds' ratios. **wheel** is the form with a\n"+
		"handler and a number, **wheel func** the one with a func, **wheel passive** takes the caller's `now` and no lock. A\n"+
		"pending timeout is due in a minute to an hour. Ticks are 1 ms, antlabs' 10 ms.\n\n",
		b.start.Format("2006-01-02"), rounds, machine(), runtime.GOOS, runtime.GOARCH, runtime.Version(), load(), versions())
	if b.withoutNetty != nil {
		fmt.Fprintf(w, "Netty is left out: %v.\n\n", b.withoutNetty)
	}
	b.printTable(w)
	b.printTargets(w)
}

// machine describes the machine, as far as the system reports it.
func machine() string {
	model := "unknown processor"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*: (.*)$`).FindSubmatch(info); m != nil {
			model = string(bytes.TrimSpace(m[1]))
		}
	}
	return fmt.Sprintf("%d processors, %s", runtime.NumCPU(), model)
}

// load returns the load average of the last fifteen minutes, which includes this command:
// on a busy machine figures are too high, and ratios vary too much.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if fields := strings.Fields(string(text)); err == nil && len(fields) > 2 {
		return fields[2]
	}
	return "unknown"
}

// versions returns the versions of the peers.
func versions() string {
	var all []string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			for _, peer := range []string{"RussellLuo/", "antlabs/timer", "zeromicro/"} {
				if strings.Contains(dep.Path, peer) {
					all = append(all, dep.Path+" "+dep.Version)
				}
			}
		}
	}
	if jars, _ := filepath.Glob(strings.TrimSuffix(nettyJar, ".jar") + "-[0-9]*.jar"); len(jars) > 0 {
		all = append(all, strings.TrimSuffix(filepath.Base(jars[0]), ".jar"))
	}
	return strings.Join(all, ", ")
}

// figure returns the median of a figure, NaN if there is none.
func (b *bench) figure(c cell, name string) float64 {
	c.quick = b.quick
	var all []float64
	for _, r := range b.figures[c] {
		all = append(all, r[name]...)
	}
	return median(all)
}

// ratio returns the median of the ratios of two figures, round by round.
func (b *bench) ratio(c cell, name string, to cell, toName string) float64 {
	c.quick, to.quick = b.quick, b.quick
	var all []float64
	for i := range min(len(b.figures[c]), len(b.figures[to])) {
		v, w := median(b.figures[c][i][name]), median(b.figures[to][i][toName])
		if !math.IsNaN(v/w) && w != 0 {
			all = append(all, v/w)
		}
	}
	return median(all)
}

func median(all []float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	return (all[(n-1)/2] + all[n/2]) / 2
}

func (b *bench) printTable(w io.Writer) {
	fmt.Fprintf(w, "| measure | %s |\n|%s\n", strings.Join(peers, " | "), strings.Repeat(" --- |", len(peers)+1))
	row := func(label, kind string, n int, figure string) {
		var text []string
		some := false
		for _, peer := range peers {
			c := cell{kind: kind, peer: peer, n: n}
			v := b.figure(c, figure)
			if math.IsNaN(v) {
				text = append(text, "–")
				continue
			}
			some = true
			s := number(v)
			if r := b.ratio(c, figure, cell{kind: kind, peer: afterFunc, n: n}, figure); !math.IsNaN(r) && peer != afterFunc {
				s += " (" + ratioText(r) + ")"
			}
			text = append(text, s)
		}
		if some {
			fmt.Fprintf(w, "| %s | %s |\n", label, strings.Join(text, " | "))
		}
	}
	pending := []struct {
		n    int
		text string
	}{{0, "none pending"}, {100_000, "100,000 pending"}, {1_000_000, "1M pending"}, {10_000_000, "10M pending"}}
	for _, op := range []string{"schedule", "schedule+cancel", "reschedule", "churn"} {
		for _, p := range pending {
			row(op+", "+p.text+": ns", "ops", p.n, op)
		}
		row(op+", 1M pending: CPU ns", "ops", 1_000_000, op+" cpu")
	}
	row("allocations per schedule, 1M pending", "ops", 1_000_000, "schedule allocs")
	for _, p := range pending[1:] {
		row("filling from nothing to "+p.text+": ns each", "ops", p.n, "fill")
		row("heap per timeout, "+p.text+": B", "ops", p.n, "heap")
		row("a forced GC, "+p.text+": ms", "ops", p.n, "gc")
	}
	for _, g := range []string{"1", "2", "8"} {
		row("schedule+cancel by "+g+" goroutines, 1M pending: ns", "ops", 1_000_000, "goroutines "+g)
	}
	for _, rate := range []int{1_000, 200_000} {
		for _, f := range []string{"p50", "p99", "p99.9", "max"} {
			row(fmt.Sprintf("lateness at %d/s, %s: ms", rate, f), "late", rate, f)
		}
		row(fmt.Sprintf("over 2 ms late at %d/s: %%", rate), "late", rate, "over 2ms")
		row(fmt.Sprintf("early at %d/s: %%", rate), "late", rate, "early")
		row(fmt.Sprintf("not fired by the end at %d/s: %%", rate), "late", rate, "missing")
		row(fmt.Sprintf("CPU at %d/s: s", rate), "late", rate, "cpu")
	}
	row("idle 10 s, one timeout an hour away: context switches", "idle", 0, "switches")
	row("longest call of a caller, 1M due in 5 s: ms", "lock", 200_000, "longest")
	fmt.Fprintf(w, "\nA process without any timer has %s context switches in the 10 s.\n\n",
		number(b.figure(cell{kind: "idle", peer: none}, "switches")))
}

func (b *bench) printTargets(w io.Writer) {
	fmt.Fprint(w, "## Targets\n\n")
	const million, tenMillion = 1_000_000, 10_000_000
	ops := func(peer string, n int) cell { return cell{kind: "ops", peer: peer, n: n} }
	late := func(peer string, n int) cell { return cell{kind: "late", peer: peer, n: n} }
	idle := func(peer string) cell { return cell{kind: "idle", peer: peer} }
	fmt.Fprint(w, "| measure | figure | must | | try for | |\n| --- | --- | --- | --- | --- | --- |\n")
	target := func(label string, v, must, try float64) {
		says := func(limit float64) string {
			switch {
			case math.IsNaN(v):
				return "not measured"
			case v <= limit:
				return "met"
			}
			return "**not met**"
		}
		fmt.Fprintf(w, "| %s | %s | ≤ %v | %s | ≤ %v | %s |\n", label, ratioText(v), must, says(must), try, says(try))
	}
	to := func(label, peer string, n int, figure string, must, try float64) {
		target(label, b.ratio(ops(peer, n), figure, ops(afterFunc, n), figure), must, try)
	}
	to("schedule, 1M pending / time.AfterFunc", handler, million, "schedule", .29, .20)
	to("schedule+cancel, 1M pending / time.AfterFunc", handler, million, "schedule+cancel", .29, .20)
	to("schedule with the caller's now / time.AfterFunc", passive, million, "schedule", .17, .10)
	to("schedule+cancel with the caller's now / time.AfterFunc", passive, million, "schedule+cancel", .20, .13)
	for _, op := range []string{"schedule", "schedule+cancel"} {
		target(op+", 10M pending / none", b.ratio(ops(handler, tenMillion), op, ops(handler, 0), op), 1.3, 1.1)
	}
	// The runtime itself allocates now and then: less than a hundredth counts as none.
	target("allocations per schedule", math.Floor(100*b.figure(ops(handler, million), "schedule allocs"))/100, 0, 0)
	target("the same with a func", math.Floor(100*b.figure(ops(function, million), "schedule allocs"))/100, 0, 0)
	to("churn, 1M pending / time.AfterFunc", handler, million, "churn", .8, .5)
	target("two goroutines / one of ours", b.ratio(ops(handler, million), "goroutines 2", ops(handler, million), "goroutines 1"), 1.2, .6)
	to("two goroutines / time.AfterFunc with two", handler, million, "goroutines 2", .29, .13)
	target("CPU at 200,000/s / time.AfterFunc", b.ratio(late(handler, 200_000), "cpu", late(afterFunc, 200_000), "cpu"), .5, .2)
	target("early at 200,000/s: %", b.figure(late(handler, 200_000), "early"), 0, 0)
	target("lateness p99 at 200,000/s / time.AfterFunc", b.ratio(late(handler, 200_000), "p99", late(afterFunc, 200_000), "p99"), 1.6, 1)
	target("over 2 ms late at 200,000/s: %", b.figure(late(handler, 200_000), "over 2ms"), 100, .2)
	target("lateness p99 at 1,000/s / time.AfterFunc", b.ratio(late(handler, 1_000), "p99", late(afterFunc, 1_000), "p99"), 1.8, 1)
	to("heap per timeout, 1M pending / time.AfterFunc", handler, million, "heap", .33, .25)
	to("the same with a func", function, million, "heap", .33, .31)
	to("a forced GC, 10M pending / time.AfterFunc", handler, tenMillion, "gc", .01, .002)
	// Two switches belong to the end of the measurement itself.
	target("idle 10 s: context switches beyond those of a process without timer",
		max(0, b.figure(idle(handler), "switches")-b.figure(idle(none), "switches")), 2, 2)
	target("longest call with 1M due in 5 s: ms (no less than a lock is held)",
		b.figure(cell{kind: "lock", peer: handler, n: 200_000}, "longest"), 5, .2)
}

func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'f', 2, 64), ".00")
}

func ratioText(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v != 0 && v < .01:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
	return number(v)
}
