package scheduler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Resolve settles calls of unknown outcome by asking the upstream: a query by
// the same business number, which is a call like any other, under the same
// limits, and says whether the first one is done, failed, or was not executed and
// goes again as it was. If somebody decides meanwhile, the query is withdrawn. Only
// calls that were submitted are settled: a caller who waits has its answer, and
// asks by itself.
type Resolve struct {
	// When is a request expression: the calls that it settles; empty: all.
	When string
	// Signed tells that the query is nothing without a Signer: there is no resolving then.
	Signed bool
	// Method is the query's, GET if empty. Target, Body and each Header are request
	// expressions over the unknown call that give a text.
	Method string
	Target string
	Header map[string]string
	Body   string
	// Outcomes are rules over the query's answer and the unknown call's request. As
	// long as none of them holds, or one is unknown, the call stays so.
	Outcomes []upstream.Rule
	// After is the wait before the first query, Every that between queries, and
	// Queries is how many there are; then the call waits for somebody to decide.
	After, Every time.Duration
	Queries      int
}

// A resolver is a compiled Resolve.
type resolver struct {
	Resolve
	when, target, body *upstream.Expr
	header             map[string]*upstream.Expr
	rules              *upstream.Rules
}

// compileResolve reports every fault of a Resolve, by the field of it.
func compileResolve(c Resolve, fault func(field string, err error)) *resolver {
	r := &resolver{Resolve: c, header: make(map[string]*upstream.Expr)}
	compile := func(field, source string, kind upstream.Kind) *upstream.Expr {
		if source == "" {
			return nil
		}
		e, err := upstream.Compile(source, kind)
		if err != nil {
			fault(field, err)
		}
		return e
	}
	r.when = compile("when", c.When, upstream.Condition)
	r.target = compile("target", c.Target, upstream.Text)
	r.body = compile("body", c.Body, upstream.Text)
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		r.header[name] = compile("headers."+name, c.Header[name], upstream.Text)
	}
	if c.Target == "" {
		fault("target", errors.New("is missing; give an expression for the query's path, such as '\"/v1/orders/\" + json(\"order_no\")'"))
	}
	if len(c.Outcomes) == 0 {
		fault("outcomes", errors.New("is empty; say which answers mean done, failed or not_executed"))
	}
	var err error
	r.rules, err = upstream.CompileRules(c.Outcomes)
	for _, err := range split(err) {
		var f *upstream.FieldError
		if errors.As(err, &f) {
			fault("outcomes"+f.Field, f.Err)
		}
	}
	positive("after", &r.After, DefaultResolveAfter, fault)
	positive("every", &r.Every, DefaultResolveEvery, fault)
	positive("queries", &r.Queries, DefaultResolveQueries, fault)
	return r
}

// resolverOf returns what settles a call, nil if nothing does.
func (sv *service) resolverOf(in *upstream.Input) *resolver {
	for _, r := range sv.resolvers {
		if r.Signed && sv.Signer == nil {
			continue
		}
		if r.when != nil {
			if ok, err := r.when.Bool(in); err != nil || !ok {
				continue
			}
		}
		return r
	}
	return nil
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

// settle asks about an unknown call until it is decided, by an answer or by somebody
// else, which ends ctx. It runs beside the loop, through the same doors as everybody
// else, and ends with a stop at the latest.
func (s *Scheduler) settle(ctx context.Context, sv *service, c *Call, request *upstream.Request) {
	in := upstream.NewInput(request)
	r := sv.resolverOf(in)
	if r == nil {
		return
	}
	for n, wait := 0, r.After; n < r.Queries; n, wait = n+1, r.Every {
		query, err := r.query(in)
		if err != nil {
			s.log.Error("a call of unknown outcome cannot be asked about", "call", c.ID, "upstream", c.Upstream, "err", err)
			return
		}
		query.Upstream, query.Priority, query.NotBefore, query.resolves, query.by = c.Upstream, DataPriority, time.Now().Add(wait), c.ID, sv
		asked, err := s.Submit(s.afterCtx, query) // not ctx: what is half accepted could not be withdrawn
		if err == nil {
			asked, err = s.Wait(ctx, asked.ID)
		}
		if ctx.Err() != nil {
			if s.afterCtx.Err() == nil && asked != nil { // decided; at a stop, whoever opens the store next asks again
				s.Cancel(s.afterCtx, asked.ID) // unless it has been sent: then it is answered in vain
			}
			return
		}
		if err != nil {
			s.log.Warn("a query about a call of unknown outcome was refused", "call", c.ID, "upstream", c.Upstream, "err", err)
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				return
			}
		}
		if s.decide(c, in, r, asked) {
			return
		}
	}
	s.log.Warn("a call stays of unknown outcome, no query told more", "call", c.ID, "upstream", c.Upstream, "queries", r.Queries)
}

// decide resolves a call by the answer to a query about it, if that says enough.
func (s *Scheduler) decide(c *Call, in *upstream.Input, r *resolver, query *Call) bool {
	if query.Response == nil {
		return false
	}
	rule := r.rules.Judge(in, query.Response.Status, query.Response.Headers, query.Response.Body)
	as := map[upstream.Outcome]State{upstream.Done: Done, upstream.Failed: Failed, upstream.NotExecuted: Waiting}
	if rule == nil || as[rule.Is] == "" {
		return false
	}
	if _, err := s.resolve(s.afterCtx, c.ID, as[rule.Is], fmt.Sprintf("query %s: %s", query.ID, rule.When), c.Last().N); err != nil {
		s.log.Warn("a call of unknown outcome could not be resolved", "call", c.ID, "upstream", c.Upstream, "err", err)
	}
	return true
}
