package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/signer"
)

// A Fault is one fault of a configuration.
type Fault struct {
	// Place is the file and line, such as throttler.yaml:17, or the flag or variable that
	// has set the value. A key that is missing has the line of its section. For a text
	// without a file it is line 17, or empty.
	Place string
	// Path is that of the key, as in upstreams.alipay.limits[0].window; empty for text that
	// is no YAML.
	Path string
	Err  error
}

// Error gives the place, the path and the error.
func (f *Fault) Error() string {
	parts := slices.DeleteFunc([]string{f.Place, f.Path, f.Err.Error()}, func(part string) bool { return part == "" })
	return strings.Join(parts, ": ")
}

func (f *Fault) Unwrap() error { return f.Err }

// Errors are all faults of a configuration: those of flags and variables, then those of
// the file by their lines.
type Errors []*Fault

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

// A faultList collects the faults of a configuration.
type faultList struct {
	*places
	faults    Errors
	explained map[string]bool // paths whose faults follow from one that is in the list
	unread    map[string]bool // paths of values of another type: nothing below them is known
	warnings  Errors
	root      reflect.Type // of the whole file
	closed    bool         // nothing that the file names is opened: see Inspect
}

func newFaultList(at *places) *faultList {
	return &faultList{places: at, explained: make(map[string]bool), unread: make(map[string]bool), root: reflect.TypeFor[file]()}
}

// add adds a fault; format and args are those of [fmt.Errorf]. Of several faults of one
// key the first is kept, since the others follow from it.
func (l *faultList) add(path, format string, args ...any) {
	if l.explained[path] || l.isUnread(path) {
		return
	}
	l.explained[path] = true
	place, _ := l.of(path)
	l.faults = append(l.faults, &Fault{place, path, fmt.Errorf(format, args...)})
}

// reference checks the form of a reference to a secret, where it is not opened.
func (l *faultList) reference(path, reference string) {
	if err := signer.CheckReference(reference); err != nil {
		l.add(path, "%w", err)
	}
}

func (l *faultList) isUnread(path string) bool {
	for at := path; at != ""; at = parent(at) {
		if l.unread[at] {
			return true
		}
	}
	return false
}

// warn adds a warning.
func (l *faultList) warn(path, format string, args ...any) {
	place, _ := l.of(path)
	l.warnings = append(l.warnings, &Fault{place, path, fmt.Errorf(format, args...)})
}

// merge adds the faults found by the scheduler. It leaves out those that follow from a
// known fault, such as a missing window that was no duration.
func (l *faultList) merge(err error) {
	known := slices.Clone(l.faults)
	for _, err := range split(err) {
		fault := &scheduler.ConfigError{Path: "upstreams", Err: err}
		errors.As(err, &fault)
		if !slices.ContainsFunc(known, func(k *Fault) bool { return within(fault.Path, k.Path) }) {
			l.add(fault.Path, "%w", fault.Err)
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

// token matches a token of throttler token new, or enough of it, in any case.
var token = regexp.MustCompile(`(?i)\bthr_[a-z0-9_-]{8,}`)

// hideTokens takes tokens out of errors: a token may stand where a name, a role or a key
// belongs.
func hideTokens(err error) error {
	var faults Errors
	if !errors.As(err, &faults) {
		return err
	}
	for _, f := range faults {
		if text := f.Err.Error(); token.MatchString(text) {
			f.Err = errors.New(token.ReplaceAllString(text, hiddenToken))
		}
		f.Path = token.ReplaceAllString(f.Path, hiddenToken)
	}
	return faults
}

const hiddenToken = TokenPrefix + "…"

var digits = regexp.MustCompile(`\d+`)

// ordered returns a path as a key by which limits[2] comes before limits[10].
func ordered(path string) string {
	return digits.ReplaceAllStringFunc(path, func(n string) string { return fmt.Sprintf("%020s", n) })
}

// sorted sorts faults by line, and on one line by path.
func (l *faultList) sorted(faults Errors) Errors {
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		_, lineA := l.of(a.Path)
		_, lineB := l.of(b.Path)
		return cmp.Or(cmp.Compare(lineA, lineB), cmp.Compare(ordered(a.Path), ordered(b.Path)))
	})
	return faults
}

// oneOf checks that a value is one of those known.
func oneOf(faults *faultList, path, value string, known ...string) {
	if !slices.Contains(known, value) {
		faults.add(path, "%q is unknown, must be one of: %s%s", value, strings.Join(known, ", "), hint.Meant(value, known))
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
