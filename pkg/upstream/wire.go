package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream/internal/h1"
)

// wire watches the connections of one request.
type wire struct {
	life    *lifetime    // of the attempt; nil if there is none
	latest  time.Time    // no byte of the request leaves later; zero: no bound
	revoked *atomic.Bool // no byte of the request leaves once it is set; may be nil
	allowed func() bool  // no byte of the request leaves if it is false; may be nil

	asked     bool // for a connection: the request itself is in order
	connected bool
	at        time.Time // of the connection: the first byte leaves then, or later

	exclusive bool        // a connection of package h1
	progress  h1.Progress // over it

	// Of net/http, or of another transport, and owned by the goroutine in RoundTrip, which
	// calls the trace's hooks. Exceptions: header, began and written are atomic, and the
	// connection's reader owns interim.
	shared  bool                      // HTTP/2: the connection carries other requests too
	first   net.Conn                  // the connection taken first
	same    bool                      // first was taken a second time
	lost    bool                      // first was lost before the request's header was begun
	refused bool                      // no connection was taken: no byte of the request may leave
	header  atomic.Bool               // the request's header is being written
	interim int                       // answers 1xx
	began   atomic.Pointer[time.Time] // time of the answer's first byte; nil if unknown
	written atomic.Pointer[time.Time] // time at which the whole request was written; nil if it was not
}

// over sends the request over a connection of package h1.
func (w *wire) over(c *h1.Conn, req *http.Request, wait time.Duration) (resp *http.Response, err error) {
	if err := w.take(); err != nil {
		c.Release()
		return nil, err
	}
	w.exclusive = true
	resp, w.progress, err = c.RoundTrip(req.Context(), req, wait)
	return resp, err
}

// traced sends the request by another transport, which may report its connections.
func (w *wire) traced(t http.RoundTripper, req *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(req.Context(), w.trace())
	if w.life != nil {
		ctx = traced{ctx, w.life}
	}
	req = req.WithContext(ctx)
	if _, given := req.Header["User-Agent"]; !given {
		header := http.Header{"User-Agent": {""}} // keeps net/http from adding its own
		maps.Copy(header, req.Header)
		req.Header = header
	}
	return t.RoundTrip(req)
}

// A traced context is one with values over a lifetime, whose AfterFunc it has.
type traced struct {
	context.Context
	life *lifetime
}

func (t traced) AfterFunc(f func()) (stop func() bool) { return t.life.AfterFunc(f) }

// take notes that the request has its connection, or returns why no byte of it may leave.
func (w *wire) take() error {
	w.at = time.Now()
	switch {
	case !w.latest.IsZero() && w.at.After(w.latest):
		return errStale
	case w.revoked != nil && w.revoked.Load():
		return errRevoked
	case w.allowed != nil && !w.allowed():
		return errForbidden
	}
	w.connected = true
	return nil
}

// trace stops net/http when it takes a second connection, or the same one again,
// for one request: it would send the request again, unless the first one was lost.
// Cancelling the context suffices in HTTP/2, which checks it before it writes a header.
// In HTTP/1.1 an idle connection may be handed over at the same moment: it is closed
// before a byte of the request is written to it. A second GetConn before any GotConn is
// harmless: an idle HTTP/2 connection was found to be dead.
func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.asked = true
			switch {
			case w.lose():
			case w.connected:
				w.life.cancel(errRepeat)
			}
		},
		GotConn:          w.got,
		WroteHeaderField: func(string, []string) { w.header.Store(true) },
		WroteRequest: func(httptrace.WroteRequestInfo) {
			now := time.Now()
			w.written.Store(&now)
		},
		// On a busy machine RoundTrip returns well after the first byte came. A 1xx
		// answer does not count: it may come from a proxy that has not passed the request
		// on yet.
		GotFirstResponseByte: func() {
			now := time.Now()
			w.began.Store(&now)
		},
		Got1xxResponse: func(int, textproto.MIMEHeader) error {
			w.began.Store(nil)
			if w.interim++; w.interim > h1.MaxInterim {
				return fmt.Errorf("more than %d interim answers (1xx)", h1.MaxInterim)
			}
			return nil
		},
	}
}

