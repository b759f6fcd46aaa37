package scheduler

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// leaving is an HTTP/2 server that goes away from each of the first connections
// when it gets a request, and says that it did nothing with it.
func leaving(t *testing.T, connections int64) (url string, requests *atomic.Int64) {
	t.Helper()
	s := httptest.NewTLSServer(nil) // for its certificate
	defer s.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: s.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	serve := func(c net.Conn, answers bool) {
		defer c.Close()
		io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(c, c)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if h, ok := frame.(*http2.HeadersFrame); ok {
				requests.Add(1)
				if !answers {
					f.WriteGoAway(0, http2.ErrCodeNo, nil)
					continue
				}
				var head bytes.Buffer
				hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: h.StreamID, BlockFragment: head.Bytes(), EndHeaders: true, EndStream: true})
			}
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for n := int64(1); ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Go(func() { serve(c, n > connections) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "https://" + l.Addr().String(), requests
}

// What an upstream has said to have left alone goes again, also for a caller who
// waits, without a signer, and with bytes that are good for one sending: they were
// not used. A caller does not wait for one that goes on like that.
func TestUnprocessedGoesAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		leaves   int64
		requests int64
		want     Reason
	}{"once": {1, 2, ""}, "each time": {100, 2, Unreachable}} {
		t.Run(name, func(t *testing.T) {
			u := Upstream{Late: 20 * time.Millisecond, Limits: []Limit{{Name: "one", Calls: 1, Window: 30 * time.Millisecond}}}
			u.Signature.Once = true
			u.Retry.Attempts = 1
			u.TLS = &tls.Config{InsecureSkipVerify: true}
			url, requests := leaving(t, tt.leaves)
			u.URL = url
			s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			began := time.Now()
			resp, c, err := s.Do(t.Context(), Request{Upstream: "api", Method: "POST", Target: "/", Body: []byte("x")})
			if err == nil {
				resp.Body.Close()
			}
			if reason(err) != tt.want || requests.Load() != tt.requests || err == nil && (resp.StatusCode != http.StatusOK || c.State != Done) {
				t.Errorf("%v, %+v after %d requests", err, c, requests.Load())
			}
			// The first one may have been counted: its permit came back after late and the window.
			if waited := time.Since(began); waited < 50*time.Millisecond {
				t.Errorf("the second one went after %v", waited)
			}
		})
	}
}
