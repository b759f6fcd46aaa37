package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed-30fe103d/throttler/api/client"
)

// writeCall writes the state of a call, and the reason why it waits.
func writeCall(w io.Writer, c *client.Call, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(t, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("call", "%s", c.Id)
	line("upstream", "%s, priority %d", c.Upstream, c.Priority)
	if c.Method != "" {
		line("request", "%s %s", c.Method, plain(c.Path))
	}
	if c.SubmittedBy != "" {
		line("submitted by", "%s", plain(c.SubmittedBy))
	}
	if c.IdempotencyKey != "" {
		line("key", "%s", plain(c.IdempotencyKey))
	}
	if len(c.Numbers) > 0 {
		line("numbers", "%s", numbersText(c.Numbers))
	}
	switch {
	case c.State == client.StateWaiting:
		line("state", "waiting, accepted %s", instantText(c.AcceptedAt, now))
	case c.State.Finished():
		line("state", "%s, %s; accepted %s", c.State, instantText(c.FinishedAt, now), instantText(c.AcceptedAt, now))
	default:
		line("state", "%s, accepted %s", c.State, instantText(c.AcceptedAt, now))
	}
	if c.Reason != "" {
		line("reason", "%s", endedText(c))
	}
	if c.EndedBy != "" {
		line("ended by", "%s", c.EndedBy)
	}
	if c.State == client.StateWaiting {
		line("goes", "%s", etaText(c, now))
		if f := c.WaitingFor; f != nil {
			line("held by", "%s", waitingForText(f, now))
			switch {
			case f.Ahead == 1:
				line("ahead", "1 permit goes to a call ahead of it")
			case f.Ahead > 1:
				line("ahead", "%d permits go to calls ahead of it", f.Ahead)
			}
			if f.Next != "" {
				line("first in line", "%s", f.Next)
			}
		}
		line("must be sent by", "%s", instantText(c.Deadline, now))
	}
	writeHistory(line, c, now)
	return t.Flush()
}

// writeHistory writes the permits, the attempts and the decisions of a call, and its next step
// if it is unknown.
func writeHistory(line func(name, format string, args ...any), c *client.Call, now time.Time) {
	for _, p := range c.Permits {
		text := fmt.Sprintf("%s, cost %d", p.Limit, p.Cost)
		if p.Key != "" {
			text = fmt.Sprintf("%s of key %q, cost %d", p.Limit, p.Key, p.Cost)
		}
		if p.Free != nil {
			text += fmt.Sprintf(", %d free", *p.Free)
		}
		line("counts under", "%s", text)
	}
	for _, a := range c.Attempts {
		line(fmt.Sprintf("attempt %d", a.N), "%s", attemptText(&a, now))
	}
	for _, d := range c.Decisions {
		line("decided", "%s", decisionText(&d, now))
	}
	if u := c.Unknown; u != nil && c.State == client.StateUnknown {
		line("next", "%s", nextText(u, now))
		line("a repeat", "%s", repeatSafety(u.RepeatIsSafe))
	}
}

// decisionText writes a decision about an unknown call.
func decisionText(d *client.Decision, now time.Time) string {
	as := "attempt " + strconv.Itoa(d.Attempt) + " was " + strings.ReplaceAll(string(d.As), "_", " ")
	if d.As == client.OutcomeUnknown {
		as = "sent again after attempt " + strconv.Itoa(d.Attempt) + ", though its outcome is unknown"
	}
	return fmt.Sprintf("%s by %s: %s (%s)", instantText(d.At, now), plain(d.By), as, plain(d.Reason))
}

// nextText writes the next step of an unknown call.
func nextText(u *client.UnknownCall, now time.Time) string {
	if u.Next != "query" {
		answer := ""
		if u.Queries.Answer != "" {
			answer = "; the last answer was " + plain(u.Queries.Answer)
		}
		return fmt.Sprintf("a person has to decide (%d queries were made%s)", u.Queries.Made, answer)
	}
	if u.Queries.NextAt.IsZero() {
		return "a query to the platform is on its way"
	}
	return "a query to the platform, " + instantText(u.Queries.NextAt, now)
}

func repeatSafety(safe bool) string {
	if safe {
		return "is safe: the platform recognises it"
	}
	return "is not safe: it may be executed twice"
}

// numbersText writes business numbers by their names. Their values come from requests.
func numbersText(numbers map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		all = append(all, fmt.Sprintf("%s %q", name, numbers[name]))
	}
	return strings.Join(all, ", ")
}

