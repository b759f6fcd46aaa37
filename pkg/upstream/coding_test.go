package upstream

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encoders write the codings that are read; deflate-raw is deflate without the header of zlib.
var encoders = map[string]func(w io.Writer) io.WriteCloser{
	"gzip":    func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) },
	"deflate": func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) },
	"deflate-raw": func(w io.Writer) io.WriteCloser {
		raw, _ := flate.NewWriter(w, flate.BestSpeed) // fails for an unknown level only
		return raw
	},
	"br": func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, 4) },
	"zstd": func(w io.Writer) io.WriteCloser {
		e, _ := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxZstdWindow)) // likewise
		return e
	},
}

// encoded returns a text in codings, in this order.
func encoded(t testing.TB, text []byte, names ...string) []byte {
	t.Helper()
	for _, name := range names {
		var to bytes.Buffer
		w := encoders[name](&to)
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		text = to.Bytes()
	}
	return text
}

// TestCodings: answers are read in every coding that clients offer, in lists of them, and plainly
// under a name that is none.
func TestCodings(t *testing.T) {
	const text = `{"status":"succeeded"}`
	gbk := "{\"msg\":\"\xcf\xb5\xcd\xb3\"}"
	for _, tt := range []struct {
		field []string
		body  []byte
		want  string
		why   string
	}{
		{nil, []byte(text), text, ""},
		{[]string{""}, []byte(text), text, ""},
		{[]string{"identity"}, []byte(text), text, ""},
		{[]string{"gzip"}, encoded(t, []byte(text), "gzip"), text, ""},
		{[]string{"GZIP"}, encoded(t, []byte(text), "gzip"), text, ""},
		{[]string{"x-gzip"}, encoded(t, []byte(text), "gzip"), text, ""},
		{[]string{"X-GZip"}, encoded(t, []byte(text), "gzip"), text, ""},
		{[]string{"deflate"}, encoded(t, []byte(text), "deflate"), text, ""},
		{[]string{"deflate"}, encoded(t, []byte(text), "deflate-raw"), text, ""},
		{[]string{"br"}, encoded(t, []byte(text), "br"), text, ""},
		{[]string{"zstd"}, encoded(t, []byte(text), "zstd"), text, ""},
		{[]string{"gzip, br"}, encoded(t, []byte(text), "gzip", "br"), text, ""},
		{[]string{"deflate , identity,, zstd", "gzip"}, encoded(t, []byte(text), "deflate", "zstd", "gzip"), text, ""},
		{[]string{"gzip,gzip,gzip,gzip,gzip"}, encoded(t, []byte(text), "gzip", "gzip", "gzip", "gzip", "gzip"), text, ""},
		{[]string{"gzip,gzip,gzip,gzip,gzip,gzip"}, encoded(t, []byte(text), "gzip", "gzip", "gzip", "gzip", "gzip", "gzip"), "", "the answer's body is in 6 codings, and at most 5 are read"},
		// Two members, as some servers send that flush.
		{[]string{"gzip"}, slices.Concat(encoded(t, []byte(text[:5]), "gzip"), encoded(t, []byte(text[5:]), "gzip")), text, ""},
		{[]string{"UTF-8"}, []byte(text), text, ""},
		{[]string{"utf8"}, []byte(text), text, ""},
		{[]string{"none"}, []byte(text), text, ""},
		{[]string{"binary"}, []byte("<xml><a>1</a></xml>"), "<xml><a>1</a></xml>", ""},
		{[]string{"GBK"}, []byte(gbk), gbk, ""},
		{[]string{"UTF-8, gzip"}, encoded(t, []byte(text), "gzip"), text, ""},
		{[]string{"gzip", "UTF-8"}, encoded(t, []byte(text), "gzip"), text, ""},
		{[]string{"application/json"}, []byte("OK, 系统"), "OK, 系统", ""},
		{[]string{"br"}, nil, "", ""},
		{[]string{"lz4"}, nil, "", ""},
		{[]string{"lz4"}, []byte("\x04\x22\x4d\x18\x64\x40"), "", "the answer's body is in a coding that is not read, lz4"},
		{[]string{"compress"}, []byte("\x1f\x9d\x90\x61"), "", "the answer's body is in a coding that is not read, compress"},
		{[]string{"s3cret \"\x01"}, []byte("\x1f\x9d\x90\x61"), "", "the answer's body is in a coding that is not read, with another name"},
		{[]string{"gzip"}, []byte(text), "", "the answer's body is no valid gzip"},
		{[]string{"deflate"}, []byte(strings.Repeat("\xff", 20)), "", "the answer's body is no valid deflate"},
		{[]string{"br"}, []byte(strings.Repeat("\xff", 20)), "", "the answer's body is no valid br"},
		{[]string{"zstd"}, []byte(text), "", "the answer's body is no valid zstd"},
	} {
		a := newAnswer(200, http.Header{"Content-Encoding": tt.field}, tt.body, false, DefaultMaxInspect)
		if string(a.body) != tt.want || string(a.why) != tt.why || a.partial {
			t.Errorf("%q: %q, %q, goes on: %v; want %q, %q", tt.field, a.body, a.why, a.partial, tt.want, tt.why)
		}
	}
}

