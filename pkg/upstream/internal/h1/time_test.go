package h1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a pool in a bubble whose connections are pipes: their other ends come on peers.
type pipe struct {
	Pool
	peers   chan net.Conn
	serving sync.WaitGroup // the goroutines of peers
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T, p *pipe)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := &pipe{Pool: Pool{MaxIdle: 10, IdleTimeout: time.Minute}, peers: make(chan net.Conn, 10)}
		test(t, p)
		p.Close()
		p.serving.Wait()
	})
}

// add returns a new connection; wrap, if not nil, is put around its pipe.
func (p *pipe) add(wrap func(net.Conn) net.Conn) *Conn {
	here, there := net.Pipe()
	p.peers <- there
	if wrap != nil {
		here = wrap(here)
	}
	c, err := p.Add(here, nil)
	if err != nil {
		panic(err)
	}
	return c
}

// broken is a connection whose writes fail from the first one on.
type broken struct{ net.Conn }

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func wrapBroken(c net.Conn) net.Conn { return broken{c} }

const okHead = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"

// readsOK reads the body that belongs to okHead.
func readsOK(t *testing.T, resp *http.Response) {
	t.Helper()
	if b, err := io.ReadAll(resp.Body); string(b) != "ok" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

var long = strings.Repeat("x", maxInline+1)

// A request waits for the head of its answer for as long as it is told, from its last byte on. The
// body may come later.
func TestWaitForTheHead(t *testing.T) {
	for name, body := range map[string]string{"short": "x", "long": long} {
		for takes, ok := range map[time.Duration]bool{4 * time.Second: true, 6 * time.Second: false} {
			t.Run(name+" "+takes.String(), func(t *testing.T) {
				bubble(t, func(t *testing.T, p *pipe) {
					c := p.add(nil)
					peer := <-p.peers
					defer peer.Close()
					p.serving.Go(func() {
						time.Sleep(10 * time.Second) // the request is slow
						r, err := http.ReadRequest(bufio.NewReader(peer))
						if err != nil {
							return
						}
						io.Copy(io.Discard, r.Body)
						time.Sleep(takes)
						io.WriteString(peer, okHead)
						time.Sleep(time.Minute)
						io.WriteString(peer, "ok")
					})
					begin := time.Now()
					resp, progress, err := c.RoundTrip(t.Context(), request("POST", "/", body), 5*time.Second)
					if took := time.Since(begin); took != 10*time.Second+min(takes, 5*time.Second) || (err == nil) != ok || progress.Written.Sub(begin) != 10*time.Second {
						t.Errorf("%v after %v; written after %v", err, took, progress.Written.Sub(begin))
					}
					if ok {
						readsOK(t, resp)
					}
				})
			})
		}
	}
}

// An answer that comes before its long request is written bounds no read of its body.
func TestAnswerBeforeTheEndOfTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, p *pipe) {
		c := p.add(nil)
		peer := <-p.peers
		defer peer.Close()
		p.serving.Go(func() {
			in := bufio.NewReader(peer)
			in.Peek(1)
			io.WriteString(peer, okHead)
			time.Sleep(time.Second)
			r, _ := http.ReadRequest(in)
			io.Copy(io.Discard, r.Body)
			time.Sleep(time.Minute)
			io.WriteString(peer, "ok")
		})
		resp, _, err := c.RoundTrip(t.Context(), request("POST", "/", long), 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		readsOK(t, resp)
		if c := p.Take(); c == nil {
			t.Error("the connection is not kept")
		} else {
			c.Close()
		}
	})
}

// An answer to a long request that could not be written counts if it begins within a second;
// without one the error is that of the write.
func TestLastWords(t *testing.T) {
	for takes, ok := range map[time.Duration]bool{time.Second / 2: true, 2 * time.Second: false} {
		bubble(t, func(t *testing.T, p *pipe) {
			c := p.add(wrapBroken)
			peer := <-p.peers
			defer peer.Close()
			p.serving.Go(func() {
				time.Sleep(takes)
				io.WriteString(peer, okHead)
				time.Sleep(time.Minute)
				io.WriteString(peer, "ok")
			})
			begin := time.Now()
			resp, progress, err := c.RoundTrip(t.Context(), request("POST", "/", long), 0)
			if took := time.Since(begin); took != min(takes, time.Second) || progress.Wrote || !progress.Written.IsZero() {
				t.Errorf("after %v: %+v", took, progress)
			}
			if !ok {
				if !errors.Is(err, errBroken) {
					t.Errorf("%v, want the error of the write", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			readsOK(t, resp)
			if p.Take() != nil {
				t.Error("a connection is kept whose request was not written")
			}
		})
	}
}

// A connection is kept if its long request is written soon after the end of the answer.
func TestRequestAfterItsAnswer(t *testing.T) {
	for takes, kept := range map[time.Duration]bool{10 * time.Millisecond: true, time.Second: false} {
		bubble(t, func(t *testing.T, p *pipe) {
			c := p.add(nil)
			peer := <-p.peers
			defer peer.Close()
			p.serving.Go(func() {
				in := bufio.NewReader(peer)
				in.Peek(1)
				io.WriteString(peer, okHead+"ok")
				time.Sleep(takes)
				if r, err := http.ReadRequest(in); err == nil {
					io.Copy(io.Discard, r.Body)
				}
			})
			resp, _, err := c.RoundTrip(t.Context(), request("POST", "/", long), 0)
			if err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			io.ReadAll(resp.Body)
			if took := time.Since(begin); took != min(takes, lastBytes) {
				t.Errorf("the end came after %v", took)
			}
			c = p.Take()
			if (c != nil) != kept {
				t.Errorf("kept is %v, want %v", c != nil, kept)
			}
			if c != nil {
				c.Close()
			}
		})
	}
}

// A body that is closed before its end closes the connection, also if no byte of it is there yet.
func TestCloseBeforeTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T, p *pipe) {
		c := p.add(nil)
		peer := <-p.peers
		closed := make(chan error)
		p.serving.Go(func() {
			in := bufio.NewReader(peer)
			http.ReadRequest(in)
			io.WriteString(peer, okHead)
			_, err := in.ReadByte()
			closed <- err
		})
		resp, _, err := c.RoundTrip(t.Context(), request("GET", "/", ""), 0)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		resp.Body.Close()
		if err := <-closed; err != io.EOF || time.Since(begin) > 0 {
			t.Errorf("the other side reads %v after %v", err, time.Since(begin))
		}
		if p.Take() != nil {
			t.Error("the connection is kept")
		}
	})
}

