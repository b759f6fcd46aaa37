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
// goes again as it was: as a repeat, which counts as an attempt and waits for the retry
// budget. Without attempts, idempotency retention or max_age left it stays unknown, for a
// person, as it does if its repeat is refused: the query may have come before the first
// request was executed. If a person decides meanwhile, the query is withdrawn. Only
// calls that were submitted are settled: a caller who waits has its answer, and
// queries by itself.
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
	// Queries is how many there are; then the call waits for a person to decide.
	// Zero values mean 10s, 30s and 10.
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
	when, target, body *upstream.Expr
	header             map[string]*upstream.Expr
	rules              *upstream.Rules
}

// compileResolve reports every fault of a Resolve, by the field of it.
func compileResolve(c Resolve, fault func(field string, err error)) *resolver {
	r := &resolver{Resolve: c, header: make(map[string]*upstream.Expr)}
	compileExpr(c.When, upstream.Condition, &r.when, "when", fault)
	compileExpr(c.Target, upstream.Text, &r.target, "target", fault)
	compileExpr(c.Body, upstream.Text, &r.body, "body", fault)
	for _, name := range slices.Sorted(maps.Keys(c.Header)) {
		var e *upstream.Expr
		compileExpr(c.Header[name], upstream.Text, &e, "headers."+name, fault)
		r.header[name] = e
	}
	if c.Target == "" {
		fault("target", errors.New("is missing; give an expression for the query's path, such as '\"/v1/orders/\" + json(\"order_no\")'"))
	}
	if len(c.Outcomes) == 0 {
		fault("outcomes", errors.New("is empty; say which answers mean done, failed or not_executed"))
	}
	var err error
	r.rules, err = upstream.CompileRules(c.Outcomes)
	faultFields(err, "outcomes", fault)
	positive("after", &r.After, resolveAfter, fault)
	positive("every", &r.Every, resolveEvery, fault)
	positive("queries", &r.Queries, resolveQueries, fault)
	return r
}

// resolverOf returns the first resolver that settles a call, nil if none does.
func resolverOf(sv *service, in *upstream.Input) *resolver {
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

// queryUntilDecided queries an unknown call until it is decided, by an answer or by a
// person, which ends ctx. It runs beside the loop, through the same limits as all calls,
// and ends with a stop at the latest.
func (f *followUps) queryUntilDecided(ctx context.Context, sv *service, c *Call, request *upstream.Request) {
	in := upstream.NewInput(request)
	r := resolverOf(sv, in)
	if r == nil {
		return
	}
	log := f.s.log.With("call", c.ID, "upstream", c.Upstream)
	for n, wait := 0, r.After; n < r.Queries; n, wait = n+1, r.Every {
		query, err := r.query(in)
		if err != nil {
			log.Error("a call of unknown outcome cannot be queried", "err", err)
			return
		}
		query.Upstream, query.Priority, query.NotBefore = c.Upstream, DataPriority, time.Now().Add(wait)
		query.origin = &origin{by: sv, resolves: c.ID}
		asked, err := f.s.Submit(f.ctx, query) // not ctx: a query that is half accepted could not be withdrawn
		if err == nil {
			asked, err = f.s.Wait(ctx, asked.ID)
		}
		if ctx.Err() != nil {
			if f.ctx.Err() == nil && asked != nil { // decided; at a stop, the next process queries again
				f.s.Cancel(f.ctx, asked.ID) // unless it has been sent: then it is answered in vain
			}
			return
		}
		if err != nil {
			log.Warn("a query about a call of unknown outcome was refused", "err", err)
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
				return
			}
		}
		if f.decide(c, in, r, asked) {
			return
		}
	}
	log.Warn("a call stays of unknown outcome, no query decided it", "queries", r.Queries)
}

// decide resolves a call by the answer to a query about it, if that says enough.
func (f *followUps) decide(c *Call, in *upstream.Input, r *resolver, query *Call) bool {
	if query.Response == nil {
		return false
	}
	rule := r.rules.Judge(in, query.Response.Status, query.Response.Headers, query.Response.Body)
	as := map[upstream.Outcome]State{upstream.Done: Done, upstream.Failed: Failed, upstream.NotExecuted: Waiting}
	if rule == nil || as[rule.Is] == "" {
		return false
	}
	if _, err := f.s.resolve(f.ctx, c.ID, as[rule.Is], fmt.Sprintf("query %s: %s", query.ID, rule.When), c.Last().N); err != nil {
		f.s.log.Warn("a call of unknown outcome could not be resolved", "call", c.ID, "upstream", c.Upstream, "err", err)
		return rule.Is != upstream.NotExecuted // the call may not go again: a later query may find it yet
	}
	return true
}
