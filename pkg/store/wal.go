package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Sizes of the write-ahead log, bytes: https://www.sqlite.org/fileformat2.html#walformat.
const (
	walHeader   = 32
	frameHeader = 24
)

// checkLog looks for damage in the log that a crash has left. SQLite takes a frame with a
// wrong checksum for the end of the log, and drops the commits behind it without a word. A
// crash can tear the last commit only, as each one is synced before the next is written:
// two commits behind a wrong checksum were on disk, and acknowledged.
func checkLog(path string) error {
	f, err := os.Open(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	behind, err := commitsBehindABreak(f)
	if err == nil && behind >= 2 {
		err = fmt.Errorf("has a damaged log (-wal): %d commits behind the damage would be lost; %s", behind, repairHint)
	}
	return err
}

// commitsBehindABreak counts the commits of a log that follow a frame with a wrong
// checksum. A log that ends within its header, or within a frame, ends there.
func commitsBehindABreak(log io.Reader) (behind int, err error) {
	head := make([]byte, walHeader)
	if _, err := io.ReadFull(log, head); err != nil {
		return 0, ignoreEnd(err)
	}
	sum := checksummer{order: binary.ByteOrder(binary.BigEndian)}
	if binary.BigEndian.Uint32(head)&1 == 0 {
		sum.order = binary.LittleEndian
	}
	sum.add(head[:24])
	broken := !sum.is(head[24:])
	size := binary.BigEndian.Uint32(head[8:])
	if size < 512 || size > 65536 {
		return 0, nil // the header is torn: there is no frame
	}
	frame := make([]byte, frameHeader+size)
	for {
		if _, err := io.ReadFull(log, frame); err != nil {
			return behind, ignoreEnd(err)
		}
		if string(frame[8:16]) != string(head[16:24]) { // the salts of an older log
			continue // without it the next checksum is wrong
		}
		sum.add(frame[:8])
		sum.add(frame[frameHeader:])
		broken = broken || !sum.is(frame[16:])
		if commit := binary.BigEndian.Uint32(frame[4:]) != 0; commit && broken {
			behind++
		}
	}
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// A checksummer computes the checksums of a log.
type checksummer struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

func (c *checksummer) add(data []byte) {
	for ; len(data) > 0; data = data[8:] {
		c.s0 += c.order.Uint32(data) + c.s1
		c.s1 += c.order.Uint32(data[4:]) + c.s0
	}
}

func (c *checksummer) is(sum []byte) bool {
	return binary.BigEndian.Uint32(sum) == c.s0 && binary.BigEndian.Uint32(sum[4:]) == c.s1
}
