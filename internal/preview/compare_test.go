package preview

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// two returns a configuration with a limit of refunds, and one of all calls.
func two(refunds int) Variant {
	var u scheduler.Upstream
	u.URL = "https://api.example.com"
	u.Limits = []scheduler.Limit{
		{Name: "app", Calls: 40, Window: time.Second},
		{Name: "refund", When: `param("method") == "refund"`, Calls: refunds, Window: time.Second},
	}
	return Variant{map[int]string{10: "now", 40: "wanted", 5: "less", 11: "more"}[refunds], scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}}}
}

// burst is 400 calls at once, half of them refunds.
func burst(c scheduler.Config, _ ...scheduler.Config) (*workload.Load, error) {
	return workload.Generate([]string{"bursts=200/1h for=1s param.method=refund", "bursts=200/1h for=1s param.method=pay"}, 1, c)
}

func TestCompare(t *testing.T) {
	o := Options{RoundTrip: 50 * time.Millisecond, Seed: 1}
	var conditions []*Condition
	for _, source := range []string{"wait.p99 > 15s", `flows["none"].calls > 1`} {
		c, err := Compile(source)
		if err != nil {
			t.Fatal(err)
		}
		conditions = append(conditions, c)
	}
	done := 0.0
	o.Progress = func(part float64) { done = part }
	c, err := Compare(t.Context(), burst, o, conditions, two(10), two(40), two(5))
	if err != nil {
		t.Fatal(err)
	}
	load, err := burst(two(40).Config)
	if err != nil {
		t.Fatal(err)
	}
	o.Name, o.Progress = "wanted", nil
	if alone, err := Run(t.Context(), two(40).Config, load, o); err != nil || !reflect.DeepEqual(alone, c.Reports[1]) {
		t.Errorf("by itself it is another report: %v", err)
	}
	if done != 1 {
		t.Errorf("done at the end: %v", done)
	}
	var texts []string
	for _, f := range c.Findings {
		texts = append(texts, f.Text)
	}
	if want := []string{
		"now: 99% of the calls wait 19.95s at most, the longest wait is 19.95s",
		"now: refund (10/1s) binds 99.8% of the time",
		"with wanted the wait would fall from 19.95s to 9.45s; then app (40/1s) binds",
		"with less the wait would rise from 19.95s to 40.95s; refund (5/1s) binds",
	}; !slices.Equal(texts, want) {
		t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
	var holds []bool
	for _, v := range c.Verdicts {
		holds = append(holds, v.Holds)
		if (v.Err != "") != strings.HasPrefix(v.Condition, "flows") {
			t.Errorf("%+v", v)
		}
	}
	if !slices.Equal(holds, []bool{true, false, false, false, true, false}) {
		t.Errorf("conditions: %+v", c.Verdicts)
	}
}

// TestHTML: a page by itself, in which names are texts.
func TestHTML(t *testing.T) {
	v := two(10)
	v.Name = "<script>alert(1)</script>"
	c, err := Compare(t.Context(), burst, Options{}, nil, v, two(40))
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	command := Command{Files: []string{"a.yaml", "b's.yaml"}, Load: []string{"bursts=200/1h for=1s"}, FailIf: []string{"refused > 0"}, Options: Options{RoundTrip: time.Second, Seed: 2}}
	if err := HTML(&page, c, Page{Title: "What if", At: time.Date(2026, 11, 22, 3, 4, 5, 0, time.UTC), Command: command.String()}); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if m := regexp.MustCompile(`(?i)<script|<link|<img| src=| on\w+=|url\(|https?://[^w]`).FindString(text); m != "" {
		t.Errorf("%q is in it", m)
	}
	for _, want := range []string{`<svg`, `<h1>What if</h1>`, `Made on 2026-11-22 03:04 UTC.`, `.chart .blue{color:`, `with wanted the wait would fall`, `&lt;script&gt;`, `<code>throttler plan -c a.yaml --compare &#39;b&#39;\&#39;&#39;s.yaml&#39; --load &#39;bursts=200/1h for=1s&#39; --rtt 1s --seed 2 --fail-if &#39;refused &gt; 0&#39;</code>`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}
