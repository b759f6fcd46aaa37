//go:build race

package store

// The race detector makes SQLite some twenty times slower; without it, make again
// runs everything.
func init() { often = func(n int) int { return max(2, n/10) } }
