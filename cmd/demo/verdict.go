package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/seed-30fe103d/throttler/internal/gateway"
)

// minSpeed is the share of the best possible speed that passes.
const minSpeed = 0.95

// A report is the result of one run: the merchant's side, and the gateway's own log.
type report struct {
	calls, succeeded int
	reasons          map[string]int // failures of the other calls
	app, refund      gateway.Tally
	refundedTwice    int    // trades
	log              string // of the sidecar, if there are faults
}

// report reads the counts of l and g.
func (s scenario) report(l *load, g *gateway.Gateway) report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := report{
		calls:     len(l.calls),
		succeeded: l.succeeded,
		reasons:   maps.Clone(l.reasons),
		app:       g.App(appID),
		refund:    g.Method(appID, gateway.Refund),
	}
	for _, n := range g.Refunds(appID) {
		if n > 1 {
			r.refundedTwice++
		}
	}
	return r
}

func (r report) limited() int { return r.app.Limited + r.refund.Limited }

// best returns the shortest time from the first arrival to the last within the limits.
func (s scenario) best() time.Duration {
	return max(best(s.refunds+s.queries, s.app), best(s.refunds, s.refund))
}

// best returns (⌈calls/N⌉ − 1)·W: a full burst at once, another after each W.
func best(calls int, l gateway.Limit) time.Duration {
	return time.Duration((calls+l.Calls-1)/l.Calls-1) * l.Window
}

// speed returns the share of the best possible speed, at most 1 if no limit was exceeded.
func (s scenario) speed(r report) float64 {
	return s.best().Seconds() / r.app.Span().Seconds()
}

// used returns the share of permits used by executed calls between the first and the last
// arrival. There are N permits for each window begun.
func used(t gateway.Tally) float64 {
	windows := int(t.Span()/t.Limit.Window) + 1
	return float64(t.Executed) / float64(windows*t.Limit.Calls)
}

// faults returns the broken promises of a run through Throttler.
func (r report) faults(s scenario) []string {
	var f []string
	add := func(format string, args ...any) { f = append(f, fmt.Sprintf(format, args...)) }
	if n := r.limited(); n > 0 {
		add("%d calls were limited by the gateway", n)
	}
	if n := r.app.Most(); n > s.app.Calls {
		add("%d arrivals of the app in a window, %d allowed", n, s.app.Calls)
	}
	if n := r.refund.Most(); n > s.refund.Calls {
		add("%d refunds arrived in a window, %d allowed", n, s.refund.Calls)
	}
	if r.succeeded != r.calls {
		add("%d of %d calls succeeded", r.succeeded, r.calls)
	}
	for _, reason := range slices.Sorted(maps.Keys(r.reasons)) {
		add("%d calls failed: %s", r.reasons[reason], reason)
	}
	if r.refundedTwice > 0 {
		add("%d trades were refunded twice", r.refundedTwice)
	}
	if speed := s.speed(r); r.succeeded == r.calls && speed < minSpeed {
		add("%.2f%% of the best possible speed, at least %.0f%% expected", 100*speed, 100*minSpeed)
	}
	return f
}

// idle returns an error if the gateway limited less than half of a straight run:
// then the comparison proves nothing.
func (r report) idle() error {
	if n := r.limited(); 2*n < r.calls {
		return fmt.Errorf("straight at the gateway only %d of %d calls were limited: the comparison says nothing", n, r.calls)
	}
	return nil
}

// writeVerdict prints both runs side by side.
func writeVerdict(out io.Writer, s scenario, straight, through report) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	row := func(label string, cell func(report) string) {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", label, cell(straight), cell(through))
	}
	number := func(label string, of func(report) int) {
		row(label, func(r report) string { return fmt.Sprint(of(r)) })
	}
	most := func(arrivals string, of func(report) gateway.Tally) {
		row(fmt.Sprintf("most %s in any %v", arrivals, of(through).Limit.Window), func(r report) string {
			return fmt.Sprintf("%d of %d", of(r).Most(), of(r).Limit.Calls)
		})
	}
	share := func(f float64) string { return fmt.Sprintf("%.1f%%", 100*f) }
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2fs", d.Seconds()) }

	fmt.Fprintf(w, "  \tstraight\tthrough Throttler\n")
	number("calls", func(r report) int { return r.calls })
	number("succeeded", func(r report) int { return r.succeeded })
	number("limited by the gateway", report.limited)
	number("failed otherwise", func(r report) int { return r.calls - r.succeeded - r.limited() })
	most("arrivals", func(r report) gateway.Tally { return r.app })
	most("refunds", func(r report) gateway.Tally { return r.refund })
	number("trades refunded twice", func(r report) int { return r.refundedTwice })
	row("app quota used", func(r report) string { return share(used(r.app)) })
	row("refund quota used", func(r report) string { return share(used(r.refund)) })
	row("first to last arrival", func(r report) string { return seconds(r.app.Span()) })
	row("best possible time", func(report) string { return seconds(s.best()) })
	row("of the best possible speed", func(r report) string {
		if r.succeeded != r.calls {
			return "not done"
		}
		return share(s.speed(r))
	})
	return w.Flush()
}
