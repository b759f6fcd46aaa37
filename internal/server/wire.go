package server

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// This file alone makes types of internal/api from the scheduler's. Redaction of
// values, if there is any, belongs here.

// APICall returns a call as the admin API writes it; nil for nil.
func APICall(c *scheduler.Call) *api.Call {
	if c == nil {
		return nil
	}
	out := &api.Call{
		CallFacts: apiFacts(c), Attempts: convert(c.Attempts, apiAttempt),
		Permits: convert(c.Permits, func(p scheduler.Permit) api.Permit { return api.Permit(p) }),
		Decisions: convert(c.Decisions, func(d scheduler.Decision) api.Decision {
			return api.Decision{At: api.At(d.At), By: d.By, Attempt: d.Attempt, As: api.Outcome(d.As), Reason: d.Reason}
		}),
	}
	if r := c.Response; r != nil {
		out.Response = &api.Response{Status: r.Status, Headers: api.Headers(r.Headers), Body: r.Body, Truncated: r.Truncated}
	}
	return out
}

// apiSummary returns a call as lists have it.
func apiSummary(c *scheduler.Call) api.CallSummary {
	out := api.CallSummary{CallFacts: apiFacts(c)}
	if last := c.Last(); last != nil {
		a := apiAttempt(*last)
		out.AttemptCount, out.LastAttempt = last.N, &a
	}
	return out
}

func apiFacts(c *scheduler.Call) api.CallFacts {
	return api.CallFacts{
		ID: c.ID, Upstream: c.Upstream, State: api.State(c.State), Priority: int(c.Priority), Method: c.Method, Path: c.Path, Numbers: c.Numbers,
		Flow: c.Flow, Origin: api.Origin(c.Origin), SubmittedBy: c.SubmittedBy, IdempotencyKey: c.IdempotencyKey,
		Async: c.Async, Durable: c.Durable, Callback: c.Callback, Resolves: c.Resolves,
		AcceptedAt: api.At(c.AcceptedAt), NotBefore: api.At(c.NotBefore), Deadline: api.At(c.Deadline), FinishedAt: api.At(c.FinishedAt),
		Reason: string(c.Reason), EndedBy: c.EndedBy, ETA: api.At(estimate(c.ETA)), WaitingFor: apiWaitingFor(c.WaitingFor), Unknown: apiUnknown(c.Pending),
	}
}

func apiWaitingFor(f *scheduler.WaitingFor) *api.WaitingFor {
	if f == nil {
		return nil
	}
	out := &api.WaitingFor{
		Limit: f.Limit, Key: f.Key, Until: api.At(estimate(f.Until)), Ahead: f.Ahead, Next: f.Next, Paused: f.Paused, Pause: f.Pause, Slowed: apiSlowed(f.Slowed), Late: f.Late, KeysFull: f.KeysFull, Removed: f.Removed,
		InFlight: f.InFlight, OldestSentAt: api.At(f.OldestSentAt), Breaker: f.Breaker,
	}
	if f.InFlight > 0 {
		out.TimeoutMs = f.Timeout.Milliseconds()
	}
	return out
}

func apiUnknown(p *scheduler.Pending) *api.UnknownCall {
	if p == nil {
		return nil
	}
	out := &api.UnknownCall{
		Since: api.At(p.Since), Attempt: p.Attempt, Why: p.Why, Next: api.NextQuery, RepeatIsSafe: p.RepeatIsSafe,
		Queries: api.Queries{Made: p.Queries, Most: p.MaxQueries, NextAt: api.At(estimate(p.NextQuery)), LastAt: api.At(p.LastQuery), LastCall: p.Query, Answer: p.Answer},
	}
	if p.Person {
		out.Next = api.NextPerson
	}
	return out
}

func apiAttempt(a scheduler.Attempt) api.Attempt {
	return api.Attempt{
		N: a.N, SentAt: api.At(a.SentAt), EndedAt: api.At(a.EndedAt), Status: a.Status, Outcome: api.Outcome(a.Outcome), Reason: a.Reason, Resolved: a.Resolved,
	}
}

func apiUpstream(u scheduler.UpstreamStatus) api.Upstream {
	return api.Upstream{
		Name: u.Name, URL: upstream.ShownURL(u.URL), State: u.State, PausedUntil: api.At(estimate(u.PausedUntil)), Cause: u.Cause, Reason: u.Reason, Since: api.At(u.Since),
		Waiting: u.Waiting, Sending: u.Sending, Unknown: u.Unknown, MaxWaiting: u.MaxWaiting, Bytes: u.Bytes, ETA: api.At(estimate(u.ETA)), MayExpire: u.MayExpire,
		Pauses: convert(u.Pauses, func(p scheduler.WaitingFor) api.LimitPause {
			return api.LimitPause{Limit: p.Limit, Key: p.Key, Until: api.At(estimate(p.Until)), Pause: p.Pause}
		}),
		Slowed: convert(u.Slowed, func(s scheduler.Slowed) api.Slowed { return *apiSlowed(&s) }),
	}
}

func apiSlowed(s *scheduler.Slowed) *api.Slowed {
	if s == nil {
		return nil
	}
	return &api.Slowed{
		Limit: s.Limit, Key: s.Key, Since: api.At(s.Since), CallsPerSecond: twoDigits(s.CallsPerSecond), FullPerSecond: twoDigits(s.FullPerSecond), Limited: s.Limited, Passed: s.Passed, Within: s.Within,
	}
}

// twoDigits rounds a rate to hundredths.
func twoDigits(rate float64) float64 { return math.Round(100*rate) / 100 }

