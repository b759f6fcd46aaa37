package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

func (r row) String() string {
	return fmt.Sprintf("%s: %d calls, %d requests, %d limited, %d done, %d unknown, %d failed, %d refused, %.1f s",
		r.name, r.calls, r.Requests, r.Limited, r.done, r.unknown, r.failed, r.refused, r.took.Seconds())
}

// table returns the rows as Markdown.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| receiver | calls | requests | limited | done | unknown | failed | refused | time, s |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d | %.1f |\n", r.name, r.calls, r.Requests, r.Limited, r.done, r.unknown, r.failed, r.refused, r.took.Seconds())
	}
	return b.String()
}

// begin and end enclose the part of the page that is written.
const begin, end = "<!-- written by make bench-meters -->\n", "<!-- end -->\n"

// write writes the part of the page between begin and end anew.
func (p plan) write(rows []row) error {
	old, err := os.ReadFile(p.out)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, whole := strings.Cut(rest, end)
	if !ok || !whole {
		return fmt.Errorf("%s lacks the lines %q and %q", p.out, begin, end)
	}
	text := before + begin + fmt.Sprintf("\n%s, %d cores, %s, %s/%s. Peers: %s.\n\n", time.Now().Format(time.DateOnly), runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(p.versions(), ", ")) +
		table(rows) + "\n" + end + after
	return os.WriteFile(p.out, []byte(text), 0o644)
}

// versions returns the versions of the peers.
func (p plan) versions() (all []string) {
	for _, command := range [][]string{{p.nginx, "-v"}, {p.haproxy, "-v"}, {p.redis, "--version"}, {p.node, "--version"}} {
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		first, _, _ := strings.Cut(string(out), "\n")
		if words := strings.Fields(first); err == nil && len(words) > 0 {
			all = append(all, strings.Join(words[:min(3, len(words))], " "))
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if strings.Contains(m.Path, "httprate") || strings.Contains(m.Path, "throttled") {
				all = append(all, m.Path+" "+m.Version)
			}
		}
	}
	return all
}
