// Command planted puts bugs into the store and the scheduler, one at a time and
// only for the compiler (go test -overlay), and checks that the tests fail.
//
//	make planted
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
	only := flag.String("only", "", "plant only bugs with a name that contains this text")
	flag.Parse()
	seen, all := 0, 0
	for _, b := range bugs {
		if !strings.Contains(b.name, *only) {
			continue
		}
		all++
		begin := time.Now()
		by, err := b.plant()
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
	fmt.Printf("%d of %d planted bugs were seen\n", seen, all)
	if seen < all || all == 0 {
		os.Exit(1)
	}
}

// plant runs the tests with the bug and returns the test that failed, empty if none did.
func (b bug) plant() (by string, err error) {
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
	args := append([]string{"test", "-overlay", overlay, "-timeout", "120s", "-failfast", "./pkg/store"}, b.test...)
	out, err := exec.Command("go", args...).CombinedOutput()
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
	if strings.Contains(string(out), "panic: test timed out") {
		return "time-out", nil
	}
	return "", fmt.Errorf("the tests did not run:\n%s", out)
}
