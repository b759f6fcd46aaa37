// Package link passes requests of clients from one replica of a fleet to another: HTTP/2 over TLS 1.3.
//
// Each replica makes a key and a certificate for its own life ([NewIdentity]). Its pin, the SHA-256 of the public
// key, stands in the registry of the fleet. Both sides of a connection compare the pin of the other one with the registry; there
// is no authority, and nothing to renew: trust is that of the database.
//
//	own, err := link.NewIdentity()
//	go link.Serve(ctx, listener, own, known, handler, log)                       // at each replica
//	resp, sent, err := link.NewClient(own, lease).Send(ctx, peer, r, body, passage) // to the owner
//
// A request is passed on whole, with its target byte for byte. A [Passage] says at which listener it came and from
// where. An answer whose request has come to the other handler has the header [Taken].
package link

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

const (
	passedOn = "Throttler-Passed-On" // header of a request: its passage
	// Taken is the header of an answer over a link. It is [Not] if the request was not taken, and can be passed on
	// to another replica.
	Taken = "Throttler-Taken"
	// Not is a value of Taken.
	Not = "not"

	connections = 256       // that a replica accepts from others
	streams     = 100_000   // of a connection: a request that waits has one
	maxHead     = 128 << 10 // bytes of a request's head
	window      = 64 << 10  // bytes of an answer that a replica takes before its client does
)

// An Identity is the key of one life of a replica.
type Identity struct {
	Pin  string // SHA-256 of the public key, in hex
	cert tls.Certificate
}

// NewIdentity makes a key and its certificate.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "throttler"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // RFC 5280, 4.1.2.5: it has no end
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Identity{Pin: pinOf(cert), cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

func pinOf(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// config returns the settings of one side, which takes the other one if its pin is right.
func (i *Identity) config(right func(pin string) bool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{i.cert}, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert, // the pin is verified, on both sides
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !right(pinOf(s.PeerCertificates[0])) {
				return errors.New("the other side is no replica of this fleet: its key is not the one in the registry")
			}
			return nil
		},
	}
}

// A Passage is what a replica says of a request that it passes on.
type Passage struct {
	Listener string `json:"listener"` // key of the listener at which it came
	Target   []byte `json:"target"`   // of the request; no text: it may have any bytes
	Remote   string `json:"remote"`   // address of the client
	Local    string `json:"local"`    // address at which it came
	TLS      bool   `json:"tls"`      // the client came by TLS
	// Doubt tells that a replica may have taken the request before: no answer may tell that nothing is executed.
	Doubt bool `json:"doubt,omitempty"`
	// Names are names of fields that the client has spelt otherwise than canonically.
	Names []string `json:"names,omitempty"`
	// Host is that of the request, which need not have one; Send sets it. A replica of an earlier version gives none.
	Host   *string     `json:"host,omitempty"`
	Caller *Credential `json:"caller,omitempty"`
}

// A Credential is the caller of a request as its connection shows it.
type Credential struct {
	Name string `json:"name"`
	Role string `json:"role"`
	Via  string `json:"via"`
}

type passageKey struct{}

// From returns the passage of a request that came over a link, nil for another one.
func From(ctx context.Context) *Passage {
	p, _ := ctx.Value(passageKey{}).(*Passage)
	return p
}

// Serve serves the requests that other replicas pass on, until ctx ends; those in flight go on until their time is over. known
// reports whether a pin is that of a replica.
func Serve(ctx context.Context, l net.Listener, own *Identity, known func(pin string) bool, h http.Handler, grace time.Duration, log *slog.Logger) error {
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	s := &http.Server{
		Handler: receive(h), TLSConfig: own.config(known), Protocols: protocols,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: streams},
		ReadHeaderTimeout: 5 * time.Second, // also of the handshake
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	unwatch := context.AfterFunc(ctx, func() {
		defer close(stopped)
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if s.Shutdown(ending) != nil {
			s.Close()
		}
	})
	err := s.ServeTLS(netutil.LimitListener(l, connections), "", "")
	if unwatch() {
		return err
	}
	<-stopped
	return nil
}

