package store

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strconv"
)

var errChecksum = errors.New("a row does not match its checksum: the file is damaged, or was changed by another program")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the sum of a row's values: a CRC-32C, and in a sealed file the beginning of an
// HMAC-SHA-256, so that a row without the key cannot be made or changed.
func (c *codec) sum(values ...any) int64 {
	if c.macs == nil {
		crc := uint32(0)
		write(func(part []byte) { crc = crc32.Update(crc, castagnoli, part) }, values)
		return int64(crc)
	}
	m := c.macs.Get().(*mac)
	defer c.macs.Put(m)
	m.Reset()
	write(func(part []byte) { m.Write(part) }, values)
	return int64(binary.BigEndian.Uint64(m.Sum(m.result[:0])))
}

// write gives the values of a row, in pieces. Each has its length or an end, so no two rows
// have the same text.
func write(to func(part []byte), values []any) {
	text := make([]byte, 0, 512)
	for _, v := range values {
		switch v := v.(type) {
		case []byte:
			to(append(strconv.AppendInt(text, int64(len(v)), 10), ':'))
			to(v)
			text = text[:0]
		case string:
			text = append(strconv.AppendInt(text, int64(len(v)), 10), ':')
			text = append(text, v...)
		case int64:
			text = append(strconv.AppendInt(text, v, 10), ';')
		case int:
			text = append(strconv.AppendInt(text, int64(v), 10), ';')
		case bool:
			text = append(strconv.AppendBool(text, v), ';')
		default:
			panic("BUG: a value of a type that has no text")
		}
	}
	to(text)
}
