package store

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"time"
)

// reserveSize is the room for the outcomes of attempts in flight on a full disk, bytes.
const reserveSize = 16 << 20

// A reserve is a file that is deleted when the disk is full. The writer owns it.
type reserve struct {
	path  string
	size  int64
	spent bool      // the file was deleted
	tried time.Time // when take last ran
}

// take makes the file if there is none, of bytes that no file system can compress.
func (r *reserve) take() error {
	r.spent = true
	if info, err := os.Stat(r.path); err == nil && info.Size() == r.size {
		r.spent = false
		return nil
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	noise := make([]byte, min(r.size, 1<<20))
	rand.NewChaCha8([32]byte{}).Read(noise)
	for at := int64(0); at < r.size && err == nil; at += int64(len(noise)) {
		binary.LittleEndian.PutUint64(noise, uint64(at))
		_, err = f.Write(noise)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(r.path)
		return err
	}
	r.spent = false
	return nil
}

// give deletes the file.
func (r *reserve) give() {
	os.Remove(r.path)
	r.spent, r.tried = true, time.Now()
}

// lacking reports whether the file is still deleted. It tries to make it once a second.
func (r *reserve) lacking() bool {
	if r.spent && time.Since(r.tried) > time.Second {
		r.tried = time.Now()
		r.take()
	}
	return r.spent
}
