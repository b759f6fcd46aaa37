package columns

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"hash/crc32"
	"strconv"
	"sync"
)

var ErrChecksum = errors.New("a row does not match its checksum: the file is damaged, or was changed by another program")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A Sum is that of a row's values: a CRC-32C, and in a sealed file the beginning of an
// HMAC-SHA-256, so that a row without the key cannot be made or changed. Each value has its
// length or an end, so no two rows have the same text.
type Sum struct {
	pool   *sync.Pool // to which it goes back
	mac    hash.Hash  // nil: a CRC-32C
	result [sha256.Size]byte
	crc    uint32
	text   []byte // of the values that are not in it yet
}

// checksums are the sums of files without a seal.
var checksums = sync.Pool{New: func() any { return &Sum{} }}

// NewSum returns the sum of no values. Its end gives it back.
func (c *Codec) NewSum() *Sum {
	pool := c.macs
	if c.macs == nil {
		pool = &checksums
	}
	s := pool.Get().(*Sum)
	s.pool = pool
	return s
}

func (s *Sum) Texts(values ...string) {
	for _, v := range values {
		s.text = append(strconv.AppendInt(s.text, int64(len(v)), 10), ':')
		s.text = append(s.text, v...)
	}
}

func (s *Sum) Bytes(v []byte) {
	s.text = append(strconv.AppendInt(s.text, int64(len(v)), 10), ':')
	s.add(s.text)
	s.add(v)
	s.text = s.text[:0]
}

func (s *Sum) Ints(values ...int64) {
	for _, v := range values {
		s.text = append(strconv.AppendInt(s.text, v, 10), ';')
	}
}

func (s *Sum) bool(v bool) { s.text = append(strconv.AppendBool(s.text, v), ';') }

func (s *Sum) add(text []byte) {
	if s.mac == nil {
		s.crc = crc32.Update(s.crc, castagnoli, text)
	} else {
		s.mac.Write(text)
	}
}

// End returns the sum, and gives it back for other values.
func (s *Sum) End() (result int64) {
	s.add(s.text)
	if s.mac == nil {
		result = int64(s.crc)
		s.crc = 0
	} else {
		result = int64(binary.BigEndian.Uint64(s.mac.Sum(s.result[:0])))
		s.mac.Reset()
	}
	if s.text = s.text[:0]; cap(s.text) <= maxSumText {
		s.pool.Put(s)
	}
	return result
}

// maxSumText is the longest text, in bytes, that a sum keeps room for.
const maxSumText = 64 << 10
