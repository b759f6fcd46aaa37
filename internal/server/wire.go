package server

import (
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// This file alone makes types of internal/api from the scheduler's. Redaction of
// values, if there is any, belongs here.

// APICall returns a call as the admin API writes it; nil for nil.
func APICall(c *scheduler.Call) *api.Call {
	if c == nil {
		return nil
	}
	out := &api.Call{
		ID: c.ID, Upstream: c.Upstream, State: api.State(c.State), Priority: int(c.Priority),
		Async: c.Async, Durable: c.Durable, Callback: c.Callback, Resolves: c.Resolves, Numbers: c.Numbers,
		AcceptedAt: c.AcceptedAt, NotBefore: c.NotBefore, Deadline: c.Deadline, FinishedAt: c.FinishedAt, Reason: string(c.Reason), EndedBy: c.EndedBy, ETA: estimate(c.ETA),
		Attempts: convert(c.Attempts, apiAttempt),
	}
	if len(c.Decisions) > 0 {
		out.Decisions = convert(c.Decisions, apiDecision)
	}
	if f := c.WaitingFor; f != nil {
		out.WaitingFor = &api.WaitingFor{
			Limit: f.Limit, Key: f.Key, Until: estimate(f.Until), Ahead: f.Ahead, Next: f.Next, Paused: f.Paused, Pause: f.Pause, Late: f.Late, KeysFull: f.KeysFull, Removed: f.Removed,
			InFlight: f.InFlight, OldestSentAt: f.OldestSentAt, Breaker: f.Breaker,
		}
		if f.InFlight > 0 {
			out.WaitingFor.Timeout = f.Timeout.String()
		}
	}
	if r := c.Response; r != nil {
		out.Response = &api.Response{Status: r.Status, Headers: api.Headers(r.Headers), Body: r.Body, Truncated: r.Truncated}
	}
	return out
}

func apiDecision(d scheduler.Decision) api.Decision {
	return api.Decision{At: d.At, By: d.By, Attempt: d.Attempt, As: string(d.As), Reason: d.Reason, AcceptDuplicate: d.AcceptDuplicate}
}

func apiAttempt(a scheduler.Attempt) api.Attempt {
	return api.Attempt{
		N: a.N, SentAt: a.SentAt, EndedAt: a.EndedAt, Status: a.Status, Outcome: string(a.Outcome), Reason: a.Reason, Resolved: a.Resolved,
	}
}

func apiUpstream(u scheduler.UpstreamStatus) api.Upstream {
	return api.Upstream{
		Name: u.Name, URL: u.URL, State: u.State, PausedUntil: estimate(u.PausedUntil), Cause: u.Cause, Reason: u.Reason, Since: u.Since.Truncate(time.Millisecond),
		Waiting: u.Waiting, Sending: u.Sending, Unknown: u.Unknown, MaxWaiting: u.MaxWaiting, Bytes: u.Bytes, ETA: estimate(u.ETA),
		Pauses: convert(u.Pauses, func(p scheduler.WaitingFor) api.LimitPause {
			return api.LimitPause{Limit: p.Limit, Key: p.Key, Until: estimate(p.Until), Pause: p.Pause}
		}),
	}
}

func apiLimit(l scheduler.LimitStatus) api.Limit {
	return api.Limit{
		Upstream: l.Upstream, Limit: l.Limit, Calls: l.Calls, Window: l.Window,
		LiveKeys: l.LiveKeys, Out: l.Out, InFlight: l.InFlight, Late: l.Late, NextBack: estimate(l.NextBack), Waiting: l.Waiting, Keys: convert(l.Keys, apiKey), PausedUntil: estimate(l.PausedUntil),
		Most: l.Most, Margin: l.Margin, HoldCost: l.HoldCost, GuardWins: l.GuardWins, Unanswered: l.Unanswered,
	}
}

func apiKey(k scheduler.KeyStatus) api.Key {
	return api.Key{Key: k.Key, Free: k.Free, Out: k.Out, InFlight: k.InFlight, Late: k.Late, NextBack: estimate(k.NextBack), Waiting: k.Waiting, PausedUntil: estimate(k.PausedUntil)}
}

// apiEvent returns an event without its ETA and its route.
func apiEvent(e scheduler.Event, at time.Time) api.Event {
	out := api.Event{
		At: at, Event: e.Kind.String(), Call: e.Call.ID, Upstream: e.Call.Upstream, State: api.State(e.Call.State), Priority: int(e.Call.Priority),
		Reason: string(e.Reason), Limit: e.Limit, Key: e.Key, Until: e.Until, Deadline: e.Deadline(),
	}
	if e.Kind == scheduler.EventAccepted || e.Kind == scheduler.EventRefused {
		out.NotBefore = e.Call.NotBefore
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
		At: at, Event: api.EventState, Call: c.ID, Upstream: c.Upstream, State: api.State(c.State), Priority: int(c.Priority), ETA: estimate(c.ETA),
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
