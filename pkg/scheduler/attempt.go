package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// An attempt sends a call once, on the goroutine of a caller that stays for it or on one of its
// own. The loop has taken the permits; the attempt stores the intent, sends the request, asks
// the retry policy, and hands the loop what came of it.
type attempt struct {
	loop    *loop
	service *service // as it was configured when the attempt began
	call    *call    // of which it reads the request only
	intent  *Call    // the call as it is being sent
	take    []lease.Hold
	used    []*lease.Lease
	history flight // of the call, before this attempt
	unsent  bool   // its caller has left: it sends nothing
}

// An ending is what came of an attempt.
type ending struct {
	result  *upstream.Result
	kept    *Response // of the answer, for the store
	by      *service  // the service that sent the call
	subject uint64    // for the circuit breaker
	next    next
	stale   bool // the store knows that the call is not waiting: nothing was sent
}

func (a *attempt) run() {
	defer a.loop.work.Done()
	sent := false
	defer func() {
		if !sent { // the loop would wait for its end for ever
			endProcess("an attempt", recover())
		}
	}()
	e := a.send()
	sent = true
	a.loop.post(func(now time.Time) {
		a.loop.busy--
		u := a.call.up
		if e.stale {
			u.dropStale(now, a.call)
		} else {
			u.complete(now, a.call, e)
		}
		if u.removed || u.service != a.service { // replaced meanwhile
			a.service.up.Close()
		}
	})
}

func (a *attempt) send() ending {
	do := a.service.up.Do
	if !a.intent.Async { // a caller who waits gets the beginning of a slow answer before its end
		do = a.service.up.Stream
	}
	r := a.once(do)
	if errors.Is(r.Err, ErrNotWaiting) {
		return ending{result: r, stale: true}
	}
	e := ending{result: r, by: a.service, subject: a.subject(r), next: a.next(r)}
	a.loop.uncomputed.note(a.intent.Upstream, r.WaitErr)
	if r.Uncomputable != nil {
		a.loop.uncomputed.note(a.intent.Upstream, r.Uncomputable)
	}
	a.log(r, e.next)
	// The part of the answer that is kept is read here: it may block.
	switch {
	case r.Response == nil:
	case a.intent.Async:
		e.kept = keep(r, a.service.up.MaxInspect)
		r.Response = nil
	case (a.intent.Durable || a.call.identities.identity() != "") && r.Truncated: // a repeat gets it too
		stream(r, a.service.up.MaxInspect)
	case a.intent.Durable, a.call.identities.identity() != "", r.Outcome == upstream.Unknown && !r.Truncated && asksByAnswers(a.service):
		e.kept = keepCopy(r)
	}
	if about := a.call.identities.askedAbout(); about != "" {
		if answer := e.whole(); answer != nil {
			a.loop.settleBy(about, a.intent, answer)
		}
	}
	return e
}

// whole returns a copy of the answer if all of it lies in memory, else nil.
func (e *ending) whole() *Response {
	switch r := e.result; {
	case r.Err != nil || r.Truncated:
		return nil
	case e.kept != nil:
		return e.kept
	case r.Response != nil:
		return keepCopy(r)
	}
	return nil
}

// once stores the intent and sends the request. A panic, of a signer or of a transport
// that an embedder provides, harms this call alone: it may have been sent.
func (a *attempt) once(do func(context.Context, *upstream.Request) *upstream.Result) (r *upstream.Result) {
	defer func() {
		if v := recover(); v != nil {
			a.loop.log.Error("an attempt panicked", "call", a.intent.ID, "upstream", a.intent.Upstream, "panic", v, "stack", string(debug.Stack()))
			r = &upstream.Result{Outcome: upstream.Unknown, Sent: true, Reason: "the attempt panicked", AnsweredAt: time.Now()}
		}
	}()
	if a.unsent {
		return &upstream.Result{Outcome: upstream.NotExecuted, Reason: "never sent: the client has left", AnsweredAt: time.Now()}
	}
	err := a.intend()
	if by := ended(err); by != nil {
		return &upstream.Result{Outcome: upstream.NotExecuted, Reason: by.Error(), AnsweredAt: time.Now(), Err: err}
	}
	if err != nil {
		return &upstream.Result{Outcome: upstream.NotExecuted, Reason: "never sent: the intent could not be stored", AnsweredAt: time.Now(), RetryAfter: time.Second, Err: err}
	}
	out := a.service.outgoing(a.intent, a.call.request)
	if a.call.identities != nil {
		out.Revoked = &a.call.identities.revoked
	}
	out.Allowed = a.loop.journal.allowed()
	r = do(a.loop.cuts, out)
	if a.intent.Resolves == "" { // a query is done by its answer
		doubtAccepted(a.service, a.call.request, r)
	}
	r.Answer = nil // it holds memory
	return r
}

