package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
)

const durationForm = "write it as 1s, 500ms or 1m30s"

// A duration is written with its unit.
type duration time.Duration

func (d *duration) UnmarshalMapstructure(v any) error {
	s, ok := v.(string)
	if !ok {
		return unitless(v)
	}
	parsed, err := time.ParseDuration(s)
	if n, e := strconv.ParseFloat(s, 64); err != nil && e == nil {
		return unitless(n)
	}
	if err != nil {
		if meant := intentDuration(s); meant != "" {
			return fmt.Errorf("%q is not a duration; write %s", s, meant)
		}
		return notDuration(s)
	}
	*d = duration(parsed)
	return nil
}

// notDuration is a text that means no duration.
type notDuration string

func (n notDuration) Error() string {
	return fmt.Sprintf("%q is not a duration; %s", string(n), durationForm)
}

func unitless(v any) error {
	switch v.(type) {
	case int, int64, uint64, float64:
		return fmt.Errorf("%v has no unit; write %[1]vs, %[1]vms or %[1]vm", v)
	}
	return &misfit{v, "a duration; " + durationForm}
}

// A wait is a duration, or an expression over an answer that gives one.
type wait struct {
	fixed      *duration // nil: none, or an expression
	expression string
}

// beginsNumber matches a text that is no expression but an attempt at a duration.
var beginsNumber = regexp.MustCompile(`^\s*[-+.]?\d`)

func (w *wait) UnmarshalMapstructure(v any) error {
	var d duration
	err := d.UnmarshalMapstructure(v)
	switch text, _ := v.(string); {
	case err == nil:
		w.fixed = &d
	case text == "" || beginsNumber.MatchString(text) || !strings.ContainsAny(text, "(?[."):
		var other *misfit
		if errors.As(err, &other) {
			return &misfit{v, "a duration, or an expression such as 'body(\"retry_after\")'; " + durationForm}
		}
		var none notDuration
		if errors.As(err, &none) {
			return fmt.Errorf("%q is neither a duration nor an expression that reads a wait from the answer; %s, or give one such as 'body(\"retry_after\")' or 'int(header(\"X-Wait\"))'", text, durationForm)
		}
		return err
	default:
		w.expression = text
	}
	return nil
}

// A size is a number of bytes.
type size int64

func (z *size) UnmarshalMapstructure(v any) error {
	n := reflect.ValueOf(v)
	if n.CanInt() {
		*z = size(n.Int())
		return nil
	}
	s, ok := v.(string)
	if !ok {
		return &misfit{v, "a number of bytes, or a size such as 512KiB, 1MiB or 2GiB"}
	}
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			number, shift = strings.TrimSpace(rest), 10*(i+1)
		}
	}
	bytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil || bytes > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size; write %s", s, intentSize(s))
	}
	*z = size(bytes << shift)
	return nil
}

// A condition is a truth value, or a request expression with one.
type condition string

func (c *condition) UnmarshalMapstructure(v any) error {
	switch v := v.(type) {
	case bool:
		*c = condition(strconv.FormatBool(v))
	case string:
		*c = condition(v)
	default:
		return &misfit{v, "true, false or an expression"}
	}
	return nil
}

// source returns the condition as an expression for the scheduler, empty for none.
func (c *condition) source() string {
	if c == nil || *c == "false" {
		return ""
	}
	return string(*c)
}

// An address is a host and a port to listen on.
type address string

func (a *address) UnmarshalMapstructure(v any) error {
	s, ok := v.(string)
	if !ok {
		return &misfit{v, "host and port; write " + intentAddress(fmt.Sprint(v))}
	}
	*a = address(s)
	return nil
}

// addresses are one address to listen on, or a list of them. In a flag or a variable they
// are separated by commas.
type addresses struct{ all []string }

func (a *addresses) UnmarshalMapstructure(v any) error {
	var misfits any
	if a.all, misfits = texts(v); misfits != nil {
		return &misfit{misfits, "host and port, or a list of them; write " + intentAddress(fmt.Sprint(misfits))}
	}
	return nil
}

// sums are one hash, or a list of them.
type sums struct{ all []string }

func (s *sums) UnmarshalMapstructure(v any) error {
	var misfits any
	if s.all, misfits = texts(v); misfits != nil {
		return &misfit{misfits, "64 hex digits in quotes, or a list of such texts"}
	}
	return nil
}

// limited are the answers by which a platform limits: a status, an expression, or a list of both.
type limited struct {
	all  []any // see rules for those that are allowed
	list bool
}

func (l *limited) UnmarshalMapstructure(v any) error {
	all, list := v.([]any)
	if !list {
		all = []any{v}
	}
	l.all, l.list = slices.Clone(all), list
	return nil
}

// texts returns a text with commas, or a list of texts, as a list; or the first value that
// is no text.
func texts(v any) (all []string, misfits any) {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return nil, item
		}
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" || len(list) > 1 {
				all = append(all, part)
			}
		}
	}
	return all, nil
}

// strict is a hook of mapstructure, called before it decodes a value. It
// refuses values of another type than the key's. Exception: a text may hold a
// number or truth value, because environment variables are texts.
func strict(from, to reflect.Value) (any, error) {
	value := from.Interface()
	if _, own := to.Addr().Interface().(mapstructure.Unmarshaler); own {
		return value, nil
	}
	text := ""
	if from.Kind() == reflect.String {
		text = from.String()
	}
	var fits bool
	var want string
	switch to.Kind() {
	case reflect.Struct, reflect.Map:
		fits, want = from.Kind() == reflect.Map, wantSection
	case reflect.Slice:
		fits, want = from.Kind() == reflect.Slice, wantList
	case reflect.String:
		fits, want = from.Kind() == reflect.String, wantText
	case reflect.Int:
		if n, err := strconv.Atoi(text); err == nil {
			return n, nil
		}
		fits, want = from.CanInt(), wantWhole
	case reflect.Float64:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n, nil
		}
		fits, want = from.CanInt() || from.CanFloat(), wantNumber
	case reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			return b, nil
		}
		fits, want = from.Kind() == reflect.Bool, wantTruth
	default: // a pointer: its element comes next
		fits = true
	}
	if !fits {
		return nil, &misfit{value, want}
	}
	return value, nil
}
