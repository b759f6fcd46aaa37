package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of the CPU times in /proc: USER_HZ is 100 wherever Go runs.
const tick = 10 * time.Millisecond

// parseStat returns the process group and the CPU time, user and system, of /proc/PID/stat.
func parseStat(text string) (group int, cpu time.Duration, err error) {
	// The name, in brackets, may contain anything.
	_, after, ok := cutLast(text, ")")
	fields := strings.Fields(after) // from field 3 of proc(5) on
	if !ok || len(fields) < 13 {
		return 0, 0, fmt.Errorf("%q is no stat of a process", text)
	}
	group, err = strconv.Atoi(fields[2])
	for _, field := range fields[11:13] {
		ticks, err2 := strconv.ParseInt(field, 10, 64)
		err = errors.Join(err, err2)
		cpu += time.Duration(ticks) * tick
	}
	return group, cpu, err
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// parseResident returns VmRSS of /proc/PID/status in bytes.
func parseResident(text string) (int64, error) {
	for line := range strings.Lines(text) {
		if figure, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(figure), "kB")), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("no VmRSS in the status of a process")
}

// usage returns the CPU time and the resident memory of all processes of a group.
func usage(group int) (cpu time.Duration, resident int64, err error) {
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, 0, err
	}
	found := false
	for _, path := range all {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		of, used, err := parseStat(string(text))
		if err != nil {
			return 0, 0, err
		}
		if of != group {
			continue
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(path), "status"))
		if err != nil {
			return 0, 0, err
		}
		bytes, err := parseResident(string(status))
		if err != nil {
			return 0, 0, err
		}
		found, cpu, resident = true, cpu+used, resident+bytes
	}
	if !found {
		return 0, 0, fmt.Errorf("no process of group %d is there", group)
	}
	return cpu, resident, nil
}

// Metrics of Prometheus that the sidecar has, and that the proxies of this program have too.
const (
	mallocsMetric = "go_memstats_mallocs_total"
	heapMetric    = "go_memstats_heap_inuse_bytes"
	stackMetric   = "go_memstats_stack_inuse_bytes"
	waitingMetric = "throttler_calls_waiting"
)

// metrics returns the metrics of a process, without their labels. Of one name the last counts.
func metrics(admin string) (map[string]float64, error) {
	resp, err := http.Get("http://" + admin + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics of %s: status %d", admin, resp.StatusCode)
	}
	return parseMetrics(resp.Body)
}

func parseMetrics(r io.Reader) (map[string]float64, error) {
	all := make(map[string]float64)
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		name, figure, ok := cutLast(line, " ")
		if !ok {
			return nil, fmt.Errorf("%q is no metric", line)
		}
		value, err := strconv.ParseFloat(figure, 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		name, _, _ = strings.Cut(name, "{")
		all[name] = value
	}
	return all, lines.Err()
}
