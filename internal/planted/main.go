// Command planted puts bugs into the store, the scheduler and the planner, one at a time
// and only for the compiler (go test -overlay), and checks that the tests fail.
//
//	make planted
//
// With -fuzz the bugs of the planner must be found by its fuzz test alone.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "plant only bugs whose package and name contain this text, such as planner")
	fuzz := flag.Duration("fuzz", 0, "look for the planner's bugs by FuzzPlanner alone, for this long each")
	flag.Parse()
	suites, test := suites, bug.test
	if *fuzz > 0 {
		suites = suites[:1]
		test = func(_ bug, pkg, overlay, dir string) ([]byte, error) { return fuzzed(pkg, overlay, dir, *fuzz) }
	}
	seen, all := 0, 0
	for _, s := range suites {
		for _, b := range s.bugs {
			if !strings.Contains(s.pkg+" "+b.name, *only) {
				continue
			}
			all++
			begin := time.Now()
			by, err := b.plant(func(overlay, dir string) ([]byte, error) { return test(b, s.pkg, overlay, dir) })
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
	}
	fmt.Printf("%d of %d planted bugs were seen\n", seen, all)
	if seen < all || all == 0 {
		os.Exit(1)
	}
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
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), b.old); n != 1 {
		return "", fmt.Errorf("%s has the text %d times, not once: %q", b.file, n, b.old)
	}
	changed, overlay := filepath.Join(dir, "changed"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(changed, []byte(strings.Replace(string(text), b.old, b.new, 1)), 0o600); err != nil {
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
	if err == nil {
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
func (b bug) test(pkg, overlay, _ string) ([]byte, error) {
	args := append([]string{"test", "-overlay", overlay, "-timeout", "120s", "-failfast", pkg}, b.args...)
	return exec.Command("go", args...).CombinedOutput()
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
