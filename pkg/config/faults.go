package config

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Errors are all faults of a file, sorted by path.
type Errors []*scheduler.ConfigError

// Error gives one fault per line.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, fault := range e {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, fault := range e {
		errs[i] = fault
	}
	return errs
}

// A faultList collects the faults of a file.
type faultList struct {
	faults  Errors
	sources map[string]string // by path: the variable or flag that set it
}

// add adds a fault; format and args are those of [fmt.Errorf].
func (l *faultList) add(path, format string, args ...any) {
	l.faults = append(l.faults, &scheduler.ConfigError{Path: path, Err: fmt.Errorf(format, args...)})
}

// merge adds the faults found by the scheduler. It leaves out those that follow from a
// known fault, such as a missing window that was no duration.
func (l *faultList) merge(err error) {
	known := l.faults
	for _, err := range split(err) {
		var fault *scheduler.ConfigError
		if !errors.As(err, &fault) {
			fault = &scheduler.ConfigError{Path: "upstreams", Err: err}
		}
		if !slices.ContainsFunc(known, func(k *scheduler.ConfigError) bool { return within(fault.Path, k.Path) }) {
			l.faults = append(l.faults, fault)
		}
	}
}

// within reports whether a path is equal to another, or below it.
func within(path, other string) bool {
	rest, ok := strings.CutPrefix(path, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// split returns the errors of an errors.Join, at every depth.
func split(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, split(err)...)
	}
	return all
}

var digits = regexp.MustCompile(`\d+`)

// errors returns the faults sorted by path, limits[2] before limits[10].
func (l *faultList) errors() Errors {
	for _, f := range l.faults {
		if from := l.sources[f.Path]; from != "" {
			f.Err = fmt.Errorf("%w (set by %s)", f.Err, from)
		}
	}
	order := func(path string) string {
		return digits.ReplaceAllStringFunc(path, func(n string) string { return fmt.Sprintf("%020s", n) })
	}
	slices.SortStableFunc(l.faults, func(a, b *scheduler.ConfigError) int {
		return cmp.Compare(order(a.Path), order(b.Path))
	})
	return l.faults
}

// oneOf checks that a value is one of those known.
func oneOf(faults *faultList, path, value string, known ...string) {
	if !slices.Contains(known, value) {
		faults.add(path, "%q is unknown, must be one of: %s", value, strings.Join(known, ", "))
	}
}

// positive sets to if the file gives a value, and checks that it is above 0: the
// scheduler would take a zero for the default.
func positive[F, T ~int | ~int64](faults *faultList, path string, from *F, to *T) {
	if from == nil {
		return
	}
	if *to = T(*from); *to <= 0 {
		faults.add(path, "is %v, must be above 0; leave the key out for the default", *to)
	}
}

// atMost checks that the quota's ledger can count a value.
func atMost[T ~int | ~int64](faults *faultList, path string, value, most T) {
	if value > most {
		faults.add(path, "is %v, must be at most %v", value, most)
	}
}

// join returns the path of a key.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// index returns the path of a list's item.
func index(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }
