package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks a file until it is closed. SQLite locks it in another way (fcntl), and the
// two do not meet here: flock(2).
func lockFile(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return errInUse
	}
	return nil
}
