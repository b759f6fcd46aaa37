package config_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
)

// TestCases plays the cases of each preset. Each case has its source, and each rule of a
// preset and of its queries decides a case.
func TestCases(t *testing.T) {
	for _, preset := range config.Presets() {
		text, err := config.PresetCases(preset)
		if err != nil {
			t.Error(err)
			continue
		}
		all, err := config.ParseCases("presets/"+preset+"_test.yaml", text)
		if err != nil {
			t.Error(err)
			continue
		}
		var reasons []string
		for _, c := range all {
			r := cases.Play(c)
			for _, failure := range r.Failures {
				t.Errorf("%s: %s: %s", c.Place, c.Name, failure)
			}
			if c.Source == "" || !strings.Contains(c.Source, " ") && !strings.Contains(c.Source, "/") {
				t.Errorf("%s: %s: no source %q", c.Place, c.Name, c.Source)
			}
			reasons = append(reasons, r.Reasons...)
		}
		t.Logf("%s: %d cases", preset, len(all))
		if least := 20; len(all) < least {
			t.Errorf("%s: %d cases, want %d or more", preset, len(all), least)
		}
		decided := func(rule string, by func(string) bool) {
			if !slices.ContainsFunc(reasons, by) {
				t.Errorf("%s: no case is decided by %s", preset, rule)
			}
		}
		c, err := config.Parse([]byte("upstreams: {a: {url: 'http://a.test', preset: " + preset + "}}"))
		if err != nil {
			t.Fatal(err)
		}
		u := c.Scheduler.Upstreams["a"]
		for _, rule := range u.Outcomes {
			decided(rule.When, func(reason string) bool { return reason == rule.When })
		}
		for _, r := range u.Resolve {
			for _, rule := range r.Outcomes {
				decided(rule.When, func(reason string) bool {
					return strings.Contains(reason, "query ") && strings.Contains(reason, rule.When)
				})
			}
		}
	}
}

// FuzzParseCases: a file of cases has faults with their lines, or cases with all that they need.
func FuzzParseCases(f *testing.F) {
	f.Add("preset: stripe\ncases:\n- {case: a, request: {target: /a}, answer: 200, outcome: done}\n")
	f.Add("preset: generic\nrequests: {a: {target: /a, form: {b: c}}}\nanswers: {b: {error: dial}}\ncases:\n- {case: a, request: a, exchanges: [{sent: request, answer: b, after: 1s}], state: done, with: {retry: {attempts: 1}}}\n")
	f.Add("preset: alipay\nsigned: no\nsources: {a: b}\nwith: {outcomes: 5}\ncases: {a: 5}\n")
	f.Add("preset: alipay\ncases: [5, {request: 5, answer: x, query: [], exchanges: [5]}]\n")
	f.Add("presets: [stripe, adyen]\nnow: 5\ncases:\n- {case: a, requests: [payment, 5], presets: all, answer: {headers: {a: [b, 5]}}, outcome_of: {adyen: done}, wait: 1s}\n- {case: b, request: payment, now: '2026-11-29T10:00:00Z', answer: 429, outcome: done}\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "config") || strings.Contains(text, "file:") || strings.Contains(text, "exec") { // reads other files
			return
		}
		all, err := config.ParseCases("a_test.yaml", []byte(text))
		var faults config.Errors
		if err != nil && !errors.As(err, &faults) {
			t.Fatalf("%v is not a list of faults", err)
		}
		for _, c := range all {
			if c.Name == "" || c.Request == nil || c.Place == "" || c.Upstream.URL == "" {
				t.Fatalf("%+v", c)
			}
		}
	})
}
