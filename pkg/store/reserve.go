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
	path     string
	size     int64
	released bool      // the file was deleted, or could not be made
	tried    time.Time // by restored
}

// allocate makes the file if there is none, of bytes that no file system can compress.
func (r *reserve) allocate() error {
	r.released = true
	if info, err := os.Lstat(r.path); err == nil && info.Size() == r.size {
		r.released = false
		return nil
	}
	f, err := openOwn(r.path)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return errors.Join(err, f.Close())
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
	r.released = false
	return nil
}

// release deletes the file.
func (r *reserve) release() {
	os.Remove(r.path)
	r.released, r.tried = true, time.Now()
}

// restored reports whether the file is there. It tries to make it once a second.
func (r *reserve) restored() bool {
	if r.released && time.Since(r.tried) > time.Second {
		r.tried = time.Now()
		r.allocate()
	}
	return !r.released
}
