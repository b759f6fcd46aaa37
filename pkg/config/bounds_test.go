package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestInspectIsBounded: a text that is not trusted is refused before it is decoded, if it has
// too many items: a key that is there twice is not found. A file of one's own may have as many.
func TestInspectIsBounded(t *testing.T) {
	const head = "upstreams:\n  a:\n    url: http://a\n    share_by: 'query(\"x\")'\n    limits: [{name: app, calls: 1, window: 1s}]\n"
	items := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, test := range map[string]struct{ text, want string }{
		"weights":     {head + "    weights:\n" + items(100_000, "      k%d: 1\n"), "line 6: upstreams.a.weights: has 100000 items, at most 10000 can be inspected; leave some out"},
		"keys":        {head + items(10_001, "k%d: 1\n"), "has 10002 items, at most 10000 can be inspected; leave some out"},
		"numbers":     {head + "    weights:\n" + items(10_001, "      %d: 1\n"), "line 6: upstreams.a.weights: has 10001 items, at most 10000 can be inspected; leave some out"},
		"a list":      {head + "admin: [" + items(10_001, "a%d,") + "]\n", "line 6: admin: has 10001 items, at most 10000 can be inspected; leave some out"},
		"values":      {head + items(6, "x%d: ["+strings.Repeat("a,", 9_000)+"]\n"), "the configuration has more than 50000 values; inspect a part of it"},
		"aliases":     {"x: &x [" + items(9_000, "a%d,") + "]\n" + items(6, "y%d: *x\n"), "the configuration has more than 50000 values; inspect a part of it"},
		"a key twice": {head + "    weights:\n      k0: 1\n" + items(10_000, "      k%d: 1\n"), "line 6: upstreams.a.weights: has 10001 items, at most 10000 can be inspected; leave some out"},
		"just enough": {head + "    weights:\n" + items(10_000, "      k%d: 1\n"), ""},
	} {
		got := ""
		if _, err := Inspect([]byte(test.text)); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%s: %.300q, want %q", name, got, test.want)
		}
	}
	if _, err := Parse([]byte(head + "    weights:\n" + items(10_001, "      k%d: 1\n"))); err != nil {
		t.Errorf("a file of one's own: %v", err)
	}
}
