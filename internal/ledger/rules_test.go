package ledger

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var rules = flag.Int("rules", 0, "how many schedules look for each wrong rule; 0 looks for few rules alone")

// A wrong is an upstream with one wrong rule. Every test looks for it if must is set.
type wrong struct {
	name string
	up   scheduler.Upstream
	must bool
}

// wrongs returns an upstream with each of its rules turned, and with those of repeats. A
// repeat loses little money where the platform recognises payments.
func wrongs(d Dialect, up scheduler.Upstream) (all []wrong) {
	add := func(must bool, name string, change func(u *scheduler.Upstream)) {
		u := up
		u.Outcomes, u.Resolve = slices.Clone(up.Outcomes), slices.Clone(up.Resolve)
		change(&u)
		all = append(all, wrong{name, u, must})
	}
	if up.Identity != "" {
		add(true, "no identity", func(u *scheduler.Upstream) { u.Identity, u.Ends = "", "" })
	}
	if up.Ends != "" {
		add(true, "no ends", func(u *scheduler.Upstream) { u.Ends = "" })
	}
	add(up.Idempotency.Header == "" && !d.Recognises(Operation{Kind: Pay, Order: prepaid}), "all is repeatable", func(u *scheduler.Upstream) { u.Idempotent, u.Resend = "true", true })
	add(true, "vague is not executed", func(u *scheduler.Upstream) {
		u.Outcomes = append([]upstream.Rule{{When: "status >= 500 or status in [202, 408]", Is: upstream.NotExecuted}}, up.Outcomes...)
	})
	add(true, "no answer is not executed", func(u *scheduler.Upstream) {
		u.Outcomes = append([]upstream.Rule{{When: `sent and error != ""`, Is: upstream.NotExecuted}}, up.Outcomes...)
	})
	add(true, "no proof of success", func(u *scheduler.Upstream) { u.Proof = nil })
	for i, r := range up.Outcomes {
		for _, is := range turned(r.Is) {
			add(false, fmt.Sprintf("%s for %s", is, r.When), func(u *scheduler.Upstream) { u.Outcomes[i].Is, u.Outcomes[i].Park = is, false })
		}
	}
	for i, q := range up.Resolve {
		for j, r := range q.Outcomes {
			for _, is := range turned(r.Is) {
				add(false, fmt.Sprintf("%s to a query for %s", is, r.When), func(u *scheduler.Upstream) {
					u.Resolve[i].Outcomes = slices.Clone(q.Outcomes)
					u.Resolve[i].Outcomes[j].Is = is
				})
			}
		}
	}
	return all
}

// turned are the outcomes that lose money instead of another one.
func turned(is upstream.Outcome) []upstream.Outcome {
	switch is {
	case upstream.Done:
		return []upstream.Outcome{upstream.Failed, upstream.NotExecuted}
	case upstream.Unknown:
		return []upstream.Outcome{upstream.Done, upstream.Failed}
	}
	return []upstream.Outcome{upstream.Done}
}

// TestWrongRules turns rules of the presets, one at a time. The ledgers must see those about
// repeats, and with -rules at least ten in all. They see no rule about requests that the
// schedules do not make, and none that loses no money:
//
//	go test ./internal/ledger -run TestWrongRules -rules 400 -v -timeout 60m
func TestWrongRules(t *testing.T) {
	for _, d := range playedDialects() {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			seen, missed := 0, []string{}
			for _, w := range wrongs(d, stageOf(t, d).up) {
				most := *rules
				if w.must {
					most = max(most, 300)
				}
				st := stage{up: w.up, count: make(map[string]int)}
				found := false
				for seed := *from; seed < *from+uint64(most) && !found; seed++ {
					found = len(st.play(t, draw(d, seed))) > 0
				}
				switch {
				case found:
					seen++
				case most > 0:
					missed = append(missed, w.name)
				}
				if w.must && !found {
					t.Errorf("not seen in %d schedules: %s", most, w.name)
				}
			}
			if *rules > 0 {
				if seen < 10 {
					t.Errorf("only %d wrong rules were seen", seen)
				}
				t.Logf("%d wrong rules were seen, %d not:\n%s", seen, len(missed), strings.Join(missed, "\n"))
			}
		})
	}
}
