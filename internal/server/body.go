package server

import (
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

// reserveFunc reserves memory for a body before it is read.
type reserveFunc func(bytes int64) (release func(), err error)

// readBody reads a body of at most limit bytes within a reservation. An error closes
// the connection after the answer, because the rest of the body would follow on it.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, reserve reserveFunc) (body []byte, release func(), err error) {
	if r.ContentLength == 0 {
		return nil, func() {}, nil
	}
	deadline := http.NewResponseController(w)
	deadline.SetReadDeadline(time.Now().Add(bodyTimeout))
	if release, err = reserveBody(r.ContentLength, limit, reserve); err == nil {
		if body, err = read(r, limit); err != nil {
			release()
		}
	}
	if err != nil {
		w.Header().Set("Connection", "close")
		return nil, nil, err
	}
	// A deadline that passes while the client waits would look like a disconnect.
	deadline.SetReadDeadline(time.Time{})
	return body, release, nil
}

// reserveBody reserves memory for a body of a length; below 0 the length is unknown.
func reserveBody(length, limit int64, reserve reserveFunc) (release func(), err error) {
	switch {
	case length > limit:
		return nil, tooLarge(limit)
	case length < 0:
		return reserve(limit)
	case length <= smallBody:
		return func() {}, nil
	}
	return reserve(length)
}

// read reads a body. Its errors do not contain the connection's addresses.
func read(r *http.Request, limit int64) (body []byte, err error) {
	if r.ContentLength > 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(io.LimitReader(r.Body, limit+1))
	}
	var op *net.OpError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, &scheduler.Error{Reason: bodyTimedOut, Detail: fmt.Sprintf("the body did not come within %v", bodyTimeout)}
	case errors.As(err, &op):
		return nil, badRequest("the body broke off: %v", op.Err)
	case err != nil:
		return nil, badRequest("the body broke off: %v", err)
	case int64(len(body)) > limit:
		return nil, tooLarge(limit)
	}
	return body, nil
}

func tooLarge(limit int64) error {
	return &scheduler.Error{Reason: scheduler.TooLarge, Detail: fmt.Sprintf("the body has more than %d bytes, the most that is taken here (max_body)", limit)}
}

// A budget bounds the bytes that are in memory at the same time.
type budget struct{ left atomic.Int64 }

func (b *budget) reserve(bytes int64) (release func(), err error) {
	if b.left.Add(-bytes) < 0 {
		b.left.Add(bytes)
		return nil, &scheduler.Error{Reason: scheduler.Full, RetryAfter: time.Second, Detail: "too many large requests come in at once; send them one after another"}
	}
	return func() { b.left.Add(bytes) }, nil
}
