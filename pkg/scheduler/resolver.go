package scheduler

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retryafter"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Resolve settles calls of unknown outcome by asking the upstream: a query by
// the same business number, which is a call like any other, under the same
// limits. Its answer says whether the unknown call is done, failed, or was not executed. In the
// last case the call is repeated: that counts as an attempt and waits for the retry budget. A
// call without attempts, idempotency retention or max_age left stays unknown for a person, and
// so does one whose repeat is refused: the query may have come before the first request was
// executed. If a person decides meanwhile, the query is withdrawn.
//
// For a caller that waits, the queries go for as long as it may wait, and the call is not sent
// again. The caller then gets the upstream's own answer, if there is one, and the Call with its
// state. From then on the caller's own queries settle the call; see Upstream.Asks.
type Resolve struct {
	// When is such an expression too: the calls that it settles; empty: all.
	When string
	// Signed tells that the query is nothing without a Signer: there is no resolving then.
	Signed bool
	// Method is the query's, GET if empty. Target, Body and each Header are expressions that give a
	// text, over the unknown call and the answer to it; see [upstream.CompileQuestion].
	Method string
	Target string
	Header map[string]string
	Body   string
	// Outcomes are rules over the query's answer and the unknown call's request. As
	// long as none of them holds, or one is unknown, the call stays so.
	Outcomes []upstream.Rule
	// After is the wait before the first query, Every that between queries, and
	// Queries is how many there are; then the call waits for a person to decide.
	// Zero values mean 10s, 30s and 10. The answer to the call, or to the last query, may ask for
	// a longer wait, which is MaxPause at most.
	After, Every time.Duration
	Queries      int
}

// Defaults of a Resolve.
const (
	resolveAfter   = 10 * time.Second
	resolveEvery   = 30 * time.Second
	resolveQueries = 10
)

// A resolver is a compiled Resolve.
type resolver struct {
	Resolve
	name               string // such as resolve[0]
	when, target, body *upstream.Expr
	header             map[string]*upstream.Expr
	rules              *upstream.Rules
	byAnswer           bool // an expression but when reads the answer to the call
}

// compileResolve reports every fault of a Resolve, by the field of it.
func compileResolve(name string, c Resolve, fault func(field string, err error)) *resolver {
	r := &resolver{Resolve: c, name: name, header: make(map[string]*upstream.Expr)}
	expression := func(source string, kind upstream.Kind, field string) (e *upstream.Expr) {
		if source == "" {
			return nil
		}
		e, err := upstream.CompileQuestion(source, kind)
		if err != nil {
			fault(field, err)
			return nil
		}
		r.byAnswer = r.byAnswer || kind == upstream.Text && e.ReadsAnswer()
		return e
	}
	r.when = expression(c.When, upstream.Condition, "when")
	r.target = expression(c.Target, upstream.Text, "target")
	r.body = expression(c.Body, upstream.Text, "body")
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		r.header[name] = expression(c.Header[name], upstream.Text, "headers."+name)
	}
	if c.Target == "" {
		fault("target", errors.New("is missing; give an expression for the query's path, such as '\"/v1/orders/\" + json(\"order_no\")'"))
	}
	if len(c.Outcomes) == 0 {
		fault("outcomes", errors.New("is empty; say which answers mean done, failed or not_executed"))
	}
	var err error
	r.rules, err = upstream.CompileRules(name+".outcomes", c.Outcomes)
	faultFields(err, "outcomes", fault)
	positive("after", &r.After, resolveAfter, fault)
	positive("every", &r.Every, resolveEvery, fault)
	positive("queries", &r.Queries, resolveQueries, fault)
	return r
}

// resolverOf returns the first resolver that settles a call, nil if none does. Without a signer,
// resolvers that need one do not count. Input has the answer to the call, if there is one. The error is
// that of a when that cannot be computed: no later resolver is asked, since it may be about other calls.
func resolverOf(sv *service, in *upstream.Input, signer bool) (*resolver, error) {
	for _, r := range sv.resolvers {
		if r.Signed && !signer {
			continue
		}
		if r.when != nil {
			ok, err := r.when.Holds(in, r.name+".when")
			if err != nil {
				return nil, err
			}
			if !ok {
				continue
			}
		}
		return r, nil
	}
	return nil, nil
}

// mayResolve reports whether a resolver settles a call of which the answer is not known here: one
// whose when reads it may. See resolverOf for the error.
func mayResolve(sv *service, in *upstream.Input, signer bool) (bool, error) {
	for _, r := range sv.resolvers {
		switch {
		case r.Signed && !signer:
		case r.when == nil, r.when.ReadsAnswer():
			return true, nil
		default:
			if ok, err := r.when.Holds(in, r.name+".when"); ok || err != nil {
				return ok, err
			}
		}
	}
	return false, nil
}

// asksByAnswers reports whether a query reads the answer to the call that it is about.
func asksByAnswers(sv *service) bool {
	return slices.ContainsFunc(sv.resolvers, func(r *resolver) bool { return r.byAnswer || r.when.ReadsAnswer() })
}

// questionAbout returns the Input of a call with the answer to it, nil if there is none, for resolvers.
func questionAbout(sv *service, request *upstream.Request, answer *Response) *upstream.Input {
	if answer == nil {
		return upstream.NewQuestion(sv.up, request, nil)
	}
	return upstream.NewQuestion(sv.up, request, upstream.NewAnswer(answer.Status, answer.Headers, answer.Body, answer.Truncated))
}

// askedUntil returns until when an answer asks to leave its upstream alone, zero if it does not say.
func askedUntil(sv *service, c *Call, answer *Response) time.Time {
	last := c.Last()
	if answer == nil || last == nil {
		return time.Time{}
	}
	asked := retryafter.Wait(answer.Headers, last.EndedAt, last.Outcome == upstream.NotExecuted)
	return last.EndedAt.Add(min(asked, sv.up.MaxPause))
}

// query builds the question about a call.
func (r *resolver) query(in *upstream.Input) (q Request, err error) {
	q = Request{Method: r.Method, Header: make(http.Header)}
	text := func(e *upstream.Expr) string {
		if e == nil || err != nil {
			return ""
		}
		var s string
		s, err = e.Text(in)
		return s
	}
	q.Target, q.Body = text(r.target), []byte(text(r.body))
	for name, e := range r.header {
		if v := text(e); v != "" {
			q.Header.Set(name, v)
		}
	}
	return q, err
}

// brief cuts a rule to the length of a reason, on one line.
func brief(rule string) string {
	rule = strings.Join(strings.Fields(rule), " ")
	if len(rule) > maxReason {
		rule = strings.ToValidUTF8(rule[:maxReason-len("…")], "") + "…"
	}
	return rule
}

// verdict returns the outcome that the answer to a query gives a call, empty for none, and the
// rule that says so. The error says why the rules decide nothing.
func (r *resolver) verdict(in *upstream.Input, answer *Response) (as upstream.Outcome, when string, err error) {
	if answer == nil {
		return "", "", nil
	}
	rule, err := r.rules.Judge(in, answer.Status, answer.Headers, answer.Body, answer.Truncated)
	if rule == nil || rule.Is == upstream.Unknown {
		return "", "", err
	}
	return rule.Is, rule.When, nil
}
