package config

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

const durationForm = "write it as 1s, 500ms or 1m30s"

// A duration has its unit with it.
type duration time.Duration

func (d *duration) UnmarshalMapstructure(v any) error {
	s, ok := v.(string)
	if !ok {
		return unitless(v)
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration; %s", s, durationForm)
	}
	*d = duration(parsed)
	return nil
}

func unitless(v any) error {
	switch v.(type) {
	case int, int64, uint64, float64:
		return fmt.Errorf("%v has no unit; %s", v, durationForm)
	}
	return fmt.Errorf("is %s, must be a duration; %s", noun(reflect.ValueOf(v)), durationForm)
}

// A window is a duration, or a unit of the calendar.
type window struct {
	length time.Duration
	unit   quota.Unit // 0: length counts
}

func (w *window) UnmarshalMapstructure(v any) error {
	const orUnit = ", or as minute, hour, day or month"
	if s, ok := v.(string); ok {
		if unit, err := quota.ParseUnit(s); err == nil {
			w.unit = unit
			return nil
		}
	}
	var d duration
	if err := d.UnmarshalMapstructure(v); err != nil {
		return errors.New(err.Error() + orUnit)
	}
	if d <= 0 {
		return fmt.Errorf("is %v, must be above 0", time.Duration(d))
	}
	w.length = time.Duration(d)
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
		return fmt.Errorf("is %s, must be a number of bytes, or a size such as 512KiB, 1MiB or 2GiB", noun(n))
	}
	number, shift := s, 0
	for i, unit := range []string{"KiB", "MiB", "GiB"} {
		if rest, ok := strings.CutSuffix(s, unit); ok {
			number, shift = strings.TrimSpace(rest), 10*(i+1)
		}
	}
	bytes, err := strconv.ParseInt(number, 10, 64)
	if err != nil || bytes > math.MaxInt64>>shift {
		return fmt.Errorf("%q is not a size; write it as 1048576, 512KiB, 1MiB or 2GiB", s)
	}
	*z = size(bytes << shift)
	return nil
}

// A cost is an expression, which may be a number alone.
type cost string

func (c *cost) UnmarshalMapstructure(v any) error {
	switch v := v.(type) {
	case int:
		*c = cost(strconv.Itoa(v))
	case string:
		*c = cost(v)
	default:
		return fmt.Errorf("is %s, must be a whole number or an expression", noun(reflect.ValueOf(v)))
	}
	return nil
}

// A condition is a truth value, or a request expression that gives one.
type condition string

func (c *condition) UnmarshalMapstructure(v any) error {
	switch v := v.(type) {
	case bool:
		*c = condition(strconv.FormatBool(v))
	case string:
		*c = condition(v)
	default:
		return fmt.Errorf("is %s, must be true, false or an expression", noun(reflect.ValueOf(v)))
	}
	return nil
}

// strict is asked by mapstructure before it decodes a value. It lets nothing
// through that would be bent to fit, but a text that reads as the number or
// truth value wanted: variables of the environment are texts.
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
		fits, want = from.Kind() == reflect.Map, "a section of keys"
	case reflect.Slice:
		fits, want = from.Kind() == reflect.Slice, "a list"
	case reflect.String:
		fits, want = from.Kind() == reflect.String, "a text"
	case reflect.Int:
		if n, err := strconv.Atoi(text); err == nil {
			return n, nil
		}
		fits, want = from.CanInt(), "a whole number"
	case reflect.Float64:
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n, nil
		}
		fits, want = from.CanInt() || from.CanFloat(), "a number"
	case reflect.Bool:
		if b, err := strconv.ParseBool(text); err == nil {
			return b, nil
		}
		fits, want = from.Kind() == reflect.Bool, "true or false"
	default: // a pointer: its element comes next
		fits = true
	}
	if !fits {
		return nil, fmt.Errorf("is %s, must be %s", noun(from), want)
	}
	return value, nil
}

// noun says what a value of YAML is, without showing it: it may be a secret.
func noun(v reflect.Value) string {
	switch v.Kind() {
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "a truth value"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint64, reflect.Float64:
		return "a number with a fraction, or too large"
	case reflect.Slice:
		return "a list"
	case reflect.Map:
		return "a section of keys"
	}
	return "a date" // all that is left of YAML
}
