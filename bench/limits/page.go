package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

const introduction = `# Limiters, as the receiver sees them

%s, %s.
Peers: %s.
Written by:

    make bench-limits ARGS='-out docs/bench-limits.md'

How to read it: every call is a POST of 500 bytes over loopback to an HTTP server, in a process of its own, that stamps
each arrival by its monotonic clock and refuses nothing. A backlog is 10 N calls due at once; the bursty load is an open
loop at 80%% of the quota, in bursts of N/10 to N calls. *Most in any window* is counted over every (t−W, t] that the
receiver saw, with the worst run in brackets: above N, the limit was exceeded. *Refused* is the number of calls that a
receiver with a sliding log would have refused, so calls to be sent again. *Makespan / optimal* is the time from the first
arrival to the last over (⌈M/N⌉−1)·W: 1.11 wastes 11%% of the quota, and a value below 1 exceeds the limit. *Beyond the
oracle* is the lateness of the k-th call, compared with a greedy scheduler that knows the limit and has no network. All are
medians of the runs, %d of each limiter and %d beside busy loops. The throttler is the real binary, between client and
receiver; the bare hold ledger is pkg/quota in the client's process. The difference between these two is the cost of the
hop; the difference of both to 1 is the cost of exactness: about one round trip per window. One goroutine in the client's
process waits for all other limiters, first in, first out; nginx is a proxy too. If all limiters at the same time would be
too much for the machine, they run one shape after another.

`

// handWritten is a line of the document: the text after it is kept.
const handWritten = "<!-- From here on written by hand. -->\n"

// page is the Markdown file of all tables.
func (p plan) page(tables []table, lines []string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, introduction, time.Now().UTC().Format(time.DateOnly), machine(), strings.Join(peers(), ", "), p.runs, p.busyRuns)
	for _, t := range tables {
		fmt.Fprintln(&b, t)
	}
	b.WriteString("### Requirements\n\n")
	for _, line := range lines {
		fmt.Fprintf(&b, "    %s\n", line)
	}
	b.WriteString("\n" + handWritten)
	return b.Bytes()
}

func machine() string {
	return fmt.Sprintf("%d cores of %s, %s, %s/%s", runtime.NumCPU(), cpu(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// cpu returns the processor's name, if the system reports it.
func cpu() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "an unknown processor"
}

// peers returns the versions of the compared limiters.
func peers() (versions []string) {
	info, _ := debug.ReadBuildInfo()
	for _, name := range []string{
		"golang.org/x/time", "go.uber.org/ratelimit", "github.com/failsafe-go/failsafe-go", "github.com/go-redis/redis_rate/v10",
	} {
		for _, m := range info.Deps {
			if m.Path == name {
				versions = append(versions, name+" "+m.Version)
			}
		}
	}
	for _, c := range [][]string{{"redis-server", "--version"}, {"nginx", "-v"}} {
		if text, err := exec.Command(c[0], c[1]).CombinedOutput(); err == nil {
			version, _, _ := strings.Cut(strings.TrimSpace(string(text)), " sha=")
			versions = append(versions, version)
		}
	}
	return versions
}