// TestCodedBodiesThatEndEarly: of a body that goes on, its beginning is read; one that ends within
// its coding is cut; and one that is longer than what is inspected goes on.
func TestCodedBodiesThatEndEarly(t *testing.T) {
	text := []byte(`{"status":"succeeded","list":[` + strings.Repeat("0123456789,", 3000) + `0]}`)
	for name, coding := range map[string]string{"gzip": "gzip", "deflate": "deflate", "deflate-raw": "deflate", "br": "br", "zstd": "zstd"} {
		header := http.Header{"Content-Encoding": {coding}}
		all := encoded(t, text, name)
		half := all[:len(all)-1]
		if a := newAnswer(200, header, half, true, 1<<20); a.why != "" || !a.partial || !bytes.HasPrefix(text, a.body) {
			t.Errorf("%s goes on: %d bytes, %q", name, len(a.body), a.why)
		}
		if a := newAnswer(200, header, half, false, 1<<20); a.why != errCut || len(a.body) > 0 {
			t.Errorf("%s ends early: %d bytes, %q", name, len(a.body), a.why)
		}
		if a := newAnswer(200, header, all, false, 1000); a.why != "" || !a.partial || string(a.body) != string(text[:1000]) {
			t.Errorf("%s is longer than inspected: %d bytes, %q, goes on: %v", name, len(a.body), a.why, a.partial)
		} else if v, err := a.value("status"); v != "succeeded" || err != nil {
			t.Errorf("%s: its beginning has the status %v, %v", name, v, err)
		}
		if a := newAnswer(200, header, all, false, int64(len(text))); a.why != "" || a.partial || len(a.body) != len(text) {
			t.Errorf("%s is as long as inspected: %d bytes, %q, goes on: %v", name, len(a.body), a.why, a.partial)
		}
	}
}

