package upstream

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// TestFieldsOverOtherTransports: nothing is added to the fields of a request, over HTTP/2 too, and a
// transport that changes them does not change the caller's.
func TestFieldsOverOtherTransports(t *testing.T) {
	came := make(chan http.Header, 1)
	_, c := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { came <- r.Header }))
	over := newUpstream(t, c)
	for _, given := range []http.Header{nil, {"X-Own": {"1"}}, {"X-Own": {"1"}, "User-Agent": {"sdk/1"}}} {
		if res := do(t, over, &Request{Method: "GET", Target: "/", Header: given}); res.Outcome != Done {
			t.Fatal(res.Reason)
		}
		if got := <-came; !maps.EqualFunc(got, given, slices.Equal) {
			t.Errorf("over HTTP/2 came %v, want %v", got, given)
		}
		kept := given.Clone()
		changes := roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, there := r.Header["User-Agent"]; !there {
				t.Error("net/http would add its own User-Agent")
			}
			if _, has := r.Context().(interface {
				AfterFunc(f func()) (stop func() bool)
			}); !has {
				t.Error("a context that is made of the request's costs a goroutine")
			}
			r.Header.Set("X-Own", "2")
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		})
		do(t, newUpstream(t, Config{URL: "http://api.test", Transport: changes}), &Request{Method: "GET", Target: "/", Header: given})
		if !maps.EqualFunc(given, kept, slices.Equal) {
			t.Errorf("the caller's fields are %v, and were %v", given, kept)
		}
	}
}

// secure starts a TLS server that offers HTTP/2, and returns it with the config of an
// upstream that trusts it.
func secure(t *testing.T, h http.Handler) (*httptest.Server, Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s, Config{URL: s.URL, TLS: &tls.Config{RootCAs: roots}}
}

func TestHTTP2WhereOffered(t *testing.T) {
	var arrived atomic.Int64
	hanging, reset := make(chan struct{}, 1), make(chan struct{}, 1)
	_, c := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		if r.URL.Path == "/hang" {
			hanging <- struct{}{}
			<-r.Context().Done()
			reset <- struct{}{}
			return
		}
		io.WriteString(w, r.Proto+" "+r.URL.RequestURI())
	}))
	c.Timeout = 300 * time.Millisecond
	u := newUpstream(t, c)
	if got := body(t, do(t, u, &Request{Method: "POST", Target: "/a%2Fb?x=%20", Body: []byte("x")})); got != "HTTP/2.0 /a%2Fb?x=%20" {
		t.Errorf("answer %q", got)
	}
	// A time-out resets the stream; the connection and its other streams live on.
	var wg sync.WaitGroup
	wg.Go(func() {
		res := do(t, u, &Request{Method: "GET", Target: "/hang"})
		if res.Outcome != Unknown || !res.Sent || res.Answered {
			t.Errorf("hang: %s, sent %v: %s", res.Outcome, res.Sent, res.Reason)
		}
	})
	<-hanging
	if res := do(t, u, &Request{Method: "GET", Target: "/beside"}); res.Outcome != Done {
		t.Errorf("beside a hanging stream: %s: %s", res.Outcome, res.Reason)
	}
	wg.Wait()
	<-reset
	if arrived.Load() != 3 {
		t.Errorf("%d requests arrived, want 3", arrived.Load())
	}

	_, c = secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	c.HTTP1 = true
	if got := body(t, do(t, newUpstream(t, c), &Request{Method: "GET", Target: "/"})); got != "HTTP/1.1" {
		t.Errorf("with HTTP1 set: %q", got)
	}
}

// peer is an HTTP/2 server that calls answer for each request's header. After
// some of the frames that answer writes, net/http by itself sends a GET again.
func peer(t *testing.T, answer func(*http2.Framer, uint32)) (addr string, headers *atomic.Int64) {
	t.Helper()
	s, _ := secure(t, http.NotFoundHandler()) // for its certificate
	certificate := s.TLS.Certificates[0]
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	headers = new(atomic.Int64)
	serve := func(c net.Conn) {
		defer c.Close()
		io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			switch frame := frame.(type) {
			case *http2.SettingsFrame:
				if !frame.IsAck() {
					f.WriteSettingsAck()
				}
			case *http2.MetaHeadersFrame:
				headers.Add(1)
				answer(f, frame.StreamID)
			}
		}
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); wg.Wait() })
	return l.Addr().String(), headers
}

