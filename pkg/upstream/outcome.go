package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/vm"
)

// Outcome is what an attempt came to.
type Outcome string

const (
	Done        Outcome = "done"         // executed, and answered so
	Failed      Outcome = "failed"       // refused for good
	NotExecuted Outcome = "not_executed" // limited, or never sent
	Unknown     Outcome = "unknown"      // may have been executed
)

// A Rule decides the outcome of an answer.
type Rule struct {
	// When is an expression over status, header(name) and body(path) of the
	// answer, and method, path, query, form, param and json of the request. An
	// expression that fails on an answer does not hold.
	When string
	// Is is the outcome if it holds.
	Is Outcome
	// Pause says what a not_executed answer shuts; nil means the upstream.
	Pause *Pause
}

// A Pause shuts a limit's key, or the upstream, for a while.
type Pause struct {
	// Limit names the limit whose key refused; empty means the whole upstream.
	Limit string
	// For is how long, where the answer has no Retry-After; zero leaves it to the backoff.
	For time.Duration
}

type rule struct {
	Rule
	program *vm.Program
}

// compileRule reports every fault of a rule, by the field of it.
func compileRule(r Rule, fault func(field string, err error)) rule {
	switch r.Is {
	case Done, Failed, NotExecuted, Unknown:
	default:
		fault("is", fmt.Errorf("outcome %q is unknown, must be done, failed, not_executed or unknown", r.Is))
	}
	if r.Pause != nil && r.Is != NotExecuted {
		fault("pause", fmt.Errorf("only a not_executed outcome pauses, this one is %s", r.Is))
	}
	if r.Pause != nil && r.Pause.For < 0 {
		fault("pause.for", fmt.Errorf("%v must not be negative", r.Pause.For))
	}
	if r.When == "" {
		fault("when", errors.New("is missing; give an expression such as status == 429"))
		return rule{}
	}
	program, err := compile(r.When, answerEnv{}, expr.AsBool())
	fault("when", err)
	return rule{r, program}
}

// judge decides the outcome of an answer.
func (u *Upstream) judge(in *Input, status int, header http.Header, body []byte) (Outcome, *Pause, string) {
	env := in.answer(status, header, body)
	for _, r := range u.rules {
		if v, err := expr.Run(r.program, env); err == nil && v.(bool) {
			return r.Is, r.Pause, r.When
		}
	}
	outcome := Unknown
	switch status / 100 {
	case 2:
		outcome = Done
	case 3, 4:
		outcome = Failed
	}
	return outcome, nil, fmt.Sprintf("status %d", status)
}

// fromGateway tells the statuses that a gateway in front of the counting host
// gives: they do not prove that the call has arrived there yet.
func fromGateway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}

// maxRetryAfter bounds what is believed of a Retry-After.
const maxRetryAfter = 24 * time.Hour

// retryAfter reads both forms of RFC 9110, section 10.2.3: seconds, and a date,
// which is read against the answer's own Date. Zero means none, or malformed.
func retryAfter(header http.Header, now time.Time) time.Duration {
	v := header.Get("Retry-After")
	if v == "" {
		return 0
	}
	if seconds, err := strconv.ParseUint(v, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(header.Get("Date")); err == nil {
		now = date
	}
	return min(max(0, at.Sub(now)), maxRetryAfter)
}
