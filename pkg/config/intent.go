package config

import (
	"fmt"
	"net"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// All guesses of what a faulty value means lie in this file, and the rule of which values
// messages may show.

// secret matches the paths of values that may be secret: a key may stand where its
// reference belongs, a password in a URL, a token in a header or a command.
var secret = regexp.MustCompile(`(^|\.)(seal_key|store_secret|key|secret|client_secret|sha256|url|token_url|forward|command|body|cert_sn|serial)(\[\d+\])?$|\.verify\.keys(\[|$)|\.(headers|callbacks)(\.|$)`)

// A misfit is the error of a value that has another type than its key.
type misfit struct {
	value any
	want  string // the type of the key, in words
}

func (m *misfit) Error() string { return m.at("url") } // without the value

// at returns the message for a path: with the value, if that may be shown, and the likely
// intent. Lists and sections are not shown, nor what stands in their place, since parts of
// them may be secret; limits have no secrets.
func (m *misfit) at(path string) string {
	value := reflect.ValueOf(m.value)
	single := value.Kind() != reflect.Slice && value.Kind() != reflect.Map
	part := m.want != wantSection && m.want != wantList
	is, next := noun(value), ""
	if !secret.MatchString(path) && single && (part || limitPath.MatchString(path)) {
		is = shortened(m.value)
		next = intent(path, m.want, strings.TrimSpace(fmt.Sprint(m.value)))
	}
	if next == "" {
		next = advice(path, m.want, value.Kind())
	}
	return fmt.Sprintf("is %s, must be %s%s", is, m.want, next)
}

var (
	limitPath    = regexp.MustCompile(`\.limits\[\d+\]$`)
	upstreamPath = regexp.MustCompile(`^upstreams\.[^.]+$`)
	reference    = regexp.MustCompile(`(^|\.)(seal_key|store_secret|key|secret|client_secret)$|\.verify\.keys\[\d+\]$`)
)

// advice returns how to write a value of another type than the one given.
func advice(path, want string, given reflect.Kind) string {
	switch {
	case reference.MatchString(path):
		return "; write file:PATH or env:NAME"
	case want == wantSection && upstreamPath.MatchString(path):
		return "; write url and its other keys below it, indented"
	case want == wantSection:
		return "; write its keys below it, indented"
	case want == wantList && given == reflect.Map:
		return "; put a dash before the first key of each item, and indent its other keys below that one"
	case want == wantList:
		return "; write it in brackets, as in [a, b]"
	case want == wantText && given != reflect.Map && given != reflect.Slice:
		return "; put it in quotes"
	}
	return ""
}

// The types of keys in words.
const (
	wantSection = "a section of keys"
	wantList    = "a list"
	wantText    = "a text"
	wantWhole   = "a whole number"
	wantNumber  = "a number"
	wantTruth   = "true or false"
)

// shortened returns a value for a message.
func shortened(v any) string {
	text, ok := v.(string)
	if !ok {
		return fmt.Sprint(v)
	}
	if most := 60; len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return strconv.Quote(text)
}

// noun returns the type of a YAML value in words, without the value.
func noun(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint64, reflect.Float64:
		return "a number with a fraction, or too large"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a section of keys"
	}
	return "a date" // the only other type of YAML
}

// intent returns the likely intent of a value where a key wants another type, empty if
// there is none.
func intent(path, want, value string) string {
	switch want {
	case wantSection: // of a limit
		if calls, window := perWindow(value); window != "" {
			return fmt.Sprintf("; write {name: NAME, calls: %s, window: %s}", calls, window)
		}
	case wantWhole:
		return intentWhole(path, value)
	case wantNumber:
		if percent, ok := strings.CutSuffix(value, "%"); ok {
			if n, err := strconv.ParseFloat(strings.TrimSpace(percent), 64); err == nil {
				return fmt.Sprintf("; write %v", n/100)
			}
		}
	case wantTruth:
		switch strings.ToLower(value) {
		case "yes", "on", "y", "enabled", "enable":
			return "; write true"
		case "no", "off", "n", "disabled", "disable", "none":
			return "; write false"
		}
	}
	return ""
}

var (
	perUnit   = regexp.MustCompile(`^(\d+)\s*(?:calls|requests|req)?\s*(?:/|per|a|each|every)\s*(\d*)\s*([a-zA-Z]+)$|^(\d+)\s*(qps|rps|tps)$`)
	grouped   = regexp.MustCompile(`^\d{1,3}(?:[,_' .]\d{3})+$`)
	thousands = regexp.MustCompile(`^(\d{1,6})\s*[kK]$`)
	boundless = regexp.MustCompile(`(?i)^(unlimited|infinite|infinity|\.?inf|none|no|off|max)$`)
	notDigit  = regexp.MustCompile(`\D`)
)

