package http1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// echo answers with what it was asked, in the way that the path asks for.
func echo(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/plain")
	h.Set("Method", r.Method)
	if length, ok := strings.CutPrefix(r.URL.RawQuery, "length="); ok {
		h.Set("Content-Length", length)
	}
	if r.URL.RawQuery == "closed" {
		r.Body.Close()
	}
	way := strings.TrimPrefix(r.URL.Path, "/")
	if way == "unread" {
		io.WriteString(w, "the body was not read")
		return
	}
	body, err := io.ReadAll(r.Body)
	text := fmt.Sprintf("%s %s %s host=%q length=%d close=%v coding=%v %q body=%q err=%v", r.Method, r.RequestURI, r.Proto, r.Host, r.ContentLength, r.Close, r.TransferEncoding, fields(r.Header), body, err != nil)
	if status, err := strconv.Atoi(way); err == nil && status >= 200 {
		w.WriteHeader(status)
	}
	switch way {
	case "nothing":
		return
	case "flushed":
		io.WriteString(w, "first ")
		w.(http.Flusher).Flush()
	case "long":
		text += strings.Repeat("x", 3*maxPending)
	case "full":
		text = strings.Repeat("x", maxPending)
	case "over":
		text = strings.Repeat("x", maxPending+1)
	case "length":
		text += strings.Repeat("x", 3*maxPending)
		h.Set("Content-Length", strconv.Itoa(len(text)))
	case "late":
		w.WriteHeader(200)
		h.Set("Content-Length", "5")
		text += strings.Repeat("x", 3*maxPending)
	case "too-long", "too-short":
		h.Set("Content-Length", strconv.Itoa(len(text)+map[string]int{"too-long": -5, "too-short": 5}[way]))
	case "close":
		h.Set("Connection", "close")
	case "coding":
		h.Set("Transfer-Encoding", "chunked")
		text += strings.Repeat("x", 3*maxPending) // net/http sends a short one in chunks, too
	case "panic":
		io.WriteString(w, "lost")
		panic(http.ErrAbortHandler)
	}
	for len(text) > 0 { // in parts
		n := min(len(text), 1000)
		if _, err := io.WriteString(w, text[:n]); err != nil {
			return
		}
		text = text[n:]
	}
}

func fields(h http.Header) (all []string) {
	for name, values := range h {
		all = append(all, fmt.Sprintf("%s=%q", name, values))
	}
	slices.Sort(all)
	return all
}

// answers serves one connection that sends so many bytes and closes its half, and returns the
// answers to it.
func answers(t testing.TB, addr, request string) string {
	t.Helper()
	c, err := net.Dial("unix", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, request) // may be refused before its end
	c.(*net.UnixConn).CloseWrite()
	var all bytes.Buffer
	all.ReadFrom(c) // a reset comes where an answer was cut off
	return normal(all.Bytes())
}

// refused is the end of answers whose last one is a refusal; before it is the status.
const refused = " refused"

// normal returns answers with their fields in order, without their dates. Whether the connection
// lives on is told by the next answer, not by the field Connection.
func normal(all []byte) string {
	var b strings.Builder
	r := bufio.NewReader(bytes.NewReader(all))
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return b.String() + line
		}
		status := strings.TrimSpace(line)
		if f := strings.Fields(status); len(f) > 1 && f[1] >= "400" { // the last answer, in the words of a server
			return b.String() + f[1] + refused
		}
		var head []string
		for {
			line, err = r.ReadString('\n')
			if line = strings.TrimSpace(line); line == "" || err != nil {
				break
			}
			if name, _, _ := strings.Cut(line, ":"); name != "Date" && line != "Connection: close" {
				head = append(head, line)
			}
		}
		slices.Sort(head)
		fmt.Fprintf(&b, "%s %q\n", status, head)
		body := new(bytes.Buffer)
		if slices.Contains(head, "Method: HEAD") {
			fmt.Fprintln(&b, "no body")
			continue
		}
		for _, f := range head {
			if n, ok := strings.CutPrefix(f, "Content-Length: "); ok {
				size, _ := strconv.Atoi(n)
				io.CopyN(body, r, int64(min(size, r.Buffered()+len(all))))
			}
		}
		if slices.Contains(head, "Transfer-Encoding: chunked") {
			resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), r)), nil)
			if err == nil {
				_, err = body.ReadFrom(resp.Body)
			}
			return fmt.Sprintf("%s%q %v", b.String(), body, err) // the rest is in another buffer
		}
		fmt.Fprintf(&b, "%q\n", body)
	}
}

// later answers by h, after its own return or beside it.
func later(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		Detach(w)
		go Resume(w, func() { h(w, r) })
	}
}

// both starts a server of this package, with h, and one of net/http, with echo.
func both(t testing.TB, h http.HandlerFunc) (ours, theirs string) {
	start := func(serve func(net.Listener) error, end func() error) string {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "socket")) // ports would run out
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			serve(l)
		}()
		t.Cleanup(func() {
			end()
			<-ended
		})
		return l.Addr().String()
	}
	log := slog.New(slog.DiscardHandler)
	const limit = 8 << 10
	own := newServer(h)
	own.MaxHeader = limit
	std := &http.Server{Handler: http.HandlerFunc(echo), MaxHeaderBytes: limit - 4096, ErrorLog: slog.NewLogLogger(log.Handler(), 0), DisableGeneralOptionsHandler: true}
	return start(own.Serve, own.Close), start(std.Serve, std.Close)
}

func newServer(h http.HandlerFunc) *Server {
	return &Server{
		Handler: h, HeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, WriteTimeout: 30 * time.Second, MaxHeader: 20 << 10,
		Log: slog.New(slog.DiscardHandler),
	}
}

