package cases

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A comparison collects the failures of a case.
type comparison struct{ Failures []string }

func (c *comparison) fail(format string, args ...any) {
	c.Failures = append(c.Failures, fmt.Sprintf(format, args...))
}

// differs notes a failure if a value differs from the wanted one.
func (c *comparison) differs(name string, want, got any, why string) {
	switch {
	case want == got:
	case why == "":
		c.fail("%s: want %v, got %v", name, want, got)
	default:
		c.fail("%s: want %v, got %v (%s)", name, want, got, why)
	}
}

// Compare compares a case with the exchanges of its platform and with the call: the outcome of
// its first attempt with the reason, and its state in the end. It returns the failures.
func Compare(p *Platform, first upstream.Outcome, reason string, last scheduler.State) []string {
	c, all := &comparison{}, p.all()
	want := p.c
	if want.Outcome != "" {
		c.differs("outcome", want.Outcome, first, reason)
	}
	next, after := step(first, all)
	if want.Then != "" {
		c.differs("then", want.Then, next, "")
		if want.Then == next {
			c.waits(want, after)
		}
	}
	asked := slices.IndexFunc(all, func(e exchange) bool { return e.sent == "query" })
	switch {
	case want.QueryTo == "":
	case asked < 0:
		c.fail("query_to: want %s, got no query", want.QueryTo)
	case !all[asked].goesTo(want.QueryTo):
		c.fail("query_to: want %s, got %s %s", want.QueryTo, all[asked].target, all[asked].body)
	}
	if want.Decides != "" {
		got := string(last)
		switch {
		case asked < 0:
			got = "no query"
		case slices.ContainsFunc(all[1:], func(e exchange) bool { return e.sent == "request" }):
			got = "again"
		}
		c.differs("decides", want.Decides, got, reason)
	}
	if len(want.Exchanges) > 0 {
		c.exchanges(p, all)
		c.differs("state", want.State, last, "")
	}
	return c.Failures
}

// waits compares the wait before the next step.
func (c *comparison) waits(want config.Case, after time.Duration) {
	if after < want.After {
		c.differs("after", want.After, after, "")
	}
	if want.Wait > 0 && (after < want.Wait || after >= want.Wait+config.Slack) {
		c.differs("wait", want.Wait, after, "")
	}
	if want.Before > 0 && after >= want.Before {
		c.fail("before: want less than %v, got %v", want.Before, after)
	}
}

// step names the step after the first attempt, and its wait.
func step(first upstream.Outcome, all []exchange) (next string, after time.Duration) {
	switch {
	case len(all) < 2 && first == upstream.Unknown:
		return "person", 0
	case len(all) < 2:
		return "nothing", 0
	case all[1].sent == "query":
		next = "query"
	case first == upstream.Unknown:
		next = "repeat"
	case all[0].pauses:
		next = "again"
	default:
		next = "alone"
	}
	return next, all[1].at - all[0].at
}

// exchanges compares all exchanges.
func (c *comparison) exchanges(p *Platform, all []exchange) {
	var want, got []string
	for _, e := range p.c.Exchanges {
		want = append(want, e.Sent)
	}
	for _, e := range all {
		got = append(got, e.sent)
	}
	c.differs("exchanges", strings.Join(want, ", "), strings.Join(got, ", "), "")
	for i := range min(len(all), len(want)) {
		e, w := all[i], p.c.Exchanges[i]
		name := fmt.Sprintf("exchanges[%d]", i)
		if w.QueryTo != "" && !e.goesTo(w.QueryTo) {
			c.fail("%s.query_to: want %s, got %s %s", name, w.QueryTo, e.target, e.body)
		}
		if i > 0 && e.at-all[i-1].at < w.After {
			c.differs(name+".after", w.After, e.at-all[i-1].at, "")
		}
	}
}
