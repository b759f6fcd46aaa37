package server

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/notify"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of notifications. The platform repeats a notification that is refused.
const (
	maxNotification  = 1 << 20  // bytes of a body
	maxNotifications = 64 << 20 // bytes of all bodies
	maxRemembered    = 4096     // ids of notifications
	warnEvery        = 10 * time.Second
)

// Results of notifications, as labels.
const (
	passedOn    = "passed_on"   // the merchant has answered
	undelivered = "undelivered" // the merchant gives no answer: 502
	unverified  = "unverified"  // 401
	refusedHere = "refused"     // malformed, too large, too slow, or too many at once
)

var notificationResults = []string{passedOn, undelivered, unverified, refusedHere}

// Notifications serves the platform of an upstream: it verifies each notification, passes it on
// to the merchant byte for byte, and passes the merchant's answer back. A notification that
// names calls of unknown outcome lets the queries about them go at once; only a query decides
// a call. No notification is stored: the platform repeats it until it gets the merchant's
// answer. ServeHTTP is safe for concurrent use.
type Notifications struct {
	Scheduler *scheduler.Scheduler
	Upstream  string
	// Path is the only path, with its query, that is taken; empty: any.
	Path     string
	Verifier notify.Verifier
	// Forward is the merchant.
	Forward *upstream.Upstream
	// Numbers are request expressions over the notice, by names of the upstream's numbers.
	Numbers map[string]*upstream.Expr
	Metrics *Metrics
	Log     *slog.Logger // nil means slog.Default()

	bodies budget
	places chan struct{} // an element for each notification that is being passed on
	asked  remembered

	mu         sync.Mutex
	warned     time.Time // when a refusal was logged last
	suppressed int       // refusals since
}

// NewNotifications completes n; atOnce is the greatest number of notifications that are
// passed on at once.
func NewNotifications(n *Notifications, atOnce int) *Notifications {
	n.Log = cmp.Or(n.Log, slog.Default())
	n.bodies.left.Store(maxNotifications)
	n.places = make(chan struct{}, atOnce)
	n.Metrics.startNotifications(n.Upstream)
	return n
}

func (n *Notifications) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, release, err := readBody(w, r, maxNotification, n.bodies.reserve)
	if err != nil {
		e := asError(err)
		if e.Reason == scheduler.TooLarge {
			e.Detail = fmt.Sprintf("the notification has more than %d bytes", maxNotification)
		}
		n.refuse(w, refusedHere, e)
		return
	}
	defer release()
	req := &upstream.Request{Method: r.Method, Target: target(r), Header: upstream.EndToEnd(r.Header), Names: fieldNames(r), Body: body}
	if err := n.expected(req); err != nil {
		n.refuse(w, refusedHere, err)
		return
	}
	notice, err := n.Verifier.Verify(req, time.Now())
	if err != nil {
		n.refuse(w, unverified, &scheduler.Error{Reason: unauthorized, Upstream: n.Upstream, Detail: "the notification is refused: " + err.Error()})
		return
	}
	select {
	case n.places <- struct{}{}:
		defer func() { <-n.places }()
	default:
		n.refuse(w, refusedHere, &scheduler.Error{Reason: scheduler.Full, Upstream: n.Upstream, RetryAfter: time.Second, Detail: fmt.Sprintf("%d notifications are being passed on, as many as may be (notifications.concurrency); send this one again", cap(n.places))})
		return
	}
	n.ask(notice)
	n.passOn(w, r, req)
}

// expected refuses requests that no platform sends.
func (n *Notifications) expected(r *upstream.Request) error {
	switch {
	case r.Method != http.MethodPost:
		return &scheduler.Error{Reason: notAllowed, Upstream: n.Upstream, Detail: "notifications come by POST"}
	case n.Path != "" && r.Target != n.Path:
		return &scheduler.Error{Reason: scheduler.NotFound, Upstream: n.Upstream, Detail: "notifications come to another path (notifications.path)"}
	case r.Check() != nil: // its text shows the path
		return badRequest("the path or a header cannot be passed on")
	}
	return nil
}

// ask wakes the queries about the calls that a notice concerns, once for each notice.
func (n *Notifications) ask(notice *notify.Notice) {
	numbers, in := make(map[string]string), upstream.NewInput(notice.Content)
	for name, e := range n.Numbers {
		if v, err := e.OptionalKey(in); err == nil && v != "" {
			numbers[name] = v
		}
	}
	if len(numbers) == 0 || n.asked.has(notice.ID) {
		return
	}
	if calls := n.Scheduler.Notified(n.Upstream, numbers); calls > 0 {
		n.asked.add(notice.ID) // not before: the call of its repeat may be unknown by then
		n.Metrics.asked.WithLabelValues(n.Upstream).Add(float64(calls))
		n.Log.Info("a notification concerns calls of unknown outcome; they are queried now", "upstream", n.Upstream, "calls", calls)
	}
}

// passOn sends a notification to the merchant, and the merchant's answer to the platform.
func (n *Notifications) passOn(w http.ResponseWriter, r *http.Request, req *upstream.Request) {
	res := n.Forward.Stream(r.Context(), req)
	if res.Response == nil {
		n.warn("a notification could not be passed on", errors.New(res.Reason))
		n.answer(w, undelivered, &scheduler.Error{Reason: noMerchant, Upstream: n.Upstream, Detail: "the merchant's server (notifications.forward) has given no answer; send the notification again"})
		return
	}
	defer res.Response.Body.Close()
	n.Metrics.notified.WithLabelValues(n.Upstream, passedOn).Inc()
	if err := forward(w, res.Response, nil); err != nil {
		panic(http.ErrAbortHandler) // the platform must not take a part of the answer for all of it
	}
}

// refuse answers a request that is not passed on, and logs why, without its content.
func (n *Notifications) refuse(w http.ResponseWriter, result string, err error) {
	n.warn("a notification was refused", err)
	n.answer(w, result, err)
}

// answer writes an answer that is not the merchant's.
func (n *Notifications) answer(w http.ResponseWriter, result string, err error) {
	n.Metrics.notified.WithLabelValues(n.Upstream, result).Inc()
	Refusal{}.write(w, asError(err), nil)
}

// warn logs an error, at most one in each period: any host may cause one.
func (n *Notifications) warn(message string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if now.Sub(n.warned) < warnEvery {
		n.suppressed++
		return
	}
	n.Log.Warn(message, "upstream", n.Upstream, "err", err, "others_not_logged", n.suppressed)
	n.warned, n.suppressed = now, 0
}

// remembered is a set of the last ids.
type remembered struct {
	mu   sync.Mutex
	ids  map[string]struct{}
	ring []string // in the order in which they came
	next int
}

func (m *remembered) has(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.ids[id]
	return ok
}

func (m *remembered) add(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil {
		m.ids = make(map[string]struct{})
	}
	if _, ok := m.ids[id]; ok {
		return
	}
	id = strings.Clone(id)
	if len(m.ring) < maxRemembered {
		m.ring = append(m.ring, id)
	} else {
		delete(m.ids, m.ring[m.next])
		m.ring[m.next] = id
		m.next = (m.next + 1) % maxRemembered
	}
	m.ids[id] = struct{}{}
}
