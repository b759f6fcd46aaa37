package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Queries about calls of unknown outcome.

// queryUntilDecided queries an unknown call until it is decided, by an answer or by a
// person, which ends ctx, or until the deadline of ctx. Until is the instant before which the answer to
// the call wants no query, zero if that is not known. It runs beside the loop, through the same limits
// as all calls, and ends with a stop at the latest.
func (f *followUps) queryUntilDecided(ctx context.Context, sv *service, c *Call, request *upstream.Request, until time.Time, q *question) {
	r, err := f.resolverFor(ctx, sv, c, request, sv.Signer != nil)
	if err != nil {
		f.doubt(q, c, err)
	}
	if r == nil {
		return
	}
	if until.IsZero() {
		until = askedUntil(sv, c, f.answerTo(ctx, c))
	}
	f.questions.delay(q, until)
	latest, bounded := ctx.Deadline()
	for n, wait := 0, r.After; n < r.Queries; wait = r.Every {
		wait = max(wait, f.questions.delayed(q, time.Now()))
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
		if over, _ := f.ask(ctx, inquest{sv, c, request, r, q, "", latest}); over {
			return
		}
	}
	f.s.log.Warn("a call stays of unknown outcome, no query decided it", "call", c.ID, "upstream", c.Upstream, "queries", r.Queries)
}

// An inquest is what it takes to query about an unknown call.
type inquest struct {
	service  *service
	call     *Call
	request  *upstream.Request
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
	if ctx.Err() != nil {
		return true, errStopping(c.Upstream)
	}
	in := upstream.NewInput(i.request)
	if i.resolver.byAnswer {
		in = questionAbout(i.service, i.request, f.answerTo(ctx, c))
	}
	query, err := i.resolver.query(in)
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
	f.questions.delay(i.question, askedUntil(i.service, asked, asked.Response))
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
	i := inquest{service: sv, call: c, request: request, by: by}
	var err error
	if i.resolver, err = f.resolverFor(ctx, sv, c, request, sv.Signer != nil); err != nil {
		return nil, wrongState(c, fmt.Sprintf("%v, so there is no query about it; %s at the upstream, and resolve it", err, remedy(err)))
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
	r, err := f.resolverFor(f.ctx, sv, c, request, sv.Signer != nil)
	if err != nil {
		f.doubt(q, c, err)
		return
	}
	if r == nil {
		f.questions.drop(c.ID)
		return
	}
	f.ask(f.ctx, inquest{service: sv, call: c, request: request, resolver: r, question: q})
}

// askFor queries about an unknown call whose caller waits, until the call is decided or the wait
// is over, and returns the call as it is then. A query that would come later is not made.
func (f *followUps) askFor(ctx context.Context, sv *service, c *call, end *Call) *Call {
	may, err := mayResolve(sv, upstream.NewInput(c.request), sv.Signer != nil)
	if err != nil {
		f.doubt(f.questions.entry(end), end, err)
	}
	if !may {
		return end
	}
	bounded, cancel := context.WithDeadline(ctx, c.caller.until)
	defer cancel()
	defer context.AfterFunc(f.ctx, cancel)() // at a stop
	f.questions.part(end)
	defer f.rest(end)
	f.queryUntilDecided(bounded, sv, end, c.request, c.askedUntil(sv), f.questions.open(end))
	if decided, err := f.s.journal.get(context.WithoutCancel(ctx), end.ID); err == nil && decided.State.Finished() {
		return decided
	}
	return end
}

// decide resolves a call by the answer to a query about it, if that says enough.
func (f *followUps) decide(i inquest, query *Call) bool {
	c := i.call
	as, when, err := i.resolver.verdict(upstream.NewInput(i.request), query.Response)
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
	r, err := f.resolverFor(ctx, sv, c, request, true) // the caller has signed
	var as upstream.Outcome
	var when string
	if r != nil {
		as, when, err = r.verdict(upstream.NewInput(request), answer)
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

// resolverFor returns the resolver that settles an unknown call, nil if none does. See resolverOf for
// the error.
func (f *followUps) resolverFor(ctx context.Context, sv *service, c *Call, request *upstream.Request, signer bool) (*resolver, error) {
	var answer *Response
	if asksByAnswers(sv) {
		answer = f.answerTo(ctx, c)
	}
	return resolverOf(sv, questionAbout(sv, request, answer), signer)
}

// answerTo returns the answer to an unknown call, nil if there is none or it was not kept.
func (f *followUps) answerTo(ctx context.Context, c *Call) (answer *Response) {
	if last := c.Last(); c.Response != nil || last == nil || last.Status == 0 {
		return c.Response
	}
	if f.s.loop.ask(ctx, func(time.Time) {
		if live := f.s.loop.calls[c.ID]; live != nil {
			answer = live.Response
		}
	}) != nil || answer != nil {
		return answer
	}
	if stored, err := f.s.journal.get(ctx, c.ID); err == nil {
		answer = stored.Response
	}
	return answer
}
