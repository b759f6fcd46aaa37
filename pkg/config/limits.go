package config

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// All that this package knows of a limit lies in this file: its keys, their checks and
// their conversion.

// DefaultSkew is the skew of a limit with a calendar window.
const DefaultSkew = time.Second

// minWindow is the shortest window: a shorter one cannot be counted from here, because
// the network's jitter is longer.
const minWindow = time.Millisecond

type fileLimit struct {
	// Name names the limit in answers and metrics, unique within the upstream.
	Name string `key:"name"`
	// When is a request expression, true for the calls under the limit. Default: all.
	When string `key:"when"`
	// PerKey is a request expression; each value is counted apart. Default: one count.
	PerKey string `key:"per_key"`
	// Cost is the number of permits of a call: a number, or a request expression, whose fractions
	// are rounded up. Default 1.
	Cost *cost `key:"cost"`
	// ActualCost is an expression over the answer, as those of outcomes: the permits that
	// the call has used, from 0 to its cost; the others come back with the answer. Default:
	// all are used.
	ActualCost string `key:"actual_cost"`
	// Calls is the number of permits of a window.
	Calls *int `key:"calls"`
	// Window is a duration, or minute, hour, day or month of the provider's clock.
	Window *window `key:"window"`
	// TimeZone is the provider's, by its IANA name; not with a duration. Default UTC.
	TimeZone string `key:"time_zone"`
	// Skew bounds the difference between the provider's clock and the local one; not
	// with a duration. Default 1s.
	Skew *duration `key:"skew"`
	// Guard caps the hold of a slow answer. The limit stays exact while requests reach
	// the upstream within the guard. Default: no cap.
	Guard *duration `key:"guard"`
	// MaxKeys is how many keys may have permits out at a time; calls of further keys wait.
	// Default 100000.
	MaxKeys *int `key:"max_keys"`
	// Counts are the outcomes that use a permit up: done, failed, not_executed,
	// unknown; others give it back with the response. Default: all.
	Counts []string `key:"counts"`
	// Concurrency is the number of attempts in flight; it replaces calls and window.
	Concurrency *int `key:"concurrency"`
}

func (f fileLimit) convert(faults *faultList, path string) scheduler.Limit {
	l := scheduler.Limit{Name: f.Name, When: f.When, PerKey: f.PerKey, ActualCost: f.ActualCost}
	if f.Calls != nil {
		l.Calls = *f.Calls
	}
	positive(faults, path+".concurrency", f.Concurrency, &l.Concurrency)
	positive(faults, path+".guard", f.Guard, &l.Guard)
	positive(faults, path+".max_keys", f.MaxKeys, &l.MaxKeys)
	atMost(faults, path+".concurrency", l.Concurrency, quota.MaxCalls)
	atMost(faults, path+".calls", l.Calls, quota.MaxCalls)
	atMost(faults, path+".guard", l.Guard, quota.MaxWindow)
	atMost(faults, path+".max_keys", l.MaxKeys, quota.MaxKeys)
	if faults.explained[path+".concurrency"] { // the limit may need nothing else
		faults.explained[path+".calls"], faults.explained[path+".window"] = true, true
	} else if faults.explained[path+".calls"] && f.Calls == nil { // 100/s may have been meant for both
		faults.explained[path+".window"] = f.Window == nil
	} else if f.Calls == nil && f.Concurrency == nil {
		faults.add(path+".calls", "is missing; give the number of calls in a window, such as 100, or concurrency")
	}
	for _, o := range f.Counts {
		l.Counts = append(l.Counts, upstream.Outcome(o))
	}
	if f.Cost != nil {
		l.Cost = string(*f.Cost)
		checkCost(faults, path+".cost", l)
	}
	if f.Window != nil && f.Window.unit != 0 {
		l.Calendar = f.calendar(faults, path)
	} else {
		l.Window = f.sliding(faults, path)
	}
	return l
}

// checkCost checks a constant cost; the cost of an expression is known per call only.
func checkCost(faults *faultList, path string, l scheduler.Limit) {
	n, err := strconv.Atoi(l.Cost)
	if err != nil {
		return
	}
	permits := max(l.Calls, l.Concurrency)
	switch {
	case n < 1:
		faults.add(path, "is %d, must be at least 1", n)
	case permits > 0 && n > permits:
		faults.add(path, "is %d, but the limit has only %d: every call would be refused", n, permits)
	}
}

// sliding returns the length of a sliding window, 0 if the limit has none.
func (f fileLimit) sliding(faults *faultList, path string) (length time.Duration) {
	if f.Window != nil {
		length = f.Window.length
		if length > 0 && length < minWindow {
			faults.add(path+".window", "is %v, must be at least %v; give the calls of a longer one", length, minWindow)
		}
		atMost(faults, path+".window", length, quota.MaxWindow)
	}
	if f.Window == nil && faults.explained[path+".window"] {
		return 0
	}
	const aligned = "belongs to a window of minute, hour, day or month; this one is not aligned to a clock"
	if f.TimeZone != "" {
		faults.add(path+".time_zone", aligned)
	}
	if f.Skew != nil {
		faults.add(path+".skew", aligned)
	}
	return length
}

// calendar returns a window that is aligned to the provider's clock.
func (f fileLimit) calendar(faults *faultList, path string) *quota.Calendar {
	c := &quota.Calendar{Unit: f.Window.unit, Zone: time.UTC, Skew: DefaultSkew}
	if f.Skew != nil { // 0s is allowed, for clocks known to agree
		if c.Skew = time.Duration(*f.Skew); c.Skew < 0 {
			faults.add(path+".skew", "is %v, must not be negative", c.Skew)
		}
	}
	zone, err := time.LoadLocation(f.TimeZone)
	switch {
	case err != nil:
		faults.add(path+".time_zone", "%q is not a time zone; write its IANA name, such as Asia/Shanghai or UTC", f.TimeZone)
	case strings.EqualFold(f.TimeZone, "local"):
		faults.add(path+".time_zone", "%q is another one on each machine; write the provider's, such as Asia/Shanghai", f.TimeZone)
	default:
		c.Zone = zone
	}
	return c
}

// A window is a duration, or a unit of the calendar.
type window struct {
	length time.Duration // if unit is 0
	unit   quota.Unit
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
		var m *misfit
		if errors.As(err, &m) {
			return &misfit{v, m.want + orUnit}
		}
		if s, _ := v.(string); intentDuration(s) != "" {
			if unit := clockUnits[intentDuration(s)]; unit != "" {
				return fmt.Errorf("%w, or %s for that of the provider's clock", err, unit)
			}
			return err
		}
		return errors.New(err.Error() + orUnit)
	}
	if d <= 0 {
		return fmt.Errorf("is %v, must be above 0", time.Duration(d))
	}
	w.length = time.Duration(d)
	return nil
}

// clockUnits are the windows of a clock that are about as long as a duration.
var clockUnits = map[string]string{"1m": "minute", "1h": "hour", "24h": "day"}

// A cost is an expression or a number.
type cost string

func (c *cost) UnmarshalMapstructure(v any) error {
	switch v := v.(type) {
	case int:
		*c = cost(strconv.Itoa(v))
	case string:
		*c = cost(v)
	default:
		return &misfit{v, "a whole number or an expression"}
	}
	return nil
}