func reset(code http2.ErrCode) func(*http2.Framer, uint32) {
	return func(f *http2.Framer, stream uint32) { f.WriteRSTStream(stream, code) }
}

// goAway writes a GOAWAY that names a last processed stream: from is its
// distance to the request's own.
func goAway(code http2.ErrCode, from int) func(*http2.Framer, uint32) {
	return func(f *http2.Framer, stream uint32) { f.WriteGoAway(uint32(int(stream)+from), code, nil) }
}

// One Do is one stream. A stream that HTTP/2 reports as unprocessed was not
// executed; no rule makes it unknown.
func TestOneDoIsOneStream(t *testing.T) {
	for _, tt := range []struct {
		name      string
		answer    func(*http2.Framer, uint32)
		get, post Outcome
	}{
		{"REFUSED_STREAM", reset(http2.ErrCodeRefusedStream), NotExecuted, NotExecuted},
		// net/http hides the reason why it would send a request without a body again.
		{"GOAWAY above the last one", goAway(http2.ErrCodeNo, -1), Unknown, NotExecuted},
		{"GOAWAY above the last one, with an error", goAway(http2.ErrCodeEnhanceYourCalm, -1), NotExecuted, NotExecuted},
		{"GOAWAY that may include it", goAway(http2.ErrCodeEnhanceYourCalm, 0), Unknown, Unknown},
		{"PROTOCOL_ERROR", reset(http2.ErrCodeProtocol), Unknown, Unknown},
		{"INTERNAL_ERROR", reset(http2.ErrCodeInternal), Unknown, Unknown},
	} {
		for method, want := range map[string]Outcome{"GET": tt.get, "POST": tt.post} {
			t.Run(tt.name+" "+method, func(t *testing.T) {
				addr, headers := peer(t, tt.answer)
				u := newUpstream(t, Config{URL: "https://" + addr, TLS: &tls.Config{InsecureSkipVerify: true}, Timeout: 3 * time.Second, // until then some hang
					Outcomes: []Rule{{When: `sent and error != ""`, Is: Unknown}}})
				defer u.Close()
				r := &Request{Method: method, Target: "/"}
				if method == "POST" {
					r.Body = []byte("x")
				}
				res := do(t, u, r)
				if headers.Load() != 1 || res.Outcome != want || res.Unprocessed != (want == NotExecuted) || !res.Sent || res.Answered {
					t.Errorf("%d requests on the wire for one Do, %+v; want 1, %s", headers.Load(), res, want)
				}
			})
		}
	}

	t.Run("net/http alone", func(t *testing.T) { // proves that the test detects a second sending
		addr, headers := peer(t, reset(http2.ErrCodeRefusedStream))
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		defer tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() { // until it has repeated
			for ctx.Err() == nil && headers.Load() < 2 {
				time.Sleep(time.Millisecond)
			}
			cancel()
		}()
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://"+addr, nil)
		if resp, err := tr.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
		if n := headers.Load(); n < 2 {
			t.Errorf("%d requests on the wire, want several: it repeats", n)
		}
	})
}

// TestHeaderAboveThePeersLimit: over HTTP/2, no byte of such a request can leave, however
// often it is tried.
func TestHeaderAboveThePeersLimit(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.EnableHTTP2, s.Config.MaxHeaderBytes = true, 4096
	s.StartTLS()
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL, TLS: &tls.Config{InsecureSkipVerify: true}})
	do(t, u, &Request{Method: "GET", Target: "/"}) // the connection and its settings
	res := do(t, u, &Request{Method: "GET", Target: "/", Header: http.Header{"Cookie": {strings.Repeat("x", 8192)}}})
	if res.Outcome != Failed || res.Sent || res.Unreachable {
		t.Errorf("%s, sent %v, unreachable %v: %s; want failed, never sent", res.Outcome, res.Sent, res.Unreachable, res.Reason)
	}
}

