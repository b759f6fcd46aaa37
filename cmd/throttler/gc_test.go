package main

import (
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 800, 1 << 20: 800, 4 << 20: 800, 16 << 20: 200, 32 << 20: 100, 1 << 30: 100} {
		if got := gcPercent(live); got != want {
			t.Errorf("%d bytes in use: %d, want %d", live, got, want)
		}
	}
}

// TestTuneGC: GOGC follows the bytes in use, and leaves it if the environment sets it.
func TestTuneGC(t *testing.T) {
	if os.Getenv("THROTTLER_TEST_GC") == "" {
		for _, set := range []string{"", "GOGC=77", "GOMEMLIMIT=1GiB"} {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestTuneGC$")
			cmd.Env = append(os.Environ(), "THROTTLER_TEST_GC=1", "GOGC=", "GOMEMLIMIT=", set)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%q: %v\n%s", set, err, out)
			}
		}
		return
	}
	before := debug.SetGCPercent(100)
	debug.SetGCPercent(before)
	tuneGC()
	is := func(want func(percent int) bool) {
		t.Helper()
		var got int
		for range 200 { // cleanups run beside the test
			runtime.GC()
			if got = debug.SetGCPercent(100); want(got) {
				debug.SetGCPercent(got)
				return
			}
			debug.SetGCPercent(got)
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("GOGC is %d", got)
	}
	if os.Getenv("GOGC")+os.Getenv("GOMEMLIMIT") != "" {
		is(func(percent int) bool { return percent == before })
		return
	}
	is(func(percent int) bool { return percent > 300 })
	held := []byte(strings.Repeat("x", 64<<20))
	is(func(percent int) bool { return percent == 100 })
	runtime.KeepAlive(held)
	held = nil
	is(func(percent int) bool { return percent > 300 })
}
