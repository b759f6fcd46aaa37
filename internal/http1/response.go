package http1

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
)

// maxPending is how many bytes of a body wait for its length to be known, or for its chunk.
const maxPending = 2 << 10

// unknown is the length of a body before it is known.
const unknown = -1

// A response is the answer to a request. It is for one goroutine at a time: that of the handler,
// or another one beside a handler that does not use it any more.
type response struct {
	conn   *conn
	req    *http.Request
	method string // of req, which a handler may change
	body   body   // of the request
	header http.Header
	out    *bufio.Writer // over the connection; nil before the head is in it

	status  int   // zero before WriteHeader
	length  int64 // Content-Length, or unknown
	written int64 // bytes of the body
	chunked bool
	last    bool   // the connection carries no other request
	pending []byte // of the body; before the head, all of it
	err     error  // of the connection, the first one

	mu       sync.Mutex // of the fields below
	parts    int32      // of the handler's work: the handler itself, and each Resume
	ended    int32      // parts
	detached int32      // parts that leave the answer to the next one
	failed   bool       // the part that answers has panicked
}

// do does a part of the handler's work. It reports whether the answer is complete and no part is at work any more: then
// the caller goes on with the connection. A part may end after the next one has begun, or has answered.
func (w *response) do(work func()) (complete bool) {
	w.mu.Lock()
	part := w.parts
	w.parts++
	w.mu.Unlock()
	ok := w.conn.handle(work)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended++
	if !ok && w.detached <= part {
		w.failed = true
	}
	return w.ended == w.parts && w.detached == w.parts-1
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, bufferSize) }}

// Header returns the fields of the answer, to be set before WriteHeader.
func (w *response) Header() http.Header {
	if w.header == nil {
		w.header = make(http.Header, 8)
	}
	return w.header
}

// WriteHeader sets the status of the answer, 200 to 999. Calls after the first one change nothing.
func (w *response) WriteHeader(status int) {
	if w.status != 0 {
		return
	}
	if status < 200 || status > 999 {
		panic(fmt.Sprintf("status %d: an answer has 200 to 999", status))
	}
	w.status = status
	if v := w.header.Get("Content-Length"); v != "" {
		if n, err := strconv.ParseInt(v, 10, 64); err == nil && n >= 0 {
			w.length = n
		} // else begin leaves it out
	}
	if w.length >= 0 {
		w.begin()
	}
}

// hasBody reports whether the answer may have a body: RFC 9112, 6.3.
func (w *response) hasBody() bool {
	return w.method != http.MethodHead && w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// asksToClose reports whether the first field has the word close, as net/http finds it, also where the field is no
// list of tokens. A connection that ends too early costs the client a new one, and no request.
func asksToClose(connection []string) bool {
	if len(connection) == 0 {
		return false
	}
	for word := range strings.FieldsFuncSeq(connection[0], func(r rune) bool { return r == ' ' || r == ',' || r == '\t' }) {
		if len(word) == len("close") && strings.EqualFold(word, "close") { // ASCII alone has this length
			return true
		}
	}
	return false
}

// begin writes the head of the answer.
func (w *response) begin() {
	w.body.ask = false                        // a 100 Continue would come too late
	connect := w.method == http.MethodConnect // no other request may follow, even after a refusal
	tunnel := connect && w.status < 300       // the end of its body is that of the connection: RFC 9110, 9.3.6
	framed := w.length >= 0 || !w.hasBody() || tunnel
	old := w.req.ProtoMinor == 0
	w.chunked = !framed && !old
	w.last = connect || w.req.Close || asksToClose(w.req.Header["Connection"]) ||
		!w.body.ended || !framed && old || w.conn.server.stopping() ||
		httpguts.HeaderValuesContainsToken(w.header["Connection"], "close")

	for _, name := range []string{"Connection", "Transfer-Encoding"} {
		delete(w.header, name)
	}
	if w.status == http.StatusNotModified { // RFC 9110, 15.4.5
		delete(w.header, "Content-Type")
	}
	if w.length == unknown || w.status == http.StatusNotModified || w.status == http.StatusNoContent || tunnel { // or set after the status
		delete(w.header, "Content-Length")
	}
	w.out = writers.Get().(*bufio.Writer)
	w.out.Reset(sink{w.conn})
	w.statusLine(old)
	w.header.Write(w.out)
	if _, given := w.header["Date"]; !given {
		w.out.WriteString("Date: ")
		w.out.Write(time.Now().UTC().AppendFormat(w.out.AvailableBuffer(), http.TimeFormat))
		w.out.WriteString("\r\n")
	}
	switch {
	case tunnel:
	case w.last:
		w.out.WriteString("Connection: close\r\n")
	case old:
		w.out.WriteString("Connection: keep-alive\r\n")
	}
	if w.chunked {
		w.out.WriteString("Transfer-Encoding: chunked\r\n")
	}
	w.out.WriteString("\r\n")
}

func (w *response) statusLine(old bool) {
	version := "HTTP/1.1 "
	if old {
		version = "HTTP/1.0 "
	}
	w.out.WriteString(version)
	w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), int64(w.status), 10))
	w.out.WriteByte(' ')
	if text := http.StatusText(w.status); text != "" {
		w.out.WriteString(text)
	} else {
		w.out.WriteString("status code ")
		w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), int64(w.status), 10))
	}
	w.out.WriteString("\r\n")
}

