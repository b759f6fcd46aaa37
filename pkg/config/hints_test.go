package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestHints: a window below a second has the share that can be used, and the preset generic asks by which answers the
// platform limits, until the file says it.
func TestHints(t *testing.T) {
	for _, tt := range []struct {
		rest string
		want []string
	}{
		{"limits: [{name: app, calls: 100, window: 1s}]", []string{"3: upstreams.pay: the preset generic takes 429"}},
		{"limits: [{name: app, calls: 100, window: 1s}], limited: [503]", nil},
		{"limits: [{name: app, calls: 100, window: 1s}], limited: 429", nil},
		{"limits: [{name: app, calls: 100, window: 1s}], preset: stripe", nil},
		{"concurrency: 5", nil},
		{"limits: [{name: app, calls: 1, window: 10ms}], preset: stripe", []string{"3: upstreams.pay.limits[0].window: with answers after 40ms at most 20% of the quota can be used (window / (window + answer)); if the platform takes bursts, write calls: 100, window: 1s, of which it is 96%"}},
		{"limits: [{name: app, calls: 20, window: 200ms}], limited: 503", []string{"3: upstreams.pay.limits[0].window: with answers after 40ms at most 83% of the quota can be used (window / (window + answer)); if the platform takes bursts, write calls: 100, window: 1s, of which it is 96%"}},
	} {
		c, err := Parse(fmt.Appendf(nil, "store: memory\nupstreams:\n  pay: {url: https://api.example.com, listen: 127.0.0.1:8081, %s}\n", tt.rest))
		if err != nil {
			t.Fatal(err)
		}
		got := c.Hints()
		if len(got) != len(tt.want) {
			t.Errorf("%s: %v, want %q", tt.rest, got, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.Contains(got[i].Error(), want) {
				t.Errorf("%s: %v, want %q", tt.rest, got[i], want)
			}
		}
	}
}
