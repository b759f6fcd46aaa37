// Command mutants changes the code in small ways, one at a time, and checks that the tests
// of its package fail: < becomes <=, + becomes -, a statement goes. A mutant that no test
// sees must be in survivors.txt, with the reason; one that is in there must live.
//
//	make mutants
//	go run ./internal/mutants -only 'pkg/quota cooling' -v
//
// All mutants of a package are compiled into one test binary and chosen by an environment
// variable (mutant schemata: Untch, Offutt, Harrold, ISSTA 1993), so that a mutant costs
// the time of its tests and no build. Only tests that reach it are run.
package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"
)

// A target is a package. Its files are changed, all if none is named. Its slow tests are
// left out: faster ones must see the mutants.
type target struct {
	pkg   string
	files []string
	slow  []string
}

var targets = []target{
	{pkg: "pkg/quota"}, {pkg: "pkg/lease"}, {pkg: "pkg/wheel"}, {pkg: "pkg/retry"}, {pkg: "pkg/planner"}, {pkg: "pkg/upstream"}, {pkg: "pkg/upstream/internal/h1"}, {pkg: "internal/http1"},
	{pkg: "internal/columns", files: []string{"clock.go", "clock_linux.go"}},
	{
		pkg:   "pkg/store", // its recovery
		files: []string{"born_linux.go", "identity.go", "links_unix.go", "open.go", "origin.go", "quota.go", "recover.go", "wal.go"},
		slow: []string{
			"TestPowerCut", "TestPowerCutOfADevice", "TestFileIsGoneWhileIdle", "TestIdleSidecarNoticesItsFile", "TestHeldLock", "TestDiskFull",
			"TestFailedSync", "TestDamage", "TestForeignSchema", "TestKeyOfAWaitingCall", "TestAskedAtTheStart", "TestBacklogOnDisk",
			"TestRowsGrowOld", "TestWaitForACallOnDisk", "TestDeadlineCountsCallsOnDisk", "FuzzStoreFile",
		},
	},
}

// Of the mutants of a package at least these shares must be reached and, of those, seen.
const (
	mustReach = 0.97
	mustSee   = 0.95
)

func main() {
	only := flag.String("only", "", "take only mutants whose package and text contain all of these words")
	n := flag.Int("n", 0, "take a random sample of this many mutants; 0 takes all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the sample")
	verbose := flag.Bool("v", false, "print every mutant, and which test saw it")
	flag.Parse()
	if *n > 0 {
		fmt.Printf("a sample of %d mutants, -seed %d\n", *n, *seed)
	}
	ok, err := check(strings.Fields(*only), *n, *seed, *verbose)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

// check runs the mutants that have all the words, or n of them, and prints a table. It
// reports whether each was seen, or is listed and was not.
func check(words []string, n int, seed uint64, verbose bool) (ok bool, err error) {
	listed, err := readList()
	if err != nil {
		return false, err
	}
	var pkgs []*pkg
	for _, t := range targets {
		p, err := load(t)
		if err != nil {
			return false, err
		}
		pkgs = append(pkgs, p)
	}
	draw(pkgs, words, n, rand.New(rand.NewPCG(seed, 0)))
	ok = true
	var table []string
	for _, p := range pkgs {
		if len(p.chosen) == 0 {
			continue
		}
		begin := time.Now()
		if err := p.run(verbose); err != nil {
			return false, fmt.Errorf("%s: %w", p.pkg, err)
		}
		row, fine := p.judge(listed, len(words) == 0 && n == 0)
		table = append(table, fmt.Sprintf("%s  %5.0f s", row, time.Since(begin).Seconds()))
		ok = ok && fine
	}
	fmt.Printf("%-14s %7s %6s %8s %11s %7s %7s %7s\n", "package", "mutants", "seen", "survived", "not reached", "seen", "reached", "took")
	for _, row := range table {
		fmt.Println(row)
	}
	return ok && len(table) > 0, nil
}

// draw chooses the mutants that have all the words, or n of them at random.
func draw(pkgs []*pkg, words []string, n int, random *rand.Rand) {
	type choice struct {
		p *pkg
		m *mutant
	}
	var all []choice
	for _, p := range pkgs {
		for _, m := range p.mutants {
			if m.has(words) {
				all = append(all, choice{p, m})
			}
		}
	}
	if n > 0 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:min(n, len(all))]
	}
	for _, c := range all {
		c.p.chosen = append(c.p.chosen, c.m)
	}
}
