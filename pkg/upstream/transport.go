package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// newTransport returns the transport of an upstream: HTTP/2 if TLS offers it,
// HTTP/1.1 otherwise, no proxy, no compression. Every connection counts its
// writes. Idle ones are kept warm: with a probe every 15 s, and for longer than
// most pauses between calls.
func newTransport(c Config, base *url.URL) *http.Transport {
	host := ""
	if base != nil { // else the config has a fault
		host = base.Hostname()
	}
	dialer := &net.Dialer{
		Timeout: c.ConnectTimeout, KeepAlive: 15 * time.Second,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error { return c.mayDial(host, address) },
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!c.HTTP1)
	security := &tls.Config{}
	if c.TLS != nil {
		security = c.TLS.Clone()
	}
	security.MinVersion = max(security.MinVersion, tls.VersionTLS12)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return newConn(c), nil
		},
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		TLSClientConfig:        security,
		TLSHandshakeTimeout:    c.ConnectTimeout,
		ResponseHeaderTimeout:  c.HeadTimeout,
		DisableCompression:     true,
		MaxIdleConns:           c.MaxIdle,
		MaxIdleConnsPerHost:    c.MaxIdle,
		IdleConnTimeout:        c.IdleTimeout,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         8 << 10,
		WriteBufferSize:        8 << 10,
	}
}

// wire watches the connections that net/http takes for one request.
type wire struct {
	cancel  context.CancelCauseFunc
	latest  time.Time    // no byte of the request leaves later; zero: no bound
	revoked *atomic.Bool // no byte of the request leaves once it is set; may be nil

	// Owned by the goroutine in RoundTrip, which calls the trace's hooks.
	// Exceptions: header and began are atomic, and the connection's reader owns
	// interim.
	asked     bool // for a connection: net/http has accepted the request
	connected bool
	at        time.Time   // of the connection: the first byte leaves then, or later
	shared    bool        // HTTP/2: the connection carries other requests too
	first     net.Conn    // the connection taken first
	same      bool        // first was taken a second time
	conn      *conn       // nil if the connection is not from newTransport
	plain     bool        // HTTP without TLS
	before    int64       // writes before this request
	header    atomic.Bool // the request's header is being written
	interim   int         // answers 1xx

	began   atomic.Pointer[time.Time] // time of the answer's first byte; nil if unknown
	written atomic.Pointer[time.Time] // time at which the whole request was written; nil if it was not
}

// maxInterim bounds the 1xx answers before the answer: net/http has no bound of its own
// once Got1xxResponse is set. Some hosts send one every second of a long call.
const maxInterim = 1000

// trace stops net/http when it takes a second connection, or the same one again,
// for one request: it would send the request again. Cancelling the context suffices
// in HTTP/2, which checks it before it writes a header. In HTTP/1.1 an idle
// connection may be handed over at the same moment: it is closed before a byte of
// the request is written to it. A second GetConn before any GotConn is harmless: an
// idle HTTP/2 connection was found to be dead.
func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			w.asked = true
			if w.connected {
				w.cancel(errRepeat)
			}
		},
		GotConn: w.take,
		PutIdleConn: func(error) {
			if w.conn != nil {
				w.conn.release(w)
			}
		},
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
			if w.interim++; w.interim > maxInterim {
				return fmt.Errorf("more than %d interim answers (1xx)", maxInterim)
			}
			return nil
		},
	}
}

// take takes the connection that net/http has got, or refuses it before a byte is written. It
// waits until the request before has its answer: net/http puts a connection back first, and would
// tell that request of a refusal instead.
func (w *wire) take(info httptrace.GotConnInfo) {
	c := info.Conn
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
		w.shared = t.ConnectionState().NegotiatedProtocol == "h2"
	}
	own, _ := c.(*conn)
	w.plain = c == info.Conn
	if own != nil && !w.shared {
		own.take(w)
	}
	var refused error
	if w.connected {
		refused, w.same = errRepeat, info.Conn == w.first
	} else if !w.latest.IsZero() && time.Now().After(w.latest) {
		refused = errStale
	} else if w.revoked != nil && w.revoked.Load() {
		refused = errRevoked
	}
	if refused != nil {
		w.cancel(refused)
		if !w.shared {
			info.Conn.Close()
		}
		return
	}
	w.connected, w.at, w.first, w.conn = true, time.Now(), info.Conn, own
	if own != nil {
		w.before = own.writes.Load() // after the farewell of a closed one
	}
}

// writtenAt returns when the last byte of the request was written, and the instant of the
// answer if it was not written before that.
func (w *wire) writtenAt(answered time.Time) time.Time {
	switch at := w.written.Load(); {
	case at != nil && at.Before(answered):
		return *at
	case w.connected:
		return answered
	}
	return w.at
}

// wrote reports whether a byte of the request may have left. On a shared
// connection it reports whether the request's header was begun.
func (w *wire) wrote() bool {
	if w.shared {
		return w.header.Load()
	}
	return w.conn == nil || w.conn.writes.Load() > w.before
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

// timeouts replaces zero timeouts by their defaults.
func (c *Config) timeouts() {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, min(max(0, c.Timeout), DefaultConnectTimeout))
	c.BodyTimeout = cmp.Or(c.BodyTimeout, max(0, c.Timeout))
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.InspectDelay = cmp.Or(c.InspectDelay, DefaultInspectDelay)
}
