package upstream

import "github.com/expr-lang/expr"

// refuse is the function refuse(reason) of expressions. It has no value: what needs one, such as the
// key of a limit, refuses the call with the reason, which is a text of the configuration. A rule
// over an answer cannot be computed then.
var refuse = expr.Function("refuse", func(params ...any) (any, error) {
	return nil, unclear(params[0].(string))
}, new(func(string) any))
