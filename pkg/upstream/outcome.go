package upstream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
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

// A Rule decides the outcome of an attempt.
type Rule struct {
	// When is an expression over status, header(name) and body(path) of the
	// answer, error and sent, and method, path, query, form, param and json of
	// the request; repeat tells that an earlier sending of the call may have been
	// executed. An expression that fails on an answer does not hold.
	//
	// Only a rule that names error or sent is asked where there is no whole
	// answer. Error is then dial, timeout, reset, closed, cut (the answer broke
	// off), cancelled or other, and sent tells that a byte may have gone out;
	// else error is empty.
	When string
	// Is is the outcome if it holds.
	Is Outcome
	// Pause says what a not_executed answer shuts; nil means the upstream, or
	// nothing where After is set.
	Pause *Pause
	// After is how long the call waits at least until it is sent again, where the
	// answer does not ask for more.
	After time.Duration
	// Park keeps an unknown call from being sent again although the upstream
	// recognises repeats: a repeat would be answered in the same way.
	Park bool
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
	program  *vm.Program
	wordless bool // asked where there is no answer
	looks    bool // at the body
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
	if r.After != 0 && r.Is != NotExecuted && r.Is != Unknown {
		fault("after", fmt.Errorf("only a not_executed or unknown call is sent again, this one is %s", r.Is))
	}
	if r.After < 0 {
		fault("after", fmt.Errorf("%v must not be negative", r.After))
	}
	if r.Park && r.Is != Unknown {
		fault("park", fmt.Errorf("only an unknown call is parked, this one is %s", r.Is))
	}
	if r.When == "" {
		fault("when", errors.New("is missing; give an expression such as status == 429"))
		return rule{}
	}
	program, err := compile(r.When, answerEnv{}, expr.AsBool())
	fault("when", err)
	if err != nil {
		return rule{}
	}
	return rule{r, program, names(program, "error", "sent"), names(program, "body")}
}

// Rules are compiled rules.
type Rules struct{ rules []rule }

// look reports whether a rule looks at the body.
func (c *Rules) look() bool {
	return slices.ContainsFunc(c.rules, func(r rule) bool { return r.looks })
}

// CompileRules compiles rules. The error joins everything that is wrong with them,
// each part a [*FieldError] with a field such as [2].when.
func CompileRules(rules []Rule) (*Rules, error) {
	var errs []error
	c := &Rules{}
	for i, r := range rules {
		c.rules = append(c.rules, compileRule(r, func(field string, err error) {
			if err != nil {
				errs = append(errs, &FieldError{fmt.Sprintf("[%d].%s", i, field), err})
			}
		}))
	}
	return c, errors.Join(errs...)
}

// Judge returns the first rule that holds of a whole answer, nil if there is none.
// What rules see of a request is that of in.
func (r *Rules) Judge(in *Input, status int, header http.Header, body []byte) *Rule {
	return r.first(in, &answer{status: status, header: header, body: body, sent: true})
}

func (r *Rules) first(in *Input, a *answer) *Rule {
	env := in.answer(a)
	for i := range r.rules {
		if a.failure != "" && !r.rules[i].wordless {
			continue
		}
		if v, err := expr.Run(r.rules[i].program, env); err == nil && v.(bool) {
			return &r.rules[i].Rule
		}
	}
	return nil
}

// names reports whether an expression names one of some variables.
func names(program *vm.Program, wanted ...string) bool {
	v := &finder{wanted: wanted}
	node := program.Node()
	ast.Walk(&node, v)
	return v.found
}

type finder struct {
	wanted []string
	found  bool
}

func (f *finder) Visit(node *ast.Node) {
	if id, ok := (*node).(*ast.IdentifierNode); ok {
		for _, w := range f.wanted {
			f.found = f.found || id.Value == w
		}
	}
}

// judge decides the outcome of an answer, by the first rule that holds or else by
// the status.
func (u *Upstream) judge(res *Result, in *Input, a *answer) {
	if u.rule(res, in, a) {
		return
	}
	res.Outcome, res.Reason = Unknown, fmt.Sprintf("status %d", a.status)
	switch {
	case a.status == http.StatusTooManyRequests, a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "":
		res.Outcome = NotExecuted // RFC 6585, section 4, and RFC 9110, section 15.6.4
		return
	case a.unreadable() && u.rules.look():
		res.Reason += ", and its body is packed as " + strconv.Quote(a.header.Get("Content-Encoding")) + ", which the rules cannot read"
		return
	}
	switch a.status / 100 {
	case 2:
		res.Outcome = Done
	case 3, 4:
		res.Outcome = Failed
	}
}

// rule applies the first rule that holds, and reports whether there is one.
func (u *Upstream) rule(res *Result, in *Input, a *answer) bool {
	r := u.rules.first(in, a)
	if r == nil {
		return false
	}
	res.Outcome, res.Reason = r.Is, r.When
	res.Pause, res.Park = r.Pause, r.Park
	res.Alone = r.After > 0 && r.Pause == nil
	res.RetryAfter = max(res.RetryAfter, r.After)
	return true
}

// fromGateway tells the statuses that a gateway in front of the counting host
// gives: they do not prove that the call has arrived there yet.
func fromGateway(status int) bool {
	return status == http.StatusBadGateway || status == http.StatusServiceUnavailable || status == http.StatusGatewayTimeout
}
