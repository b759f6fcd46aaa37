package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// pipes is a listener with connections in memory, so that a bubble's clock runs.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p.conns); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// bubble serves a data listener or the admin API in a bubble, in front of an upstream
// with responses of length bytes, and gives test a connection to it.
func bubble(t *testing.T, length int, admin bool, test func(t *testing.T, c net.Conn)) {
	bubbleOf(t, scheduler.Upstream{Config: upstream.Config{Transport: platform(length)}}, admin, func(t *testing.T, _ *scheduler.Scheduler, dial func() net.Conn) {
		test(t, dial())
	})
}

// bubbleOf does the same for an upstream, and dials as many connections as test asks for.
func bubbleOf(t *testing.T, up scheduler.Upstream, admin bool, test func(t *testing.T, s *scheduler.Scheduler, dial func() net.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		up.URL = "http://api.test"
		s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": up}, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		var h http.Handler = &Data{Scheduler: s, Upstream: "pay"}
		if admin {
			h = newAdmin(s, NewMetrics("1.0"), NewEvents(), log, nil)
		}
		l, srv, ended := pipes{make(chan net.Conn)}, New(h, log), make(chan struct{})
		go func() {
			defer close(ended)
			srv.Serve(l)
		}()
		var opened []net.Conn
		test(t, s, func() net.Conn {
			here, there := net.Pipe()
			opened = append(opened, here)
			l.conns <- there
			return here
		})
		for _, c := range opened {
			c.Close()
		}
		srv.Close()
		<-ended
		s.Close()
	})
}

// platform answers each request at once, with so many bytes.
type platform int

func (n platform) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(make([]byte, n)))}, nil
}

// TestSlowBody sends bodies in pieces: the next one, or the rest, must come in time, and
// the whole too.
func TestSlowBody(t *testing.T) {
	const second = time.Second
	tests := map[string]struct {
		length, piece int
		every         time.Duration
		pieces        int // and then nothing more
		refused       time.Duration
	}{
		"a part, and no more":      {10, 2, 0, 1, pieceTimeout},
		"much, and no more":        {100_000, 50_000, 0, 1, pieceTimeout},
		"too slow":                 {10_000, 190, second, 40, pieceTimeout},
		"too slow after much":      {100_000, 5000, 4 * second, 2, 4*second + pieceTimeout},
		"fast enough, but too big": {100_000, pieceSize + 10, 4 * second, 80, bodyTimeout},
		"fast enough":              {6000, 250, second, 24, 0},
	}
	for name, tt := range tests {
		for kind, admin := range map[string]bool{"data": false, "admin": true} {
			t.Run(name+", "+kind, func(t *testing.T) {
				bubble(t, 0, admin, func(t *testing.T, c net.Conn) {
					began := time.Now()
					var sender sync.WaitGroup
					defer sender.Wait()
					sender.Go(func() {
						fmt.Fprintf(c, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", tt.length)
						for range tt.pieces {
							c.Write(bytes.Repeat([]byte(" "), tt.piece))
							time.Sleep(tt.every)
						}
					})
					resp, err := http.ReadResponse(bufio.NewReader(c), nil)
					if err != nil {
						t.Fatal(err)
					}
					body, _ := io.ReadAll(resp.Body)
					slow := resp.StatusCode == 408 && resp.Close && strings.Contains(string(body), "too slowly") && time.Since(began) == tt.refused
					if slow != (tt.refused > 0) {
						t.Errorf("after %v: %s, close %v: %s", time.Since(began), resp.Status, resp.Close, body)
					}
				})
			})
		}
	}
}

// TestRefusedBody: a request that is refused before its body is read gets its answer at
// once, and its connection does not outlast the time for the body.
func TestRefusedBody(t *testing.T) {
	for name, admin := range map[string]bool{"data": false, "admin": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 0, admin, func(t *testing.T, c net.Conn) {
				began := time.Now()
				io.WriteString(c, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\nContent-Length: 10\r\n\r\nab")
				r := bufio.NewReader(c)
				resp, err := http.ReadResponse(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, resp.Body)
				if resp.StatusCode != 403 || !resp.Close || time.Since(began) != 0 {
					t.Errorf("after %v: %s, close %v", time.Since(began), resp.Status, resp.Close)
				}
				if _, err := r.ReadByte(); err != io.EOF || time.Since(began) > bodyTimeout+time.Second {
					t.Errorf("the connection ended after %v: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestSlowReader takes the head of a long response and then nothing more.
func TestSlowReader(t *testing.T) {
	bubble(t, 1<<20, false, func(t *testing.T, c net.Conn) {
		began := time.Now()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: s\r\n\r\n")
		c.Read(make([]byte, 10))
		time.Sleep(writeTimeout + time.Second)
		if n, err := io.Copy(io.Discard, c); n >= 1<<20 {
			t.Errorf("%d bytes came, %v after %v; want the connection ended", n, err, time.Since(began))
		}
	})
}

// TestPatientReader takes a long response in chunks, none of them too late, and then
// sends the next request on the same connection.
func TestPatientReader(t *testing.T) {
	bubble(t, 1<<20, false, func(t *testing.T, c net.Conn) {
		r := bufio.NewReader(c)
		for range 2 {
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: s\r\n\r\n")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			total := int64(0)
			for err == nil {
				var n int64
				n, err = io.CopyN(io.Discard, resp.Body, 64<<10)
				total += n
				time.Sleep(writeTimeout - time.Second)
			}
			if err != io.EOF || total != 1<<20 {
				t.Errorf("%d bytes came, then %v", total, err)
			}
		}
	})
}
