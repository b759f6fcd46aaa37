package upstream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/seed-30fe103d/throttler/pkg/upstream/internal/h1"
)

// A transport sends requests to one host: over HTTP/2, by net/http, if TLS offers it, and over
// HTTP/1.1 connections of package h1 otherwise; without a proxy or compression. Idle connections
// are kept warm: with a probe every 15 s, and for longer than most pauses between calls.
type transport struct {
	open     func(ctx context.Context, network, address string) (net.Conn, error)
	address  string
	security *tls.Config   // nil for none
	connect  time.Duration // bounds a handshake
	head     time.Duration
	pool     h1.Pool

	http2  *http.Transport
	shared atomic.Bool // the upstream has chosen HTTP/2
}

func newTransport(c Config, base *url.URL) *transport {
	dialer := &net.Dialer{Timeout: c.ConnectTimeout, KeepAlive: 15 * time.Second}
	t := &transport{
		open:    dialer.DialContext,
		connect: c.ConnectTimeout,
		head:    c.HeadTimeout,
		pool:    h1.Pool{MaxIdle: c.MaxIdle, IdleTimeout: c.IdleTimeout},
	}
	if base == nil { // the config has a fault
		return t
	}
	t.address, _ = httpguts.PunycodeHostPort(hostPort(base)) // it fails for a label of gigabytes only
	dialer.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
		return c.mayDial(base.Hostname(), address)
	}
	if base.Scheme == "https" {
		t.secure(c, base)
	}
	return t
}

// secure sets up TLS and HTTP/2.
func (t *transport) secure(c Config, base *url.URL) {
	t.security = &tls.Config{}
	if c.TLS != nil {
		t.security = c.TLS.Clone()
	}
	host, _, _ := net.SplitHostPort(t.address)
	t.security.MinVersion = max(t.security.MinVersion, tls.VersionTLS12)
	t.security.ServerName = cmp.Or(t.security.ServerName, host)
	t.security.NextProtos = []string{"h2", "http/1.1"}
	if c.HTTP1 {
		t.security.NextProtos = t.security.NextProtos[1:]
		return
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	t.http2 = &http.Transport{
		DialTLSContext:         t.dialHTTP2,
		Protocols:              protocols,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		ResponseHeaderTimeout:  c.HeadTimeout,
		DisableCompression:     true,
		MaxIdleConns:           c.MaxIdle,
		MaxIdleConnsPerHost:    c.MaxIdle,
		IdleConnTimeout:        c.IdleTimeout,
		MaxResponseHeaderBytes: h1.MaxHead,
	}
}

// dial opens a connection.
func (t *transport) dial(ctx context.Context) (*h1.Conn, error) {
	c, err := t.open(ctx, "tcp", t.address)
	if err != nil {
		return nil, err
	}
	if t.security == nil {
		return t.pool.Add(c, nil)
	}
	return t.pool.Add(c, func(c net.Conn) (net.Conn, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, t.connect, errHandshake)
		defer cancel()
		secured := tls.Client(c, t.security)
		if err := secured.HandshakeContext(ctx); err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
		return secured, nil
	})
}

var (
	errHandshake = errors.New("the TLS handshake took too long")
	errNotHTTP2  = errors.New("the upstream has chosen another protocol than HTTP/2")
)

// opened is a connection that a request has opened. The upstream has chosen HTTP/2, and net/http
// takes it.
type opened struct{ conn atomic.Pointer[h1.Conn] }

type openedKey struct{}

// dialHTTP2 opens a connection for net/http.
func (t *transport) dialHTTP2(ctx context.Context, _, _ string) (net.Conn, error) {
	if o, ok := ctx.Value(openedKey{}).(*opened); ok {
		if c := o.conn.Swap(nil); c != nil {
			return c.NetConn(), nil
		}
	}
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	if !speaksHTTP2(c.NetConn()) {
		t.shared.Store(false)
		c.Release()
		return nil, errNotHTTP2
	}
	return c.NetConn(), nil
}

func speaksHTTP2(c net.Conn) bool {
	t, ok := c.(*tls.Conn)
	return ok && t.ConnectionState().NegotiatedProtocol == "h2"
}

// RoundTrip implements [http.RoundTripper]. The request may be sent again over HTTP/2.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	return t.send(req, new(wire))
}

// send sends a request.
func (t *transport) send(req *http.Request, w *wire) (*http.Response, error) {
	w.asked = true
	for {
		var first *opened
		if !t.shared.Load() {
			c := t.pool.Take()
			if c == nil {
				var err error
				if c, err = t.dial(req.Context()); err != nil {
					return nil, err
				}
			}
			if !speaksHTTP2(c.NetConn()) {
				return w.over(c, req, t.head)
			}
			t.shared.Store(true)
			first = new(opened)
			first.conn.Store(c)
			req = req.WithContext(context.WithValue(req.Context(), openedKey{}, first))
		}
		w.asked = false
		resp, err := w.traced(t.http2, req)
		if first != nil {
			if c := first.conn.Swap(nil); c != nil { // there was another one
				c.Close()
			}
		}
		if !errors.Is(err, errNotHTTP2) && !w.again(req, err) {
			return resp, err
		}
	}
}

// CloseIdleConnections closes the idle connections, and those that become idle before the next request.
func (t *transport) CloseIdleConnections() {
	t.pool.Close()
	if t.http2 != nil {
		t.http2.CloseIdleConnections()
	}
}

// timeouts replaces zero timeouts by their defaults.
func (c *Config) timeouts() {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, min(max(0, c.Timeout), DefaultConnectTimeout))
	c.BodyTimeout = cmp.Or(c.BodyTimeout, max(0, c.Timeout))
	c.IdleTimeout = cmp.Or(c.IdleTimeout, DefaultIdleTimeout)
	c.InspectDelay = cmp.Or(c.InspectDelay, DefaultInspectDelay)
}
