//go:build !unix

package main

import (
	"math"
	"os/exec"
)

// openFiles returns how many files the process may have open.
func openFiles() int { return math.MaxInt32 }

// apart and lowerPriority change nothing here.
func apart(*exec.Cmd) {}
func lowerPriority()  {}
