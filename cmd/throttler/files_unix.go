//go:build unix

package main

import (
	"math"
	"syscall"
)

// openFiles returns how many files the process may have open. Package os has raised the
// soft limit to the hard one.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
