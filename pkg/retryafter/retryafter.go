package retryafter

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// Longest is the longest wait that is returned. A caller is expected to have a bound of its own.
const Longest = 366 * 24 * time.Hour

// Bounds of the values that are read: an answer is not trusted.
const (
	maxValues = 16 // of a field, and of a list in one value
	maxLength = 64 // bytes of one value that is no number
)

// Wait returns how long an answer with these fields asks its client to wait from now on, at most
// Longest. Zero: it does not say. Limited tells that the answer refuses its request because of a
// limit: a reset then counts without a remaining number too. The names of the fields are in
// the form of [http.CanonicalHeaderKey].
func Wait(fields http.Header, now time.Time, limited bool) time.Duration {
	if date, err := http.ParseTime(fields.Get("Date")); err == nil {
		now = date
	}
	var coarse, fine, empty, unsaid time.Duration // empty: of quotas with nothing left; unsaid: without a remaining number
	for name, values := range fields {
		switch {
		case name == "Retry-After":
			coarse = longest(values, now, time.Second)
		case name == "X-Retry-In":
			fine = max(fine, longest(values, now, time.Second))
		case strings.Contains(name, "Retry-After"):
			fine = max(fine, longest(values, now, unitOf(name)))
		case name == "Ratelimit":
			e, u := rateLimit(values, now)
			empty, unsaid = max(empty, e), max(unsaid, u)
		case ofQuota(name):
			left, ok := counterpart(name)
			if !ok {
				continue
			}
			e, u := resets(values, fields[left], now, unitOf(name))
			empty, unsaid = max(empty, e), max(unsaid, u)
		}
	}
	switch asked := explicit(coarse, fine); {
	case asked > 0:
		return min(asked, Longest)
	case empty > 0 || !limited:
		return empty
	}
	return unsaid
}

// explicit returns the wait of Retry-After and of a finer field. Retry-After is the finer one in
// whole seconds if they differ by less than one.
func explicit(coarse, fine time.Duration) time.Duration {
	if fine > 0 && (coarse-fine).Abs() < time.Second {
		return fine
	}
	return max(coarse, fine)
}

// sane returns the wait until a reset, zero if it is beyond Longest.
func sane(wait time.Duration) time.Duration {
	if wait > Longest {
		return 0
	}
	return wait
}

// Remaining returns the least number that the fields of an answer say is left of a quota, by
// RateLimit and by fields with RateLimit or Rate-Limit and Remaining in their names. Known is false
// if none says so. Zero is proof that a limit is reached, whichever status the answer has.
func Remaining(fields http.Header) (n float64, known bool) {
	for name, values := range fields {
		left, told := 0.0, false
		switch {
		case name == "Ratelimit":
			left, told = rateLimitLeft(values)
		case ofQuota(name) && hasWord(name, "-Remaining"):
			left, told = least(values)
		}
		if told && (!known || left < n) {
			n, known = left, true
		}
	}
	return n, known
}

// ofQuota reports whether a name is of fields about a quota.
func ofQuota(name string) bool {
	return strings.Contains(name, "Ratelimit") || strings.Contains(name, "Rate-Limit")
}

// hasWord reports whether a name has a word, which is given with its hyphen.
func hasWord(name, word string) bool {
	_, after, found := strings.Cut(name, word)
	return found && (after == "" || after[0] == '-')
}

