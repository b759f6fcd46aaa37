package scheduler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

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
	name               string // such as resolve[0]
	when, target, body *upstream.Expr
	header             map[string]*upstream.Expr
	rules              *upstream.Rules
}

// compileResolve reports every fault of a Resolve, by the field of it.
func compileResolve(name string, c Resolve, fault func(field string, err error)) *resolver {
	r := &resolver{Resolve: c, name: name, header: make(map[string]*upstream.Expr)}
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
	r.rules, err = upstream.CompileRules(name+".outcomes", c.Outcomes)
	faultFields(err, "outcomes", fault)
	positive("after", &r.After, resolveAfter, fault)
	positive("every", &r.Every, resolveEvery, fault)
	positive("queries", &r.Queries, resolveQueries, fault)
	return r
}

// resolverOf returns the first resolver that settles a call, nil if none does. Without a signer,
// resolvers that need one do not count. The error is that of a when that cannot be computed: no
// later resolver is asked, since it may be about other calls.
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
// person, which ends ctx, or until the deadline of ctx. It runs beside the loop, through the
// same limits as all calls, and ends with a stop at the latest.
func (f *followUps) queryUntilDecided(ctx context.Context, sv *service, c *Call, in *upstream.Input, r *resolver, q *question) {
	latest, bounded := ctx.Deadline()
	for n, wait := 0, r.After; n < r.Queries; wait = r.Every {
		if bounded && time.Until(latest) <= wait {
			return
		}
		f.questions.plan(q, time.Now().Add(wait), r.Queries)
		early, ok := q.wait(ctx, wait)
		if !ok {
			return
		}
		if !early { // a query after a notification is an extra one
			n++
		}
		if over, _ := f.ask(ctx, inquest{sv, c, in, r, q, "", latest}); over {
			return
		}
	}
	f.s.log.Warn("a call stays of unknown outcome, no query decided it", "call", c.ID, "upstream", c.Upstream, "queries", r.Queries)
}

// An inquest is what it takes to query about an unknown call.
type inquest struct {
	service  *service
	call     *Call
	input    *upstream.Input
	resolver *resolver
	question *question
	by       string    // the person that asks; empty for none
	latest   time.Time // when the query may be sent; zero: at any time
}

// ask queries once about an unknown call, until ctx ends. Over is true if the call is decided, or
// no further query can be made; the error says why there was no answer.
func (f *followUps) ask(ctx context.Context, i inquest) (over bool, err error) {
	c := i.call
	log := f.s.log.With("call", c.ID, "upstream", c.Upstream)
	query, err := i.resolver.query(i.input)
	if err != nil {
		log.Error("a call of unknown outcome cannot be queried", "err", err)
		return true, badRequest(c.Upstream, "the query about call %s cannot be made: %v", c.ID, err)
	}
	query.Upstream, query.Priority, query.Deadline = c.Upstream, DataPriority, i.latest
	query.origin = &origin{by: i.service, resolves: c.ID}
	f.questions.begin(i.question)
	asked, err := f.s.Submit(f.ctx, query) // not ctx: a query that is half accepted could not be withdrawn
	if err == nil {
		f.questions.made(i.question, time.Now())
		asked, err = f.s.Wait(ctx, asked.ID)
	}
	if ctx.Err() != nil {
		if f.ctx.Err() == nil && asked != nil { // decided; at a stop, the next process queries again
			f.s.Cancel(f.ctx, asked.ID) // unless it has been sent: then it is answered in vain
		}
		return true, errStopping(c.Upstream)
	}
	if err != nil {
		log.Warn("a query about a call of unknown outcome was refused", "err", err)
		return false, err
	}
	f.questions.heard(i.question, asked)
	if asked.Response == nil {
		err = &Error{Reason: NoAnswer, Upstream: c.Upstream, Detail: fmt.Sprintf("query %s about call %s is %s and has no answer (%s); ask again later, or look the call up at the upstream", asked.ID, c.ID, asked.State, cmp.Or(asked.lastWords(), string(asked.Reason)))}
	}
	return f.decide(i, asked), err
}

// askNow begins a query by a person about an unknown call.
func (f *followUps) askNow(ctx context.Context, c *Call, by string) (*inquiry, error) {
	sv := f.s.service(c.Upstream)
	if sv == nil {
		return nil, notConfigured(c, "ask then; it can be resolved as done or failed now")
	}
	request := f.requestOf(ctx, c)
	if request == nil {
		return nil, wrongState(c, "its request was not kept, so there is nothing to make a query of; look it up at the upstream, and resolve it")
	}
	i := inquest{service: sv, call: c, input: upstream.NewInput(request), by: by}
	var err error
	if i.resolver, err = resolverOf(sv, i.input, sv.Signer != nil); err != nil {
		return nil, wrongState(c, fmt.Sprintf("%v, so there is no query about it; mend the rule, or look the call up at the upstream, and resolve it", err))
	}
	if i.resolver == nil {
		return nil, wrongState(c, fmt.Sprintf("upstream %q has no query for it (resolve), or one that needs a signer; look it up at the upstream, and resolve it", c.Upstream))
	}
	asked, begun := f.questions.inquire(c.ID, by)
	if !begun {
		return asked, nil
	}
	refused := error(errStopping(c.Upstream))
	f.s.loop.post(func(time.Time) {
		if f.s.loop.stopping {
			return
		}
		refused = nil
		f.work.Go(func() {
			i.question, i.latest = f.questions.entry(c), time.Now().Add(sv.MaxWait)
			_, err := f.ask(f.ctx, i)
			f.questions.answered(c.ID, asked, err)
		})
	})
	if refused != nil {
		f.questions.answered(c.ID, asked, refused)
	}
	return asked, nil
}

