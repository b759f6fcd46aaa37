//go:build unix

package main

import (
	"math"
	"os/exec"
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

// apart puts a process into a group of its own, for lowerPriority.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// lowerPriority gives all threads of the process, which is alone in its group, the lowest priority.
func lowerPriority() { syscall.Setpriority(syscall.PRIO_PGRP, 0, 19) }