// An interim answer does not end an attempt over HTTP/2 either.
func TestAnsweredAtOverHTTP2(t *testing.T) {
	began := make(chan time.Time, 1)
	addr, _ := peer(t, func(f *http2.Framer, stream uint32) {
		var block bytes.Buffer
		header := func(status string, last bool) {
			block.Reset()
			hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: status})
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: last})
		}
		header("103", false)
		time.Sleep(20 * time.Millisecond)
		began <- time.Now()
		header("200", true)
	})
	u := newUpstream(t, Config{URL: "https://" + addr, TLS: &tls.Config{InsecureSkipVerify: true}})
	res := do(t, u, &Request{Method: "GET", Target: "/"})
	if at := <-began; res.Outcome != Done || res.AnsweredAt.Before(at) {
		t.Errorf("%s (%s), answered %v before the answer began; want done, and not before", res.Outcome, res.Reason, at.Sub(res.AnsweredAt))
	}
}

// An idle HTTP/2 connection closed by the upstream is not a failed dial: another
// connection is taken, and no byte was sent on the first.
func TestIdleConnectionIsClosed(t *testing.T) {
	s, c := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) }))
	u := newUpstream(t, c)
	defer u.Close()
	for range 50 {
		res := do(t, u, &Request{Method: "POST", Target: "/", Body: []byte("x")})
		if res.Unreachable || res.Outcome == NotExecuted { // other outcomes: closed while it was in use
			t.Fatalf("%s: %s", res.Outcome, res.Reason)
		}
		s.CloseClientConnections()
		time.Sleep(time.Millisecond) // usually long enough for net/http to notice
	}
}

// TestConnectionIsLostBeforeTheHeader: an HTTP/2 connection that is closed after a request has got it,
// and before its header is written, is not an attempt that failed: another connection is taken, once. If
// none can be made nothing was sent, also by a transport of an embedder.
func TestConnectionIsLostBeforeTheHeader(t *testing.T) {
	errHandshake := errors.New("no handshake")
	for _, tt := range []struct {
		text    string
		losses  int
		foreign bool // transport, whose second dial fails
		outcome Outcome
	}{{"x", 1, false, Done}, {"", 1, false, Done}, {"x", 2, false, NotExecuted}, {"", 2, false, NotExecuted}, {"", 1, true, NotExecuted}} {
		var arrived atomic.Int64
		_, c := secure(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			arrived.Add(1)
			io.Copy(w, r.Body)
		}))
		var down atomic.Bool
		if tt.foreign {
			c = Config{URL: c.URL, Transport: &http.Transport{TLSClientConfig: c.TLS, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if down.Load() {
					return nil, errHandshake
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			}}}
		}
		u := newUpstream(t, c)
		defer u.Close()
		r := &Request{Method: "POST", Target: "/", Body: []byte(tt.text)}
		do(t, u, r)
		lost := false
		for deadline := time.Now().Add(30 * time.Second); !lost && time.Now().Before(deadline); { // until net/http notices in time
			got := 0
			down.Store(false)
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
				if got++; got <= tt.losses {
					down.Store(tt.foreign)
					info.Conn.Close()
					time.Sleep(20 * time.Millisecond)
				}
			}})
			before := arrived.Load()
			res := u.Do(ctx, r)
			lost = got > 1 && (tt.losses == 1 || res.Outcome == NotExecuted) || errors.Is(res.Err, errHandshake)
			if lost && (res.Outcome != tt.outcome || res.Sent != (tt.outcome == Done) || res.Unreachable != tt.foreign || res.Response != nil && body(t, res) != tt.text) {
				t.Errorf("body %q, %d losses: %s, %s", tt.text, tt.losses, res.Outcome, res.Reason)
			}
			want := before
			if tt.outcome == Done {
				want++
			}
			if lost && arrived.Load() != want {
				t.Errorf("body %q, %d losses: the request arrived %d times", tt.text, tt.losses, arrived.Load()-before)
			}
			if res.Response != nil {
				res.Response.Body.Close()
			}
		}
		if !lost {
			t.Errorf("body %q: no connection was lost before the header %d times", tt.text, tt.losses)
		}
	}
}