func (w *response) Write(p []byte) (int, error) {
	if w.conn.state.Load() == taken {
		return 0, http.ErrHijacked
	}
	w.WriteHeader(http.StatusOK)
	switch {
	case w.method == http.MethodHead:
		w.written += int64(len(p))
		return len(p), nil
	case !w.hasBody():
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.written+int64(len(p)) > w.length:
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	if w.out == nil || w.chunked {
		if len(w.pending)+len(p) <= maxPending {
			w.pending = append(w.pending, p...)
			return len(p), nil
		}
		w.drain()
	}
	return w.send(p)
}

// drain writes the body so far, after the head.
func (w *response) drain() {
	if w.out == nil {
		w.begin()
	}
	w.send(w.pending)
	w.pending = w.pending[:0]
}

// send writes a part of the body, after the head. It is one chunk if the answer is chunked.
func (w *response) send(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, w.err
	}
	if w.chunked {
		w.out.Write(strconv.AppendInt(w.out.AvailableBuffer(), int64(len(p)), 16))
		w.out.WriteString("\r\n")
	}
	n, err = w.out.Write(p)
	if w.chunked {
		_, err = w.out.WriteString("\r\n")
	}
	if w.err == nil {
		w.err = err
	}
	return n, w.err
}

// FlushError sends the answer so far; it is for [http.ResponseController].
func (w *response) FlushError() error {
	if w.conn.state.Load() == taken {
		return http.ErrHijacked
	}
	w.WriteHeader(http.StatusOK)
	w.drain()
	if err := w.out.Flush(); w.err == nil {
		w.err = err
	}
	return w.err
}

// Flush sends the answer so far.
func (w *response) Flush() { w.FlushError() }

// finish ends the answer; false if the connection carries no other request.
func (w *response) finish() bool {
	w.WriteHeader(http.StatusOK)
	if w.out == nil { // all of the body is in pending
		if w.hasBody() || w.method == http.MethodHead && 0 < w.written && w.written <= maxPending {
			w.length = w.written
			w.Header()["Content-Length"] = []string{strconv.FormatInt(w.length, 10)}
		}
	}
	w.drain()
	if w.chunked {
		w.out.WriteString("0\r\n\r\n")
	}
	w.FlushError()
	w.out.Reset(nil)
	writers.Put(w.out)
	w.conn.ownDeadline = false
	return !w.last && w.err == nil && (!w.hasBody() || w.written >= w.length)
}

// Hijack gives the connection to its caller, which must close it. Bytes behind the request that have
// come with it are lost.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if !w.conn.state.CompareAndSwap(serving, taken) {
		return nil, nil, http.ErrHijacked
	}
	raw := w.conn.raw
	raw.SetDeadline(time.Time{})
	return raw, bufio.NewReadWriter(bufio.NewReader(raw), bufio.NewWriter(raw)), nil
}

// SetReadDeadline is for [http.ResponseController]. It holds from the next read on.
func (w *response) SetReadDeadline(t time.Time) error {
	w.conn.readBy = t
	return nil
}

// SetWriteDeadline is for [http.ResponseController]. It holds for this answer, in place of the
// server's own, until it is the zero time.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.conn.ownDeadline, w.conn.writes = !t.IsZero(), time.Time{}
	return w.conn.raw.SetWriteDeadline(t)
}
