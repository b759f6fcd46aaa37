package config

import (
	"os"
	"testing"
)

// TestDefaultsAreThoseOfTheReference compares the defaults that Settings shows with the values of
// the reference.
func TestDefaultsAreThoseOfTheReference(t *testing.T) {
	text, err := os.ReadFile("../../configs/throttler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, err := parse("throttler.yaml", text, alone)
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]string)
	flatten(values, "", doc)
	for key, value := range defaultsOf {
		if got := values["upstreams.example."+key]; got != value {
			t.Errorf("the default of %s is %q, the reference says %q", key, value, got)
		}
	}
	for key, value := range fixedKeys {
		if got := values[key]; got != value && got != DefaultStore {
			t.Errorf("the default of %s is %q, the reference says %q", key, value, got)
		}
	}
}

// TestSettingsOfAliases have the line of the section that they are merged into.
func TestSettingsOfAliases(t *testing.T) {
	c, err := Parse([]byte(`store: memory
upstreams:
  a: &same
    url: https://a.example
    limits: [{name: app, calls: 1, window: 1s}]
    max_wait: 7s
  b: *same
`))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"upstreams.a.max_wait":          "line 6",
		"upstreams.b.max_wait":          "line 7",
		"upstreams.b.limits[app].calls": "line 7",
		"upstreams.b.max_age":           "default",
		"long_window":                   "default",
	} {
		if got := c.Source(path); got != want {
			t.Errorf("the source of %s is %q, want %q", path, got, want)
		}
	}
}
