package web

import (
	"maps"
	"slices"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// Sentences about calls, in a language.

// subject names a call by its numbers, the last first, as in refund R-1 of order 7; without
// numbers by its id.
func (s *speech) subject(c *api.CallFacts) string {
	names := slices.Sorted(maps.Keys(c.Numbers))
	if len(names) == 0 {
		return s.mustText("subject.call", "ID", c.ID)
	}
	slices.Reverse(names) // refund before order
	text := s.word("number", names[0]) + " " + clean(c.Numbers[names[0]])
	for _, name := range names[1:] {
		text = s.mustText("subject.of", "First", text, "Second", s.word("number", name)+" "+clean(c.Numbers[name]))
	}
	return text
}

// sentence says how a call stands, for a support desk.
func (s *speech) sentence(c *api.CallFacts, sent api.Instant, now time.Time) string {
	id := "sentence." + string(c.State)
	switch {
	case c.State == api.Waiting && c.ETA.IsZero():
		id = "sentence.waiting_unknown"
	case c.State == api.Unknown && c.Unknown != nil && c.Unknown.Next == api.NextQuery:
		id = "sentence.unknown_query"
	}
	at := c.FinishedAt
	switch c.State {
	case api.Waiting:
		at = c.ETA
	case api.Sending, api.Unknown:
		at = sent
	}
	text := s.mustText(id, "Call", s.subject(c), "Upstream", clean(c.Upstream), "Time", s.distance(at, now))
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// why says why a call waits.
func (s *speech) why(f *api.WaitingFor, now time.Time) string {
	if f == nil {
		return s.mustText("why.slot")
	}
	limit := s.mustText("why.limit", "Limit", clean(f.Limit))
	if f.Key != "" {
		limit = s.mustText("why.limit_key", "Limit", clean(f.Limit), "Key", clean(f.Key))
	}
	upstream := f.Limit == api.ConcurrencyLimit
	until := s.distance(f.Until, now)
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
		return s.mustText("why.upstream_paused", "Time", until, "Pause", clean(f.Pause))
	case f.Paused:
		return s.mustText("why.limit_paused", "Limit", limit, "Time", until, "Pause", clean(f.Pause))
	case f.KeysFull:
		return s.mustText("why.keys_full", "Limit", limit, "Time", until)
	case f.Ahead > 0:
		return s.mustText("why.ahead", "Limit", limit, "N", f.Ahead, "Time", until)
	}
	return s.mustText("why.full", "Limit", limit, "Time", until)
}
