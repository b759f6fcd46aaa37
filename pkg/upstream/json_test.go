package upstream

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// nested returns valid JSON of a depth, with brackets in a text that do not count.
func nested(depth int) string {
	return strings.Repeat(`{"a":[`, depth/2) + `"[\"[{"` + strings.Repeat("]}", depth/2)
}

// TestDeepJSON: gjson would recurse at each level, up to the end of the process.
func TestDeepJSON(t *testing.T) {
	e, err := Compile(`json("b") ?? "none"`, Key)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		body string
		deep bool
	}{
		"as deep as may be":     {nested(maxDepth), false},
		"deeper":                {nested(maxDepth + 2), true},
		"brackets in a text":    {`{"a":"` + strings.Repeat("[", 2*maxDepth) + `"}`, false},
		"many, side by side":    {"[" + strings.Repeat("[],", 2*maxDepth) + "[]]", false},
		"never closed":          {strings.Repeat("[", 16<<20), true},
		"objects, never closed": {strings.Repeat(`{"a":`, 2<<20), true},
		"after spaces":          {" \n" + strings.Repeat("[", 16<<20), true},
	} {
		key, err := e.Key(NewInput(post(form, "/", tt.body)))
		if (err != nil) != tt.deep || err != nil && !strings.HasSuffix(err.Error(), "cannot be computed for this request: nested deeper than 1000 levels") || err == nil && key != "none" {
			t.Errorf("%s: %q, %v", name, key, err)
		}
	}
}

// TestDeepAnswer: the status alone does not decide about an answer that rules cannot read.
func TestDeepAnswer(t *testing.T) {
	var packed bytes.Buffer
	zw := gzip.NewWriter(&packed)
	io.WriteString(zw, strings.Repeat("[", 16<<20))
	zw.Close()
	for name, tt := range map[string]struct {
		body, encoding, rule string
		want                 Outcome
	}{
		"plain":         {nested(maxDepth + 2), "", `body("code") == "1"`, Unknown},
		"packed":        {packed.String(), "gzip", `body("code") == "1"`, Unknown},
		"no rule reads": {nested(maxDepth + 2), "", `status == 429`, Done},
		"not too deep":  {nested(maxDepth), "", `body("code") == "1"`, Done},
		"deep XML":      {strings.Repeat("<a>", 1<<20), "", `body("a.b") == "1"`, Unknown},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if tt.encoding != "" {
				w.Header().Set("Content-Encoding", tt.encoding)
			}
			io.WriteString(w, tt.body)
		}))
		u := newUpstream(t, Config{URL: s.URL, MaxInspect: 17 << 20, Outcomes: []Rule{{When: tt.rule, Is: Failed}}})
		res := do(t, u, &Request{Method: "GET", Target: "/"})
		if got := body(t, res); res.Outcome != tt.want || got != tt.body {
			t.Errorf("%s: %s (%s), %d bytes; want %s, %d bytes", name, res.Outcome, res.Reason, len(got), tt.want, len(tt.body))
		}
		s.Close()
	}
}

// TestTextsThatAreNoJSON are walked to their end.
func TestTextsThatAreNoJSON(t *testing.T) {
	for _, text := range []string{`{"abc`, `{"abc\`, `[]:`, `}]`, `{"a":1}:`, ``, `"`} {
		if tooDeep([]byte(text)) || ambiguous([]byte(text)) {
			t.Errorf("%q is deep or ambiguous", text)
		}
	}
	for kind, want := range map[string]bool{"application/json": true, "Application/JSON ; charset=utf-8": true, "application/problem+json ": true, "text/plain": true, "application/x-www-form-urlencoded": false} {
		if doc := readBody(post(kind, "/", "{")); (doc.err != nil) != want {
			t.Errorf("a broken body of type %q: %v", kind, doc.err)
		}
	}
}
