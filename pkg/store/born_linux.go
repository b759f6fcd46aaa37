package store

import (
	"os"

	"golang.org/x/sys/unix"
)

// born returns when a file was made, nanoseconds since the Unix epoch; 0 if its file
// system does not know. An inode's number is given again when its file is deleted.
func born(f *os.File) int64 {
	var s unix.Statx_t
	if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &s); err != nil {
		return 0
	}
	return s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
}
