package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// smallBody is the size, in bytes, up to which a body needs no reservation: a
// connection's own buffers hold as much.
const smallBody = 4 << 10

// reserveFunc reserves memory for a part of a body before it is read.
type reserveFunc func(bytes int64) (release func(), err error)

// readBody reads a body of at most limit bytes, and reserves memory for it as it comes.
// An error closes the connection after the answer, because the rest of the body would
// follow on it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, reserve reserveFunc) (body []byte, release func(), err error) {
	c := connOf(r)
	in := incoming{
		conn: c, from: r.Body, length: r.ContentLength, limit: limit, reserve: reserve, release: func() {},
		client: w, latest: time.Now().Add(bodyTimeout),
	}
	switch {
	case in.length == 0:
		return nil, in.release, nil
	case in.length > limit:
		err = tooLarge(limit)
	default:
		body, err = in.read()
	}
	if err != nil {
		in.release()
		w.Header().Set("Connection", "close")
		return nil, nil, err
	}
	if !c.claim() {
		panic(http.ErrAbortHandler)
	}
	if c == nil { // of net/http, whose deadline would end the request, not only the reading
		http.NewResponseController(w).SetReadDeadline(time.Time{})
	}
	if cap(body) > len(body)+len(body)/8 { // it may wait for long
		body = bytes.Clone(body)
	}
	return body, in.release, nil
}

// bodiless refuses the body of a request that needs none, before it is read: its memory would be held
// until the answer ends, which a stream does not. Some clients send no bytes in chunks.
func bodiless(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength <= 0 {
		_, _, err := readBody(w, r, 0, nil)
		if err == nil || asError(err).Reason != scheduler.TooLarge {
			return err
		}
	}
	w.Header().Set("Connection", "close") // the body would follow on it
	return badRequest("%s %s takes no body; send the request without one", r.Method, r.URL.Path)
}

// An incoming is a body that is being read. A client holds at most twice the memory of
// the bytes that it has sent, and it must go on sending.
type incoming struct {
	conn     *conn // nil if it is not bounded
	from     io.Reader
	length   int64 // as announced; below 0 it is unknown
	limit    int64 // bytes
	reserve  reserveFunc
	release  func() // gives back all that is reserved
	reserved int64  // bytes
	client   http.ResponseWriter
	latest   time.Time // for the last byte
}

// read reads the body. Its errors do not contain the connection's addresses.
func (in *incoming) read() (body []byte, err error) {
	most := in.length
	if most < 0 {
		most = in.limit + 1 // one byte more tells that it is too long
	}
	body = make([]byte, 0, min(most, smallBody))
	for due := 0; err == nil && int64(len(body)) < most; {
		if len(body) >= due {
			if due > 0 { // else it has just sent its head
				in.conn.rest()
			}
			due = len(body) + pieceSize
			http.NewResponseController(in.client).SetReadDeadline(earlier(time.Now().Add(pieceTimeout), in.latest))
		}
		if len(body) == cap(body) {
			if body, err = in.grow(body, most); err != nil {
				return nil, err
			}
		}
		var n int
		n, err = in.from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	switch {
	case int64(len(body)) > in.limit:
		return nil, tooLarge(in.limit)
	case err != nil && err != io.EOF:
		return nil, broken(err)
	}
	return body, nil
}

// grow doubles the memory of a body, to at most most bytes, or says why there is no room.
func (in *incoming) grow(body []byte, most int64) ([]byte, error) {
	size := min(2*int64(cap(body)), most)
	more := min(size, in.limit) - in.reserved
	release, err := in.reserve(more)
	if err != nil {
		return nil, err
	}
	before := in.release
	in.release = func() { before(); release() }
	in.reserved += more
	return append(make([]byte, 0, size), body...), nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// broken returns the error of a body that could not be read to its end.
func broken(err error) error {
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &scheduler.Error{Reason: bodyTimedOut, Detail: fmt.Sprintf("the body came too slowly: each %d bytes of it, or the rest, must come within %v, and the whole within %v", pieceSize, pieceTimeout, bodyTimeout)}
	case errors.As(err, &op):
		err = op.Err
	}
	return badRequest("the body broke off: %v", err)
}

func tooLarge(limit int64) error {
	return &scheduler.Error{Reason: scheduler.TooLarge, Detail: fmt.Sprintf("the body has more than %d bytes, the most that is taken here (max_body, max_waiting_bytes)", limit)}
}

// A budget bounds the bytes that are in memory, or the requests that are held, at the
// same time.
type budget struct{ left atomic.Int64 }

// take takes n of what is left; false if there is less.
func (b *budget) take(n int64) (release func(), ok bool) {
	if b.left.Add(-n) < 0 {
		b.left.Add(n)
		return nil, false
	}
	return func() { b.left.Add(n) }, true
}

func (b *budget) reserve(bytes int64) (release func(), err error) {
	release, ok := b.take(bytes)
	if !ok {
		return nil, &scheduler.Error{Reason: scheduler.Full, RetryAfter: time.Second, Detail: "too many large requests come in at once; send them one after another"}
	}
	return release, nil
}
