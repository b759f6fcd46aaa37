package upstream

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

// Outcome is the outcome of an attempt.
type Outcome string

const (
	Done        Outcome = "done"         // executed, and answered so
	Failed      Outcome = "failed"       // refused for good
	NotExecuted Outcome = "not_executed" // limited, or never sent
	Unknown     Outcome = "unknown"      // may have been executed
)

// A Rule decides the outcome of an attempt.
type Rule struct {
	// When is an expression over status, header(name), body(path) and remaining of the
	// answer, error and sent, and method, path, query, form, param, json and xml of
	// the request; repeat is true if an earlier sending of the call may have been
	// executed, and keyed is true if the request has the key that Idempotency names.
	//
	// A member that is absent leaves an expression false, as in body("errcode") > 0 of {}. After any
	// other error, such as that of a text that is compared with a number, or of a body that
	// cannot be read, the outcome is unknown and no later rule is asked: see
	// [Result.Uncomputable].
	//
	// Remaining is the least number that the answer's fields say is left of a quota, nil if they say
	// nothing: remaining == 0 is proof that a limit is reached. See [retryafter.Remaining].
	//
	// Without a whole answer, only rules that name error or sent are evaluated.
	// Error is then dial, timeout, reset, closed, cut (the answer broke off),
	// cancelled or other, and sent is true if a byte may have gone out. With a
	// whole answer, error is empty.
	When string
	// Is is the outcome if When holds.
	Is Outcome
	// Pause is the pause of a not_executed outcome; nil pauses the upstream, or
	// nothing if After is set.
	Pause *Pause
	// Counted, of the rules of limited, tells that the answer comes from the host that counts the calls, also with a status that a
	// gateway before it may give, such as 503: see Result.Answered.
	Counted bool
	// After is the least wait before the call is sent again; the answer may ask
	// for more.
	After time.Duration
	// AfterExpr is to After as ForExpr of a Pause is to For.
	AfterExpr string
	// Park keeps an unknown call from being sent again even if the upstream
	// recognises repeats: a repeat would get the same answer. Below status 500 such an
	// answer tells of this call alone; see Result.Open.
	Park bool
	// Preset names the preset that the rule comes from; empty for a rule of the config itself. A
	// done of a preset's rule needs a [Proof], if one is asked for.
	Preset string
}

// A Pause pauses a key of a limit, or the upstream.
type Pause struct {
	// Limit names the limit that was exceeded. If it is empty, the call's key is paused where one
	// limit of the call has keys, else the whole upstream.
	Limit string
	// Upstream pauses the whole upstream, also where one limit has keys: the platform says that it
	// limits all calls together.
	Upstream bool
	// For is the length if the answer asks for none; zero leaves it to the backoff.
	For time.Duration
	// ForExpr is an expression, in the language of When, for the wait that the answer asks for:
	// seconds, or a text for [retryafter.Parse]. It stands above the answer's fields, and is at most
	// MaxPause. Where it gives nil, or cannot be computed, the pause is as without it. Empty means none.
	ForExpr string
}

type rule struct {
	Rule
	check
	status    int  // the only one at which it can hold; zero for any
	onFailure bool // evaluated if there is no whole answer
	usesBody  bool
	wait      *waitExpr // nil for none
}

