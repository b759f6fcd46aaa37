package security

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// certificate makes a certificate of 127.0.0.1 and writes the authority to a file.
func certificate(t *testing.T) (cert tls.Certificate, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "attack"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, ca
}

// A peer is the upstream's end of an HTTP/2 connection.
type peer struct {
	net.Conn
	*http2.Framer
	block bytes.Buffer
	hp    *hpack.Encoder
}

// fields returns a block of fields; texts are "name: value".
func (p *peer) fields(texts ...string) []byte {
	p.block.Reset()
	for _, text := range texts {
		i := strings.Index(text[1:], ": ") + 1
		p.hp.WriteField(hpack.HeaderField{Name: text[:i], Value: text[i+2:]})
	}
	return bytes.Clone(p.block.Bytes())
}

// head sends an answer's head.
func (p *peer) head(stream uint32, end bool, texts ...string) error {
	return p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.fields(texts...), EndStream: end, EndHeaders: true})
}

// ok sends an honest answer.
func (p *peer) ok(stream uint32) {
	p.head(stream, false, ":status: 200", "content-length: 2")
	p.WriteData(stream, true, []byte("ok"))
}

// A frames is a hostile HTTP/2 upstream: it is called for each request but /next, which gets
// an honest answer.
type frames struct {
	name string
	// serve answers a request; false ends the connection.
	serve func(p *peer, stream uint32) bool
	// status and outcome are those of the client's answer; 0 if that may be cut.
	status  int
	outcome string
	// settings are those of the upstream's side.
	settings []http2.Setting
	// most is the greatest number of attempts that may arrive; 0 is one.
	most int
	// wait bounds the client's wait for an attempt.
	wait string
	// header is a line of the request.
	header string
}

func repeatedly(n int, do func(i int) error) {
	for i := range n {
		if do(i) != nil {
			return
		}
	}
}

func headOnly(texts ...string) func(*peer, uint32) bool {
	return func(p *peer, stream uint32) bool { return p.head(stream, true, texts...) == nil }
}

var floods = []frames{
	{name: "pings without end", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(10_000, func(i int) error { return p.WritePing(false, [8]byte{byte(i)}) })
		p.ok(stream)
		return true
	}},
	{name: "answers to pings that were not sent", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(10_000, func(int) error { return p.WritePing(true, [8]byte{1}) })
		p.ok(stream)
		return true
	}},
	{name: "settings without end", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(5_000, func(int) error { return p.WriteSettings() })
		p.ok(stream)
		return true
	}},
	{name: "settings that change the window without end", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(5_000, func(i int) error {
			return p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i + 1)})
		})
		p.ok(stream)
		return true
	}},
	{name: "empty data without end", status: 0, wait: "3s", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 2")
		repeatedly(300_000, func(int) error { return p.WriteData(stream, false, nil) })
		return false
	}},
	{name: "empty data 1,000 times, then the body", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 2")
		repeatedly(1_000, func(int) error { return p.WriteData(stream, false, nil) })
		p.WriteData(stream, true, []byte("ok"))
		return true
	}},
	{name: "window updates without end", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(10_000, func(int) error { return p.WriteWindowUpdate(0, 1) })
		p.ok(stream)
		return true
	}},
	{name: "window beyond 2^31", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteWindowUpdate(stream, 1<<31-1)
		p.WriteWindowUpdate(0, 1<<31-1)
		return true
	}},
	{name: "window update of zero", status: 504, outcome: "unknown", wait: "2s", serve: func(p *peer, stream uint32) bool {
		p.WriteRawFrame(http2.FrameWindowUpdate, 0, stream, []byte{0, 0, 0, 0})
		return true
	}},
	{name: "priorities without end", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(10_000, func(i int) error { return p.WritePriority(stream, http2.PriorityParam{Weight: byte(i)}) })
		p.ok(stream)
		return true
	}},
	{name: "frames of an unknown type without end", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		repeatedly(10_000, func(i int) error { return p.WriteRawFrame(http2.FrameType(200), 0, 0, []byte("x")) })
		p.ok(stream)
		return true
	}},
	{name: "continuations without end", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.fields(":status: 200")})
		repeatedly(100_000, func(int) error {
			return p.WriteContinuation(stream, false, p.fields("x-a: "+strings.Repeat("a", 1000)))
		})
		return false
	}},
	{name: "empty continuations without end", status: 504, outcome: "unknown", wait: "3s", serve: func(p *peer, stream uint32) bool {
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: p.fields(":status: 200")})
		repeatedly(300_000, func(int) error { return p.WriteContinuation(stream, false, nil) })
		return false
	}},
	{name: "interim answers without end", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		repeatedly(100_000, func(int) error { return p.head(stream, false, ":status: 103") })
		return true
	}},
	{name: "an interim answer, then the answer", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 103", "link: </x>")
		p.ok(stream)
		return true
	}},
	{name: "streams of its own", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WritePushPromise(http2.PushPromiseParam{StreamID: stream, PromiseID: 2, BlockFragment: p.fields(":method: GET", ":path: /", ":scheme: https", ":authority: evil.example"), EndHeaders: true})
		return true
	}},
}