// perWindow returns the calls and the window of a text such as 100/s; empty for another one.
func perWindow(text string) (calls, window string) {
	m := perUnit.FindStringSubmatch(text)
	if m == nil {
		return "", ""
	}
	calls, u := m[1], units[strings.ToLower(m[3])]
	if m[4] != "" {
		calls, u = m[4], units["s"]
	}
	if u.time == 0 {
		return "", ""
	}
	return calls, u.times(max(1, atoi(m[2])))
}

func intentWhole(path, value string) string {
	calls, window := perWindow(value)
	n, err := strconv.ParseFloat(value, 64)
	switch limit := strings.HasSuffix(path, ".calls"); {
	case limit && window != "":
		return fmt.Sprintf("; write calls: %s with window: %s", calls, window)
	case grouped.MatchString(value):
		return "; write " + notDigit.ReplaceAllString(value, "")
	case thousands.MatchString(value):
		return "; write " + notDigit.ReplaceAllString(value, "") + "000"
	case boundless.MatchString(value):
		return "; leave the key out for the default"
	case err == nil && n == float64(int(n)): // 1e3, 5.0
		return fmt.Sprintf("; write %d, without a point or an exponent", int(n))
	case err == nil && limit && n > 0 && n < 1e6:
		for times := 2.0; times <= 1000; times++ {
			if whole := n * times; whole == float64(int(whole)) {
				return fmt.Sprintf("; write %v and a window %v times as long", whole, times)
			}
		}
	}
	return ""
}

func atoi(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// A unit is a unit of time as people write it.
type unit struct {
	time time.Duration
	name string // in a duration; days and weeks have none
}

// times returns a duration of so many units as the file wants it.
func (u unit) times(n int) string {
	if u.name == "" {
		return strconv.Itoa(n*int(u.time/time.Hour)) + "h"
	}
	return strconv.Itoa(n) + u.name
}

var units = func() map[string]unit {
	all := make(map[string]unit)
	for names, u := range map[string]unit{
		"ms msec millis millisecond milliseconds": {time.Millisecond, "ms"},
		"s sec secs second seconds":               {time.Second, "s"},
		"m min mins minute minutes":               {time.Minute, "m"},
		"h hr hrs hour hours":                     {time.Hour, "h"},
		"d day days":                              {24 * time.Hour, ""},
		"w week weeks":                            {7 * 24 * time.Hour, ""},
	} {
		for name := range strings.FieldsSeq(names) {
			all[name] = u
		}
	}
	return all
}()

var numberAndUnit = regexp.MustCompile(`^(?:(?:per|a|each|every)\s)?\s*(\d*)\s*([a-zA-Z]+)$`)

// intentDuration returns the duration that a text means, empty if it means none.
func intentDuration(text string) string {
	m := numberAndUnit.FindStringSubmatch(strings.TrimSpace(text))
	if m == nil {
		return ""
	}
	u, known := units[strings.ToLower(m[2])]
	if !known {
		return ""
	}
	return u.times(max(1, atoi(m[1])))
}

var numberAndSize = regexp.MustCompile(`(?i)^(\d+)\s*([kmg])i?b?$`)

// intentSize returns the size that a text means, or examples.
func intentSize(text string) string {
	if m := numberAndSize.FindStringSubmatch(strings.TrimSpace(text)); m != nil {
		return m[1] + strings.ToUpper(m[2]) + "iB"
	}
	return "it as 1048576, 512KiB, 1MiB or 2GiB"
}

// intentAddress returns the listen address that a text means, or examples.
func intentAddress(text string) string {
	text = strings.TrimSpace(text)
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return fmt.Sprintf("127.0.0.1:%d", n)
	}
	if _, rest, ok := strings.Cut(text, "://"); ok {
		host, _, _ := strings.Cut(rest, "/")
		if _, port, err := net.SplitHostPort(host); err == nil && port != "" && !strings.Contains(host, "@") {
			return host
		}
	}
	if _, port, err := net.SplitHostPort(text); err == nil && atoi(port) > 65535 {
		return "a port up to 65535"
	}
	if net.ParseIP(text) != nil {
		return net.JoinHostPort(text, "8081") + ", with a port"
	}
	return "host and port, such as 127.0.0.1:8081, or :8081 for all hosts"
}