// counterpart returns the name of the field with the remaining number of a reset's quota: the same
// with Remaining for Reset, and without a suffix that says the unit. Ok is false for a field that is no reset.
func counterpart(name string) (remaining string, ok bool) {
	if !hasWord(name, "-Reset") {
		return "", false
	}
	for _, suffix := range []string{"-Ms", "-Milliseconds", "-Seconds", "-After"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return strings.Replace(name, "-Reset", "-Remaining", 1), true
}

// unitOf returns the unit that a field's name says.
func unitOf(name string) time.Duration {
	if strings.HasSuffix(name, "-Ms") || strings.HasSuffix(name, "-Milliseconds") {
		return time.Millisecond
	}
	return time.Second
}

// resets reads the resets of a quota by the numbers that are left of it. Lists of one length belong
// together, item by item: Mangopay has four windows in each field.
func resets(values, left []string, now time.Time, unit time.Duration) (empty, unsaid time.Duration) {
	each, lefts := itemsOf(values), itemsOf(left)
	if len(each) < 2 || len(each) != len(lefts) {
		each, lefts = [][]string{values}, [][]string{left}
	}
	for i := range each {
		wait := sane(longest(each[i], now, unit))
		switch n, told := least(lefts[i]); {
		case !told:
			unsaid = max(unsaid, wait)
		case n == 0:
			empty = max(empty, wait)
		}
	}
	return empty, unsaid
}

// itemsOf returns the items of a field, each as a field of its own.
func itemsOf(values []string) (items [][]string) {
	for _, item := range strings.SplitN(strings.Join(values, ","), ",", maxValues+1) {
		items = append(items, []string{item})
	}
	return items[:min(len(items), maxValues)]
}

// least returns the least of some remaining numbers.
func least(values []string) (n float64, told bool) {
	for _, item := range itemsOf(values) {
		text := item[0]
		if left, ok := count(text); ok && (!told || left < n) {
			n, told = left, true
		}
	}
	return n, told
}

// count reads a remaining number: digits, and perhaps a fraction. A negative one is none, because
// it means without a limit where it is sent.
func count(text string) (float64, bool) {
	text = strings.TrimSpace(text)
	if len(text) > maxLength || !isNumber(text) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

// rateLimit reads the RateLimit field: a list of quotas with r (remaining) and t (seconds until the
// reset), or the dictionary of draft 7. A quota of a list without r tells nothing, for it is not
// known which of them is used up.
func rateLimit(values []string, now time.Time) (empty, unsaid time.Duration) {
	items, single := quotas(values)
	for _, q := range items {
		wait := sane(longest([]string{q.reset}, now, time.Second))
		n, told := count(q.left)
		switch {
		case told && n == 0:
			empty = max(empty, wait)
		case !told && single && q.left == "":
			unsaid = max(unsaid, wait)
		}
	}
	return empty, unsaid
}

// rateLimitLeft returns the least remaining number of the RateLimit field.
func rateLimitLeft(values []string) (n float64, told bool) {
	items, _ := quotas(values)
	for _, q := range items {
		if left, ok := count(q.left); ok && (!told || left < n) {
			n, told = left, true
		}
	}
	return n, told
}

// A quotaItem has the values of a quota in the RateLimit field, as text; empty: not there.
type quotaItem struct{ left, reset string }

// quotas reads the RateLimit field; single: it is the dictionary of draft 7.
func quotas(values []string) (items []quotaItem, single bool) {
	values = values[:min(len(values), maxValues)]
	if list, err := httpsfv.UnmarshalList(values); err == nil {
		for _, member := range list {
			if item, _ := member.(httpsfv.Item); item.Params != nil {
				left, _ := item.Params.Get("r")
				reset, _ := item.Params.Get("t")
				items = append(items, quotaItem{textOf(left), textOf(reset)})
			}
		}
		return items, false
	}
	dict, err := httpsfv.UnmarshalDictionary(values)
	if err != nil {
		return nil, false
	}
	bare := func(name string) string {
		member, _ := dict.Get(name)
		item, _ := member.(httpsfv.Item)
		return textOf(item.Value)
	}
	return []quotaItem{{bare("remaining"), bare("reset")}}, true
}

// textOf returns a bare item as a field would have it.
func textOf(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case string:
		return v
	case nil:
		return ""
	}
	return "?"
}

// weekdays begin the dates with a comma.
var weekdays = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"}

// longest returns the longest wait that the values of a field ask for. A value may be a list.
func longest(values []string, now time.Time, unit time.Duration) (wait time.Duration) {
	for _, value := range values[:min(len(values), maxValues)] {
		pieces := strings.SplitN(value, ",", 2*maxValues)
		for i := 0; i < len(pieces); i++ {
			piece := pieces[i]
			if i+1 < len(pieces) && slices.Contains(weekdays, strings.ToLower(strings.TrimSpace(piece))) {
				i++
				piece += "," + pieces[i]
			}
			if w, ok := read(piece, now, unit); ok {
				wait = max(wait, w)
			}
		}
	}
	return wait
}
