package ledger

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// Hops between a platform and its callers: a gateway that answers in the place of the
// platform, one that encodes the body, and the forms in which a limiter asks for a wait.

// texts are the values of an answer that are texts: in each platform the words of a success are among them.
var texts = regexp.MustCompile(`:"[^"]*"|>[^<>]+<`)

// mistyped returns a body with numbers in the place of all its texts.
func mistyped(body string) string {
	return texts.ReplaceAllStringFunc(body, func(text string) string {
		if text[0] == ':' {
			return ":1"
		}
		return ">1<"
	})
}

// gatewayAnswer returns the answer of a gateway in the place of the platform. It proves nothing:
// the request may have been executed or not. Success is the platform's own answer, of which a
// gateway passes the first half at times.
func gatewayAnswer(success Answer, pick int) Answer {
	page := Answer{200, map[string]string{"Content-Type": "text/html"}, "<!DOCTYPE html>\n<html><body><h1>Please wait</h1></body></html>\n"}
	switch pick % 12 {
	case 0: // a page of a portal or of a check for browsers
	case 1:
		page.Header, page.Body = nil, ""
	case 2:
		page.Header, page.Body = success.Header, ""
	case 3:
		page.Header, page.Body = success.Header, success.Body[:len(success.Body)/2]
	case 4:
		return asJSON(200, map[string]any{"ok": true})
	case 5:
		return asJSON(200, []any{})
	case 6:
		page.Header = success.Header
	case 7:
		page.Header, page.Body = success.Header, mistyped(success.Body)
	default:
		page.Status = []int{500, 502, 503, 504, 520}[pick%5]
	}
	return page
}

// encoded returns an answer whose body has a content coding; most have none.
func encoded(a Answer, pick int) Answer {
	coders := []struct {
		name   string
		writer func(io.Writer) io.WriteCloser
	}{
		{"gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }},
		{"x-gzip", func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) }},
		{"deflate", func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) }},
		{"deflate", func(w io.Writer) io.WriteCloser { return made(flate.NewWriter(w, flate.BestSpeed)) }}, // raw, as some servers write it
		{"br", func(w io.Writer) io.WriteCloser { return brotli.NewWriterLevel(w, brotli.BestSpeed) }},
		{"zstd", func(w io.Writer) io.WriteCloser { return made(zstd.NewWriter(w)) }},
		{"UTF-8", func(w io.Writer) io.WriteCloser { return plain{w} }}, // no coding
		{"x-unknown", func(w io.Writer) io.WriteCloser { return plain{w} }},
	}
	n := pick / 12 % 32
	if n >= len(coders) || a.Body == "" {
		return a
	}
	var body bytes.Buffer
	w := coders[n].writer(&body)
	io.WriteString(w, a.Body) // into memory
	w.Close()
	header := map[string]string{"Content-Encoding": coders[n].name}
	for name, value := range a.Header {
		header[name] = value
	}
	return Answer{a.Status, header, body.String()}
}

// made returns a writer whose options are right.
func made[W any](w W, err error) W {
	if err != nil {
		panic(err)
	}
	return w
}

// plain writes a body as it is.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// asked returns an answer of a limiter with a wait, in one of the forms in which platforms and
// gateways write one, or none.
func asked(a Answer, pick int) Answer {
	now := time.Now()
	wait := time.Duration(1+pick/7%5) * time.Second
	seconds := int(wait / time.Second)
	name, value := "", ""
	switch pick / 5 % 12 {
	case 0:
		name, value = "Retry-After", fmt.Sprint(seconds)
	case 1:
		name, value = "Retry-After", fmt.Sprintf("%.2f", wait.Seconds()-0.5)
	case 2:
		name, value = "Retry-After", now.Add(wait).UTC().Format(http.TimeFormat)
	case 3:
		name, value = "Retry-After", now.Add(wait).Format(time.RFC3339)
	case 4:
		name, value = "Retry-After", fmt.Sprint(now.Add(wait).Unix())
	case 5:
		name, value = "Retry-After-Ms", fmt.Sprint(wait.Milliseconds())
	case 6:
		name, value = "RateLimit", fmt.Sprintf("limit=10, remaining=0, reset=%d", seconds)
	case 7:
		name, value = "RateLimit", fmt.Sprintf(`"default";r=0;t=%d`, seconds)
	case 8:
		name, value = "Retry-After", "86400"
	default:
		return a
	}
	header := map[string]string{name: value}
	for name, value := range a.Header {
		header[name] = value
	}
	return Answer{a.Status, header, a.Body}
}
