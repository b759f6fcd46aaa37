package upstream

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestReadingsOfAPath: an expression has a value for a path that servers read in several ways only if it has the same in all of them.
func TestReadingsOfAPath(t *testing.T) {
	const gitlab = "/api/v4/projects/group%2Fproject/issues"
	for _, tt := range []struct{ source, target, want string }{ // want is empty for an error
		{`path startsWith "/api/v4/"`, gitlab, "true"},
		{`path startsWith "/api/v4/projects/" and path endsWith "/issues"`, gitlab, "true"},
		{`path startsWith "/v1/refunds"`, gitlab, "false"},
		{`path`, gitlab, ""},
		{`split(path, "/")[5]`, gitlab, ""},
		{`path matches "^/api/v4/projects/[^/]+/issues$"`, gitlab, ""},
		{`segment(4)`, gitlab, "group/project"},
		{`segment(5)`, gitlab, "issues"},
		{`segment(3) == "projects" ? segment(4) : "none"`, gitlab, "group/project"},
		{`segment(6) + "!"`, gitlab, "!"},
		{`segment(0)`, gitlab, ""},
		{`segment(-1)`, gitlab, ""},
		{`segment(4) + path`, gitlab, ""},
		{`segment(1)`, "/", ""},
		{`segment(1) + "!"`, "/", "!"},
		{`segment(1)`, "/a%20b%3fc", "a b?c"},
		{`segment(2)`, "/a%252Fb/c", "c"},
		{`segment(1)`, "/a%252Fb/c", "a%2Fb"},
		{`segment(1)`, "/a;x/b", ""},
		{`segment(2)`, "/a;x/b", "b"},
		{`segment(2)`, "/a//b", ""},
		{`segment(1)`, `/a\b`, ""},

		{`path startsWith "/v1/refunds"`, "/v1%2Frefunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1%2frefunds/7", ""},
		{`path startsWith "/v1/refunds"`, "/v1//refunds", ""},
		{`path startsWith "/v1/refunds"`, "//v1/refunds"[1:], "true"},
		{`path startsWith "/v1/refunds"`, `/v1\refunds`, ""},
		{`path startsWith "/v1/refunds"`, "/v1%5crefunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1;a=b/refunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1%3ba/refunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1/;a/refunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1;%2Frefunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1;x%2Frefunds", ""},
		{`path startsWith "/v1/refunds"`, "/v1%3Bx%2Frefunds", ""},
		{`path startsWith "/v1/refunds"`, `/v1;x\refunds`, ""},
		{`path startsWith "/v1/refunds"`, "/v1/refunds;x", "true"},
		{`path startsWith "/v1/refunds"`, "/v1/refunds%2F7", "true"},
		{`path startsWith "/v1/refunds"`, "/v1/pay//ments", "false"},
		{`path == "/v1/refunds"`, "/v1/refunds;x", ""},
		{`path == "/v1/refunds"`, "/v1/refunds%2F", "false"},
		{`!(path == "/v1/refunds")`, "/v1/refunds%3b", ""},
		{`method == "GET" and path == "/v1/refunds"`, "/v1%2Frefunds", "false"},
		{`path == "/v1/a;b"`, "/v1;x/a%3Bb", ""},
		{`path == "/v1/%2F"`, "/v1/%2f", ""},
		{`path`, "/v1/%", ""},
		{`segment(1)`, "/v1/%zz", ""},
	} {
		e, err := Compile(tt.source, Key)
		if err != nil {
			t.Fatal(err)
		}
		in := NewInput(&Request{Method: "POST", Target: tt.target + "?/v1/refunds;"})
		for range 2 { // a value is the same each time
			if got, err := e.Key(in); got != tt.want || (err != nil) != (tt.want == "") {
				t.Errorf("%s of %q: %q, %v; want %q", tt.source, tt.target, got, err, tt.want)
			}
		}
	}
}

// TestReadings: the readings of a path, that of RFC 3986 first.
func TestReadings(t *testing.T) {
	for target, want := range map[string]string{
		"/a/b?c":                       "/a/b",
		"/a%2fb":                       "/a%2Fb /a/b",
		"/a//b":                        "/a//b /a/b",
		`/a\b%5C`:                      "/a%5Cb%5C /a/b/",
		"/a;x/b":                       "/a;x/b /a/b",
		"/a%3bx/b":                     "/a;x/b /a/b",
		"/a%2F%2f":                     "/a%2F%2F /a// /a/",
		"/a;x%2Fb":                     "/a;x%2Fb /a /a;x/b /a/b",
		"/" + strings.Repeat("%2F", 3): "/%2F%2F%2F //// /",
	} {
		var got []string
		for _, p := range readPaths(target).all {
			got = append(got, p.whole)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q is read as %q, want %s", target, got, want)
		}
	}
}

// TestRulesReadPaths: a rule over a path that servers read in several ways holds or not if it does so in all of them, and cannot be
// computed else. An absent member leaves it false.
func TestRulesReadPaths(t *testing.T) {
	rules, err := CompileRules("outcomes", []Rule{
		{When: `path startsWith "/v1/refunds"`, Is: Failed}, {When: `path endsWith "/pay"`, Is: Done}, {When: `path contains "%2F"`, Is: Unknown},
		{When: `path == "/x;y" and body("none") > 0`, Is: Failed}, {When: `path == "/x" and body("n") > 0`, Is: Failed},
	})
	if err != nil {
		t.Fatal(err)
	}
	for target, want := range map[string]string{
		"/v1/refunds%2Fpay": "failed", "/v1%2Frefunds": "rule outcomes[0]", "/v1%2Fa/pay": "done", "/v1;x": "none", "/v1%2Fx": "rule outcomes[2]",
		"/x;y": "rule outcomes[4]", "/x;z/pay": "done",
	} {
		got := "none"
		switch r, err := rules.Judge(NewInput(&Request{Method: "POST", Target: target}), 200, http.Header{"Content-Type": {"application/json"}}, []byte(`{"n":1}`), false); {
		case err != nil:
			got, _, _ = strings.Cut(err.Error(), " cannot")
		case r != nil:
			got = string(r.Is)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
}
