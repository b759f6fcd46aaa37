package http1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/seed-30fe103d/throttler/internal/fieldname"
)

// A refusal is the answer to a request that breaks the rules of HTTP.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

var errMalformed = &refusal{status: http.StatusBadRequest}

// request reads the head of a request. [http.ReadRequest] parses it; the rules that it leaves to
// its server are checked here.
func (c *conn) request() (*http.Request, error) {
	if c.answered > 0 { // else the time runs since the connection began
		c.readBy = time.Now().Add(c.server.HeaderTimeout)
	}
	head, err := c.head()
	if err != nil {
		return nil, err
	}
	hasHost, host := hostField(head)
	c.names = fieldname.Others(head)
	validHost := httpguts.ValidHostHeader(string(host)) // head is gone when it is parsed
	req, err := http.ReadRequest(c.in)
	switch {
	case err == nil:
	case strings.HasPrefix(err.Error(), "unsupported transfer encoding"), strings.HasPrefix(err.Error(), "too many transfer encodings"): // their type is not exported
		return nil, &refusal{http.StatusNotImplemented, "Unsupported transfer encoding"}
	default:
		return nil, errMalformed
	}
	switch {
	case req.ProtoMajor == 2 && req.Method == "PRI": // the preface of HTTP/2
		return nil, errMalformed
	case req.ProtoMajor != 1:
		return nil, &refusal{http.StatusHTTPVersionNotSupported, "unsupported protocol version"}
	case req.ProtoMinor > 0 && !hasHost && req.Method != http.MethodConnect:
		return nil, &refusal{http.StatusBadRequest, "missing required Host header"}
	case !validHost:
		return nil, &refusal{http.StatusBadRequest, "malformed Host header"}
	}
	for name, values := range req.Header {
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, &refusal{http.StatusBadRequest, "invalid header name"}
		}
		for _, v := range values {
			if !httpguts.ValidHeaderFieldValue(v) {
				return nil, &refusal{http.StatusBadRequest, "invalid header value"}
			}
		}
	}
	if expects := req.Header.Get("Expect"); expects != "" && !expectsContinue(req) {
		return nil, &refusal{http.StatusExpectationFailed, "the only expectation that is met is 100-continue"}
	}
	req.RemoteAddr = c.remote
	return req.WithContext(c.ctx), nil
}

// head waits until the whole head of a request is in the buffer, and returns it.
func (c *conn) head() ([]byte, error) {
	for seen := 0; ; {
		b, _ := c.in.Peek(c.in.Buffered())
		if end := endOfHead(b, seen); end > 0 {
			return b[:end], nil
		}
		seen = len(b)
		switch {
		case seen >= c.server.MaxHeader:
			return nil, &refusal{status: http.StatusRequestHeaderFieldsTooLarge}
		case seen == c.in.Size():
			longer := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(b)), source{c}), c.server.MaxHeader)
			c.in.Discard(seen)
			c.detach()
			c.in = longer
		}
		if _, err := c.in.Peek(seen + 1); err == io.EOF {
			return nil, errMalformed
		} else if err != nil {
			return nil, err
		}
	}
}

// endOfHead returns the length of a head, its empty line included; zero if the rest of it has not
// come. The first bytes have been seen before. Lines end with LF, or CRLF: RFC 9112, 2.2.
func endOfHead(b []byte, seen int) int {
	if len(b) > 0 && b[0] == '\n' || len(b) > 1 && b[0] == '\r' && b[1] == '\n' {
		return bytes.IndexByte(b, '\n') + 1
	}
	for i := max(seen-2, 0); ; {
		n := bytes.IndexByte(b[i:], '\n')
		if n < 0 {
			return 0
		}
		i += n + 1
		switch {
		case i < len(b) && b[i] == '\n':
			return i + 1
		case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
			return i + 2
		}
	}
}

// hostField reports whether a head has a field that is named Host, and returns the value of the last
// one, unfolded: RFC 9112, 5.2.
func hostField(head []byte) (found bool, value []byte) {
	for {
		end := bytes.IndexByte(head, '\n')
		if end < 0 {
			return found, value
		}
		line := head[:end]
		head = head[end+1:]
		if len(line) < 5 || line[4] != ':' || !strings.EqualFold(string(line[:4]), "Host") {
			continue
		}
		found, value = true, bytes.Trim(line[5:], " \t\r")
		for len(head) > 0 && (head[0] == ' ' || head[0] == '\t') {
			more, rest, _ := bytes.Cut(head, []byte{'\n'})
			value = bytes.TrimLeft(slices.Concat(value, []byte{' '}, bytes.Trim(more, " \t\r")), " ")
			head = rest
		}
	}
}

func expectsContinue(req *http.Request) bool {
	return httpguts.HeaderValuesContainsToken(req.Header["Expect"], "100-continue")
}

// refuse answers a request that breaks the rules, in net/http's words. A client that has left, or
// has not sent a whole head in time, gets no answer.
func (c *conn) refuse(err error) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	status := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	if r.text != "" {
		status += ": " + r.text
	}
	fmt.Fprintf(sink{c}, "HTTP/1.1 %s\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n%s", status, status)
	c.linger()
}

// A body is that of a request.
type body struct {
	of    *conn
	from  io.ReadCloser
	ask   bool // the client waits for a 100 Continue before it sends the body
	ended bool // the last byte has been read
	gone  bool // closed
}

func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.gone:
		return 0, http.ErrBodyReadAfterClose
	case b.ended:
		return 0, io.EOF
	case b.ask:
		b.ask = false
		if _, err := io.WriteString(sink{b.of}, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return 0, err
		}
	}
	n, err := b.from.Read(p)
	if err == io.EOF {
		b.ended = true
		b.of.detach()
	}
	return n, err
}

// Close leaves the rest of the body on the connection, which then carries no other request.
func (b *body) Close() error {
	b.gone = true
	return nil
}
