//go:build unix

package access

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ListenSocket listens at the path of a Unix socket, for its owner and its group. It
// replaces the socket that a process has left behind, but not the one of a process that
// listens. A lock on the directory keeps two processes from replacing each other's.
func ListenSocket(path string) (net.Listener, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close() // releases the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("cannot lock %s: %w", filepath.Dir(path), err)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	before := unix.Umask(0o117) // from its first moment on
	defer unix.Umask(before)
	return net.Listen("unix", path)
}

// removeStale removes a socket at which no process listens.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s is there, and is no socket", path)
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
		return errors.New("another process listens there")
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