// TestAgain: a request is sent again if its body lies in memory, and only after the error of net/http
// that it had closed the body.
func TestAgain(t *testing.T) {
	closed := errors.New("net/http: cannot rewind body after connection loss")
	for _, tt := range []struct {
		body io.ReadCloser
		err  error
		want bool
	}{{newBody([]byte("x")), closed, true}, {newBody([]byte("x")), errors.New("reset"), false}, {newBody([]byte("x")), nil, false}, {io.NopCloser(strings.NewReader("x")), closed, false}} {
		w := &wire{connected: true, shared: true}
		if got := w.again(&http.Request{Body: tt.body}, tt.err); got != tt.want {
			t.Errorf("%T, %v: %v", tt.body, tt.err, got)
		}
	}
}

// TestLose: a connection is lost, once, if it is HTTP/2 and no byte of the request has left.
func TestLose(t *testing.T) {
	for bits := range 16 {
		w := &wire{connected: bits&1 > 0, shared: bits&2 > 0, lost: bits&4 > 0}
		w.header.Store(bits&8 > 0)
		if got := w.lose(); got != (bits == 3) || got && w.lose() {
			t.Errorf("connected, shared, lost, begun = %04b: %v", bits, got)
		}
	}
}

// authority makes certificates for a test.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{key, cert}
}

func (a authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func TestCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{ca.issue(t, "server")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool()}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	defer s.Close()
	merchant := []tls.Certificate{ca.issue(t, "merchant")}
	get := &Request{Method: "GET", Target: "/"}

	if got := body(t, do(t, newUpstream(t, Config{URL: s.URL, TLS: &tls.Config{RootCAs: ca.pool(), Certificates: merchant}}), get)); got != "merchant" {
		t.Errorf("the server saw %q", got)
	}
	for name, c := range map[string]*tls.Config{
		"the system's authorities":  {Certificates: merchant},
		"another authority":         {RootCAs: other.pool(), Certificates: merchant},
		"no certificate of our own": {RootCAs: ca.pool()},
	} {
		res := do(t, newUpstream(t, Config{URL: s.URL, TLS: c}), get)
		if res.Outcome == Done || res.Answered {
			t.Errorf("%s: %s", name, res.Outcome)
		}
	}
}

func TestNoRedirectIsFollowed(t *testing.T) {
	var arrived atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL})
	res := do(t, u, &Request{Method: "POST", Target: "/", Body: []byte("x")})
	if res.Outcome != Failed || res.Response.StatusCode != 307 || arrived.Load() != 1 {
		t.Errorf("outcome %s, %d requests", res.Outcome, arrived.Load())
	}
}

