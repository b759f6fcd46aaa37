package scheduler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// UpstreamStatus is how an upstream stands.
type UpstreamStatus struct {
	Name        string    `json:"name"`
	URL         string    `json:"url"`
	State       string    `json:"state"` // up, paused or down
	PausedUntil time.Time `json:"paused_until,omitzero"`
	Waiting     int       `json:"waiting"`
	Sending     int       `json:"sending"`
	Unknown     int       `json:"unknown"`     // submitted calls that wait for a decision
	MaxWaiting  int       `json:"max_waiting"` // of waiting and unknown ones
	Bytes       int64     `json:"bytes"`       // of bodies and headers of all these
	// ETA is when the last of the waiting calls can be expected to go.
	ETA time.Time `json:"eta,omitzero"`
}

// LimitStatus is how a limit stands.
type LimitStatus struct {
	Upstream    string      `json:"upstream"`
	Limit       string      `json:"limit"`
	Calls       int         `json:"calls"`
	Window      string      `json:"window,omitempty"` // a duration or a unit; none for concurrency
	LiveKeys    int         `json:"live_keys"`        // with permits out, a pause or calls waiting
	Out         int         `json:"out"`              // permits of all keys
	InFlight    int         `json:"in_flight"`        // those of attempts that have not ended
	Waiting     int         `json:"waiting"`          // permits that waiting calls will take
	Keys        []KeyStatus `json:"keys"`             // the MaxKeys for which most waits, most first
	PausedUntil time.Time   `json:"paused_until,omitzero"`

	// Most is the most permits of one key whose calls may have arrived within one
	// window since the limit began, wherever between sending and response they did;
	// Margin is what was left to Calls.
	Most   int `json:"most"`
	Margin int `json:"margin"`
	// HoldCost is the share of a saturated quota that holding permits until the
	// response costs, GuardWins what guards of these durations would win back; nil
	// where nothing slides.
	HoldCost  float64            `json:"hold_cost"`
	GuardWins map[string]float64 `json:"guard_wins,omitempty"`
}

