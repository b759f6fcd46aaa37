package web

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// Sentences about calls, in a language.

// subject names a call by its numbers, the last first, as in refund R-1 of order 7; without
// numbers by its id.
func (s *speech) subject(c *api.CallFacts) string {
	if c.Resolves != "" {
		return s.mustText("subject.query", "ID", c.ID)
	}
	return s.numbers(c.Numbers, c.ID)
}

// numbers names a call by its numbers and its id.
func (s *speech) numbers(numbers map[string]string, id string) string {
	names := slices.Sorted(maps.Keys(numbers))
	if len(names) == 0 {
		return s.mustText("subject.call", "ID", id)
	}
	slices.Reverse(names) // refund before order
	text := s.word("number", names[0]) + " " + clean(numbers[names[0]])
	for _, name := range names[1:] {
		text = s.mustText("subject.of", "First", text, "Second", s.word("number", name)+" "+clean(numbers[name]))
	}
	return text
}

// sentence says how a call stands, for a support desk.
func (s *speech) sentence(c *api.CallFacts, sent api.Instant, now time.Time) string {
	id := "sentence." + string(c.State)
	switch {
	case c.State == api.Waiting && !c.Deadline.IsZero() && c.ETA.After(c.Deadline.Time):
		id = "sentence.waiting_late"
	case c.State == api.Waiting && c.ETA.IsZero():
		id = "sentence.waiting_unknown"
	case c.State == api.Unknown && c.Unknown != nil && c.Unknown.Next == api.NextQuery:
		id = "sentence.unknown_query"
	}
	at := c.FinishedAt
	switch c.State {
	case api.Waiting:
		if at = c.ETA; id == "sentence.waiting_late" {
			at = c.Deadline
		}
	case api.Sending, api.Unknown:
		at = sent
	}
	return capital(s.mustText(id, "Call", s.subject(c), "Upstream", clean(c.Upstream), "Time", s.distance(at, now)))
}

// recorded says how a call ended by a decision, of a person or of a query.
func (s *speech) recorded(c *api.Call, d *api.Decision, now time.Time) string {
	return capital(s.mustText("sentence."+string(c.State)+"_recorded", "Call", s.subject(&c.CallFacts), "Upstream", clean(c.Upstream), "By", s.person(d.By), "Time", s.distance(d.At, now), "Reason", clean(d.Reason)))
}

// capital returns a sentence with a capital at its beginning.
func capital(text string) string {
	r, n := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(r)) + text[n:]
}

// reason returns the reason of the outcome of an attempt in the language, as far as the language knows it.
func (s *speech) reason(reason string) string {
	what, why, ok := strings.Cut(reason, ": ")
	text, known := reasons[what]
	if !ok || !known {
		return clean(reason)
	}
	if id, ok := reasons[why]; ok {
		why = s.mustText(id)
	}
	return s.mustText(text, "Why", clean(why))
}

// reasons are the texts of reasons, and of their parts, by those of package upstream.
var reasons = map[string]string{
	"no answer":                         "reason.no_answer",
	"never sent":                        "reason.never_sent",
	"not processed":                     "reason.not_processed",
	"the connection was closed":         "reason.closed",
	"the attempt's time-out has passed": "reason.timeout",
}

// person names a caller of the API: a person or a program, or the machine itself if none logged in.
func (s *speech) person(name string) string {
	if name == loopback {
		return s.mustText("person.loopback")
	}
	return clean(name)
}

// loopback is the name of a caller at the machine itself that has shown nothing.
const loopback = "loopback"

// pause says by whom, since when and why a pause is.
func (s *speech) pause(p api.Pause, now time.Time) string {
	by := s.word("pause_by", p.By)
	if p.Who != "" {
		by = s.person(p.Who)
	}
	if p.Status != 0 {
		by = s.mustText("pause.status", "By", by, "Status", strconv.Itoa(p.Status))
	}
	since := ""
	if !p.Since.IsZero() {
		since = s.distance(p.Since, now)
	}
	return s.mustText("pause.by", "By", by, "Since", since, "Reason", clean(p.Reason))
}

// why says why a call waits. The pause is that of its limit, its key or its upstream, if there is one.
func (s *speech) why(f *api.WaitingFor, pause *api.Pause, now time.Time) string {
	why := capital(s.waits(f, pause, now))
	if f == nil || f.Slowed == nil || f.Paused {
		return why
	}
	return s.mustText("sentences", "One", why, "Two", s.slowed("why.slowed", "", *f.Slowed, now))
}

// slowed says to which speed calls of a limit are slowed down, since when, and why.
func (s *speech) slowed(id, limit string, by api.Slowed, now time.Time) string {
	return s.mustText(id, "Limit", limit, "Rate", strconv.FormatFloat(by.CallsPerSecond, 'g', 3, 64), "Since", s.distance(by.Since, now),
		"Limited", s.number(by.Limited), "Answers", s.number(by.Limited+by.Passed), "Within", clean(by.Within))
}

func (s *speech) waits(f *api.WaitingFor, pause *api.Pause, now time.Time) string {
	if f == nil {
		return s.mustText("why.slot")
	}
	limit := s.mustText("why.limit", "Limit", clean(f.Limit))
	if f.Key != "" && (pause == nil || pause.Key != "") {
		limit = s.mustText("why.limit_key", "Limit", clean(f.Limit), "Key", clean(f.Key))
	}
	upstream := f.Limit == api.ConcurrencyLimit
	until := s.distance(f.Until, now)
	paused := clean(f.Pause)
	if pause != nil {
		paused = s.pause(*pause, now)
	}
	switch {
	case f.Removed:
		return s.mustText("why.removed")
	case f.Limit == "":
		return s.mustText("why.not_before", "Time", until)
	case f.InFlight > 0 && upstream:
		return s.mustText("why.upstream_flying", "N", f.InFlight)
	case f.InFlight > 0 && f.KeysFull:
		return s.mustText("why.keys_flying", "Limit", limit)
	case f.InFlight > 0:
		return s.mustText("why.limit_flying", "Limit", limit, "N", f.InFlight)
	case f.Breaker != "":
		return s.mustText("why.breaker", "Reason", clean(f.Breaker), "Time", until)
	case f.Paused && upstream:
		return s.mustText("why.upstream_paused", "Time", until, "Pause", paused)
	case f.Paused:
		return s.mustText("why.limit_paused", "Limit", limit, "Time", until, "Pause", paused)
	case f.KeysFull:
		return s.mustText("why.keys_full", "Limit", limit, "Time", until)
	case f.Ahead > 0:
		return s.mustText("why.ahead", "Limit", limit, "N", f.Ahead, "Time", until)
	}
	return s.mustText("why.full", "Limit", limit, "Time", until)
}