// compileRule compiles a rule and reports each of its faults with the field.
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
	if r.Pause != nil && r.Pause.For != 0 && r.Pause.ForExpr != "" {
		fault("pause.for", fmt.Errorf("is a time and an expression; give one of them"))
	}
	if (r.After != 0 || r.AfterExpr != "") && r.Is != NotExecuted && r.Is != Unknown {
		fault("after", fmt.Errorf("only a not_executed or unknown call is sent again, this one is %s", r.Is))
	}
	if r.After < 0 {
		fault("after", fmt.Errorf("%v must not be negative", r.After))
	}
	if r.After != 0 && r.AfterExpr != "" {
		fault("after", errors.New("is a time and an expression; give one of them"))
	}
	if r.AfterExpr != "" && r.Pause != nil && r.Pause.ForExpr != "" {
		fault("after", errors.New("is an expression beside that of pause.for; the answer asks for one wait"))
	}
	if r.Park && r.Is != Unknown {
		fault("park", fmt.Errorf("only an unknown call is parked, this one is %s", r.Is))
	}
	if r.When == "" {
		fault("when", errors.New("is missing; give an expression such as status == 429"))
		return rule{}
	}
	program, err := compile(r.When, answerEnv{}, Condition)
	fault("when", err)
	if err != nil {
		return rule{}
	}
	if r.Is == NotExecuted && !names(program, "status", "header", "body", "remaining", "error", "sent") {
		fault("when", fmt.Errorf("reads nothing of the answer, and would send a call again that was executed; compare its status, header(name) or body(path) (in %s)", inQuotes(r.When)))
	}
	c := rule{Rule: r, check: check{source: r.When, program: program}, status: statusOf(program.Node()), onFailure: names(program, "error", "sent"), usesBody: names(program, "body")}
	field, source := "after", r.AfterExpr
	if r.Pause != nil && r.Pause.ForExpr != "" {
		field, source = "pause.for", r.Pause.ForExpr
	}
	c.wait, err = compileWait(source)
	fault(field, err)
	return c
}

// statusOf returns the status that a condition demands, such as 409 of status == 409 and keyed;
// zero if it demands none.
func statusOf(condition ast.Node) int {
	b, ok := condition.(*ast.BinaryNode)
	if !ok {
		return 0
	}
	switch b.Operator {
	case "and", "&&":
		return cmp.Or(statusOf(b.Left), statusOf(b.Right))
	case "==":
		name, _ := b.Left.(*ast.IdentifierNode)
		value, _ := b.Right.(*ast.IntegerNode)
		if name != nil && name.Value == "status" && value != nil {
			return value.Value
		}
	}
	return 0
}

// Rules are compiled rules.
type Rules struct{ rules []rule }

// useBody reports whether a rule, or its wait, reads the body.
func (r *Rules) useBody() bool {
	return slices.ContainsFunc(r.rules, func(r rule) bool { return r.usesBody || r.wait != nil && r.wait.usesBody })
}

// CompileRules compiles rules, which have names such as outcomes[2] in messages. The error joins
// all faults, each a [*FieldError] with a field such as [2].when.
func CompileRules(name string, rules []Rule) (*Rules, error) {
	var errs []error
	c := &Rules{}
	first := make(map[string]int) // index of the first rule of a preset, or of limited
	for i, r := range rules {
		compiled := compileRule(r, func(field string, err error) {
			if err != nil {
				errs = append(errs, &FieldError{fmt.Sprintf("[%d].%s", i, field), err})
			}
		})
		from := r.Preset
		if r.Counted {
			from = "limited"
		}
		if _, known := first[from]; !known {
			first[from] = i
		}
		switch compiled.name = fmt.Sprintf("%s[%d]", name, i); {
		case r.Counted:
			compiled.name = fmt.Sprintf("%s[%d]", from, i-first[from])
		case r.Preset != "":
			compiled.name = fmt.Sprintf("%s[%d] of preset %s", name, i-first[from], from)
		}
		if compiled.wait != nil {
			compiled.wait.name = "wait of " + compiled.name
		}
		c.rules = append(c.rules, compiled)
	}
	return c, errors.Join(errs...)
}

// Judge returns the first rule that holds for an answer to the request of in, nil if none does. The
// body is decoded first, up to DefaultMaxInspect bytes; truncated tells that it goes on. The error
// is an [*Uncomputable] of a rule, after which no other is asked, or tells that a done is not
// proven: that needs a whole body of JSON or XML that is no HTML page, or none if the rule reads none.
func (r *Rules) Judge(in *Input, status int, header http.Header, body []byte, truncated bool) (*Rule, error) {
	a := newAnswer(status, header, body, truncated, DefaultMaxInspect)
	a.strict = true
	i, err := r.first(in, a)
	switch {
	case err != nil:
		return nil, err
	case i < 0:
		return nil, nil
	}
	rule := &r.rules[i]
	if rule.Is == Done && !a.whole() && (rule.usesBody || !a.empty()) {
		return nil, fmt.Errorf("rule %s gives done, but the answer is no whole JSON or XML", rule.name)
	}
	return &rule.Rule, nil
}

