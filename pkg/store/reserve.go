package store

import (
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// reserveSize is what the outcomes of calls in flight can use on a full disk, bytes.
const reserveSize = 16 << 20

// A reserve is a file that is given up when the disk is full. It is owned by the writer.
type reserve struct {
	path  string
	spent bool      // it was given up
	tried time.Time // to take it again
}

// take makes the file if it is not there, full of bytes that no file system can
// leave out.
func (r *reserve) take() error {
	r.spent = true
	if info, err := os.Stat(r.path); err == nil && info.Size() == reserveSize {
		r.spent = false
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	noise := rand.NewChaCha8([32]byte{})
	chunk := make([]byte, 1<<20)
	for range reserveSize / len(chunk) {
		noise.Read(chunk)
		if _, err = f.Write(chunk); err != nil {
			break
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(r.path)
		return err
	}
	r.spent = false
	return nil
}

// give frees the room.
func (r *reserve) give() {
	os.Remove(r.path)
	r.spent, r.tried = true, time.Now()
}

// lacking tells whether the disk is still full: once a second it is tried.
func (r *reserve) lacking() bool {
	if r.spent && time.Since(r.tried) > time.Second {
		r.tried = time.Now()
		r.take()
	}
	return r.spent
}
