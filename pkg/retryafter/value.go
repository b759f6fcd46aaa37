package retryafter

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Parse returns the wait that one text asks for: a number of seconds, a Unix time, a date, or a
// duration such as 1m30s (see [time.ParseDuration]). It is at most Longest, and zero for zero and
// for a past instant. Ok is false for another text.
func Parse(text string, now time.Time) (wait time.Duration, ok bool) {
	wait, ok = read(text, now, time.Second)
	return min(wait, Longest), ok
}

// forever is a wait that is beyond all durations.
const forever = time.Duration(math.MaxInt64)

// read reads one value. A number without further signs has the unit. The wait is not negative, and
// may be beyond Longest.
func read(text string, now time.Time, unit time.Duration) (wait time.Duration, ok bool) {
	text = strings.TrimSpace(text)
	if isNumber(text) {
		return number(text, now, unit), true
	}
	if text == "" || len(text) > maxLength {
		return 0, false
	}
	if at, ok := parseDate(text); ok {
		return until(at, now), true
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 && text[0] != '+' && text[0] != '-' {
		return roundUp(d), true
	}
	return 0, false
}

// isNumber reports whether a text is digits, and perhaps a point and digits.
func isNumber(text string) bool {
	whole, fraction, pointed := strings.Cut(text, ".")
	return digits(whole) && (!pointed || digits(fraction))
}

func digits(text string) bool { return text != "" && strings.Trim(text, "0123456789") == "" }

// number reads a number: a time to come, or an instant if it is near the present Unix time in
// seconds or in a smaller unit.
func number(text string, now time.Time, unit time.Duration) time.Duration {
	front, fraction, _ := strings.Cut(text, ".")
	whole, err := strconv.ParseInt(front, 10, 64)
	if err != nil {
		return forever
	}
	billionths := ninePlaces(fraction)
	for of := time.Second; of > 0 && now.Unix() > int64(Longest/time.Second); of /= 1000 {
		perSecond := int64(time.Second / of)
		at := time.Unix(whole/perSecond, whole%perSecond*int64(of)).Add(part(of, billionths))
		if at.Sub(now).Abs() <= Longest {
			return until(at, now)
		}
	}
	if whole > int64(forever/unit)-1 {
		return forever
	}
	return roundUp(time.Duration(whole)*unit + part(unit, billionths))
}

// ninePlaces returns the digits behind a point in billionths, rounded up.
func ninePlaces(fraction string) int64 {
	n, _ := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
	if len(fraction) > 9 && strings.Trim(fraction[9:], "0") != "" {
		n++
	}
	return n
}

// part returns so many billionths of a unit, rounded up.
func part(unit time.Duration, billionths int64) time.Duration {
	return (unit*time.Duration(billionths) + time.Second - 1) / time.Second
}

// until returns the wait until an instant, zero if it is past.
func until(at, now time.Time) time.Duration { return roundUp(max(0, at.Sub(now))) }

// roundUp rounds a duration up to whole milliseconds: a wait that is cut off ends before it is over.
func roundUp(d time.Duration) time.Duration {
	if d > forever-time.Millisecond {
		return forever
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// dates are forms of a date with its offset from UTC, beside those of RFC 9110.
var dates = []string{
	"Mon, _2 Jan 2006 15:04:05 -0700", // RFC 1123 with an offset
	"_2 Jan 2006 15:04:05 -0700",      // RFC 5322 without the day
	"Monday, _2-Jan-06 15:04:05 -0700",
	"2006-01-02T15:04:05Z07:00", // RFC 3339
	"2006-01-02T15:04:05Z0700",  // ISO 8601
	"20060102T150405Z0700",
	"2006-01-02T15:04Z07:00", // Atlassian's, to the minute
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04:05 -0700",
}

// parseDate reads a date of which the instant is certain. Names of zones other than UTC's are not,
// for one name has several: CST is UTC-6 or UTC+8.
func parseDate(text string) (at time.Time, ok bool) {
	if at, err := http.ParseTime(text); err == nil {
		return at, true
	}
	if space := strings.LastIndexByte(text, ' '); space >= 0 {
		switch strings.ToUpper(text[space+1:]) {
		case "GMT", "UTC", "UT", "Z":
			text = text[:space] + " +0000"
		}
	}
	for _, form := range dates {
		if at, err := time.Parse(form, text); err == nil {
			return at, true
		}
	}
	return time.Time{}, false
}
