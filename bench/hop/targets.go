package main

import (
	"fmt"
	"math"
	"slices"
)

// typical is the size of body that the targets are about, in bytes.
const typical = 500

// A target is a measure that must be met. All are at most, or all are at least.
type target struct {
	name    string
	value   float64
	must    float64
	try     float64
	atLeast bool
	unit    string
}

// met reports whether a requirement is met.
func (t target) met(requirement float64) bool {
	if t.atLeast {
		return t.value >= requirement
	}
	return t.value <= requirement
}

// String returns a row of the table.
func (t target) String() string {
	sign, verdict := "≤", "NOT HELD"
	if t.atLeast {
		sign = "≥"
	}
	if t.met(t.try) {
		verdict = "held, tried for too"
	} else if t.met(t.must) {
		verdict = "held"
	}
	return fmt.Sprintf("| %s | %.2f%s | %s %g%s | %s %g%s | %s |", t.name, t.value, t.unit, sign, t.must, t.unit, sign, t.try, t.unit, verdict)
}

// targets returns the targets of all that was measured.
func (r results) targets() (all []target) {
	// ratio appends a target about a measure of ours over that of a peer, if both were measured.
	// Latency below that of the upstream is noise, and no ratio.
	ratio := func(t target, connections int, peer string, of func(row) float64) {
		us, them := r.row(connections, ours), r.row(connections, peer)
		if us == nil || them == nil {
			return
		}
		t.value = math.NaN()
		if of(*us) > 0 && of(*them) > 0 {
			t.value = of(*us) / of(*them)
		}
		all = append(all, t)
	}
	ratio(target{name: "CPU per request at 64 connections / ReverseProxy's", must: 1, try: 0.4}, 64, reverse,
		func(r row) float64 { return float64(r.cpu) })
	ratio(target{name: "requests/s at 64 connections / nginx's", must: 0.3, try: 0.6, atLeast: true}, 64, nginx,
		func(r row) float64 { return r.rate })
	ratio(target{name: "added p50, 1 connection / nginx's", must: 2.5, try: 1.1}, 1, nginx,
		func(r row) float64 { return float64(r.added50) })
	ratio(target{name: "added p99, 1 connection / ReverseProxy's", must: 1, try: 0.3}, 1, reverse,
		func(r row) float64 { return float64(r.added99) })
	if us, them := r.row(64, ours), r.row(64, bare); us != nil && them != nil {
		all = append(all, target{name: "allocations per request beyond " + bare, value: us.allocated - them.allocated, must: 10})
	}
	for _, m := range r.memories {
		switch m.name {
		case waitingClient:
			all = append(all, target{name: "memory per " + m.name, value: m.bytes / 1024, must: 12, try: 6, unit: " KiB"})
		case submittedCall, memoryCall:
			all = append(all, target{name: "memory per " + m.name, value: m.bytes, must: 600, try: 300, unit: " B"})
		}
	}
	return all
}

// row returns the figures of a proxy with the typical body; nil if it was not measured.
func (r results) row(connections int, proxy string) *row {
	for _, c := range r.cells {
		if c.body != typical || c.connections != connections {
			continue
		}
		if i := slices.IndexFunc(c.rows, func(r row) bool { return r.proxy == proxy }); i >= 0 {
			return &c.rows[i]
		}
	}
	return nil
}
