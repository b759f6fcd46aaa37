package fieldname

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestOthers(t *testing.T) {
	for head, want := range map[string]string{
		"Host: a\r\nAccept: b\r\nX-1-A2: c\r\nEtag: d\r\n\r\n":                 "",
		"SOAPAction: \"x\"\r\nX-sOmE: 1\r\n\r\n":                               "SOAPAction X-sOmE",
		"host: a\naccept-encoding: b\n\n":                                      "host accept-encoding",
		"ETag: a\r\nDNT: 1\r\nX_Under: b\r\nx_under: c\r\nX-: d\r\nX-a: e\r\n": "ETag DNT X_Under x_under X-a",
		"X-A: b: c\r\n X-b: folded\r\n\tx-c: folded\r\n\r\n":                   "",
		"X-A\r\n: b\r\nb ad: c\r\n\r\n":                                        "",
		"\r\n":                                                                 "",
		"x-a: cut":                                                             "",
	} {
		if got := Others([]byte("GET / HTTP/1.1\r\n" + head)); !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %q", head, got, want)
		}
	}
}

// FuzzOthers: a name is found if and only if it is not canonical.
func FuzzOthers(f *testing.F) {
	for _, name := range []string{"A", "a", "A-B", "A-b", "1a", "-A", "A--B", "A_B", "a!", "ÀB", "A b", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if strings.ContainsAny(name, ":\n") || strings.HasPrefix(name, " ") || strings.HasPrefix(name, "\t") {
			return
		}
		var want []string
		if name != "" && http.CanonicalHeaderKey(name) != name {
			want = []string{name}
		}
		if got := Others([]byte("HTTP/1.1 200 x: y\n" + name + ": v\r\n\r\n")); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	})
}

func BenchmarkOthers(b *testing.B) {
	const canonical = "Host: 127.0.0.1:8081\r\nUser-Agent: sdk/1.2.3\r\nAccept: application/json\r\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\r\nContent-Type: application/json\r\nContent-Length: 120\r\nIdempotency-Key: 0b2a9c1e-1111-4222-8333-444455556666\r\nAccept-Encoding: gzip, deflate, br\r\nConnection: keep-alive\r\n\r\n"
	for name, head := range map[string]string{"canonical": canonical, "lower": strings.ToLower(canonical)} {
		b.Run(name, func(b *testing.B) {
			text := []byte("GET / HTTP/1.1\r\n" + head)
			b.ReportAllocs()
			for b.Loop() {
				Others(text)
			}
		})
	}
}
