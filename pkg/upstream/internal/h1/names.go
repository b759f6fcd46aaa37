package h1

import (
	"bytes"
	"net/http"

	"github.com/seed-30fe103d/throttler/internal/fieldname"
)

type namesKey struct{}

// version begins each head. For the rest of other bytes ReadResponse does not wait.
var version = []byte("HTTP/1.")

// Names returns the names of an answer's fields as the upstream has spelt them, where they differ from the keys of its Header; nil if
// none does, for a head of more than 8 KiB, and for the answer of another transport.
func Names(resp *http.Response) []string {
	if resp.Request == nil {
		return nil
	}
	names, _ := resp.Request.Context().Value(namesKey{}).([]string)
	return names
}

// fieldNames returns the names of the fields of a head that has begun to come, as far as it fits into the buffer.
func (c *Conn) fieldNames() []string {
	for {
		b, _ := c.in.Peek(c.in.Buffered())
		if end := endOfHead(b); end > 0 {
			return fieldname.Others(b[:end])
		}
		if len(b) == c.in.Size() || !bytes.HasPrefix(b, version) && !bytes.HasPrefix(version, b) {
			return nil
		}
		if _, err := c.in.Peek(len(b) + 1); err != nil { // ReadResponse has the same
			return nil
		}
	}
}

// endOfHead returns the length of a head, zero if the rest of it has not come.
func endOfHead(b []byte) int {
	for i := 0; ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return 0
		}
		i += n + 1
		if rest := bytes.TrimPrefix(b[i:], []byte{'\r'}); len(rest) > 0 && rest[0] == '\n' {
			return len(b) - len(rest) + 1
		}
	}
}