// queryOnce queries about an unknown call whose caller has its answer.
func (f *followUps) queryOnce(c *Call, q *question) {
	select {
	case <-q.now:
	default:
	}
	sv, request := f.s.service(c.Upstream), f.requestOf(f.ctx, c)
	if sv == nil || request == nil {
		f.questions.drop(c.ID)
		return
	}
	in := upstream.NewInput(request)
	r, err := resolverOf(sv, in, sv.Signer != nil)
	if err != nil {
		f.doubt(q, c, err)
		return
	}
	if r == nil {
		f.questions.drop(c.ID)
		return
	}
	f.ask(f.ctx, inquest{service: sv, call: c, input: in, resolver: r, question: q})
}

// askFor queries about an unknown call whose caller waits, until the call is decided or the wait
// is over, and returns the call as it is then. A query that would come later is not made.
func (f *followUps) askFor(ctx context.Context, sv *service, c *call, end *Call) *Call {
	in := upstream.NewInput(c.request)
	r, err := resolverOf(sv, in, sv.Signer != nil)
	if err != nil {
		f.doubt(f.questions.entry(end), end, err)
	}
	if r == nil {
		return end
	}
	bounded, cancel := context.WithDeadline(ctx, c.caller.until)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)() // at a stop
	f.questions.part(end)
	defer f.rest(end)
	f.queryUntilDecided(bounded, sv, end, in, r, f.questions.open(end))
	if decided, err := f.s.journal.get(context.WithoutCancel(ctx), end.ID); err == nil && decided.State.Finished() {
		return decided
	}
	return end
}

// decide resolves a call by the answer to a query about it, if that says enough.
func (f *followUps) decide(i inquest, query *Call) bool {
	c := i.call
	as, when, err := i.resolver.verdict(i.input, query.Response)
	if err != nil {
		f.doubt(i.question, c, err)
	}
	again := as == upstream.NotExecuted
	if as == "" || again && !c.Async { // only its caller can send it again
		return false
	}
	by := "query " + query.ID
	if i.by != "" {
		by += ", asked by " + i.by
	}
	if _, err := f.s.decide(f.ctx, c.ID, Decision{As: as, Attempt: c.Last().N, By: by, Reason: brief(when)}, false); err != nil {
		f.s.log.Warn("a call of unknown outcome could not be resolved", "call", c.ID, "upstream", c.Upstream, "err", err)
		return !again // the call may not go again: a later query may find it yet
	}
	return true
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

// doubt tells why queries settle nothing about an unknown call.
func (f *followUps) doubt(q *question, c *Call, err error) {
	f.questions.doubt(q, err.Error())
	rule := f.s.loop.uncomputed.note(c.Upstream, err)
	f.s.log.Warn("a call stays of unknown outcome, as a query about it decides nothing", "call", c.ID, "upstream", c.Upstream, "rule", rule, "reason", err)
}

// settleBy settles the unknown call of an identity by the answer to a query that a caller has
// made about it, if that is final and the query was sent when the call was unknown already.
func (f *followUps) settleBy(identity string, query *Call, answer *Response) {
	ctx := context.Background()
	c, err := f.s.journal.find(ctx, &Entry{Call: &Call{}, Identity: identity})
	if err != nil || c == nil || c.State != Unknown || query.Last().SentAt.Before(c.Last().EndedAt) {
		return
	}
	sv, request := f.s.service(c.Upstream), f.requestOf(ctx, c)
	if sv == nil || request == nil {
		return
	}
	in := upstream.NewInput(request)
	r, err := resolverOf(sv, in, true) // the caller has signed
	var as upstream.Outcome
	var when string
	if r != nil {
		as, when, err = r.verdict(in, answer)
	}
	if err != nil {
		f.doubt(f.questions.entry(c), c, err)
	}
	if as != upstream.Done && as != upstream.Failed {
		return
	}
	if _, err := f.s.decide(ctx, c.ID, Decision{As: as, Attempt: c.Last().N, By: "query " + query.ID + " of a caller", Reason: brief(when)}, false); err != nil {
		f.s.log.Info("a caller's query could not settle a call of unknown outcome", "call", c.ID, "query", query.ID, "upstream", c.Upstream, "err", err)
	}
}

// requestOf returns the request of an unknown call, nil if it was not kept.
func (f *followUps) requestOf(ctx context.Context, c *Call) (request *upstream.Request) {
	if f.s.loop.ask(ctx, func(time.Time) {
		if live := f.s.loop.calls[c.ID]; live != nil {
			request = live.request
		}
	}) != nil || request != nil {
		return request
	}
	return f.s.journal.request(ctx, c)
}