// TestBombs: a body that unfolds to a thousand times its size, in any coding and in two of them, takes
// the memory that is inspected, and the coder's window and tables.
func TestBombs(t *testing.T) {
	const max = 64 << 10
	windows := map[string]uint64{"gzip": 1 << 20, "deflate": 1 << 20, "deflate-raw": 1 << 20, "br": 2 << 24, "zstd": 2 * maxZstdWindow}
	zeros := make([]byte, 64<<20)
	for _, names := range [][]string{{"gzip"}, {"deflate"}, {"deflate-raw"}, {"br"}, {"zstd"}, {"gzip", "gzip"}, {"br", "zstd"}, {"zstd", "br"}} {
		bomb := encoded(t, zeros, names...)
		header := http.Header{"Content-Encoding": {strings.ReplaceAll(strings.Join(names, ","), "-raw", "")}}
		bomb = bomb[:min(len(bomb), max)]
		bound := uint64(8 * max)
		for _, name := range names {
			bound += windows[name]
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		start := time.Now()
		plain, partial, why := decoded(header, bomb, true, max)
		took := time.Since(start)
		runtime.ReadMemStats(&after)
		grown := after.TotalAlloc - before.TotalAlloc
		if t.Logf("%v: %d KiB were allocated for a bomb of %d bytes, in %v", names, grown>>10, len(bomb), took); grown > bound {
			t.Errorf("%v: %d KiB were allocated, at most %d", names, grown>>10, bound>>10)
		}
		if len(plain) > max || why == "" && !partial {
			t.Errorf("%v: %d bytes, goes on: %v, %q", names, len(plain), partial, why)
		}
		if took > 10*time.Second {
			t.Errorf("%v took %v", names, took)
		}
	}
}

// TestWindowOfZstd: a window above that of the coding is not read (RFC 9659), whatever the frame says.
func TestWindowOfZstd(t *testing.T) {
	var to bytes.Buffer
	w, err := zstd.NewWriter(&to, zstd.WithWindowSize(4*maxZstdWindow), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // in two parts, so that the frame does not tell its size
		w.Write(make([]byte, 5*maxZstdWindow))
		w.Flush()
	}
	w.Close()
	if a := newAnswer(200, http.Header{"Content-Encoding": {"zstd"}}, to.Bytes(), false, DefaultMaxInspect); a.why != "the answer's body is no valid zstd" {
		t.Errorf("%d bytes, %q", len(a.body), a.why)
	}
}

// TestCodedAnswers: an attempt judges an answer in a coding, and passes its bytes on unchanged.
func TestCodedAnswers(t *testing.T) {
	c := Config{Outcomes: []Rule{{When: `body("error.code") == "declined"`, Is: Failed}}, Proof: []Proof{{Holds: `body("status") == "succeeded"`}}}
	for name, coding := range map[string]string{"gzip": "x-gzip", "deflate": "deflate", "deflate-raw": "Deflate", "br": "br", "zstd": "zstd"} {
		for text, want := range map[string]Outcome{`{"status":"succeeded"}`: Done, `{"status":"open"}`: Unknown, `{"error":{"code":"declined"}}`: Failed} {
			res := judged(t, c, &Request{Method: "POST", Target: "/"}, 200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {coding}}, string(encoded(t, []byte(text), name)))
			if res.Outcome != want {
				t.Errorf("%s in %s: %s (%s), want %s", text, name, res.Outcome, res.Reason, want)
			}
		}
	}
}

// TestUnreadableCodings: many answers in a coding that is not read shut no upstream, and the status
// decides where no rule needs them.
func TestUnreadableCodings(t *testing.T) {
	c := Config{Outcomes: []Rule{{When: `status < 300 and body("status") == "open"`, Is: Unknown}}}
	for status, want := range map[int]Outcome{200: Unknown, 402: Failed, 404: Failed, 429: NotExecuted, 500: Unknown} {
		res := judged(t, c, &Request{Method: "POST", Target: "/"}, status, http.Header{"Content-Encoding": {"lz4"}}, "\x04\x22\x4d\x18")
		if res.Outcome != want || res.Open != (status == 200) || (res.Uncomputable != nil) != (status == 200) {
			t.Errorf("status %d: %s (%s), open: %v; want %s", status, res.Outcome, res.Reason, res.Open, want)
		}
	}
}

