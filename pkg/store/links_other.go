//go:build !unix

package store

import "os"

const noFollow = 0

// writable returns nil: it is not known here.
func writable(string) error { return nil }

// links returns how many names a file has, which is not known here.
func links(os.FileInfo) int { return 1 }

// inode is not known here.
func inode(os.FileInfo) uint64 { return 0 }
