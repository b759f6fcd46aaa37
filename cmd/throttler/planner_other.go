//go:build !linux

package main

import "os"

// ownBinary returns the path of the running binary.
func ownBinary() (string, error) { return os.Executable() }