// endedText writes the reason why a call ended without an answer.
func endedText(c *client.Call) string {
	switch c.Reason {
	case "gone":
		return "its client left before it was executed"
	case "past_deadline":
		return "it had no slot before its deadline, max_wait or max_age"
	case "paused":
		return "its upstream was paused, or its circuit breaker open, for longer than it could wait"
	case "stopping":
		return "the sidecar stopped before it was sent"
	}
	return c.Reason
}

func etaText(c *client.Call, now time.Time) string {
	switch f := c.WaitingFor; {
	case f != nil && f.Removed:
		return "when its upstream is in the configuration again"
	case f != nil && f.InFlight > 0:
		return fmt.Sprintf("when one of %d in flight ends (the oldest was sent %s ago, time-out %s)", f.InFlight, durationText(now.Sub(f.OldestSentAt)), durationText(time.Duration(f.TimeoutMs)*time.Millisecond))
	case !c.Eta.After(now):
		return "at once"
	}
	text := "about " + instantText(c.Eta, now)
	if isLate(c.Eta, c.Deadline) {
		text += ", beyond its deadline, " + instantText(c.Deadline, now) + ": unless that changes, it ends then and is not sent"
	}
	return text
}

// isLate reports whether a waiting call has its slot behind its deadline.
func isLate(eta, deadline time.Time) bool { return !deadline.IsZero() && eta.After(deadline) }

func waitingForText(f *client.WaitingFor, now time.Time) string {
	until := ", until " + instantText(f.Until, now)
	limit := "limit " + f.Limit
	if f.Key != "" {
		limit += fmt.Sprintf(", key %q", f.Key)
	}
	switch {
	case f.Removed:
		return "its upstream, which was taken out of the configuration"
	case f.Limit == "":
		return "its own time: not before " + instantText(f.Until, now)
	case f.InFlight > 0 && f.Limit == client.ConcurrencyLimit:
		return "the upstream, where attempts in flight must end first"
	case f.InFlight > 0 && f.KeysFull:
		return "a place in " + limit + ", whose max_keys other keys have attempts in flight"
	case f.InFlight > 0:
		return limit + ", whose permits attempts in flight hold"
	case f.Breaker != "":
		return "the upstream, whose circuit breaker is open (" + f.Breaker + "); the next probe is due " + instantText(f.Until, now)
	case f.Paused:
		return pauseText(f, limit) + until
	case f.KeysFull:
		return "a place in " + limit + " (max_keys other keys have permits out)" + until
	}
	if f.Late > 0 {
		until += fmt.Sprintf("; %d of its permits had no answer, and stay out for late longer", f.Late)
	}
	if f.Slowed != nil {
		until += "; there calls are " + slowedText(f.Slowed, now)
	}
	return limit + until
}

// slowedText tells to which speed calls are slowed down, since when, and why.
func slowedText(s *client.Slowed, now time.Time) string {
	text := fmt.Sprintf("slowed to %.3g calls/s since %s: %d of %d answers limited calls", s.CallsPerSecond, instantText(s.Since, now), s.Limited, s.Limited+s.Passed)
	if s.Within != "" {
		text += " within " + s.Within
	}
	return text
}

// pauseText writes which limit is paused, by whom, since when and why.
func pauseText(f *client.WaitingFor, limit string) string {
	if f.Limit == client.ConcurrencyLimit {
		limit = "the upstream"
	}
	if f.Pause != "" {
		limit += " (" + f.Pause + ")"
	}
	return "a pause of " + limit
}

