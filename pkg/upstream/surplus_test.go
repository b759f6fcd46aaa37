package upstream

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// surplus is an answer that no request has asked for.
const surplus = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsteal"

// misplaced serves one platform on connections that are kept: behind the answer to /attack
// comes a second one, in the same segment.
func misplaced(t *testing.T, l net.Listener) {
	var served sync.WaitGroup
	t.Cleanup(func() { l.Close(); served.Wait() })
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					answer := "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext"
					switch r.URL.Path {
					case "/attack":
						answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" + surplus
					case "/attack/body":
						answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" + surplus
					}
					if _, err := io.WriteString(c, answer); err != nil {
						return
					}
				}
			})
		}
	})
}

// A surplus answer is no answer to the next request: that one goes on another connection, or is
// not sent. net/http looks at a connection only after it has given it back.
func TestSurplusAnswer(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	misplaced(t, plain)
	secured := httptest.NewTLSServer(nil) // for its certificate
	secured.Close()
	hidden, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: secured.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	misplaced(t, hidden)
	rounds := map[string]int{"plain": 150, "TLS": 10} // each opens a connection
	for name, c := range map[string]Config{
		"plain": {URL: "http://" + plain.Addr().String()},
		"TLS":   {URL: "https://" + hidden.Addr().String(), TLS: &tls.Config{InsecureSkipVerify: true}},
	} {
		for _, attack := range []string{"/attack", "/attack/body"} {
			t.Run(name+attack, func(t *testing.T) {
				u, err := New(c)
				if err != nil {
					t.Fatal(err)
				}
				defer u.Close()
				var clients sync.WaitGroup
				defer clients.Wait()
				for range 8 {
					clients.Go(func() {
						for range rounds[name] {
							for _, target := range []string{attack, "/next"} {
								r := u.Do(t.Context(), &Request{Method: "GET", Target: target})
								body := ""
								if r.Response != nil {
									b, _ := io.ReadAll(r.Response.Body)
									body = string(b)
									r.Response.Body.Close()
								}
								switch {
								case strings.Contains(body, "steal"):
									t.Errorf("%s got the surplus answer", target)
									return
								case r.Outcome != Done && (r.Outcome != NotExecuted || r.Sent):
									t.Errorf("%s is %s, sent %v: %s", target, r.Outcome, r.Sent, r.Reason)
									return
								case r.Outcome == Done && target == "/next" && body != "next":
									t.Errorf("%s got %q", target, body)
									return
								}
							}
						}
					})
				}
			})
		}
	}
}

// Of a plain connection no byte counts from the end of an answer, or the begin of a connection,
// to the next request's first byte. Records of TLS may come at any time.
func TestQuietConnection(t *testing.T) {
	type step func(c *conn, platform net.Conn) error
	read := func(c *conn, platform net.Conn) error {
		go platform.Write([]byte("x"))
		_, err := c.Read(make([]byte, 1))
		return err
	}
	end := func(c *conn, platform net.Conn) error {
		platform.Close()
		_, err := c.Read(make([]byte, 1))
		return err
	}
	write := func(c *conn, platform net.Conn) error {
		go platform.Read(make([]byte, 1))
		_, err := c.Write([]byte("x"))
		return err
	}
	first, second, hidden := &wire{plain: true}, &wire{plain: true}, &wire{}
	take := func(w *wire) step {
		return func(c *conn, _ net.Conn) error {
			c.mu.Lock()
			c.reading = true // as while net/http waits for bytes
			c.mu.Unlock()
			c.take(w)
			return nil
		}
	}
	release := func(w *wire) step {
		return func(c *conn, _ net.Conn) error { c.release(w); return nil }
	}
	for name, tt := range map[string]struct {
		steps []step
		want  error // of the last step
	}{
		"an answer":                                {[]step{take(first), write, read}, nil},
		"before the request":                       {[]step{take(first), read}, errSurplus},
		"while it is idle":                         {[]step{take(first), write, read, release(first), read}, errSurplus},
		"a request after it":                       {[]step{take(first), read, write}, errSurplus},
		"the next answer":                          {[]step{take(first), write, read, release(first), take(second), write, read}, nil},
		"the next answer, and a late release":      {[]step{take(first), write, read, take(second), write, release(first), read}, nil},
		"before the next request":                  {[]step{take(first), write, read, release(first), take(second), read}, errSurplus},
		"before the next request, a late release":  {[]step{take(first), write, read, take(second), release(first), read}, errSurplus},
		"records before the request over TLS":      {[]step{take(hidden), read}, nil},
		"records on an idle connection over TLS":   {[]step{take(hidden), write, read, release(hidden), read}, nil},
		"a request over TLS, after such a record":  {[]step{take(hidden), read, write}, nil},
		"a handshake, before a request has it":     {[]step{write, read, write, read}, nil},
		"the end of an idle connection":            {[]step{take(first), write, read, release(first), end}, io.EOF},
		"a request on a closed connection":         {[]step{func(c *conn, _ net.Conn) error { return c.Close() }, write}, net.ErrClosed},
		"the request after a connection is closed": {[]step{func(c *conn, _ net.Conn) error { return c.Close() }, func(c *conn, _ net.Conn) error { c.take(first); return nil }}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			defer here.Close()
			c := newConn(here)
			for i, do := range tt.steps {
				err := do(c, there)
				if last := i == len(tt.steps)-1; last && err != tt.want || !last && err != nil && err != errSurplus {
					t.Fatalf("step %d gives %v, want %v", i, err, tt.want)
				}
			}
		})
	}
}

