package scheduler

import (
	"cmp"
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

// webhookSeparator stands in the names of the upstreams that deliver webhooks, where no
// name of a configuration can have it.
const webhookSeparator = "/callbacks/"

// Defaults of a [Callback]: the waits grow, over half a day.
const (
	callbacksPerSecond = 50
	callbackAttempts   = 12
	callbackMin        = 10 * time.Second
	callbackMax        = 5 * time.Hour
)

// A Callback is a target that is told when a submitted call that names it has
// finished or is unknown, by a webhook of Standard Webhooks: the data are the
// call, and webhook-id, the call's id, state and number of attempts, is the same
// however often it is sent. A webhook is a call of its own, of an upstream of its
// own: it is sent again until the target answers 2xx, 410, or Retry's attempts (12 if
// it has none, over half a day) are used up.
type Callback struct {
	upstream.Config // Name and rules are taken from here; Signer signs the webhook
	Retry           retry.Policy
	// PerSecond bounds the webhooks sent in a second; zero means 50.
	PerSecond int
}

// A webhookService marks an upstream that delivers webhooks.
type webhookService struct {
	upstream string // whose calls it tells of
	target   string // path and query
}

// webhookUpstream turns a target into an upstream.
func webhookUpstream(c Callback) Upstream {
	u := Upstream{Config: c.Config, Retry: c.Retry, MaxAge: 72 * time.Hour, Concurrency: 16}
	u.Idempotent, u.Idempotency.Same = "true", `header("Webhook-Id")`
	u.Outcomes = []upstream.Rule{
		{When: `status >= 200 and status < 300`, Is: upstream.Done},
		{When: `status == 410`, Is: upstream.Failed},
		{When: `status == 429`, Is: upstream.NotExecuted},
		{When: `status > 0`, Is: upstream.Unknown},
	}
	if u.Retry.Attempts == 0 {
		u.Retry.Attempts = callbackAttempts
	}
	if u.Retry.Curve.Min == 0 && u.Retry.Curve.Max == 0 {
		u.Retry.Curve.Min, u.Retry.Curve.Max = callbackMin, callbackMax
	}
	n := c.PerSecond
	if n == 0 {
		n = callbacksPerSecond
	}
	u.Limits = []Limit{{Name: "callbacks", Calls: n, Window: time.Second}}
	return u
}

// compileCallbacks adds the targets of an upstream to the services. A target without a MaxPause has
// that of the upstream.
func compileCallbacks(services map[string]*service, api string, callbacks map[string]Callback, maxPause time.Duration, generation uint32, fault func(string, error)) {
	for _, name := range slices.Sorted(maps.Keys(callbacks)) {
		at := "callbacks." + name
		if !nameRule.MatchString(name) {
			fault(at, fmt.Errorf("name %q must be lower-case letters, digits, - and _, at most 63", name))
		}
		u := webhookUpstream(callbacks[name])
		u.MaxPause = cmp.Or(u.MaxPause, maxPause)
		base, target := splitTarget(u.URL)
		u.URL = base
		if u.Signer == nil {
			fault(at+".secret", errors.New("is missing; write file:PATH or env:NAME: an unsigned webhook could be sent by any host"))
		}
		sv := compileUpstream(api+webhookSeparator+name, u, generation, func(field string, err error) { fault(at+"."+field, err) })
		sv.webhook = &webhookService{upstream: api, target: target}
		services[sv.Name] = sv
	}
}

// splitTarget takes the path and query out of a callback's URL: they are the
// webhook's target, whole, also where the path ends with a slash.
func splitTarget(raw string) (base, target string) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return raw, "/" // upstream.New reports the fault
	}
	target = u.RequestURI()
	u.Path, u.RawPath, u.RawQuery, u.ForceQuery = "", "", "", false
	return u.String(), target
}

// webhookUpstream is the name of the upstream of the call's webhooks.
func (c *Call) webhookUpstream() string { return c.Upstream + webhookSeparator + c.Callback }