// TestOffer: where the body of answers is needed, only codings that are read are asked for. Without
// that, and without the field, nothing is changed.
func TestOffer(t *testing.T) {
	reads := Config{Outcomes: []Rule{{When: `body("a") == 1`, Is: Failed}}}
	for name, c := range map[string]Config{"rules": reads, "a proof": {Proof: []Proof{{}}}, "a cost": {Charges: []string{"", `body("a")`}}, "nothing": {Outcomes: []Rule{{When: "status == 429", Is: NotExecuted}}, Proof: []Proof{{Format: "any"}}}} {
		var got []string
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header["Accept-Encoding"] }))
		c.URL = s.URL
		u := newUpstream(t, c)
		for offer, want := range map[string]string{
			"":                              "",
			"gzip, deflate, br":             "gzip, deflate, br",
			"gzip, deflate, br, zstd":       "gzip, deflate, br, zstd",
			"GZIP;q=0.5,X-Gzip":             "GZIP;q=0.5,X-Gzip",
			"identity":                      "identity",
			"gzip, br, dcb, dcz":            "gzip, br",
			"compress":                      "identity",
			"lz4;q=1, deflate;q=0.5":        "deflate;q=0.5",
			"*":                             "gzip",
			"*;q=0.1, br":                   "gzip;q=0.1, br",
			"gzip, *;q=0.5":                 "gzip",
			"gzip, *;q=0":                   "gzip, *;q=0",
			"gzip, compress;q=0.000":        "gzip, compress;q=0.000",
			"lz4, gzip;q=0.5, identity;q=0": "gzip;q=0.5, identity;q=0",
		} {
			r := &Request{Method: "POST", Target: "/", Header: http.Header{"X-Other": {"1"}}}
			if offer != "" {
				r.Header["Accept-Encoding"] = []string{offer}
			}
			do(t, u, r).Response.Body.Close()
			if name == "nothing" {
				want = offer
			}
			if strings.Join(got, "|") != want || (offer == "") != (got == nil) {
				t.Errorf("with %s, %q goes out as %q, want %q", name, offer, got, want)
			}
			if offer != "" && r.Header.Get("Accept-Encoding") != offer {
				t.Errorf("the caller's own header is changed to %q", r.Header)
			}
		}
		u.Close()
		s.Close()
	}
}

// FuzzCodings: any bytes under any Content-Encoding are read, or are not, within bounds.
func FuzzCodings(f *testing.F) {
	text := []byte(`{"status":"succeeded","list":["a","b","a","b","a","b"]}`)
	for name := range encoders {
		f.Add(strings.TrimSuffix(name, "-raw"), encoded(f, text, name), false)
		f.Add(strings.TrimSuffix(name, "-raw"), encoded(f, make([]byte, 1<<20), name), true)
	}
	f.Add("gzip, br", encoded(f, text, "gzip", "br"), false)
	f.Add("UTF-8", text, true)
	f.Add("lz4", []byte("\x04\x22\x4d\x18"), false)
	f.Fuzz(func(t *testing.T, field string, body []byte, truncated bool) {
		const max, window = 64 << 10, 16 << 20
		before := bytes.Clone(body)
		var was, is runtime.MemStats
		runtime.ReadMemStats(&was)
		start := time.Now()
		plain, partial, why := decoded(http.Header{"Content-Encoding": {field}}, body, truncated, max)
		took := time.Since(start)
		runtime.ReadMemStats(&is)
		coded := len(codings(http.Header{"Content-Encoding": {field}})) > 0 && len(body) > 0
		switch {
		case !bytes.Equal(body, before):
			t.Error("the bytes of the answer are changed")
		case coded && len(plain) > max && len(plain) > len(body):
			t.Errorf("%d bytes are read, at most %d", len(plain), max)
		case why != "" && len(plain) > 0:
			t.Errorf("%d bytes are read of a body that is not: %s", len(plain), why)
		case truncated && why == "" && !partial:
			t.Error("a body that goes on is whole")
		case is.TotalAlloc-was.TotalAlloc > maxCodings*(2*window+8*max)+uint64(8*len(body)):
			t.Errorf("%d bytes were allocated for %d", is.TotalAlloc-was.TotalAlloc, len(body))
		case took > 20*time.Second:
			t.Errorf("it took %v", took)
		}
		if strings.ContainsAny(string(why), "\x00\n") {
			t.Errorf("the reason quotes bytes: %q", why)
		}
	})
}