// apiLimit returns a limit, with what the configuration of its upstream says of its window.
func apiLimit(now time.Time, l scheduler.LimitStatus, config scheduler.Upstream) api.Limit {
	out := api.Limit{
		Upstream: l.Upstream, Limit: l.Limit, Permits: l.Calls,
		LiveKeys: l.LiveKeys, Out: l.Out, InFlight: l.InFlight, Late: l.Late, NextBack: api.At(estimate(l.NextBack)), WaitingPermits: l.Waiting, PausedUntil: api.At(estimate(l.PausedUntil)),
		Audit: api.Audit{Most: l.Most, Margin: l.Margin, HoldCost: l.HoldCost, Guards: apiGuards(l.GuardWins), Unanswered: l.Unanswered},
	}
	if out.Keys = convert(l.Keys, apiKey); out.Keys == nil {
		out.Keys = []api.Key{}
	}
	switch window, err := time.ParseDuration(l.Window); {
	case l.Limit == scheduler.ConcurrencyLimit:
		out.Kind, out.Builtin = api.Concurrency, true
	case l.Window == "":
		out.Kind = api.Concurrency
	case err == nil:
		out.Kind, out.WindowMs = api.Sliding, window.Milliseconds()
	default:
		out.Kind, out.Window = api.Calendar, l.Window
	}
	for _, c := range config.Limits {
		if c.Name == l.Limit && c.Calendar != nil && out.Kind == api.Calendar {
			out.TimeZone, out.ResetsAt = cmp.Or(c.Calendar.Zone, time.UTC).String(), api.At(c.Calendar.ResetsAt(now))
		}
	}
	return out
}

// apiGuards returns the shares that guards would win back, the shortest guard first.
func apiGuards(wins map[string]float64) (guards []api.Guard) {
	for text, share := range wins {
		guard, _ := time.ParseDuration(text)
		guards = append(guards, api.Guard{GuardMs: float64(guard.Microseconds()) / 1000, Wins: share})
	}
	slices.SortFunc(guards, func(a, b api.Guard) int { return cmp.Compare(a.GuardMs, b.GuardMs) })
	return guards
}

func apiKey(k scheduler.KeyStatus) api.Key {
	return api.Key{Key: k.Key, Free: k.Free, Out: k.Out, InFlight: k.InFlight, Late: k.Late, NextBack: api.At(estimate(k.NextBack)), WaitingPermits: k.Waiting, PausedUntil: api.At(estimate(k.PausedUntil))}
}

// apiEvent returns an event without its ETA and its route.
func apiEvent(e scheduler.Event, at time.Time) api.Event {
	out := api.Event{
		At: api.At(at), Event: e.Kind.String(), Call: e.Call.ID, Numbers: e.Call.Numbers, Upstream: e.Call.Upstream, State: api.State(e.Call.State), Priority: int(e.Call.Priority),
		Reason: string(e.Reason), Limit: e.Limit, Key: e.Key, Until: api.At(e.Until), Deadline: api.At(e.Deadline()),
	}
	if e.Kind == scheduler.EventAccepted || e.Kind == scheduler.EventRefused {
		out.NotBefore = api.At(e.Call.NotBefore)
	}
	if e.Attempt != nil {
		a := apiAttempt(*e.Attempt)
		out.Attempt = &a
	}
	return out
}

// apiState returns the current state of a call as an event.
func apiState(c *scheduler.Call, at time.Time) api.Event {
	return api.Event{
		At: api.At(at), Event: api.EventState, Call: c.ID, Numbers: c.Numbers, Upstream: c.Upstream, State: api.State(c.State), Priority: int(c.Priority), ETA: api.At(estimate(c.ETA)),
	}
}

func apiRoute(r *scheduler.Route) *api.Route {
	if r == nil {
		return nil
	}
	return &api.Route{Keys: r.Keys, Costs: r.Costs, Flow: r.Flow, Weighted: r.Weighted}
}

// apiProblem returns an error as a problem. Its outcome is that of the error's call.
func apiProblem(e *scheduler.Error) api.Problem {
	s, ok := statuses[e.Reason]
	if !ok {
		s.status, s.title = http.StatusInternalServerError, "Internal error"
	}
	if e.Reason == scheduler.StoreFailed && e.RetryAfter > 0 { // its database is away
		s.status = http.StatusServiceUnavailable
	}
	p := api.Problem{
		Type: "about:blank", Title: s.title, Status: s.status, Detail: e.Detail, Reason: string(e.Reason),
		RetryAfter: int((e.RetryAfter + time.Second - 1) / time.Second),
	}
	switch s.status {
	case http.StatusTooManyRequests:
		p.Type = quotaExceeded
		if e.Limit != "" {
			p.ViolatedPolicies = []string{e.Limit}
		}
	case http.StatusServiceUnavailable:
		p.Type = reducedCapacity
		p.RetryAfter = max(p.RetryAfter, 1) // the condition is temporary; its end is not known
	}
	if e.Call != nil {
		p.Call, p.Outcome = e.Call.ID, string(e.Call.Outcome())
	}
	return p
}

// estimate rounds an instant that was computed up to a millisecond: it is not more exact, and
// in nanoseconds it may seem to lie before the instant that a person has given.
func estimate(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Millisecond - 1).Truncate(time.Millisecond)
}

// convert keeps the difference between nil and an empty list: null and [] in JSON.
func convert[From, To any](from []From, f func(From) To) []To {
	if from == nil {
		return nil
	}
	to := make([]To, len(from))
	for i, v := range from {
		to[i] = f(v)
	}
	return to
}
