//go:build unix

package http1

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestClientsThatLeave: a client that closes its connection, or its half of it, ends the context
// of its request; one that sends more bytes does not.
func TestClientsThatLeave(t *testing.T) {
	began, left := make(chan struct{}, 10), make(chan string, 10)
	addr := listen(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- struct{}{}
		<-r.Context().Done()
		left <- r.URL.Path
	})
	begin := func(request string) *net.TCPConn {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, request)
		<-began
		return c.(*net.TCPConn)
	}
	stays := begin("GET /stays HTTP/1.1\r\nHost: a\r\n\r\n")
	io.WriteString(stays, "GET /next")
	for name, leave := range map[string]func(*net.TCPConn){
		"closes":          func(c *net.TCPConn) { c.Close() },
		"closes its half": func(c *net.TCPConn) { c.CloseWrite() },
		"resets": func(c *net.TCPConn) {
			c.SetLinger(0)
			c.Close()
		},
	} {
		for _, request := range []string{"GET", "POST"} {
			leave(begin(request + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"))
			select {
			case path := <-left:
				if path != "/" {
					t.Errorf("the client of %s has left", path)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("a client that %s is still there", name)
			}
		}
	}
}

// listen serves h on a free port until the test ends, and returns its address.
func listen(t *testing.T, h http.HandlerFunc) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, ended := newServer(h), make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(l)
	}()
	t.Cleanup(func() {
		s.Close()
		<-ended
	})
	return l.Addr().String()
}

// TestClientThatWaits: it has no buffer, and its connection lives on.
func TestClientThatWaits(t *testing.T) {
	began, release := make(chan *conn), make(chan struct{})
	addr := listen(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		began <- w.(*response).conn
		<-release
	})
	t.Cleanup(func() { close(release) })
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, request := range []string{get, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", get} {
		io.WriteString(c, request)
		if waits := <-began; waits.in != nil {
			t.Errorf("a client that waits has a buffer of %d bytes", waits.in.Size())
		}
		release <- struct{}{}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 200 || resp.Close {
			t.Fatal(resp, err)
		}
	}
}

// TestRefusedUpload: a client that sends all of a long body before it reads gets the answer that
// was written before.
func TestRefusedUpload(t *testing.T) {
	addr := listen(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
	for range 3 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n")
		for range 16 {
			if _, err := c.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != 413 {
			t.Fatal(resp, err)
		}
	}
}
