package preview

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// The longest lists of a text; a Report has all.
const (
	maxFlows = 20
	maxSpans = 4
)

// figures are the lines at the top of a text.
var figures = []struct {
	name string
	of   func(*Report) string
}{
	{"", func(r *Report) string { return r.Config }},
	{"calls", func(r *Report) string { return fmt.Sprintf("%d in %s", r.Calls, brief(r.Length)) }},
	{"sent", func(r *Report) string { return share(r.Sent, r.Calls) }},
	{"refused by Throttler", refused},
	{"limited by the upstream", func(r *Report) string { return share(r.Over, r.Calls) }},
	{"  without Throttler", func(r *Report) string { return share(r.LimitedWithout, r.Calls) }},
	{"wait p50", func(r *Report) string { return brief(r.Wait.P50) }},
	{"wait p95", func(r *Report) string { return brief(r.Wait.P95) }},
	{"wait p99", func(r *Report) string { return brief(r.Wait.P99) }},
	{"longest wait", func(r *Report) string { return brief(r.Wait.Max) }},
	{"peak backlog", func(r *Report) string {
		if r.Backlog.Peak == 0 {
			return "0"
		}
		return fmt.Sprintf("%d after %s", r.Backlog.Peak, brief(r.Backlog.At))
	}},
	{"makespan", func(r *Report) string { return brief(r.Makespan) }},
}

// Text writes reports for people, side by side.
func Text(w io.Writer, reports ...*Report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range figures {
		fmt.Fprint(t, f.name)
		for _, r := range reports {
			fmt.Fprint(t, "\t", f.of(r))
		}
		fmt.Fprintln(t)
	}
	for _, r := range reports {
		limits(t, r)
	}
	for _, r := range reports {
		flows(t, r)
	}
	return t.Flush()
}

func refused(r *Report) string {
	if len(r.Refused) == 0 {
		return "0"
	}
	var parts []string
	for reason, n := range r.Refused {
		parts = append(parts, share(n, r.Calls)+" "+string(reason))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func limits(t io.Writer, r *Report) {
	fmt.Fprintf(t, "\nLIMIT (%s)\tPERMITS\tKEYS\tMOST IN A WINDOW\tMOST WAITING\tLIMITED WITHOUT US\tBINDS\n", r.Config)
	for _, l := range r.Limits {
		keys, most := fmt.Sprint(l.Keys), fmt.Sprint(l.Most)
		if l.Keys == 0 { // Throttler's own
			keys, most = "", ""
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%s\n", name(l.Upstream, l.Limit, r), l.permits(), keys, most, l.Queued, l.LimitedWithout, binds(&l, r.Makespan))
	}
}

// binds describes the times in which a limit held most calls. Times that are closer
// together than a hundredth of the makespan become one.
func binds(l *Limit, makespan Millis) string {
	if len(l.Binds) == 0 {
		return "never"
	}
	var spans []Span
	for _, s := range l.Binds {
		if last := len(spans) - 1; last >= 0 && s.From-spans[last].To < makespan/100 {
			spans[last].To = s.To
		} else {
			spans = append(spans, s)
		}
	}
	longest := slices.Clone(spans)
	slices.SortStableFunc(longest, func(a, b Span) int { return cmp.Compare(b.To-b.From, a.To-a.From) })
	longest = longest[:min(len(longest), maxSpans)]
	slices.SortFunc(longest, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var texts []string
	for _, s := range longest {
		texts = append(texts, brief(s.From)+"–"+brief(s.To))
	}
	s := fmt.Sprintf("%.1f%% of the time: %s", 100*l.Share, strings.Join(texts, ", "))
	if more := len(spans) - len(longest); more > 0 {
		s += fmt.Sprintf(" and %d shorter", more)
	}
	return s
}

func flows(t io.Writer, r *Report) {
	fmt.Fprintf(t, "\nFLOW (%s)\tCALLS\tSENT\tWAIT P50\tP95\tP99\tLONGEST\n", r.Config)
	most := largest(r)
	for _, f := range most {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\n", name(f.Upstream, cmp.Or(f.Flow, "all"), r), f.Calls, f.Sent, brief(f.Wait.P50), brief(f.Wait.P95), brief(f.Wait.P99), brief(f.Wait.Max))
	}
	if more := r.FlowCount - len(most); more > 0 {
		fmt.Fprintf(t, "and %d more flows: -o json has them\n", more)
	}
}

// largest returns the flows with most calls.
func largest(r *Report) []Flow {
	most := slices.Clone(r.Flows)
	slices.SortStableFunc(most, func(a, b Flow) int { return cmp.Compare(b.Calls, a.Calls) })
	return most[:min(len(most), maxFlows)]
}

// name returns the name of a flow or limit, with its upstream if there are several.
func name(upstream, s string, r *Report) string {
	if len(r.upstreams()) > 1 {
		return upstream + " " + s
	}
	return s
}

func share(n, of int) string {
	if n == 0 || of == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d (%.1f%%)", n, 100*float64(n)/float64(of))
}

// brief writes a duration with about three digits.
func brief(m Millis) string {
	d := m.Duration()
	for _, scale := range []struct{ from, digit time.Duration }{
		{time.Hour, time.Second}, {time.Minute, 100 * time.Millisecond}, {time.Second, 10 * time.Millisecond},
		{time.Millisecond, 10 * time.Microsecond}, {time.Microsecond, 10 * time.Nanosecond},
	} {
		if d >= scale.from {
			return d.Round(scale.digit).String()
		}
	}
	return d.String()
}
