package workload

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A row is one arrival as its source gives it.
type row struct {
	line    int
	at      string        // as written
	instant time.Time     // zero: offset counts
	offset  time.Duration // from the begin of the load

	columns *columns
	values  []value // by column
	id      []byte  // equal for rows with equal values, at apart
	known   *known  // replaces id if the source itself knows its equal rows
}

// known is the arrival of equal rows.
type known struct {
	arrival  Arrival
	computed bool
}

// A value is a row's value in a column.
type value struct {
	text string // of a JSON text or number
	json string // as JSON
	null bool   // the row has no value
}

// columns are the column names of some rows.
type columns struct {
	names []string
	index map[string]int
}

// Columns with a fixed name, and prefixes of the others.
var (
	plainColumns = []string{"at", "upstream", "priority", "wait", "delay", "flow", "method", "path"}
	columnGroups = []string{"key.", "cost.", "query.", "form.", "param.", "header.", "json."}
)

// limitNames are the limits of all upstreams, sorted.
type limitNames []string

func limitsOf(configs ...scheduler.Config) (names limitNames) {
	for _, c := range configs {
		for _, u := range c.Upstreams {
			for _, l := range u.Limits {
				names = append(names, l.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func newColumns(names []string, limits limitNames) (*columns, error) {
	c := &columns{names: names, index: make(map[string]int)}
	for i, name := range names {
		if !slices.Contains(plainColumns, name) && !slices.ContainsFunc(columnGroups, func(g string) bool {
			return len(name) > len(g) && strings.HasPrefix(name, g)
		}) {
			return nil, fmt.Errorf("column %q is unknown; there are %s and %sNAME", name, strings.Join(plainColumns, ", "), strings.Join(columnGroups, "NAME, "))
		}
		if _, twice := c.index[name]; twice {
			return nil, fmt.Errorf("column %q is there twice", name)
		}
		if group, limit, _ := strings.Cut(name, "."); (group == "key" || group == "cost") && !slices.Contains(limits, limit) {
			return nil, fmt.Errorf("column %q is of no limit; the configuration has %s", name, strings.Join(limits, ", "))
		}
		c.index[name] = i
	}
	if _, ok := c.index["at"]; !ok {
		return nil, errors.New(`column "at" is missing: it is the instant of the arrival`)
	}
	return c, nil
}

// get returns the value in a column, and false if there is no such column.
func (r *row) get(name string) (value, bool) {
	i, ok := r.columns.index[name]
	if !ok {
		return value{null: true}, false
	}
	return r.values[i], true
}

// text returns the value in a column, empty if there is none.
func (r *row) text(name string) string {
	v, _ := r.get(name)
	return v.text
}

// unixSeconds bounds seconds since the beginning of a load. It is 31 years, but
// September 2001 as a Unix time: greater numbers are probably Unix times.
const unixSeconds = 1e9

// setAt reads the row's instant.
func (r *row) setAt(text string) error {
	r.at, r.instant, r.offset = text, time.Time{}, 0
	if len(text) > 10 && text[4] == '-' {
		t, err := time.Parse(time.RFC3339Nano, text)
		if err == nil {
			r.instant = t
			return nil
		}
	} else if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 && s < unixSeconds {
		r.offset = time.Duration(math.Round(s * 1e9))
		return nil
	} else if err == nil && s >= unixSeconds {
		return fmt.Errorf("at %s is too much for seconds since the beginning of the load; if it is a Unix time, write the instant, such as 2026-11-21T09:00:00.5Z, or take the first one off each", text)
	}
	return fmt.Errorf("at %q is neither an instant such as 2026-11-21T09:00:00.5Z nor seconds such as 12.5", text)
}
