package cases_test

import (
	"context"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/cases"
	"github.com/seed-30fe103d/throttler/internal/trial"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type signed struct{}

func (signed) Sign(context.Context, *upstream.Request) error { return nil }

// followed are cases of a platform that accepts with a 202, of which each has the step of the scheduler.
const followed = `
preset: generic
with:
  outcomes: [{when: status == 404, is: not_executed, after: 1s}]
  resolve:
  - when: 'status == 202 and answer_header("Location") != ""'
    target: location
    outcomes: [{when: 'body("state") == "made"', is: done}]
requests: {make: {target: /jobs, body: '{}'}}
answers:
  accepted: {status: 202, headers: {Location: jobs/7}, body: '{}'}
  elsewhere: {status: 202, headers: {Location: 'https://other.example/jobs/7'}, body: '{}'}
  later: {status: 503, headers: {Retry-After: '5'}}
cases:
- {case: accepted, source: s, request: make, answer: accepted, outcome: unknown, then: query}
- {case: accepted without a place, source: s, request: make, answer: 202, outcome: done, then: nothing}
- {case: accepted with another host, source: s, request: make, answer: elsewhere, outcome: unknown, then: person}
- {case: a query that does not fit, source: s, request: make, answer: later, outcome: unknown, then: person}
- {case: a rule, source: s, request: make, answer: 404, outcome: not_executed, then: alone}
- {case: limited, source: s, request: make, answer: 429, outcome: not_executed, then: again}
- {case: refused, source: s, request: make, answer: 400, outcome: failed, then: nothing}
`

// TestTrialFollowsTheScheduler: a trial tells the outcome and the step that the scheduler of the sidecar takes,
// in the cases of all presets and of 202.
func TestTrialFollowsTheScheduler(t *testing.T) {
	own, err := config.ParseCases("jobs_test.yaml", []byte(followed))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range own {
		if r := cases.Play(c); len(r.Failures) > 0 {
			t.Errorf("%s: %q", c.Name, r.Failures)
		}
	}
	compared := 0
	for _, name := range config.Presets() {
		text, err := config.PresetCases(name)
		if err != nil {
			t.Fatal(err)
		}
		preset, err := config.ParseCases(name+"_test.yaml", text)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, preset...)
	}
	for _, c := range own {
		if c.Then == "" || c.Answer == nil || c.Answer.Error != "" || c.Query != nil || c.Becomes != "" {
			continue
		}
		up := c.Upstream
		if up.Signer = nil; c.Signed {
			up.Signer = signed{}
		}
		router, err := scheduler.NewRouter("case", up)
		if err != nil {
			t.Fatal(err)
		}
		v, err := trial.Judge(router, c.Request, c.Answer.Status, c.Answer.Header, c.Answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		if string(v.Step) != c.Then || c.Outcome != "" && v.Outcome != c.Outcome {
			t.Errorf("%s: %s: %s, then %s (%s); the scheduler has %s, then %s", c.Place, c.Name, v.Outcome, v.Step, v.Then, c.Outcome, c.Then)
		}
		compared++
	}
	if compared < 100 {
		t.Errorf("%d cases are compared, want at least 100", compared)
	}
}