// got takes the connection that a transport has got, or refuses it before a byte is written.
func (w *wire) got(info httptrace.GotConnInfo) {
	w.shared = speaksHTTP2(info.Conn)
	refused := errRepeat
	if w.connected {
		w.same = info.Conn == w.first
	} else {
		w.first, refused = info.Conn, w.take()
	}
	if refused != nil {
		w.refused = !w.connected
		w.life.cancel(refused)
		if !w.shared {
			info.Conn.Close()
		}
	}
}

// lose notes that the connection was lost before a byte of the request left, and reports whether it
// was: HTTP/2, and the first time.
func (w *wire) lose() bool {
	if !w.connected || !w.shared || w.lost || w.header.Load() {
		return false
	}
	w.lost, w.connected = true, false
	return true
}

// again reports whether net/http has lost the connection before a byte of the request left, and gave up
// since it had closed the body: that of an attempt can be read all the same.
func (w *wire) again(req *http.Request, err error) bool {
	_, readable := req.Body.(*memoryBody)
	return readable && err != nil && strings.Contains(err.Error(), "cannot rewind body") && w.lose() // has no exported type
}

// beganAt returns when the first byte of the answer came; zero if that is not known.
func (w *wire) beganAt() time.Time {
	if at := w.began.Load(); at != nil {
		return *at
	}
	return w.progress.Began
}

// writtenAt returns when the last byte of the request was written, and the instant of the
// answer if it was not written before that.
func (w *wire) writtenAt(answered time.Time) time.Time {
	written := w.progress.Written
	if at := w.written.Load(); at != nil {
		written = *at
	}
	switch {
	case !written.IsZero() && written.Before(answered):
		return written
	case w.connected:
		return answered
	}
	return w.at
}

// wrote reports whether a byte of the request may have left. On a shared
// connection it reports whether the request's header was begun.
func (w *wire) wrote() bool {
	switch {
	case w.exclusive:
		return w.progress.Wrote
	case w.shared:
		return w.header.Load()
	}
	return true
}

// unsendable reports whether net/http did not take the request: it asks for a connection
// after all of its checks but one, that of the peer's limit for headers in HTTP/2.
func (w *wire) unsendable(err error) bool {
	return !w.asked || w.shared && !w.wrote() && strings.Contains(err.Error(), "header list larger than peer's") // has no exported type
}

// unprocessed reports whether the peer refused the request without processing it:
// with REFUSED_STREAM, or with a GOAWAY below its stream (RFC 9113, section 8.7).
// If the request has no body, net/http hides the error and sends it again: on the
// same connection that means REFUSED_STREAM. On another connection it may also mean
// PROTOCOL_ERROR, which proves nothing.
func (w *wire) unprocessed(err error) bool {
	if !w.shared {
		return false
	}
	if errors.Is(err, errRepeat) {
		return w.same
	}
	// net/http has no exported types for these errors.
	text := err.Error()
	return strings.Contains(text, "; REFUSED_STREAM;") || strings.Contains(text, "graceful shutdown GOAWAY") ||
		strings.Contains(text, "received GOAWAY from server ErrCode:")
}

// exchange sends the request and returns the final answer. Any other status says nothing
// of the call (RFC 9110, section 15), and net/http panics if it is passed on.
func (w *wire) exchange(t http.RoundTripper, req *http.Request) (resp *http.Response, err error) {
	if own, ok := t.(*transport); ok {
		resp, err = own.send(req, w)
	} else {
		resp, err = w.traced(t, req)
	}
	if err == nil && (resp.StatusCode < 200 || resp.StatusCode > 999) {
		resp.Body.Close()
		return nil, fmt.Errorf("status %03d is %w", resp.StatusCode, ErrStatus)
	}
	return resp, err
}