// receive gives a request back the form in which it came to the other replica.
func receive(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &Passage{}
		err := json.Unmarshal([]byte(r.Header.Get(passedOn)), p)
		if err == nil {
			r.URL, err = url.ParseRequestURI(string(p.Target))
		}
		if err != nil {
			http.Error(w, "the request has no passage that can be read; are the versions of the replicas too far apart?", http.StatusBadRequest)
			return
		}
		r.Header.Del(passedOn)
		if p.Host != nil {
			r.Host = *p.Host
		}
		if r.UserAgent() == "" { // as Send has it instead of the one of net/http
			r.Header.Del("User-Agent")
		}
		r.RequestURI, r.RemoteAddr = string(p.Target), p.Remote
		r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1 // as clients send it
		if !p.TLS {
			r.TLS = nil
		}
		ctx := context.WithValue(r.Context(), passageKey{}, p)
		if local, err := net.ResolveTCPAddr("tcp", p.Local); err == nil {
			ctx = context.WithValue(ctx, http.LocalAddrContextKey, local)
		} else {
			ctx = context.WithValue(ctx, http.LocalAddrContextKey, &net.UnixAddr{Name: p.Local, Net: "unix"})
		}
		w.Header().Set(Taken, "yes")
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil // none but those of the answer
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// NotTaken marks an answer over a link: nothing of the request was done, and it can be passed on to another replica.
func NotTaken(h http.Header) { h.Set(Taken, Not) }

// A Peer is a replica that is reached at an address.
type Peer struct {
	ID, Address, Pin string
	Differs          bool // its upstreams and limits are not those of this replica
}

// A Client sends requests to other replicas. It is safe for concurrent use.
type Client struct {
	own       *Identity
	transport *http.Transport

	mu     sync.Mutex
	failed failure // the last one
}

// A failure is that of a connection to the replica with a pin.
type failure struct {
	pin string
	at  time.Time
	err error
}

// A way is that of a request to another replica.
type way struct {
	address string
	began   time.Time
}

type wayKey struct{}

// NewClient returns a client. A connection on which nothing comes for twice the silence is given up.
func NewClient(own *Identity, silence time.Duration) *Client {
	c := &Client{own: own}
	protocols := &http.Protocols{}
	protocols.SetHTTP2(true)
	c.transport = &http.Transport{
		DialTLSContext: c.dial, Protocols: protocols, DisableCompression: true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence, MaxReceiveBufferPerStream: window},
		MaxConnsPerHost:     1, // requests that come together wait for one connection; it bounds no streams
		TLSHandshakeTimeout: silence, IdleConnTimeout: time.Hour,
	}
	return c
}

// Close closes the idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// dial connects to the replica with the pin in host. All requests that have waited for a connection share its failure: each
// would wait for one of its own after the other.
func (c *Client) dial(ctx context.Context, network, host string) (net.Conn, error) {
	pin, _, _ := net.SplitHostPort(host)
	to := ctx.Value(wayKey{}).(way)
	c.mu.Lock()
	last := c.failed
	c.mu.Unlock()
	if last.pin == pin && last.at.After(to.began) {
		return nil, last.err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * time.Second}, Config: c.own.config(func(shown string) bool { return shown == pin })}
	conn, err := d.DialContext(ctx, network, to.address)
	if err != nil && ctx.Err() == nil {
		c.mu.Lock()
		c.failed = failure{pin, time.Now(), err}
		c.mu.Unlock()
	}
	return conn, err
}

// Send passes a request on, with its body, and returns the answer. After an error, sent tells whether the
// other replica may have taken the request.
func (c *Client) Send(ctx context.Context, to Peer, method string, header http.Header, body []byte, p Passage) (resp *http.Response, sent bool, err error) {
	p.Host = new(header.Get("Host"))
	passage, err := json.Marshal(p)
	if err != nil {
		return nil, false, err
	}
	var wrote atomic.Bool
	ctx = context.WithValue(ctx, wayKey{}, way{to.Address, time.Now()})
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:      func(string) { wrote.Store(false) }, // HTTP/2 tries again only if the other side has not processed the request: RFC 9113, 8.7
		WroteHeaders: func() { wrote.Store(true) },
	})
	out, err := http.NewRequestWithContext(ctx, method, "https://"+to.Pin+"/", bytes.NewReader(body))
	if err != nil {
		return nil, false, err
	}
	maps.Copy(out.Header, header)
	if out.UserAgent() == "" {
		out.Header["User-Agent"] = nil
	}
	out.Host = *p.Host
	out.Header.Del("Host")
	out.Header.Set(passedOn, string(passage))
	resp, err = c.transport.RoundTrip(out)
	return resp, wrote.Load(), err
}

// WasTaken reports whether an answer says that its request was taken.
func WasTaken(resp *http.Response) bool { return resp.Header.Get(Taken) != Not }
