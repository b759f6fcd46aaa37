package upstream

import (
	"io"
	"maps"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestCanonical(t *testing.T) {
	plain := http.Header{"Soapaction": {"a"}, "X-B": {"1", "2"}, "bad name": {"x"}}
	if h, names := Canonical(plain); names != nil || reflect.ValueOf(h).Pointer() != reflect.ValueOf(plain).Pointer() {
		t.Errorf("a canonical header became %v, %q", h, names)
	}
	if h, names := Canonical(nil); h != nil || names != nil {
		t.Errorf("no header became %v, %q", h, names)
	}
	given := http.Header{"SOAPAction": {"a"}, "x-b": {"2"}, "X-B": {"1"}, "X-b": {"3"}, "Accept": {"*/*"}}
	h, names := Canonical(given)
	if want := (http.Header{"Soapaction": {"a"}, "X-B": {"1", "3", "2"}, "Accept": {"*/*"}}); !maps.EqualFunc(h, want, slices.Equal) || !slices.Equal(names, []string{"SOAPAction", "X-b", "x-b"}) {
		t.Errorf("%v, %q", h, names)
	}
	if len(given) != 5 || len(given["X-B"]) != 1 {
		t.Errorf("the header that was given is now %v", given)
	}
	if again := Spelt(h, names); !maps.EqualFunc(again, http.Header{"SOAPAction": {"a"}, "X-b": {"1", "3", "2"}, "Accept": {"*/*"}}, slices.Equal) || len(h) != 3 {
		t.Errorf("spelt %v, and %v is left", again, h)
	}
	if same := Spelt(h, []string{"x-none", "Accept"}); reflect.ValueOf(same).Pointer() != reflect.ValueOf(h).Pointer() {
		t.Errorf("names of no field gave %v", same)
	}
}

// TestNamesOnTheWire: the fields go out under their names, over connections of our own and another transport's, and rules see them
// under any spelling.
func TestNamesOnTheWire(t *testing.T) {
	const want = "POST / HTTP/1.1\r\nHost: HOST\r\nuser-agent: sdk/1\r\nContent-Length: 2\r\nAuthorization: x\r\nSOAPAction: a\r\nX-sOmE: 1\r\nX-sOmE: 2\r\ncontent-type: application/json\r\n\r\n{}"
	for name, transport := range map[string]http.RoundTripper{"own": nil, "net/http": &http.Transport{DisableCompression: true}} {
		got := make(chan string, 1)
		s := newRawServer(t, func(_ int64, request string, c net.Conn) bool {
			got <- request
			io.WriteString(c, ok)
			return true
		})
		u := newUpstream(t, Config{URL: s.url(), Transport: transport, Outcomes: []Rule{{When: `status == 200 and json("a") == nil and method == "POST"`, Is: Failed}}})
		r := &Request{Method: "POST", Target: "/", Body: []byte("{}"), Names: []string{"content-type", "host", "content-length", "user-agent", "SOAPAction", "X-sOmE", "x-gone"},
			Header: http.Header{"Content-Type": {"application/json"}, "User-Agent": {"sdk/1"}, "Soapaction": {"a"}, "X-Some": {"1", "2"}, "Authorization": {"x"}}}
		before := r.Clone()
		if res := do(t, u, r); res.Outcome != Failed {
			t.Fatalf("%s: %s, %s", name, res.Outcome, res.Reason)
		}
		if wire := without(<-got, s.Addr().String()); !sameFields(wire, want) || name == "own" && wire != want {
			t.Errorf("%s: on the wire\n%q\nwant\n%q", name, wire, want)
		}
		if !reflect.DeepEqual(r.Header, before.Header) || !slices.Equal(r.Names, before.Names) {
			t.Errorf("%s: the request is now %v", name, r)
		}
	}
	for source, want := range map[string]string{`header("soapaction")`: "a", `header("SOAPAction")`: "a"} {
		e, err := Compile(source, Key)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := e.Key(NewInput(&Request{Header: http.Header{"Soapaction": {"a"}}, Names: []string{"SOAPAction"}})); v != want || err != nil {
			t.Errorf("%s is %q, %v", source, v, err)
		}
	}
}

// TestNamesAreNoDifference: two requests that differ in the spelling of names alone are the same.
func TestNamesAreNoDifference(t *testing.T) {
	u := newUpstream(t, Config{URL: "http://a.test"})
	h := http.Header{"Soapaction": {"a"}}
	if u.Fingerprint(&Request{Header: h}) != u.Fingerprint(&Request{Header: h, Names: []string{"SOAPAction"}}) {
		t.Error("the fingerprints differ")
	}
}

func without(wire, host string) string { return strings.ReplaceAll(wire, host, "HOST") }

// sameFields reports whether two requests have the same lines, in any order.
func sameFields(a, b string) bool {
	lines := func(s string) []string { return slices.Sorted(strings.SplitSeq(s, "\r\n")) }
	return slices.Equal(lines(a), lines(b))
}