func TestDialledAddressIsChecked(t *testing.T) {
	prefix := func(s ...string) (all []netip.Prefix) {
		for _, s := range s {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	tests := []struct {
		host, address string
		only          []netip.Prefix
		want          string // "" if it may be dialled
	}{
		{"openapi.alipay.com", "110.75.139.1:443", nil, ""},
		{"gateway.corp", "10.1.2.3:443", nil, ""},
		{"gateway.corp", "127.0.0.1:443", nil, "leads to 127.0.0.1"},
		{"gateway.corp", "[::1]:443", nil, "leads to ::1"},
		{"gateway.corp", "[::ffff:127.0.0.1]:443", nil, "leads to 127.0.0.1"},
		{"gateway.corp", "169.254.169.254:80", nil, "leads to 169.254.169.254"},
		{"gateway.corp", "[fe80::1%eth0]:80", nil, "leads to fe80::1"},
		{"gateway.corp", "0.0.0.0:80", nil, "leads to 0.0.0.0"},
		{"gateway.corp", "224.0.0.1:80", nil, "leads to 224.0.0.1"},
		{"gateway.corp", "100.100.100.200:80", nil, "leads to 100.100.100.200"},
		{"gateway.corp", "[fd00:ec2::254]:80", nil, "leads to fd00:ec2::254"},
		{"gateway.corp", "[64:ff9b::7f00:1]:80", nil, "leads to 64:ff9b::7f00:1"},
		{"gateway.corp", "[64:ff9b::a9fe:a9fe]:80", nil, "leads to 64:ff9b::a9fe:a9fe"},
		{"gateway.corp", "[2002:7f00:1::1]:80", nil, "leads to 2002:7f00:1::1"},
		{"gateway.corp", "[::127.0.0.1]:80", nil, "leads to ::7f00:1"},
		{"gateway.corp", "[64:ff9b::6e4b:8b01]:443", nil, ""},
		{"localhost", "127.0.0.1:80", nil, ""},
		{"LOCALHOST.", "[::1]:80", nil, ""},
		{"localhost", "10.0.0.1:80", nil, ""},
		{"127.0.0.1", "127.0.0.1:80", nil, ""},
		{"::1", "[::1]:80", nil, ""},
		{"127.0.0.1", "127.0.0.2:80", nil, "leads to 127.0.0.2"},
		{"gateway.corp", "10.1.2.3:443", prefix("10.1.0.0/16", "fd00::/8"), ""},
		{"gateway.corp", "10.2.2.3:443", prefix("10.1.0.0/16"), "10.2.2.3 of upstream \"a\" is not within addresses"},
		{"gateway.corp", "127.0.0.1:443", prefix("127.0.0.1/32"), ""},
	}
	for _, tt := range tests {
		err := (&Config{Name: "a", Addresses: tt.only}).mayDial(tt.host, tt.address)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s at %s: %v, want %q", tt.host, tt.address, err, tt.want)
		}
	}

	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		ip := netip.MustParsePrefix(a.String()).Addr().WithZone("")
		if err := (&Config{Name: "a"}).mayDial("gateway.corp", netip.AddrPortFrom(ip, 443).String()); err == nil {
			t.Errorf("a name may lead to %s, an address of this host", ip)
		}
		if err := (&Config{Name: "a"}).mayDial(ip.String(), netip.AddrPortFrom(ip, 443).String()); err != nil {
			t.Errorf("an address of this host in the url: %v", err)
		}
	}

	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL, Addresses: prefix("10.0.0.0/8")})
	if res := do(t, u, &Request{Method: "GET", Target: "/"}); res.Sent || !res.Unreachable || res.Outcome != NotExecuted || !strings.Contains(res.Reason, "is not within addresses") {
		t.Errorf("a host outside: %+v", res)
	}
}

func TestHeadTimeout(t *testing.T) {
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { <-release }))
	defer s.Close()
	defer close(release)
	u := newUpstream(t, Config{URL: s.URL, HeadTimeout: 50 * time.Millisecond, Outcomes: []Rule{{When: `error == "timeout" and sent`, Is: Unknown, After: time.Hour}}})
	if res := do(t, u, &Request{Method: "GET", Target: "/"}); res.Outcome != Unknown || res.RetryAfter != time.Hour {
		t.Errorf("%s: %s", res.Outcome, res.Reason)
	}
}

// TestUnsendable: net/http has refused the request itself, or the other side's bound on
// headers has, over HTTP/2.
func TestUnsendable(t *testing.T) {
	long, other := errors.New("http2: request header list larger than peer's advertised limit"), errors.New("another")
	for _, tt := range []struct {
		asked, shared, wrote bool
		err                  error
		want                 bool
	}{
		{false, false, false, other, true},
		{true, true, false, long, true},
		{true, true, true, long, false},
		{true, true, false, other, false},
		{true, false, true, long, false},
		{true, false, true, other, false},
	} {
		w := &wire{asked: tt.asked, shared: tt.shared}
		w.header.Store(tt.wrote)
		if got := w.unsendable(tt.err); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}