func attemptText(a *client.Attempt, now time.Time) string {
	if a.EndedAt.IsZero() {
		return "sent " + instantText(a.SentAt, now) + ", no answer yet"
	}
	s := fmt.Sprintf("sent %s, %s after %s", instantText(a.SentAt, now), a.Outcome, durationText(a.EndedAt.Sub(a.SentAt)))
	if a.Status > 0 {
		s += fmt.Sprintf(", status %d", a.Status)
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

// instantText writes an instant, with its date if that is not today's, and its distance
// from now.
func instantText(at, now time.Time) string {
	clock := at.Local().Format("15:04:05.000")
	if at.Local().Format(time.DateOnly) != now.Local().Format(time.DateOnly) {
		clock = at.Local().Format(time.DateTime)
	}
	if at.After(now) {
		return fmt.Sprintf("%s (in %s)", clock, durationText(at.Sub(now)))
	}
	return fmt.Sprintf("%s (%s ago)", clock, durationText(now.Sub(at)))
}

// durationText writes a duration with about three digits.
func durationText(d time.Duration) string {
	for _, step := range []time.Duration{time.Minute, time.Second, time.Millisecond, time.Microsecond} {
		if d >= 100*step {
			return d.Round(step).String()
		}
		if d >= step {
			return d.Round(step / 100).String()
		}
	}
	return d.String()
}

// writePage writes calls as a table.
func writePage(w io.Writer, p *client.Calls, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	named := slices.ContainsFunc(p.Calls, func(c client.CallSummary) bool { return len(c.Numbers) > 0 })
	head := "CALL\tUPSTREAM\tSTATE\tPRIORITY\tACCEPTED\tATTEMPTS\tGOES\tHELD BY"
	if named {
		head += "\tNUMBERS"
	}
	fmt.Fprintln(t, head)
	for _, c := range p.Calls {
		eta, by := "", ""
		if c.State == client.StateWaiting {
			eta, by = shortETA(c.Eta, c.WaitingFor, now), shortHold(c.WaitingFor)
			if isLate(c.Eta, c.Deadline) {
				eta = "beyond its deadline"
			}
		}
		if named {
			by += "\t" + numbersText(c.Numbers)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%d\t%s\t%s\n", c.Id, c.Upstream, c.State, c.Priority, instantText(c.AcceptedAt, now), c.AttemptCount, eta, by)
	}
	err := t.Flush()
	writeNext(w, p.Next)
	return err
}

// shortETA and shortHold write when a waiting call goes, and the reason why it waits, for a
// table.
func shortETA(eta time.Time, f *client.WaitingFor, now time.Time) string {
	switch {
	case eta.IsZero() && f != nil:
		return "not known"
	case eta.After(now):
		return "in " + durationText(eta.Sub(now))
	}
	return "at once"
}

func shortHold(f *client.WaitingFor) string {
	switch {
	case f == nil:
		return ""
	case f.Removed:
		return "the upstream, removed"
	case f.Limit == "":
		return "its own time"
	case f.Paused && f.Limit == client.ConcurrencyLimit:
		return "the upstream"
	case f.Key != "":
		return f.Limit + " " + strconv.Quote(f.Key)
	}
	return f.Limit
}

// eventText writes an event as a line.
func eventText(e *client.Event) string {
	s := fmt.Sprintf("%s  %s  %s  %-8s", e.At.Local().Format("15:04:05.000"), e.Call, e.Upstream, e.Event)
	switch e.Event {
	case client.EventRefused:
		s += "  " + e.Reason
	case client.EventState, client.EventAccepted, client.EventWaiting:
		if e.Event == client.EventState {
			s += "  " + string(e.State)
		}
		if !e.Eta.IsZero() {
			s += "  goes " + instantText(e.Eta, e.At)
		}
	case client.EventAttempt:
		s += fmt.Sprintf("  %s after %s", e.Attempt.Outcome, durationText(e.Attempt.EndedAt.Sub(e.Attempt.SentAt)))
		if e.Attempt.Status > 0 {
			s += fmt.Sprintf(", status %d", e.Attempt.Status)
		}
	case client.EventPaused:
		s += fmt.Sprintf("  %s until %s (%s)", pausedText(e), instantText(e.Until, e.At), e.Reason)
	case client.EventResumed:
		s += fmt.Sprintf("  %s (%s)", pausedText(e), e.Reason)
	case client.EventTookOver:
		s += fmt.Sprintf("  the replica has the calls now (the term before: %s)", e.Reason)
	case client.EventCommitsLost:
		s += "  the database has lost commits; calls that waited are unknown"
	case client.EventEnded:
		s += "  " + string(e.State)
		if e.Reason != "" {
			s += " (" + e.Reason + ")"
		}
	}
	return s
}

// pausedText names the upstream, limit or key of a pause.
func pausedText(e *client.Event) string {
	switch {
	case e.Limit == "":
		return "the upstream"
	case e.Key == "":
		return "limit " + e.Limit
	}
	return fmt.Sprintf("limit %s, key %q", e.Limit, e.Key)
}
