package upstream

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// A condition over an answer has three values: true, false, and none. It has none where it
// compares a text with a number, reads a body that cannot be read, or asks for a part of the
// request that servers read in several ways. An absent member is no such error: it leaves a
// condition false, as in body("errcode") > 0 of {}.

// An Uncomputable is the error of an expression that has no value for a request and its answer.
type Uncomputable struct {
	// Rule names the expression, such as outcomes[2], or outcomes[3] of preset stripe.
	Rule string
	// Again is true if a repeat of the request may get an answer for which it has a value.
	Again bool
	// Unreadable is true if the answer or the request cannot be read, as with a body that is no valid
	// gzip: the rule is right, and there is nothing in it to mend.
	Unreadable bool

	why string
}

// Error names the rule and the reason. It holds no value of the request or the answer.
func (e *Uncomputable) Error() string { return "rule " + e.Rule + " cannot be computed: " + e.why }

// Unwrap returns the error of all expressions without a value.
func (e *Uncomputable) Unwrap() error { return errUncomputable }

// A check is a compiled condition with its name.
type check struct {
	name    string
	source  string
	program *vm.Program
}

// holds evaluates a condition in an environment.
func (c *check) holds(in *Input, env any) (bool, *Uncomputable) {
	v, err := in.run(c.program, env)
	switch {
	case err == nil:
		return v.(bool), nil
	case absent(err):
		return false, nil
	}
	return false, c.uncomputable(err)
}

// uncomputable returns the error of the expression for an error of its run.
func (c *check) uncomputable(err error) *Uncomputable {
	again := errors.Is(err, errCut) || errors.Is(err, errUnseen)
	var unreadable unclear
	return &Uncomputable{Rule: c.name, Again: again, Unreadable: errors.As(err, &unreadable), why: fmt.Sprintf("%s (in %s)", reason(err), inQuotes(c.source))}
}

// Holds evaluates a Condition over a request. The error is an [*Uncomputable] with the name that
// is given.
func (e *Expr) Holds(in *Input, name string) (bool, error) {
	c := check{name, e.source, e.program}
	holds, err := c.holds(in, e.env(in))
	if err != nil { // else it would be an error that is not nil
		return false, err
	}
	return holds, nil
}

// reason returns the reason of an error of a run, without values.
func reason(err error) string {
	var why unclear
	if errors.As(err, &why) {
		return string(why)
	}
	return hint.Failure(message(err))
}

// message returns the first line of an error of a run: the others draw the place.
func message(err error) string {
	var at *file.Error
	if errors.As(err, &at) {
		return at.Message
	}
	return err.Error()
}

// ofNil matches the messages of expr for an operand that is nil. They name types of Go, and values
// of the answer only in the middle: float of the text <nil> alone reads as that of nothing.
var ofNil = regexp.MustCompile(`^(?:` +
	`invalid operation: (?:<nil> \S+ .*|.* \S+ <nil>|- <nil>|float\(<nil>\))` +
	`|invalid argument for \w+ \(type (?:%!s\()?<nil>\)?\)` +
	`|reflect: call of reflect\.Value\.\w+ on zero Value` +
	`|interface conversion: interface \{\} is nil, not .*` +
	`|cannot fetch (?s:.*) from <nil>` +
	`|cannot [a-z ]+ invalid` +
	`|cannot use <nil> as argument .*` +
	`)$`)

// absent reports whether an error of a run is that of an absent value.
func absent(err error) bool {
	var why unclear
	return !errors.As(err, &why) && ofNil.MatchString(message(err))
}