// intend stores the intent and the permits of the attempt before its first byte. It first ends
// the calls that this call ends. A call that was itself ended is not sent.
func (a *attempt) intend() error {
	if ends := a.call.identities.toEnd(); ends != "" {
		if err := a.loop.journal.end(ends, a.intent.ID); err != nil {
			return err
		}
		a.loop.endCall(ends, a.intent.ID)
	}
	unlock, err := a.loop.journal.unended(a.call.identities.identity())
	if err != nil {
		return err
	}
	defer unlock() // a call that ends it comes after the intent
	if err := a.loop.journal.intend(a.intent, a.take); err != nil {
		return err
	}
	if len(a.take) > 0 {
		a.loop.post(func(time.Time) { a.call.up.leases.Stored(a.used) })
	}
	return nil
}

// next decides whether and when the call goes again, by the configuration in force now.
func (a *attempt) next(r *upstream.Result) next {
	sv := a.loop.service(a.service.Name)
	if sv == nil {
		sv = a.service // it was configured last
	}
	now := time.Now()
	d := a.decide(now, sv.Retry, sv.retryAttempt(a.call.request, a.history, r))
	return nextAttempt(now, sv, a.intent.Async, a.history, r, d)
}

// decide asks the retry policy. If a hook of it panics, the call does not go again.
func (a *attempt) decide(now time.Time, p retry.Policy, of retry.Attempt) (d retry.Decision) {
	defer func() {
		if v := recover(); v != nil {
			a.loop.log.Error("a hook of the retry policy panicked", "panic", v, "stack", string(debug.Stack()))
			d = retry.Decision{Counted: true, Failures: of.Failures}
		}
	}()
	return p.Next(now, of, a.loop.random())
}

// log tells of an attempt that went otherwise than it should. The loop tells of limited ones.
func (a *attempt) log(r *upstream.Result, n next) {
	log, c := a.loop.log, a.intent
	switch {
	case a.service.webhook != nil:
		a.logWebhook(r, n)
	case r.Uncomputable != nil:
		log.Warn("a rule cannot be computed for an answer, and its call may have been executed; "+remedy(r.Uncomputable), "call", c.ID, "upstream", c.Upstream, "rule", r.Uncomputable.Rule, "reason", r.Reason)
	case r.Outcome == upstream.Unknown:
		log.Warn("a call may have been executed", "call", c.ID, "upstream", c.Upstream, "reason", r.Reason)
	case r.Unprocessed:
		log.Info("the upstream did not process a call", "call", c.ID, "upstream", c.Upstream, "reason", r.Reason)
	}
}

// logWebhook tells of a webhook that its target has not taken.
func (a *attempt) logWebhook(r *upstream.Result, n next) {
	if r.Outcome == upstream.Done || !r.Sent {
		return
	}
	reason, then := r.Reason, "given up"
	if r.Response != nil {
		reason = fmt.Sprintf("status %d", r.Response.StatusCode)
	}
	if n.again {
		then = "again in " + time.Until(n.at).Round(time.Millisecond).String()
	}
	a.loop.log.Warn("a webhook was not taken", "webhook", a.call.request.Header.Get("Webhook-Id"), "callback", a.intent.Upstream, "reason", reason, "then", then)
}

// keep reads the answer to a call for which no caller waits, up to max bytes.
func keep(r *upstream.Result, max int64) *Response {
	defer r.Response.Body.Close()
	kept := &Response{Status: r.Response.StatusCode, Headers: r.Response.Header, Truncated: r.Truncated}
	kept.Body, _ = io.ReadAll(io.LimitReader(r.Response.Body, max+1)) // it has been read once, and lies in memory
	if int64(len(kept.Body)) > max {
		kept.Body, kept.Truncated = kept.Body[:max], true
	}
	return kept
}

// keepCopy reads the answer to a call whose caller waits, which lies in memory, and leaves
// it to be read once more.
func keepCopy(r *upstream.Result) *Response {
	kept := &Response{Status: r.Response.StatusCode, Headers: r.Response.Header.Clone()}
	kept.Body, _ = io.ReadAll(r.Response.Body)
	r.Response.Body = io.NopCloser(bytes.NewReader(kept.Body))
	return kept
}

// reachOf returns the result as the circuit breaker sees it. An answer that leaves one
// call open, such as "the buyer types the password", is no sign of a broken upstream.
func reachOf(r *upstream.Result) retry.Reach {
	switch {
	case r.Outcome == upstream.Unknown && !r.Open:
		return retry.Unsure
	case r.Sent:
		return retry.Reached
	case r.Unreachable, r.Unsigned:
		return retry.Unreached
	}
	return retry.Unproven
}
