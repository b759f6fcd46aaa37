// Command planted puts bugs into the store, the scheduler and the planner, one at a time
// and only for the compiler (go test -overlay), and checks that the tests fail.
//
//	make planted
//
// With -fuzz the bugs of the planner must be found by its fuzz test alone.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "plant only bugs whose package and name contain this text, such as planner")
	fuzz := flag.Duration("fuzz", 0, "look for the planner's bugs by FuzzPlanner alone, for this long each")
	n := flag.Int("n", 0, "plant a random sample of this many bugs; 0 plants all")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the sample")
	flag.Parse()
	suites, test := suites, planted.test
	if *fuzz > 0 {
		suites = suites[:1]
		test = func(b planted, overlay, dir string) ([]byte, error) { return fuzzed(b.pkg, overlay, dir, *fuzz) }
	}
	var all []planted
	for _, s := range suites {
		for _, b := range s.bugs {
			if p := (planted{b, s.pkg}); strings.Contains(p.pkg+" "+p.name, *only) {
				all = append(all, p)
			}
		}
	}
	broken := 0
	for _, b := range all {
		if _, err := b.changed(); err != nil {
			fmt.Printf("BROKEN  %-52s %v\n", b.name, err)
			broken++
		}
	}
	if *n > 0 && *n < len(all) {
		fmt.Printf("a sample of %d of %d bugs, -seed %d\n", *n, len(all), *seed)
		random := rand.New(rand.NewPCG(*seed, 0))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:*n]
	}
	if seen := look(all, test); seen < len(all) || broken > 0 || len(all) == 0 {
		os.Exit(1)
	}
}

// A planted bug is looked for by the tests of a package.
type planted struct {
	bug
	pkg string
}

// look plants bugs one after another, and returns how many were seen.
func look(all []planted, test func(b planted, overlay, dir string) ([]byte, error)) (seen int) {
	for _, b := range all {
		begin := time.Now()
		by, err := b.plant(func(overlay, dir string) ([]byte, error) { return test(b, overlay, dir) })
		took := time.Since(begin).Round(time.Second)
		switch {
		case err != nil:
			fmt.Printf("BROKEN  %-52s %v\n", b.name, err)
		case by == "":
			fmt.Printf("MISSED  %-52s (%v)\n", b.name, took)
		default:
			seen++
			fmt.Printf("seen    %-52s by %s (%v)\n", b.name, by, took)
		}
	}
	fmt.Printf("%d of %d planted bugs were seen\n", seen, len(all))
	return seen
}

// changed returns the text of the bug's file with the bug.
func (b bug) changed() (string, error) {
	text, err := os.ReadFile(b.file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, not once: %q", b.file, n, b.old)
	}
	return strings.Replace(string(text), b.old, b.new, 1), nil
}

// plant runs tests with the bug, in a directory for their files, and returns which of
// them saw it.
func (b bug) plant(test func(overlay, dir string) ([]byte, error)) (by string, err error) {
	dir, err := os.MkdirTemp("", "planted")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file, err := filepath.Abs(b.file)
	if err != nil {
		return "", err
	}
	text, err := b.changed()
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "changed"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		return "", err
	}
	m, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	if err == nil {
		err = os.WriteFile(overlay, m, 0o600)
	}
	if err != nil {
		return "", err
	}
	out, err := test(overlay, dir)
	switch {
	case bytes.Contains(out, []byte("[no tests to run]")):
		return "", fmt.Errorf("no test of the package has such a name:\n%s", out)
	case err == nil:
		return "", nil
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "[build failed]") {
			return "", fmt.Errorf("does not compile:\n%s", out)
		}
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			by, _, _ = strings.Cut(name, " ")
			return by, nil
		}
	}
	switch text := string(out); {
	case strings.Contains(text, "panic: test timed out"):
		return "time-out", nil
	case strings.Contains(text, "panic: "):
		return "a panic", nil
	}
	return "", fmt.Errorf("the tests did not run:\n%s", out)
}

// test runs the tests of a package that must see the bug.
func (b planted) test(overlay, _ string) ([]byte, error) {
	c := exec.Command("go", append([]string{"test", "-timeout", "120s", "-failfast", b.pkg}, b.args...)...)
	c.Env = append(os.Environ(), "GOFLAGS=-overlay="+overlay) // for binaries that the tests build, too
	return c.CombinedOutput()
}

// fuzzed runs the fuzz test of the planner in a directory of its own, so that no bug is
// found by the inputs that found another.
func fuzzed(pkg, overlay, dir string, long time.Duration) ([]byte, error) {
	binary := filepath.Join(dir, "fuzz.test")
	if out, err := exec.Command("go", "test", "-c", "-fuzz", "FuzzPlanner", "-overlay", overlay, "-o", binary, pkg).CombinedOutput(); err != nil {
		return out, err
	}
	c := exec.Command(binary, "-test.run", "^$", "-test.fuzz", "FuzzPlanner", "-test.fuzztime", long.String(),
		"-test.fuzzminimizetime", "1s", "-test.fuzzcachedir", dir)
	c.Dir = dir
	return c.CombinedOutput()
}
