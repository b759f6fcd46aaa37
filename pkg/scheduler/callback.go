package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// callbackSeparator stands in the names of the upstreams that callback targets
// are, where no name of a configuration can have it.
const callbackSeparator = "/callbacks/"

// A Callback is a target that is told when a submitted call that names it has
// finished or is unknown, with a webhook of Standard Webhooks: the data are the
// Call, and webhook-id, the call's id, state and number of attempts, is the same
// however often it is sent. Telling is a call of its own, in an upstream of its
// own: it is sent again until the target answers 2xx, 410, or Retry's attempts are
// used up.
type Callback struct {
	upstream.Config // Name and rules are taken from here; Signer signs the webhook
	Retry           retry.Policy
	// PerSecond bounds the webhooks sent in a second; zero: DefaultCallbacksPerSecond.
	PerSecond int
}

// callbackUpstream turns a target into an upstream.
func callbackUpstream(c Callback) Upstream {
	u := Upstream{Config: c.Config, Retry: c.Retry, MaxAge: 72 * time.Hour, Concurrency: 16}
	u.Idempotent, u.Idempotency.Same = "true", `header("Webhook-Id")`
	u.Outcomes = []upstream.Rule{
		{When: `status >= 200 and status < 300`, Is: upstream.Done},
		{When: `status == 410`, Is: upstream.Failed},
		{When: `status == 429`, Is: upstream.NotExecuted},
		{When: `status > 0`, Is: upstream.Unknown},
	}
	if u.Retry.Attempts == 0 {
		u.Retry.Attempts = DefaultCallbackAttempts
	}
	if u.Retry.Curve.Min == 0 && u.Retry.Curve.Max == 0 {
		u.Retry.Curve.Min, u.Retry.Curve.Max = DefaultCallbackMin, DefaultCallbackMax
	}
	n := c.PerSecond
	if n == 0 {
		n = DefaultCallbacksPerSecond
	}
	u.Limits = []Limit{{Name: "callbacks", Calls: n, Window: time.Second}}
	return u
}

// compileCallbacks adds the targets of an upstream to the services.
func compileCallbacks(services map[string]*service, upstream string, callbacks map[string]Callback, fault func(string, error)) {
	for _, name := range slices.Sorted(maps.Keys(callbacks)) {
		at := "callbacks." + name
		if !nameRule.MatchString(name) {
			fault(at, fmt.Errorf("name %q must be lower-case letters, digits, - and _, at most 63", name))
		}
		u := callbackUpstream(callbacks[name])
		base, target := splitTarget(u.URL)
		u.URL = base
		if u.Signer == nil {
			fault(at+".secret", errors.New("is missing; a webhook that is not signed could be anybody's"))
		}
		sv := compileUpstream(upstream+callbackSeparator+name, u, func(field string, err error) { fault(at+"."+field, err) })
		sv.target = target
		services[sv.Name] = sv
	}
}

// A webhook is the body of one.
type webhook struct {
	Type      string    `json:"type"` // call.done, call.failed, call.unknown, …
	Timestamp time.Time `json:"timestamp"`
	Data      *Call     `json:"data"`
}

// teller is the upstream of the call's webhooks.
func (c *Call) teller() string { return c.Upstream + callbackSeparator + c.Callback }

// notify hands over the webhook about a call that has come to an end; false if
// that was refused.
func (s *Scheduler) notify(ctx context.Context, sv *service, c *Call, now time.Time) bool {
	if sv == nil { // it was configured when the call was taken
		s.log.Error("a call's callback is not configured any more", "call", c.ID, "callback", c.Callback)
		return true
	}
	notice := c.Notice()
	body, err := json.Marshal(webhook{"call." + string(c.State), now.UTC(), c})
	if err != nil {
		s.log.Error("a webhook cannot be made", "call", c.ID, "err", err)
		return true
	}
	// If it was handed over before, by an earlier process, that is the same call.
	_, err = s.Submit(ctx, Request{
		Upstream: sv.Name, Method: http.MethodPost, Target: sv.target, Body: body, by: sv,
		Header:         http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {notice}},
		IdempotencyKey: notice, tells: notice,
	})
	if err != nil {
		s.untold.Add(1)
		s.log.Error("a webhook was refused", "call", c.ID, "state", c.State, "callback", c.Callback, "err", err)
	}
	return err == nil
}

// untoldEvery is how often webhooks are handed over again that were refused.
const untoldEvery = time.Minute

// tellAgain hands over again, until a stop, the webhooks that were refused, because
// their target's upstream was full, for instance. The store knows them.
func (s *Scheduler) tellAgain() {
	tick := time.NewTicker(untoldEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if s.untold.Swap(0) > 0 {
				s.tellUntold(slices.Collect(maps.Keys(*s.services.Load())))
			}
		case <-s.afterCtx.Done():
			return
		}
	}
}

// tellUntold hands over the webhooks of some upstreams that the store knows to be
// due, to each target until it refuses one.
func (s *Scheduler) tellUntold(upstreams []string) {
	refused := make(map[string]bool)
	s.each(s.durable.Untold, upstreams, func(c *Call) {
		if to := c.teller(); !refused[to] {
			refused[to] = !s.notify(s.afterCtx, s.service(to), c, time.Now())
		}
	})
}

// aftermath starts what follows the end of a submitted call: telling whoever
// wants to know, and asking about what is unknown. Both run beside the loop.
func (l *loop) aftermath(now time.Time, c *call) {
	if !c.Async {
		return
	}
	if c.Callback != "" {
		var sv *service
		if to := l.planners[c.teller()]; to != nil { // it may be retired
			sv = to.service
		}
		snapshot := c.Call.snapshot()
		l.s.after.Go(func() { l.s.notify(l.s.afterCtx, sv, &snapshot, now) })
	}
	l.inquire(c)
}

// inquire asks about a call if it is unknown, beside the loop.
func (l *loop) inquire(c *call) {
	sv := l.planners[c.Upstream].service
	if c.State == Unknown && c.Async && c.Resolves == "" && len(sv.resolvers) > 0 {
		snapshot := c.Call.snapshot()
		ctx, decided := context.WithCancel(l.s.afterCtx)
		c.flight.decided = decided
		l.s.after.Go(func() {
			defer decided()
			l.s.settle(ctx, sv, &snapshot, c.request)
		})
	}
}

// splitTarget takes the path and query out of a callback's URL: they are the
// webhook's target, whole, also where the path ends with a slash.
func splitTarget(raw string) (base, target string) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw, "/" // upstream.New says what is wrong with it
	}
	target = u.RequestURI()
	u.Path, u.RawPath, u.RawQuery, u.ForceQuery = "", "", "", false
	return u.String(), target
}

// knows reports whether a call may name a callback.
func (sv *service) knows(callback string) bool {
	_, ok := sv.Callbacks[callback]
	return callback == "" || ok
}
