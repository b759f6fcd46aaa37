package cases_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// leastAnswers is a number of answers that the files have, and more.
const leastAnswers = 750

// answerFiles returns the files of answers that platforms, and the gateways before them, really give.
func answerFiles(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("../../test/answers/*.yaml")
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	return all
}

// TestAnswers plays each answer for its presets and requests.
func TestAnswers(t *testing.T) {
	for _, file := range answerFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			all, err := config.LoadCases(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				for _, failure := range cases.Play(c).Failures {
					t.Errorf("%s: %s: %s", c.Place, c.Name, failure)
				}
			}
			t.Logf("%s: %d plays", file, len(all))
		})
	}
}

// source matches a page, an issue or a discussion of a repository, or a file in one.
var source = regexp.MustCompile(`^(https://\S+|[\w.-]+/[\w.-]+#[0-9]+|[\w.-]+/[\w.-]+ [\w./+-]+)$`)

// TestSourcesOfAnswers: each answer has its source, and is there once.
func TestSourcesOfAnswers(t *testing.T) {
	type content struct {
		Presets, Preset any
		Sources         map[string]string
		Answers         map[string]any
		Cases           []map[string]any
	}
	seen, count := make(map[string]string), 0
	for _, file := range answerFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var f content
		if err := yaml.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		used := make(map[string]bool)
		for _, c := range f.Cases {
			count++
			name, from := fmt.Sprintf("%s: %v", file, c["case"]), fmt.Sprint(c["source"])
			used[from] = true
			if text, named := f.Sources[from]; named {
				from = text
			}
			if !source.MatchString(from) {
				t.Errorf("%s: source %q is no URL, no owner/repository#number and no owner/repository with a path", name, from)
			}
			if known, ok := f.Answers[fmt.Sprint(c["answer"])]; ok {
				c["answer"] = known
			}
			for _, key := range []string{"case", "source", "outcome", "outcome_of", "then", "wait", "after", "before"} {
				delete(c, key)
			}
			played, err := json.Marshal([]any{f.Presets, f.Preset, c})
			if err != nil {
				t.Fatal(err)
			}
			if other := seen[string(played)]; other != "" {
				t.Errorf("%s is the same answer as %s", name, other)
			}
			seen[string(played)] = name
		}
		for name := range f.Sources {
			if !used[name] {
				t.Errorf("%s: no case has the source %s", file, name)
			}
		}
	}
	if count < leastAnswers {
		t.Errorf("%d answers, want %d or more", count, leastAnswers)
	}
	t.Logf("%d answers", count)
}

// waits are the forms in which answers say how long to wait, as a field and its value.
var waits = map[string]string{
	"seconds":                      `^Retry-After: [1-9]\d{0,5}$`,
	"fraction of a second":         `^Retry-After: \d+\.\d+$`,
	"date of RFC 1123":             `^Retry-After: \w{3}, \d\d \w{3} \d{4} [\d:]+ GMT$`,
	"date of RFC 850":              `^Retry-After: \w{6,9}, \d\d-\w{3}-\d\d [\d:]+ GMT$`,
	"date of asctime":              `^Retry-After: \w{3} \w{3} \d\d [\d:]+ \d{4}$`,
	"date in UTC":                  `^Retry-After: .*UTC$`,
	"date with an offset":          `^Retry-After: \w{3}, .*[+]0800$`,
	"ISO date":                     `^Retry-After: \d{4}-\d\d-\d\dT[\d:]+Z$`,
	"ISO date with an offset":      `^Retry-After: \d{4}-\d\d-\d\dT[\d:]+[+]\d\d:\d\d$`,
	"epoch in seconds":             `^Retry-After: 1[78]\d{8}$`,
	"epoch in milliseconds":        `^Retry-After: 1[78]\d{11}$`,
	"milliseconds":                 `^Retry-After-Ms: \d+$`,
	"milliseconds of Azure":        `^X-Ms-Retry-After-Ms: \d+$`,
	"duration of Traefik":          `^X-Retry-In: [\d.]+m?s$`,
	"RateLimit-Reset, seconds":     `^Ratelimit-Reset: \d{1,5}$`,
	"RateLimit-Reset, epoch":       `^Ratelimit-Reset: 1[78]\d{8}$`,
	"RateLimit-Reset, epoch in ms": `^Ratelimit-Reset: 1[78]\d{11}$`,
	"RateLimit-Reset, date":        `^Ratelimit-Reset: \w{3}, .*GMT$`,
	"RateLimit, draft 7":           `^Ratelimit: limit=\d+, remaining=0, reset=\d+$`,
	"RateLimit, draft 8":           `^Ratelimit: "[\w-]+"; ?r=0; ?t=\d+$`,
	"RateLimit, two quotas":        `^Ratelimit: .*t=\d+, ".*t=\d+$`,
	"X-RateLimit-Reset, seconds":   `^X-Ratelimit-Reset: \d{1,5}$`,
	"X-RateLimit-Reset, epoch":     `^X-Ratelimit-Reset: 1[78]\d{8}$`,
	"X-RateLimit-Reset, in ms":     `^X-Ratelimit-Reset: 1[78]\d{11}$`,
	"X-Rate-Limit-Reset, epoch":    `^X-Rate-Limit-Reset: 1[78]\d{8}$`,
	"X-Rate-Limit-Reset, date":     `^X-Rate-Limit-Reset: \d{4}-\d\d-\d\dT`,
	"reset as a duration":          `^X-Ratelimit-Reset-Requests: \d+m\d+s$`,
	"reset as a date":              `^Anthropic-Ratelimit-Requests-Reset: \d{4}-`,
	"reset after":                  `^X-Ratelimit-Reset-After: \d+\.\d+$`,
	"Retry-After with a prefix":    `^X-Rate-Limit-Retry-After-Seconds: \d+$`,
}

// TestKindsOfAnswers: the files have each form of a wait, each coding with a success, and each preset with
// each outcome.
func TestKindsOfAnswers(t *testing.T) {
	seen := make(map[string]int)
	for _, file := range answerFiles(t) {
		all, err := config.LoadCases(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			if c.Answer == nil { // it has exchanges
				continue
			}
			seen[c.Of+" "+string(c.Outcome)]++
			if coding := strings.ToLower(c.Answer.Header.Get("Content-Encoding")); c.Outcome == upstream.Done {
				seen["coding "+coding]++
			}
			for form, pattern := range waits {
				if c.Wait > 0 && c.Wait != time.Second && has(c.Answer.Header, regexp.MustCompile(pattern)) {
					seen["wait "+form]++
				}
			}
			if c.Wait > 0 && strings.Contains(string(c.Answer.Body), "retry") && c.Answer.Header.Get("Retry-After") == "" {
				seen["wait in the body"]++
			}
		}
	}
	want := []string{"wait in the body"}
	for form := range waits {
		want = append(want, "wait "+form)
	}
	for _, coding := range []string{"gzip", "x-gzip", "deflate", "br", "zstd", "utf-8", "identity"} {
		want = append(want, "coding "+coding)
	}
	for _, preset := range config.Presets() {
		for _, outcome := range []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown} {
			want = append(want, preset+" "+string(outcome))
		}
	}
	for _, kind := range want {
		if seen[kind] == 0 {
			t.Errorf("there is no answer of the kind: %s", kind)
		}
	}
	t.Log(seen)
}

// has reports whether a field and one of its values match.
func has(fields http.Header, pattern *regexp.Regexp) bool {
	for name, values := range fields {
		for _, value := range values {
			if pattern.MatchString(name + ": " + value) {
				return true
			}
		}
	}
	return false
}