// A request has one connection: the trace cancels the request when net/http asks for a second one,
// and closes a second HTTP/1.1 connection before a byte is written to it.
func TestWireHasOneConnection(t *testing.T) {
	for name, plain := range map[string]bool{"plain": true, "TLS": false} {
		t.Run(name, func(t *testing.T) {
			open := func() (net.Conn, *conn) {
				here, there := net.Pipe()
				t.Cleanup(func() { here.Close(); there.Close() })
				own := newConn(here)
				own.reading = true // as while net/http waits for bytes
				if plain {
					return own, own
				}
				return tls.Client(own, &tls.Config{}), own
			}
			var cause error
			w := &wire{cancel: func(err error) { cause = err }}
			trace := w.trace()
			trace.GetConn("")
			first, own := open()
			trace.GotConn(httptrace.GotConnInfo{Conn: first})
			if cause != nil || w.conn != own || w.plain != plain || own.user != w || own.closed {
				t.Fatalf("the first connection: cancelled by %v, %+v", cause, w)
			}
			if trace.PutIdleConn(nil); own.user != nil {
				t.Error("an idle connection is the request's still")
			}
			if trace.GetConn(""); cause != errRepeat {
				t.Errorf("a second GetConn cancels with %v", cause)
			}
			cause = nil
			second, other := open()
			trace.GotConn(httptrace.GotConnInfo{Conn: second})
			if cause != errRepeat || !other.closed || w.conn != own || w.same {
				t.Errorf("the second connection: cancelled by %v, closed %v, %+v", cause, other.closed, w)
			}
		})
	}
}

// A request waits until net/http has used all bytes that came before, or has closed the connection.
func TestTakeWaitsForTheReader(t *testing.T) {
	for name, wake := range map[string]func(c *conn){
		"reads":  func(c *conn) { go c.Read(make([]byte, 1)) },
		"closes": func(c *conn) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				defer there.Close()
				c, taken := newConn(here), false
				go there.Write([]byte("x"))
				c.Read(make([]byte, 1)) // net/http has not used it yet
				go func() { c.take(&wire{plain: true}); taken = true }()
				synctest.Wait()
				if taken {
					t.Error("it has the connection before its reader has used all bytes")
				}
				wake(c)
				synctest.Wait()
				if !taken {
					t.Error("it waits on")
				}
			})
		})
	}
}

// A transport of an embedder has connections of its own, which are kept too.
func TestConnectionsOfAnotherTransport(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }))
	defer srv.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	u, err := New(Config{URL: srv.URL, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	for range 3 {
		r := u.Do(t.Context(), &Request{Method: "GET", Target: "/"})
		if r.Outcome != Done {
			t.Fatalf("%s: %s", r.Outcome, r.Reason)
		}
		r.Response.Body.Close()
	}
}