var lies = []frames{
	{name: "status 000", status: 502, outcome: "unknown", serve: headOnly(":status: 000")},
	{name: "status 099", status: 502, outcome: "unknown", serve: headOnly(":status: 099")},
	{name: "status 2000", status: 502, outcome: "unknown", serve: headOnly(":status: 2000")},
	{name: "status -1", status: 502, outcome: "unknown", serve: headOnly(":status: -1")},
	{name: "status 2^31", status: 502, outcome: "unknown", serve: headOnly(":status: 2147483648")},
	{name: "status that is no number", status: 504, outcome: "unknown", serve: headOnly(":status: ok")},
	{name: "no status", status: 504, outcome: "unknown", serve: headOnly("x-a: 1")},
	{name: "two statuses", status: 504, outcome: "unknown", serve: headOnly(":status: 200", ":status: 500")},
	{name: "status behind a field", status: 504, outcome: "unknown", serve: headOnly("x-a: 1", ":status: 200")},
	{name: "pseudo field that is unknown", status: 504, outcome: "unknown", serve: headOnly(":status: 200", ":evil: 1")},
	{name: "pseudo field of a request", status: 504, outcome: "unknown", serve: headOnly(":status: 200", ":path: /evil")},
	{name: "status 101", status: 504, outcome: "unknown", wait: "2s", serve: headOnly(":status: 101")},
	{name: "field name in upper case", status: 504, outcome: "unknown", serve: headOnly(":status: 200", "X-A: 1")},
	{name: "line break in a field", status: 504, outcome: "unknown", serve: headOnly(":status: 200", "x-a: a\r\nset-cookie: b=c")},
	{name: "NUL in a field", status: 504, outcome: "unknown", serve: headOnly(":status: 200", "x-a: a\x00b")},
	{name: "space in a field name", status: 504, outcome: "unknown", serve: headOnly(":status: 200", "x a: b")},
	{name: "fields of one connection", status: 200, outcome: "done", serve: headOnly(":status: 200", "connection: x-a", "x-a: 1", "transfer-encoding: chunked", "keep-alive: secret")},
	{name: "the sidecar's own fields", status: 500, outcome: "unknown", serve: headOnly(":status: 500", "throttler-outcome: done")},
	{name: "head of 1 MiB that unpacks from little", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		many := []string{":status: 200"}
		for range 500 {
			many = append(many, "x-a: "+strings.Repeat("a", 2000))
		}
		return p.head(stream, true, many...) == nil
	}},
	{name: "head that cannot be unpacked", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, EndStream: true, EndHeaders: true})
		return true
	}},
	{name: "length greater than the body", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 10")
		p.WriteData(stream, true, []byte("ok"))
		return true
	}},
	{name: "length smaller than the body", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 2")
		p.WriteData(stream, true, []byte("ok and more"))
		return true
	}},
	{name: "two lengths, neither of which counts", status: 200, outcome: "done", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 3", "content-length: 2")
		p.WriteData(stream, true, []byte("ok"))
		return true
	}},
	{name: "data before the head", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteData(stream, false, []byte("ok"))
		return true
	}},
	{name: "data beyond the window", status: 0, wait: "5s", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 100000000")
		repeatedly(6000, func(int) error { return p.WriteData(stream, false, make([]byte, 16<<10)) })
		return false
	}},
	{name: "data of a stream that was never opened", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteData(stream+1000, true, []byte("steal"))
		return true
	}},
	{name: "trailers with a status", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200")
		p.WriteData(stream, false, []byte("ok"))
		return p.head(stream, true, ":status: 500") == nil
	}},
	{name: "two heads", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200")
		return p.head(stream, false, ":status: 500") == nil
	}},
	{name: "frame greater than allowed", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteRawFrame(http2.FrameData, http2.FlagDataEndStream, stream, make([]byte, 2<<20))
		return true
	}},
	{name: "padding greater than the frame", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200")
		p.WriteRawFrame(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, stream, []byte{200, 'o', 'k'})
		return true
	}},
	{name: "settings that are none", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteRawFrame(http2.FrameSettings, 0, 0, []byte("odd"))
		return true
	}},
	{name: "text of HTTP/1", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		io.WriteString(p, ok)
		return true
	}},
	{name: "cut in a frame", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200")
		p.Conn.Write([]byte{0, 0, 100, 0, 1})
		return false
	}},
	{name: "nothing", status: 504, outcome: "unknown", wait: "2s", serve: func(*peer, uint32) bool { return true }},
	{name: "resets the stream", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		return p.WriteRSTStream(stream, http2.ErrCodeInternal) == nil
	}},
	{name: "resets the stream in the body", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.head(stream, false, ":status: 200", "content-length: 10")
		return p.WriteRSTStream(stream, http2.ErrCodeCancel) == nil
	}},
	{name: "resets by no error, before the head", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		return p.WriteRSTStream(stream, http2.ErrCodeNo) == nil
	}},
	{name: "wants HTTP/1.1", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		return p.WriteRSTStream(stream, http2.ErrCodeHTTP11Required) == nil
	}},
}

