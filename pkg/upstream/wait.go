package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retryafter"
)

// DefaultMaxPause is the MaxPause of a [Config] that has none: most windows of limits are a day at
// most, and an upstream that is asked once a day does not notice it.
const DefaultMaxPause = 24 * time.Hour

// heed sets the wait before the next attempt after an answer that is not final: the one that the
// rule's expression gives or else the answer's fields, at most maxPause, and at least the rule's After.
func (res *Result) heed(fields http.Header, maxPause time.Duration) {
	if res.Outcome != NotExecuted && res.Outcome != Unknown {
		return
	}
	if res.Asked == 0 {
		res.Asked = retryafter.Wait(fields, res.AnsweredAt, res.Outcome == NotExecuted)
	}
	res.RetryAfter = max(res.RetryAfter, min(res.Asked, maxPause))
}

// Undecided makes a done attempt unknown, for a reason: its call has been accepted, and may not have been
// executed yet. A repeat would get the same answer. The wait that the answer asks for is at most
// maxPause.
func (res *Result) Undecided(reason string, maxPause time.Duration) {
	res.Outcome, res.Reason = Unknown, reason
	res.Park, res.Open = true, true
	res.heed(res.Response.Header, maxPause)
}

// A waitExpr is a compiled expression of a rule for the wait that an answer asks for.
type waitExpr struct {
	check
	usesBody bool
}

// compileWait compiles the expression of a wait; nil without one.
func compileWait(source string) (*waitExpr, error) {
	if source == "" {
		return nil, nil
	}
	program, err := compile(source, answerEnv{}, Key)
	if err != nil {
		return nil, err
	}
	if t := program.Node().Type(); t != nil && (t.Kind() == reflect.Bool || t.Kind() == reflect.Func) {
		return nil, fmt.Errorf("gives no number of seconds and no text (in %s)", inQuotes(source))
	}
	return &waitExpr{check{source: source, program: program}, names(program, "body")}, nil
}

var (
	errUncomputable = errors.New("cannot be computed for this answer")
	errNotWhole     = errors.New("reads a body of which not all could be read")
	errNoWait       = errors.New("gives neither a number of seconds, nor a date or a duration such as 1m30s")
)

// of returns the wait that an answer asks for, zero if the value is nil, empty, zero or a past
// instant. The error holds no part of the answer.
func (w *waitExpr) of(in *Input, a *answer, now time.Time) (time.Duration, error) {
	if w == nil {
		return 0, nil
	}
	if w.usesBody && (a.partial || a.why != "") {
		return 0, fmt.Errorf("%s %w", w.source, errNotWhole)
	}
	v, err := in.run(w.program, in.answer(a))
	switch {
	case err != nil && absent(err):
		return 0, fmt.Errorf("%s %w", w.source, errUncomputable) // its own error may quote the answer
	case err != nil:
		return 0, w.uncomputable(err)
	}
	text := ""
	switch v := v.(type) {
	case nil:
	case string:
		text = v
	case int, int64:
		text = fmt.Sprint(v)
	case float64:
		text = strconv.FormatFloat(v, 'f', -1, 64)
	default:
		text = "no wait"
	}
	if text == "" {
		return 0, nil
	}
	wait, ok := retryafter.Parse(text, now)
	if !ok {
		return 0, fmt.Errorf("%s %w", w.source, errNoWait)
	}
	return wait, nil
}