// A later request on a connection has left only if a byte of its own has.
func TestProgressIsOfOneRequest(t *testing.T) {
	bubble(t, func(t *testing.T, p *pipe) {
		var breaks atomic.Bool
		c := p.add(func(c net.Conn) net.Conn { return &breaking{c, &breaks} })
		peer := <-p.peers
		defer peer.Close()
		p.serving.Go(func() {
			answering(func(*http.Request) string { return okHead + "ok" })(peer, bufio.NewReader(peer))
		})
		resp, progress, err := c.RoundTrip(t.Context(), request("GET", "/", ""), 0)
		if err != nil || !progress.Wrote {
			t.Fatal(err, progress)
		}
		begin := time.Now()
		if io.ReadAll(resp.Body); time.Since(begin) > 0 {
			t.Errorf("the end of the body took %v", time.Since(begin))
		}
		breaks.Store(true)
		if _, progress, err := p.Take().RoundTrip(t.Context(), request("GET", "/", ""), 0); !errors.Is(err, errBroken) || progress.Wrote {
			t.Errorf("%v, %+v; want a request that has not left", err, progress)
		}
	})
}

// A breaking connection fails its writes from an instant on.
type breaking struct {
	net.Conn
	now *atomic.Bool
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.now.Load() {
		return 0, errBroken
	}
	return b.Conn.Write(p)
}

// Idle connections are closed when they have been idle for a minute, each in its turn, also those
// that become idle after the pool was closed and used again.
func TestIdleTimeout(t *testing.T) {
	bubble(t, func(t *testing.T, p *pipe) {
		left := func(want ...net.Conn) {
			t.Helper()
			synctest.Wait()
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.idle) != len(want) {
				t.Fatalf("%d connections are idle, want %d", len(p.idle), len(want))
			}
			for i, c := range p.idle {
				if c.NetConn().(*socket).Conn != want[i] {
					t.Errorf("connection %d is another one", i)
				}
			}
		}
		become := func() net.Conn {
			c := p.add(nil)
			c.Release()
			return c.socket.Conn
		}
		a := become()
		time.Sleep(20 * time.Second)
		b := become()
		time.Sleep(39 * time.Second)
		left(a, b)
		time.Sleep(time.Second)
		left(b)
		time.Sleep(20*time.Second - time.Millisecond)
		left(b)
		time.Sleep(time.Millisecond)
		left()
		become()
		time.Sleep(time.Minute)
		left()
		if _, err := (<-p.peers).Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the first one is not closed: %v", err)
		}
		become()
		time.Sleep(30 * time.Second)
		p.Pool.Close()
		left()
		if p.Take() != nil {
			t.Error("a closed pool has a connection")
		}
		c, d := become(), become()
		time.Sleep(time.Minute - time.Millisecond)
		left(c, d)
		time.Sleep(time.Millisecond)
		left()
	})
}

// A request whose context has ended is not sent, and leaves its connection to others. Bytes of an
// answer have arrived when they can be read without waiting.
func TestEndedContext(t *testing.T) {
	bubble(t, func(t *testing.T, p *pipe) {
		c := p.add(nil)
		peer := <-p.peers
		defer peer.Close()
		ended, end := context.WithCancel(t.Context())
		end()
		if _, progress, err := c.RoundTrip(ended, request("GET", "/", ""), 0); !errors.Is(err, context.Canceled) || progress.Wrote {
			t.Errorf("%v, %+v", err, progress)
		}
		if c = p.Take(); c == nil {
			t.Fatal("the connection is not kept")
		}
		p.serving.Go(func() {
			http.ReadRequest(bufio.NewReader(peer))
			io.WriteString(peer, okHead+"o")
			time.Sleep(time.Second)
			io.WriteString(peer, "k")
		})
		resp, _, err := c.RoundTrip(t.Context(), request("GET", "/", ""), 0)
		if err != nil {
			t.Fatal(err)
		}
		body := resp.Body.(interface{ Arrived(n int64) bool })
		if !body.Arrived(0) || !body.Arrived(1) || body.Arrived(2) {
			t.Error("one byte of two has arrived")
		}
		resp.Body.Close()
	})
}

// A connection whose handshake fails is closed.
func TestFailedHandshake(t *testing.T) {
	here, there := net.Pipe()
	closed := make(chan error)
	go func() {
		_, err := there.Read(make([]byte, 1))
		closed <- err
	}()
	var p Pool
	if c, err := p.Add(here, func(net.Conn) (net.Conn, error) { return nil, errBroken }); c != nil || err != errBroken {
		t.Errorf("%v, %v", c, err)
	}
	if err := <-closed; err != io.EOF {
		t.Errorf("the other side reads %v", err)
	}
}
