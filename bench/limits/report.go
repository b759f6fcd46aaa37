package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A row has the results of a limiter under one workload.
type row struct {
	limiter  string
	worst    int // of all runs
	most     int // medians, here and below
	refused  int
	makespan time.Duration
	late     time.Duration
}

// A table has the results of one workload, on a quiet machine or beside busy loops.
type table struct {
	workload
	busy int
	rows []row
}

func newTable(w workload, busy int, all []limiter, rounds [][]measure) table {
	t := table{workload: w, busy: busy}
	for i, l := range all {
		runs := make([]measure, len(rounds))
		for r := range rounds {
			runs[r] = rounds[r][i]
		}
		t.rows = append(t.rows, row{
			limiter:  l.name,
			worst:    slices.MaxFunc(runs, func(a, b measure) int { return a.Most - b.Most }).Most,
			most:     median(runs, func(m measure) int { return m.Most }),
			refused:  median(runs, func(m measure) int { return m.Refused }),
			makespan: median(runs, func(m measure) time.Duration { return m.Makespan }),
			late:     median(runs, func(m measure) time.Duration { return m.Late }),
		})
	}
	return t
}

func median[T cmp.Ordered](runs []measure, of func(measure) T) T {
	values := make([]T, len(runs))
	for i, m := range runs {
		values[i] = of(m)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// String returns the table in Markdown.
func (t table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n", t.title())
	fmt.Fprintf(&b, "| limiter | most in any %v (N = %d) | refused of %d | makespan / optimal | p99 beyond the oracle, ms |\n", t.window, t.calls, len(t.due))
	b.WriteString("| --- | ---: | ---: | ---: | ---: |\n")
	for _, r := range t.rows {
		makespan := "–"
		if t.backlog {
			makespan = fmt.Sprintf("%.4f", float64(r.makespan)/float64(t.optimal()))
		}
		most := strconv.Itoa(r.most)
		if r.worst != r.most {
			most += fmt.Sprintf(" (%d)", r.worst)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %.1f |\n", r.limiter, most, r.refused, makespan, float64(r.late)/float64(time.Millisecond))
	}
	return b.String()
}

func (t table) title() string {
	if t.busy == 0 {
		return t.name
	}
	return fmt.Sprintf("%s, beside %d busy loops", t.name, t.busy)
}

// Requirements of ours, as ratios to the bare ledger of the same run.
const (
	makespanAtMost    = 1.005
	lateAtMost        = 1.3
	lateBacklogAtMost = 1.5 // all calls come at once, and most of their wait is their own arrival
)

// verdict judges all tables.
func verdict(tables []table) (lines []string, ok bool) {
	ok = true
	for _, t := range tables {
		more, met := t.verdict()
		lines, ok = append(lines, more...), ok && met
	}
	return lines, ok
}

// verdict returns one line for each requirement of a table, and false if one is not met.
func (t table) verdict() (lines []string, ok bool) {
	ok = true
	judge := func(met bool, format string, args ...any) {
		word := "ok  "
		if !met {
			word, ok = "MISS", false
		}
		lines = append(lines, word+" "+t.title()+": "+fmt.Sprintf(format, args...))
	}
	us, held := t.row(ours), t.row(bare)
	if us == nil {
		return nil, true
	}
	judge(us.worst <= t.calls, "most in any window of any run %d, at most %d", us.worst, t.calls)
	if held == nil || t.busy > 0 {
		return lines, ok
	}
	if t.backlog {
		ratio := float64(us.makespan) / float64(held.makespan)
		judge(ratio <= makespanAtMost, "makespan %.4f of the bare ledger's, at most %.3f", ratio, makespanAtMost)
	}
	ratio, atMost := float64(us.late)/float64(held.late), lateAtMost
	if t.backlog {
		atMost = lateBacklogAtMost
	}
	judge(ratio <= atMost, "wait beyond the oracle %.2f of the bare ledger's, at most %.1f", ratio, atMost)
	return lines, ok
}

func (t table) row(limiter string) *row {
	if i := slices.IndexFunc(t.rows, func(r row) bool { return r.limiter == limiter }); i >= 0 {
		return &t.rows[i]
	}
	return nil
}
