package h1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// written returns the bytes of a request, by write.
func written(write func(*bufio.Writer) error) (string, error) {
	var b bytes.Buffer
	w := bufio.NewWriter(&b)
	err := write(w)
	w.Flush()
	return b.String(), err
}

// Requests are written as net/http does, byte for byte, or refused.
func TestWritesAsNetHTTP(t *testing.T) {
	for name, tt := range map[string]struct {
		method, target, host, body string
		header                     http.Header
	}{
		"GET":                  {"GET", "/a/b?c=d&e=%20", "a.test", "", nil},
		"POST":                 {"POST", "/", "a.test:81", "body", http.Header{"Content-Type": {"text/plain"}, "Accept": {"*/*"}}},
		"POST without a body":  {"POST", "/", "a.test", "", nil},
		"PUT without a body":   {"PUT", "/", "a.test", "", nil},
		"PATCH without a body": {"PATCH", "/", "a.test", "", nil},
		"DELETE":               {"DELETE", "/", "a.test", "", nil},
		"own method":           {"M-SEARCH", "/", "a.test", "x", nil},
		"question mark":        {"GET", "/?", "a.test", "", nil},
		"escapes":              {"GET", "/%2e%2F\"{}|\\^`é?\"é", "a.test", "", nil},
		"names of a host":      {"GET", "/", "bücher.example:80", "", nil},
		"IPv6":                 {"GET", "/", "[::1]:80", "", nil},
		"zone":                 {"GET", "/", "[fe80::1%eth0]:80", "", nil},
		"zone without a port":  {"GET", "/", "[fe80::1%25eth0]", "", nil},
		"many fields":          {"GET", "/", "a.test", "", many(3 * fieldsOnStack)},
		"values of a field":    {"GET", "/", "a.test", "", http.Header{"B": {"2", "", "1"}, "A": {""}, "x-lower": {"\tv "}}},
		"User-Agent":           {"GET", "/", "a.test", "", http.Header{"User-Agent": {"x"}, "T": {"y"}, "V": {"z"}}},
		"framing":              {"POST", "/", "a.test", "abc", http.Header{"Host": {"b"}, "Content-Length": {"1"}, "Transfer-Encoding": {"chunked"}, "Trailer": {"X"}}},
		"long body":            {"POST", "/", "a.test", strings.Repeat("x", 100000), nil},
	} {
		path, query, asked := strings.Cut(tt.target, "?")
		header := http.Header{"User-Agent": {""}}
		for name, values := range tt.header {
			header[name] = values
		}
		request := func() *http.Request {
			body := io.NopCloser(strings.NewReader(tt.body))
			if tt.body == "" {
				body = http.NoBody
			}
			return &http.Request{
				Method: tt.method, Host: tt.host, Header: header, ContentLength: int64(len(tt.body)),
				URL:  &url.URL{Scheme: "http", Host: tt.host, Opaque: path, RawQuery: query, ForceQuery: asked},
				Body: body,
			}
		}
		ours, err := written(func(w *bufio.Writer) error { return writeRequest(w, request()) })
		theirs, theirErr := written(func(w *bufio.Writer) error { return request().Write(w) })
		if err != nil || theirErr != nil {
			t.Errorf("%s: %v, and net/http's %v", name, err, theirErr)
		}
		if ours != theirs {
			t.Errorf("%s:\n%q\nnet/http's\n%q", name, ours, theirs)
		}
	}
}

func many(n int) http.Header {
	h := make(http.Header)
	for i := range n {
		h["X-"+strings.Repeat("y", i)] = []string{"z"}
	}
	return h
}

// Nothing is sent of a head that could hold another one.
func TestRequestsThatCannotBeWritten(t *testing.T) {
	for name, spoil := range map[string]func(*http.Request){
		"line in a value":     func(r *http.Request) { r.Header["X"] = []string{"a\r\nB: c"} },
		"line in a name":      func(r *http.Request) { r.Header["X: a\r\nB"] = []string{"c"} },
		"line in the target":  func(r *http.Request) { r.URL.Opaque = "/ HTTP/1.1\r\nX: " },
		"line in the method":  func(r *http.Request) { r.Method = "GET / HTTP/1.1\r\nX:" },
		"space in the target": func(r *http.Request) { r.URL.Opaque = "/ HTTP/1.1" },
		"line in the host":    func(r *http.Request) { r.Host = "a\r\nX: b" },
		"NUL in a value":      func(r *http.Request) { r.Header["X"] = []string{"a\x00"} },
		"no length":           func(r *http.Request) { r.ContentLength = -1 },
		"no body":             func(r *http.Request) { r.Body = nil },
		"short body":          func(r *http.Request) { r.ContentLength = 5 },
		"long body":           func(r *http.Request) { r.ContentLength = 3 },
	} {
		cl := newClient(t, host(t, answering(func(*http.Request) string { return "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" })))
		r := request("POST", "/", "body")
		spoil(r)
		if _, _, p, err := cl.get(t, r); err == nil || p.Wrote {
			t.Errorf("%s: %v, %+v", name, err, p)
		}
		r = request("GET", "/", "")
		r.Body = nil
		if status, _, _, err := cl.get(t, r); err != nil || status != 200 || cl.opened != 2 {
			t.Errorf("%s: the next request: %d, %v, %d connections", name, status, err, cl.opened)
		}
	}
}
