package security

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// An arrival is a request as an upstream got it, byte by byte.
type arrival struct {
	method, target string
	fields         []string // "Name: value", in their order
	body           string
}

// String has method and target and, behind a bar, the body.
func (a arrival) String() string {
	if a.body == "" {
		return a.method + " " + a.target
	}
	return a.method + " " + a.target + "|" + a.body
}

// field returns the values of a field, in any case of its name.
func (a arrival) field(name string) (values []string) {
	for _, f := range a.fields {
		if n, v, _ := strings.Cut(f, ": "); strings.EqualFold(n, name) {
			values = append(values, v)
		}
	}
	return values
}

// neverSent are fields that concern one connection, and those that the sidecar itself reads.
var neverSent = []string{
	"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer",
	"transfer-encoding", "upgrade", "expect", "http2-settings",
}

func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune("()<>@,;:\\\"/[]?={}", c)
	})
}

// errMalformed is the error of bytes that a strict reader does not take.
var errMalformed = errors.New("malformed")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// line reads a line that ends with CRLF and holds no other control byte than a tab.
func line(br *bufio.Reader) (string, error) {
	text, err := br.ReadString('\n')
	if err != nil {
		return text, err
	}
	plain, ok := strings.CutSuffix(text, "\r\n")
	if !ok {
		return "", malformed("a line ends without CR: %q", text)
	}
	if strings.ContainsFunc(plain, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
		return "", malformed("a control byte in %q", plain)
	}
	return plain, nil
}

// arrive reads one request as RFC 9112 has it, without any tolerance.
func arrive(br *bufio.Reader, host string) (a arrival, err error) {
	if _, err := br.Peek(1); err != nil {
		return a, io.EOF // between two requests
	}
	first, err := line(br)
	if err != nil {
		return a, err
	}
	parts := strings.Split(first, " ")
	if len(parts) != 3 || !isToken(parts[0]) || !strings.HasPrefix(parts[1], "/") || parts[2] != "HTTP/1.1" {
		return a, malformed("request line %q", first)
	}
	a.method, a.target = parts[0], parts[1]
	seen := make(map[string]int)
	length := 0
	for {
		text, err := line(br)
		if err != nil {
			return a, err
		}
		if text == "" {
			break
		}
		name, value, ok := strings.Cut(text, ":")
		if !ok || !isToken(name) {
			return a, malformed("field %q", text)
		}
		value = strings.Trim(value, " \t")
		lower := strings.ToLower(name)
		seen[lower]++
		switch {
		case slices.Contains(neverSent, lower) || strings.HasPrefix(lower, "throttler-"):
			return a, malformed("%q was passed on", text)
		case lower == "host" && value != host:
			return a, malformed("Host is %q, not %q", value, host)
		case lower == "content-length":
			if length, err = strconv.Atoi(value); err != nil || value[0] < '0' || value[0] > '9' {
				return a, malformed("%q", text)
			}
		}
		a.fields = append(a.fields, name+": "+value)
	}
	if seen["host"] != 1 || seen["content-length"] > 1 {
		return a, malformed("%d Host and %d Content-Length", seen["host"], seen["content-length"])
	}
	body := make([]byte, length)
	_, err = io.ReadFull(br, body)
	a.body = string(body)
	return a, err
}

// A platform is an upstream on a raw socket. It reads strictly, and keeps what came.
type platform struct {
	addr string
	// answer returns the bytes of the answer to a request, and whether the connection is
	// kept.
	answer func(arrival) (bytes string, keep bool)

	mu       sync.Mutex
	arrivals []arrival
	faults   []error
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// always returns the same answer to each request.
func always(text string) func(arrival) (string, bool) {
	return func(arrival) (string, bool) { return text, true }
}

// listen serves connections until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	open := make(map[net.Conn]bool)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			wg.Go(func() {
				serve(c)
				c.Close()
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

// newPlatform starts an upstream. A malformed request fails the test.
func newPlatform(t *testing.T, answer func(arrival) (string, bool)) *platform {
	t.Helper()
	p := &platform{answer: answer}
	p.addr = listen(t, p.serve)
	t.Cleanup(func() { p.check(t) })
	return p
}

func (p *platform) serve(c net.Conn) {
	br := bufio.NewReader(c)
	for {
		a, err := arrive(br, c.LocalAddr().String())
		p.mu.Lock()
		if err == nil {
			p.arrivals = append(p.arrivals, a)
		} else if errors.Is(err, errMalformed) {
			p.faults = append(p.faults, err)
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
		text, keep := p.answer(a)
		if _, err := io.WriteString(c, text); err != nil || !keep {
			return
		}
		if strings.Contains(text, "Connection: close") {
			return
		}
	}
}

// take returns the requests that have come since the last time.
func (p *platform) take() []arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.arrivals
	p.arrivals = nil
	return all
}

// check reports malformed requests.
func (p *platform) check(t *testing.T) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fault := range p.faults {
		t.Errorf("the upstream got a request that is %v", fault)
	}
	p.faults = nil
}

func texts(all []arrival) []string {
	list := []string{}
	for _, a := range all {
		list = append(list, a.String())
	}
	return list
}

// A wire is a raw connection to a listener of the sidecar.
type wire struct {
	net.Conn
	br *bufio.Reader
}

func dial(t *testing.T, addr string) *wire {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(bound))
	return &wire{c, bufio.NewReader(c)}
}

// reply reads one answer, without interim ones. It is the zero reply at the end of the
// connection.
func (w *wire) reply(t *testing.T, method string) (r reply, closed bool) {
	t.Helper()
	for {
		resp, err := http.ReadResponse(w.br, &http.Request{Method: method})
		if err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("the sidecar neither answers nor closes the connection")
			}
			return reply{}, true
		}
		if resp.StatusCode < 200 {
			continue
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			return reply{resp.StatusCode, resp.Header, string(b)}, true
		}
		return reply{resp.StatusCode, resp.Header, string(b)}, resp.Close
	}
}

// fence is a request that ends a connection: its answer shows that the sidecar took nothing
// of the attack for the beginning of another request.
const fence = "GET /fence HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

// strike writes raw bytes to the sidecar and returns all answers, at least one. If the
// connection lives on after the first, a fence follows, and its answer is the last.
func strike(t *testing.T, addr, raw string) (replies []reply, open bool) {
	t.Helper()
	w := dial(t, addr)
	raw, ends := strings.CutSuffix(raw, eof)
	go func() {
		io.WriteString(w, raw)
		if ends {
			w.Conn.(*net.TCPConn).CloseWrite()
		}
	}()
	method, _, _ := strings.Cut(raw, " ")
	first, closed := w.reply(t, method)
	replies = append(replies, first)
	if !closed {
		io.WriteString(w, fence)
	}
	for open = !closed; !closed; {
		var r reply
		if r, closed = w.reply(t, "GET"); r.status != 0 {
			replies = append(replies, r)
		}
	}
	w.Conn.(*net.TCPConn).CloseWrite() // a body that never ends ends now
	if rest, _ := io.ReadAll(w.br); len(rest) > 0 {
		t.Errorf("behind the last answer follows %q", rest)
	}
	return replies, open
}
