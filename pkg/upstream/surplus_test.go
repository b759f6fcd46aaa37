package upstream

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
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
