package upstream

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// newTransport returns the connections of an upstream: HTTP/1.1, no proxy, no
// compression of our own, and every connection counts what is written to it.
func newTransport(c Config) *http.Transport {
	dialer := &net.Dialer{Timeout: min(c.Timeout, 10*time.Second), KeepAlive: 15 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &conn{Conn: c}, nil
		},
		Protocols:              protocols,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    min(c.Timeout, 10*time.Second),
		DisableCompression:     true,
		MaxIdleConns:           c.MaxIdle,
		MaxIdleConnsPerHost:    c.MaxIdle,
		IdleConnTimeout:        60 * time.Second,
		MaxResponseHeaderBytes: 256 << 10,
		ReadBufferSize:         8 << 10,
		WriteBufferSize:        8 << 10,
	}
}

// conn counts the writes that may have put a byte on the wire.
type conn struct {
	net.Conn
	writes atomic.Int64
}

func (c *conn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		c.writes.Add(-1)
	}
	return n, err
}

// wire watches the connections that net/http takes for one request.
type wire struct {
	cancel context.CancelCauseFunc

	// Owned by the goroutine in RoundTrip, which calls the trace's hooks.
	tries     int
	connected bool
	conn      *conn // nil if it is not one of ours
	before    int64 // writes before this request
}

// trace stops net/http when it takes a second connection for the same request:
// it would send the request again. Cancelling is not enough, since an idle
// connection may be handed over at the same moment: it is closed before a byte
// of the request is written to it.
func (w *wire) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			if w.tries++; w.tries > 1 {
				w.cancel(errRepeat)
			}
		},
		GotConn: func(info httptrace.GotConnInfo) {
			if w.tries > 1 {
				info.Conn.Close()
				return
			}
			w.connected = true
			c := info.Conn
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn()
			}
			if own, ok := c.(*conn); ok {
				w.conn, w.before = own, own.writes.Load()
			}
		},
	}
}

// wrote reports whether a byte of the request may have left.
func (w *wire) wrote() bool {
	return w.conn == nil || w.conn.writes.Load() > w.before
}