// KeyStatus is how one key of a limit stands.
type KeyStatus struct {
	Key         string    `json:"key"`
	Free        int       `json:"free"`
	Out         int       `json:"out"`
	InFlight    int       `json:"in_flight"`
	Waiting     int       `json:"waiting"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
}

// Upstreams returns the upstreams by name.
func (s *Scheduler) Upstreams() []UpstreamStatus {
	var all []UpstreamStatus
	s.ask(func(now time.Time) {
		for _, name := range slices.Sorted(maps.Keys(s.loop.planners)) {
			all = append(all, s.loop.planners[name].status(now))
		}
	})
	return all
}

// Limits returns all limits, by upstream and in the order of the config.
func (s *Scheduler) Limits() []LimitStatus {
	var all []LimitStatus
	var names []string
	s.ask(func(time.Time) { names = slices.Sorted(maps.Keys(s.loop.planners)) })
	for _, name := range names {
		for i, there := 0, true; there; i++ { // each by itself: one may have a hundred thousand keys
			there = false
			s.ask(func(now time.Time) {
				if p := s.loop.planners[name]; p != nil && i < len(p.limits) {
					there = true
					all = append(all, p.limitStatus(now, i))
				}
			})
		}
	}
	return all
}

func (p *planner) status(now time.Time) UpstreamStatus {
	st := UpstreamStatus{
		Name: p.Name, URL: p.URL, State: "up",
		Waiting: p.waiting, Sending: p.sending, Unknown: p.unknown, Bytes: p.bytes, MaxWaiting: p.MaxWaiting,
	}
	if until := p.shutUntil(now); until.After(now) {
		st.State, st.PausedUntil = "paused", until
	}
	if p.door.down > 0 {
		st.State = "down"
	}
	if p.waiting > 0 {
		st.ETA = p.last(now)
	}
	return st
}

func (p *planner) limitStatus(now time.Time, i int) LimitStatus {
	l := &p.limits[i]
	w := l.Kind()
	st := LimitStatus{Upstream: p.Name, Limit: l.Name, Window: w.String(), Calls: p.ledger.Calls(i), Keys: []KeyStatus{}}
	st.PausedUntil = p.ledger.Usage(now, i, "").PausedUntil
	audit := p.ledger.Audit(i)
	st.Most, st.Margin = audit.Most, st.Calls-audit.Most
	if w.Slides() {
		cost, wins := audit.Cost(w.Length())
		st.HoldCost, st.GuardWins = cost, make(map[string]float64)
		for k, win := range wins {
			st.GuardWins[quota.Guards[k].String()] = win
		}
	}
	p.keyStatus(now, i, &st)
	return st
}

// keyStatus adds up all keys of a limit, and keeps those for which most waits.
func (p *planner) keyStatus(now time.Time, i int, st *LimitStatus) {
	add := func(u quota.Usage, waiting int) {
		if waiting == 0 && u.Out == 0 && u.PausedUntil.IsZero() {
			return
		}
		st.LiveKeys++
		st.Out += u.Out
		st.InFlight += u.InFlight
		st.Waiting += waiting
		st.Keys = append(st.Keys, KeyStatus{Key: u.Key, Free: u.Free, Out: u.Out, InFlight: u.InFlight, Waiting: waiting, PausedUntil: u.PausedUntil})
		if len(st.Keys) == 10*MaxKeys { // so that a hundred thousand keys take little
			st.Keys = mostWanted(st.Keys)
		}
	}
	for u := range p.ledger.Keys(now, i) {
		waiting := 0
		if g := p.gates[gateID{i, u.Key}]; g != nil {
			waiting = g.total()
		}
		add(u, waiting)
	}
	for id, g := range p.gates {
		if id.limit == i && !p.ledger.Known(i, id.key) {
			add(p.ledger.Usage(now, i, id.key), g.total())
		}
	}
	st.Keys = mostWanted(st.Keys)
}

// mostWanted returns the MaxKeys of keys for which most waits.
func mostWanted(keys []KeyStatus) []KeyStatus {
	slices.SortFunc(keys, func(a, b KeyStatus) int {
		return cmp.Or(b.Waiting-a.Waiting, b.Out-a.Out, strings.Compare(a.Key, b.Key))
	})
	return keys[:min(len(keys), MaxKeys)]
}

// look returns a call as it stands when all that has come has got its place.
func (l *loop) look(now time.Time, c *call) Call {
	p := l.planners[c.Upstream]
	if p == nil { // dismissed since the call was looked up
		return c.Call.snapshot()
	}
	l.catchUp(now, p)
	return l.describe(now, c)
}

// describe returns a call with what only the plan knows of it.
func (l *loop) describe(now time.Time, c *call) Call {
	d := c.Call.snapshot()
	if d.State == Waiting {
		p := l.planners[c.Upstream]
		d.ETA, d.WaitingFor = p.eta(now, c)
		if p.repeats.holds(c) {
			d.WaitingFor = &WaitingFor{Limit: RepeatLimit, Until: d.ETA}
			return d
		}
		if !d.ETA.After(now) {
			d.WaitingFor = nil // it goes at once
		} else {
			p.tellMore(d.WaitingFor, c)
		}
	}
	return d
}

// tellMore adds to what a call waits for who is first in line there.
func (p *planner) tellMore(f *WaitingFor, c *call) {
	limit := p.limitNamed(f.Limit)
	if limit < 0 {
		return
	}
	if g := p.gates[gateID{limit, f.Key}]; g != nil && !g.empty() {
		if first := g.first().calls.first(); first != c {
			f.Next = first.ID
		}
	}
}

// refusal says why a new call cannot be taken; nil if it can.
func (l *loop) refusal(now time.Time, p *planner, c *call) *Error {
	if l.stopping {
		return errStopping(c.Upstream)
	}
	if full := p.full(c.bytes); full != nil {
		return full
	}
	eta, why := p.eta(now, c)
	if !eta.After(c.Deadline) {
		return nil
	}
	e := &Error{Reason: PastDeadline, Limit: why.Limit, RetryAfter: eta.Sub(c.Deadline)}
	limit := fmt.Sprintf("limit %q", why.Limit)
	if why.Key != "" {
		limit += fmt.Sprintf(" of key %q", why.Key)
	}
	late := fmt.Sprintf("later than the call may wait (until %s: the deadline, or max_wait or max_age of upstream %q)", stamp(c.Deadline), p.Name)
	switch {
	case p.shutUntil(now).After(c.Deadline):
		e.Reason = Paused
		e.Detail = fmt.Sprintf("upstream %q is shut until %s, %s", p.Name, stamp(p.shutUntil(now)), late)
	case why.Paused:
		e.Reason = Paused
		e.Detail = fmt.Sprintf("%s is paused, the call could go at %s, %s", limit, stamp(eta), late)
	case why.Limit == "":
		e.Detail = fmt.Sprintf("the call must not go before %s, %s", stamp(eta), late)
	default:
		e.Detail = fmt.Sprintf("the call could go at %s, %s: all permits of %s are out until then, or go to calls ahead (%d)", stamp(eta), late, limit, why.Ahead)
	}
	return e
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// explain says why a settled call has no answer.
func (l *loop) explain(c *call) *Error {
	snapshot := c.Call.snapshot()
	e := &Error{Reason: c.sent().reason, Upstream: c.Upstream, Call: &snapshot}
	last, result := c.Last(), c.sent().result
	if result == nil {
		result = &upstream.Result{} // it was never sent
	}
	switch {
	case e.Reason == Stopping:
		return &Error{Reason: Stopping, Upstream: c.Upstream, Call: &snapshot, RetryAfter: time.Second, Detail: errStopping(c.Upstream).Detail}
	case c.State == Unknown:
		e.Reason = NoAnswer
		e.Detail = fmt.Sprintf("call %s was sent and may have been executed: %s; query before you send it again", c.ID, last.Reason)
	case result.Unreachable:
		e.Reason, e.RetryAfter = Unreachable, time.Second
		e.Detail = fmt.Sprintf("upstream %q cannot be reached: %s; nothing was executed", c.Upstream, last.Reason)
	case result.Unsigned || result.Unprocessed:
		e.Reason, e.RetryAfter = Unreachable, time.Second
		e.Detail = fmt.Sprintf("call %s could not be handed to upstream %q for now: %s; nothing was executed", c.ID, c.Upstream, last.Reason)
	case errors.Is(result.Err, ErrFull):
		e.Reason, e.RetryAfter = DiskFull, time.Second
		e.Detail = fmt.Sprintf("the store's disk is full, and call %s was not sent; free some space, or send it again later", c.ID)
	case c.State == Failed && last != nil:
		e.Reason = NotSent
		e.Detail = fmt.Sprintf("call %s was not sent: %s", c.ID, last.Reason)
	case e.Reason == Paused:
		e.Detail = fmt.Sprintf("upstream %q was shut for longer than call %s could wait (until %s); nothing was executed", c.Upstream, c.ID, stamp(c.Deadline))
	case e.Reason == PastDeadline:
		e.Detail = fmt.Sprintf("the slot of call %s did not come before it could wait no longer (%s); nothing was executed", c.ID, stamp(c.Deadline))
	default:
		e.Reason = WrongState
		e.Detail = fmt.Sprintf("call %s is %s", c.ID, c.State)
	}
	return e
}

// keep reads the answer to a call for which nobody waits, up to max bytes.
func keep(r *upstream.Result, max int64) *Response {
	defer r.Response.Body.Close()
	kept := &Response{Status: r.Response.StatusCode, Headers: r.Response.Header, Truncated: r.Truncated}
	kept.Body, _ = io.ReadAll(io.LimitReader(r.Response.Body, max)) // it has been read once, and lies in memory
	return kept
}

// copyOf reads the answer to a call whose caller waits, up to max bytes, and
// leaves it to be read once more.
func copyOf(r *upstream.Result, max int64) *Response {
	body := r.Response.Body
	kept := &Response{Status: r.Response.StatusCode, Headers: r.Response.Header.Clone(), Truncated: r.Truncated}
	kept.Body, _ = io.ReadAll(io.LimitReader(body, max))
	r.Response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(kept.Body), body), body}
	return kept
}

// http returns the answer as it came, as far as it was kept.
func (r *Response) http() *http.Response {
	return &http.Response{
		StatusCode: r.Status, Status: fmt.Sprintf("%d %s", r.Status, http.StatusText(r.Status)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: r.Headers.Clone(),
		ContentLength: int64(len(r.Body)), Body: io.NopCloser(bytes.NewReader(r.Body)),
	}
}
