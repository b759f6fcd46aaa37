package store

import (
	"errors"
	"hash/crc32"
	"strconv"
)

var errChecksum = errors.New("a row does not match its checksum: the file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum returns the CRC-32C of a row's values. Each has its length or an end, so
// no two rows have the same text.
func checksum(values ...any) int64 {
	text, crc := make([]byte, 0, 512), uint32(0)
	for _, v := range values {
		switch v := v.(type) {
		case []byte:
			text = append(strconv.AppendInt(text, int64(len(v)), 10), ':')
			crc = crc32.Update(crc32.Update(crc, castagnoli, text), castagnoli, v)
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
	return int64(crc32.Update(crc, castagnoli, text))
}