// unprocessed are refusals of HTTP/2 without end: the call is sent again, but not in a loop.
var unprocessed = []frames{
	{name: "refuses the stream for ever", status: 502, outcome: "not_executed", most: 40, serve: func(p *peer, stream uint32) bool {
		return p.WriteRSTStream(stream, http2.ErrCodeRefusedStream) == nil
	}},
	{name: "goes away for ever", status: 504, outcome: "unknown", most: 40, serve: func(p *peer, stream uint32) bool {
		p.WriteGoAway(stream-1, http2.ErrCodeNo, []byte("secret"))
		return false
	}},
	{name: "goes away and tells to be calm", status: 502, outcome: "not_executed", most: 40, serve: func(p *peer, stream uint32) bool {
		p.WriteGoAway(stream-1, http2.ErrCodeEnhanceYourCalm, bytes.Repeat([]byte("a"), 8<<10))
		return false
	}},
	{name: "goes away behind the stream, and hangs up", status: 504, outcome: "unknown", serve: func(p *peer, stream uint32) bool {
		p.WriteGoAway(stream, http2.ErrCodeNo, nil)
		return false
	}},
	{name: "head greater than the upstream takes", status: 500, outcome: "not_executed", header: "X-Long: " + strings.Repeat("a", 8000), settings: []http2.Setting{{ID: http2.SettingMaxHeaderListSize, Val: 4096}}, serve: func(p *peer, stream uint32) bool {
		p.ok(stream)
		return true
	}},
}

// speak serves one connection of HTTP/2.
func (f *frames) speak(c net.Conn, cert tls.Certificate, sent *atomic.Int64) {
	conn := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2"}})
	if conn.Handshake() != nil {
		return
	}
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	p := &peer{Conn: conn, Framer: http2.NewFramer(conn, conn)}
	p.AllowIllegalWrites = true
	p.hp = hpack.NewEncoder(&p.block)
	p.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	p.WriteSettings(f.settings...)
	for {
		frame, err := p.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				p.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			path := ""
			for _, field := range frame.Fields {
				if field.Name == ":path" {
					path = field.Value
				}
			}
			if path == "/next" {
				p.ok(frame.StreamID)
				continue
			}
			sent.Add(1)
			if !f.serve(p, frame.StreamID) {
				return
			}
		}
	}
}

// TestHTTP2 has upstreams break HTTP/2. Each attempt ends, in bounded memory, and with the
// truth about the call.
func TestHTTP2(t *testing.T) {
	f := newFamily(t, "h2", 31)
	cert, ca := certificate(t)
	all := append(append(append([]frames{}, floods...), lies...), unprocessed...)
	counts := make([]atomic.Int64, len(all))
	yaml := ""
	for i := range all {
		addr := listen(t, func(c net.Conn) { all[i].speak(c, cert, &counts[i]) })
		wait := all[i].wait
		if wait == "" {
			wait = "20s"
		}
		yaml += fmt.Sprintf("  u%d: {listen: '127.0.0.1:0', url: 'https://%s', tls: {ca: %s}, timeout: %s, max_wait: 4s, retry: {attempts: 1}}\n", i, addr, ca, wait)
	}
	s := start(t, yaml)
	for i, tt := range all {
		f.attack(tt.name, func(t *testing.T) {
			addr := s.data(t, fmt.Sprintf("u%d", i))
			lines := got("X-A: 1")
			if tt.header != "" { // the settings must have come before it
				lines = got(tt.header)
				ask(t, "GET", addr, "/next", "")
			}
			r, err := tryAsk("GET", addr, "/attack", "", lines...)
			mayBeCut := tt.status == 0 && (errors.Is(err, io.ErrUnexpectedEOF) || r.status == 504 && r.outcome() == "unknown")
			switch {
			case mayBeCut:
			case err != nil:
				t.Error(err)
			case r.status != tt.status || r.outcome() != tt.outcome:
				t.Errorf("status %d, %s, want %d, %s: %s", r.status, r.outcome(), tt.status, tt.outcome, r.body)
			}
			if strings.Contains(fmt.Sprint(r), "secret") || r.header.Get("Set-Cookie") != "" {
				t.Errorf("the client got %+v", r)
			}
			if n := int(counts[i].Load()); n > max(tt.most, 1) || n == 0 && tt.header == "" {
				t.Errorf("%d attempts arrived, at most %d are expected", n, max(tt.most, 1))
			}
			if tt.most == 0 {
				// A connection may be flooded until its attempt's time-out.
				until(t, "the next client is served", func() bool {
					next, err := tryAsk("GET", addr, "/next", "")
					return err == nil && next.status == 200 && next.body == "ok"
				})
			}
			s.alive(t)
		})
	}
	f.attack("all of them stay below 256 MiB", func(t *testing.T) {
		if peak := s.peak(t); peak > 256 {
			t.Errorf("the sidecar had %d MiB", peak)
		}
	})
}