// notify hands over the webhook about a call that has come to an end; false if
// that was refused.
func (f *followUps) notify(sv *service, c *Call, now time.Time) bool {
	if sv == nil { // it was configured when the call was taken
		f.s.log.Error("a call's callback is not configured any more", "call", c.ID, "callback", c.Callback)
		return true
	}
	notice := c.Notice()
	body, err := webhookBody(c, now)
	if err != nil {
		f.s.log.Error("a webhook cannot be made", "call", c.ID, "err", err)
		return true
	}
	// If it was handed over before, by an earlier process, that is the same call.
	_, err = f.s.Submit(f.ctx, Request{
		Upstream: sv.Name, Method: http.MethodPost, Target: sv.webhook.target, Body: body,
		Header:         http.Header{"Content-Type": {"application/json"}, "Webhook-Id": {notice}},
		IdempotencyKey: notice, origin: &origin{by: sv, notice: notice},
	})
	switch {
	case err == nil:
	case errors.Is(err, Stopping) || errors.Is(err, context.Canceled): // the next process hands it over
		f.refused.Add(1)
	default:
		f.refused.Add(1)
		f.s.log.Error("a webhook was refused", "call", c.ID, "state", c.State, "callback", c.Callback, "err", err)
	}
	return err == nil
}

// A webhookEvent is the body of a webhook. It is a contract with those who receive it;
// testdata has it as golden files.
type webhookEvent struct {
	Type      string      `json:"type"` // call.done, call.failed, call.unknown, …
	Timestamp time.Time   `json:"timestamp"`
	Data      webhookCall `json:"data"`
}

type webhookCall struct {
	ID         string           `json:"id"`
	Upstream   string           `json:"upstream"`
	State      State            `json:"state"`
	Priority   int16            `json:"priority"`
	Async      bool             `json:"async"`
	Durable    bool             `json:"durable"`
	Callback   string           `json:"callback,omitempty"`
	Resolves   string           `json:"resolves,omitempty"`
	AcceptedAt time.Time        `json:"accepted_at"`
	NotBefore  time.Time        `json:"not_before,omitzero"`
	Deadline   time.Time        `json:"deadline,omitzero"`
	FinishedAt time.Time        `json:"finished_at,omitzero"`
	Attempts   []webhookAttempt `json:"attempts"`
	Response   *webhookResponse `json:"response,omitempty"`
}

type webhookAttempt struct {
	N        int              `json:"n"`
	SentAt   time.Time        `json:"sent_at"`
	EndedAt  time.Time        `json:"ended_at,omitzero"`
	Status   int              `json:"status,omitzero"`
	Outcome  upstream.Outcome `json:"outcome,omitempty"`
	Reason   string           `json:"reason,omitempty"`
	Resolved bool             `json:"resolved,omitempty"`
}

type webhookResponse struct {
	Status    int         `json:"status"`
	Headers   http.Header `json:"headers"`
	Body      []byte      `json:"body_base64"`
	Truncated bool        `json:"truncated,omitempty"`
}

// webhookBody returns the body of the webhook that tells the end of a call.
func webhookBody(c *Call, now time.Time) ([]byte, error) {
	data := webhookCall{
		ID: c.ID, Upstream: c.Upstream, State: c.State, Priority: c.Priority, Async: c.Async, Durable: c.Durable,
		Callback: c.Callback, Resolves: c.Resolves, AcceptedAt: c.AcceptedAt, NotBefore: c.NotBefore,
		Deadline: c.Deadline, FinishedAt: c.FinishedAt, Attempts: make([]webhookAttempt, 0, len(c.Attempts)),
	}
	for _, a := range c.Attempts {
		data.Attempts = append(data.Attempts, webhookAttempt(a))
	}
	if c.Response != nil {
		r := webhookResponse(*c.Response)
		data.Response = &r
	}
	return json.Marshal(webhookEvent{"call." + string(c.State), now.UTC(), data})
}

// webhookRetryEvery is how often refused webhooks are handed over again.
const webhookRetryEvery = time.Minute

// retryWebhooks hands over again, until a stop, the webhooks that were refused, because
// the upstream of their target was full, for instance. The store knows them.
func (f *followUps) retryWebhooks() {
	tick := time.NewTicker(webhookRetryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if f.refused.Swap(0) > 0 {
				f.deliver(slices.Collect(maps.Keys(*f.s.services.Load())))
			}
		case <-f.ctx.Done():
			return
		}
	}
}

// deliver hands over the webhooks of some upstreams that the store knows to be due, to
// each target until it refuses one.
func (f *followUps) deliver(upstreams []string) {
	refused := make(map[string]bool)
	f.s.journal.each(f.ctx, f.s.journal.pendingWebhooks, func(c *Call) {
		if to := c.webhookUpstream(); slices.Contains(upstreams, c.Upstream) && !refused[to] {
			refused[to] = !f.notify(f.s.service(to), c, time.Now())
		}
	})
}
