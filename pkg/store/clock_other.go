//go:build !linux

package store

// machineClock is not known here.
func machineClock() boot { return boot{} }