// first returns the index of the first rule that holds, -1 if there is none. With an error it is
// that of the rule that cannot be computed.
func (r *Rules) first(in *Input, a *answer) (int, *Uncomputable) {
	var env any
	for i := range r.rules {
		of := &r.rules[i]
		if a.failure != "" && !of.onFailure || of.status != 0 && of.status != a.status {
			continue
		}
		if env == nil {
			env = in.answer(a)
		}
		if holds, err := of.holds(in, env); holds || err != nil {
			return i, err
		}
	}
	return -1, nil
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

// decide sets the outcome of an answer, by the first rule that holds or else by the
// status.
func (r *Rules) decide(res *Result, in *Input, a *answer) {
	if r.apply(res, in, a) {
		return
	}
	res.Outcome, res.Reason = Unknown, "status "+strconv.Itoa(a.status)
	switch {
	case a.status == http.StatusTooManyRequests:
		res.Outcome = NotExecuted // RFC 6585, section 4
	case a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != "" && safe(in.r.Method):
		res.Outcome = NotExecuted // RFC 9110, section 15.6.4; with another method a proxy in front may have sent it
	case a.status == http.StatusRequestTimeout: // a proxy may have waited for the server (RFC 9110, section 15.5.9)
	case a.status == clientGone:
	case !safe(in.r.Method) && (a.status == http.StatusFound || a.status == http.StatusSeeOther):
		res.Park, res.Open = true, true // its result lies elsewhere: it was executed, perhaps (RFC 9110, sections 15.4.3 and 15.4.4)
	case a.status/100 == 2:
		res.Outcome = Done
	case a.status/100 == 3, a.status/100 == 4:
		res.Outcome = Failed
	}
}

// clientGone is the status by which nginx, Caddy, Tyk and Azure's gateways say that their own client
// has left while the request was on its way. A proxy in between passes it on.
const clientGone = 499

// safe reports whether a method asks for no change (RFC 9110, section 9.2.1).
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// apply sets the outcome by the first rule that holds, or makes it unknown if that rule cannot be
// computed. It reports whether there is such a rule.
func (r *Rules) apply(res *Result, in *Input, a *answer) bool {
	i, err := r.first(in, a)
	if i < 0 {
		return false
	}
	res.Rule, res.By = i, r.rules[i].name
	if err != nil {
		res.doubt(a, err.Error(), err)
		return true
	}
	rule := &r.rules[i]
	res.Outcome, res.Reason = rule.Is, rule.When
	res.Pause, res.Park, res.Ruled = rule.Pause, rule.Park, true
	res.Open = rule.Park && a.failure == "" && a.status < http.StatusInternalServerError
	res.Answered = res.Answered || rule.Counted && a.failure == ""
	res.Alone = (rule.After > 0 || rule.AfterExpr != "") && rule.Pause == nil
	res.RetryAfter = max(res.RetryAfter, rule.After)
	res.Asked, res.WaitErr = rule.wait.of(in, a, res.AnsweredAt)
	return true
}

// doubt makes an outcome unknown because an expression cannot be computed, unless it is certain that
// nothing was sent. Below status 500 the platform has answered, and the breaker does not count it.
func (res *Result) doubt(a *answer, reason string, err *Uncomputable) {
	res.Uncomputable = err
	if !a.sent {
		return
	}
	res.Outcome, res.Reason, res.Ruled, res.Pause = Unknown, reason, false, nil
	if a.failure == "" {
		res.Park, res.Open = !err.Again, a.status < http.StatusInternalServerError
	}
}

// uncomputed returns the end of a reason that names the rule which cannot be computed, if any.
func (res *Result) uncomputed() string {
	if res.Uncomputable == nil {
		return ""
	}
	return "; " + res.Uncomputable.Error()
}

// fromGateway reports whether a gateway in front of the counting host may have given the status:
// then it does not prove that the call has arrived there. Beside those of RFC 9110, section 15.6.3
// to 15.6.5, and 408, these are nginx's 499 (the client has left), Cloudflare's 520 to 530, and 561
// of an AWS load balancer.
func fromGateway(status int) bool {
	switch {
	case status == http.StatusRequestTimeout, status == 499, status == 561:
		return true
	case status >= 520:
		return status <= 530
	}
	return status >= http.StatusBadGateway && status <= http.StatusGatewayTimeout
}