const hostLine = "Host: a\r\n"

// requests are answered as net/http's server answers them. CONNECT is not among them: net/http
// of Go 1.26.8 keeps its connection, that of 1.26.9 does not; see TestConnect.
var requests = []string{
	"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /2 HTTP/1.1\r\nHost: b\r\n\r\n",
	"GET / HTTP/1.1\nHost: a\n\n",
	"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.0\r\n\r\n",
	"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
	"GET /flushed HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET / HTTP/1.0\r\n\r\n",
	"GET /length HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: ClosE 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: 0\tclose\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: x\r\nConnection: 0 close\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: cloſe 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nConnection: closed 0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /close HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /flushed HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /long HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /full HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /over HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /length HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /coding HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /late HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /?length=0 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /long?length=x HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /long?length=-1 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /long HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /full HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /over HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /length HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /?length=0 HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /204 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /304 HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /204?length=5 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /304?length=5 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /200 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /299 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /999 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /1000 HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /too-long HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /too-short HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /panic HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50\r\n\r\nhello",
	"POST /?closed HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: 1\r\nX: 2\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTrailer: X\r\nTransfer-Encoding: chunked\r\n\r\n5;ext=1\r\nhello\r\n0\r\nX: 1\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz\r\nhello\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n",
	"POST / HTTP/1.1\r\nHost: a\r\nExpect: cake\r\nContent-Length: 5\r\n\r\nhello",
	"POST / HTTP/1.0\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello",
	"GET / HTTP/1.1\r\n\r\n",
	"GET http://b/ HTTP/1.1\r\n\r\n",
	"GET http://b/x HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET http://b/x HTTP/1.1\r\nHost: a/b\r\n\r\n",
	"GET http://b/x HTTP/1.1\r\nHost: a\r\n /b\r\n\r\n",
	"GET http://b/x HTTP/1.1\r\nX: 1\r\nHost:\r\n\ta/b\r\nY: 2\r\n\r\n",
	"GET / HTTP/1.1\r\nHost:\r\n\r\n",
	"GET / HTTP/1.1\nHost:\n\n",
	"GET / HTTP/1.1\r\nABCD: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHosts: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
	"GET / HTTP/1.1\r\nhost:\ta\t\r\n\r\n",
	"GET / HTTP/1.1\r\nX: 1\r\n host: a\r\n\r\n",
	"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
	"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
	"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /%zz HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET /\r\n\r\n",
	"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
	"PRI / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.2\r\nHost: a\r\n\r\n",
	"GET / http/1.1\r\nHost: a\r\n\r\n",
	"G{T / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X{: 1\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: \x01\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: a\x00b\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: a\rb\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + ": a\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "no colon\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: a\r\n folded\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: \xff\xfe\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: " + strings.Repeat("a", 3<<10) + "\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: " + strings.Repeat("a", 5<<10) + "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + "X: " + strings.Repeat("a", 9<<10) + "\r\n\r\n",
	"GET / HTTP/1.1\r\n" + hostLine + strings.Repeat("X: a\r\n", 4<<10) + "\r\n",
	"GET /" + strings.Repeat("a", 9<<10),
	"GET / HTTP/1.1\r\nHost: a\r\n",
	"GET / HT",
	"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"",
}

// TestAnswersAsNetHTTP holds the answers to requests, good and bad, against those of net/http's
// server.
func TestAnswersAsNetHTTP(t *testing.T) {
	for _, h := range []http.HandlerFunc{echo, later(echo)} {
		ours, theirs := both(t, h)
		for _, request := range requests {
			if got, want := answers(t, ours, request), answers(t, theirs, request); got != want {
				t.Errorf("%.200q is answered by\n%.700s\nnot by\n%.700s", request, got, want)
			}
		}
	}
}

// Fields that do not go on in the next line.
var (
	expect    = regexp.MustCompile("\r\nExpect: 100-continue\r\n[^ \t]")
	keepAlive = regexp.MustCompile("\r\nConnection: keep-alive\r\n[^ \t]")
)

// aloneIn reports whether each word of a request, in small letters, stands in a field that is it alone.
func aloneIn(request []byte, word string, field *regexp.Regexp) bool {
	return bytes.Count(bytes.ToLower(request), []byte(word)) == len(field.FindAll(request, -1))
}

// FuzzAnswersAsNetHTTP does the same with bytes of all kinds. A request that net/http takes may be
// refused here.
func FuzzAnswersAsNetHTTP(f *testing.F) {
	for _, request := range requests {
		f.Add([]byte(request))
	}
	ours, theirs := both(f, echo)
	f.Fuzz(func(t *testing.T, request []byte) {
		if !aloneIn(request, "expect", expect) {
			t.Skip("net/http takes other words for 100-continue, too")
		}
		if !aloneIn(request, "keep-alive", keepAlive) {
			t.Skip("net/http finds the word in fields of HTTP/1.0 that are no lists of tokens, too")
		}
		if bytes.Contains(request, []byte("CONNECT")) {
			t.Skip("net/http's answer is that of its version")
		}
		if bytes.Contains(request, []byte("?length=")) {
			t.Skip("net/http ends the connection of a handler that writes too much, also after a whole answer")
		}
		if bytes.Contains(request, []byte("?closed")) {
			t.Skip("net/http reads the rest of a body that is closed")
		}
		got, want := answers(t, ours, string(request)), answers(t, theirs, string(request))
		before, last := strings.CutSuffix(got, refused)
		if before = strings.TrimRight(before, "0123456789"); got != want && (!last || !strings.HasPrefix(want, before)) {
			t.Errorf("%q is answered by\n%s\nnot by\n%s", request, got, want)
		}
	})
}
