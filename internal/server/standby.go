package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const (
	// againInterval is the time between two tries to pass a request on to a replica that does not take it. A hand-over is
	// over after some of them; after againQuick the time doubles, up to againMost.
	againInterval = 50 * time.Millisecond
	againQuick    = 6
	againMost     = 500 * time.Millisecond
	// AdminWait is how long a request of the admin API waits for a replica that takes it, and AdminBody bounds its body.
	AdminWait = 10 * time.Second
	AdminBody = 64 << 20
	// DataRoom and AdminRoom bound the bodies that wait at the data listeners of a process together, and at the admin listeners.
	DataRoom  = 256 << 20
	AdminRoom = 2 * AdminBody
	// ownerTime is how long a replica may work on a request that goes on without its client: a preview of a load takes 30 s.
	ownerTime = time.Minute
)

// Reasons why a request is not passed on.
var (
	errNoOwner = &scheduler.Error{
		Reason: scheduler.NoOwner, RetryAfter: time.Second,
		Detail: "no replica has taken the request in the time that it could wait; nothing was sent: send it again later",
	}
	errNoLink = &scheduler.Error{
		Reason: scheduler.NoOwner, RetryAfter: time.Second,
		Detail: "another replica has the calls, and requests are not passed on to it, because one of the two has no fleet.listen; nothing was sent: send the request to that replica",
	}
	errOwnerGone = &scheduler.Error{
		Reason: scheduler.NoAnswer,
		Detail: "the request was passed on to the replica that has the calls, and that gave no answer; the call may have been executed: query before you send it again",
	}
	errStands = &scheduler.Error{
		Reason: scheduler.NoAnswer,
		Detail: "a call that was accepted before may stand for the request, by its idempotency key or identity, and no replica has told its end in the time that the request could wait; it may be executed: query before you send it again",
	}
)

// An Owner tells a [Standby] which replica has the calls.
type Owner interface {
	// Peer returns the replica that has the calls, with an empty Pin if it cannot be reached, and a channel that is
	// closed when that may have changed. It is nil if no replica has the calls.
	Peer() (peer *link.Peer, changed <-chan struct{})
}

// A Standby serves a listener of a replica that does not have the calls: it passes each request on, whole,
// to the replica that has them, and answers with its answer. While no replica has them, requests wait.
//
// A request that was passed on is not passed on again if that may execute it twice: its client is told that the outcome
// is unknown.
type Standby struct {
	Owner    Owner
	Link     *link.Client        // nil: requests are refused
	Listener string              // its key in the configuration
	Local    func() http.Handler // that serves the listener when this replica has the calls; it returns nil before
	// Room is for the bodies that wait at all listeners of its kind.
	Room *Room
	// Passed, if not nil, is told how each request ended: answered, unknown or refused.
	Passed func(result string)
	// Refusals, if not nil, keep the calls that are refused here, for the admin API.
	Refusals *Refusals
	// Stopping, if not nil, ends when the process stops; event streams that were passed on end then.
	Stopping context.Context

	// Upstream has its clients, their longest wait and body, and the shape of refusals. It is empty at an admin listener.
	Upstream string
	MaxWait  time.Duration
	MaxBody  int64
	Replay   bool
	Refusal  Refusal

	// Guard finds the callers of an admin listener by their connections.
	Guard *access.Guard
}

// Room bounds the bodies of requests that wait.
type Room struct{ budget }

// NewRoom returns a room of so many bytes.
func NewRoom(bytes int64) *Room {
	r := &Room{}
	r.left.Store(bytes)
	return r
}

func (s *Standby) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if overLink(r) { // this replica has the calls no more, or not yet
		leave(w, stay{})
		return
	}
	if r.ProtoMajor == 1 && (len(r.TransferEncoding) > 0 || r.ProtoMinor == 0) {
		w.Header().Set("Connection", "close") // as in Data.ServeHTTP
	}
	came, most := time.Now(), s.MaxBody
	if s.Guard != nil && !s.Guard.Known(r) { // a session is known to the owner alone, and a form is all that it sends
		most = min(most, maxForm)
	}
	body, release, err := readBody(w, r, most, s.Room.reserve)
	if err == nil && r.Header.Get("Upgrade") != "" {
		release()
		err = badRequest("Upgrade is not forwarded: a call is one request and one answer")
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer release()
	s.pass(w, r, body, stay{since: came, latest: s.latest(r.Header, came)})
}

// latest returns how long a request waits for a replica that takes it.
func (s *Standby) latest(h http.Header, now time.Time) time.Time {
	latest := now.Add(s.MaxWait)
	asked := scheduler.Request{}
	if s.Upstream != "" && schedule(&asked, h, now) == nil && !asked.Deadline.IsZero() && asked.Deadline.Before(latest) {
		return asked.Deadline
	}
	return latest
}

// pass passes a request on until a replica takes it, which may be this one, or until it can wait no longer.
func (s *Standby) pass(w http.ResponseWriter, r *http.Request, body []byte, at stay) {
	ctx := r.Context()
	if s.lasts(r) {
		var end context.CancelFunc
		ctx, end = context.WithDeadline(context.WithoutCancel(ctx), at.latest.Add(ownerTime))
		defer end()
	}
	waits, cancel := context.WithDeadline(ctx, at.latest)
	defer cancel()
	for asked, tries := "", 0; ; {
		if local := s.Local(); local != nil {
			if at.doubt && !s.repeatable(r, &link.Peer{}) {
				s.refuse(w, r, at.unknown())
				return
			}
			local.ServeHTTP(w, s.here(r, body, at))
			return
		}
		peer, _ := s.Owner.Peer()
		switch {
		case peer == nil:
			asked, tries = "", 0
		case at.doubt && !s.repeatable(r, peer), at.joined && peer.Differs: // it would not recognise the request
			s.refuse(w, r, at.unknown())
			return
		case peer.Pin == "" || s.Link == nil:
			s.refuse(w, r, cmp.Or[error](at.unknown(), errNoLink))
			return
		case peer.Pin != asked:
			asked, tries = peer.Pin, 0
		}
		if peer != nil {
			tries++
			resp, sent, err := s.Link.Send(ctx, *peer, r.Method, s.header(r, at.since), body, s.passage(r, at))
			switch {
			case err == nil && link.WasTaken(resp):
				s.answer(w, r, resp)
				return
			case err == nil:
				resp.Body.Close()
				at.leftBy(peer, resp.Header.Get("Throttler-Outcome"))
			case sent && !s.repeatable(r, peer):
				s.refuse(w, r, errOwnerGone)
				return
			default:
				at.doubt = at.doubt || sent && !s.harmless(r)
			}
		}
		if !s.rest(waits, asked, tries) {
			s.refuse(w, r, unanswered(waits, at))
			return
		}
	}
}

// lasts reports whether a request goes on without its client, which may have closed its half of the connection alone: it
// changes something, and its client does not wait for more than that.
func (s *Standby) lasts(r *http.Request) bool {
	if s.Upstream == "" {
		return !s.harmless(r)
	}
	return submits(r.Header)
}

// rest waits between two tries, until the owner is another one than that with a pin; false if ctx ends before.
func (s *Standby) rest(ctx context.Context, pin string, tries int) bool {
	pause := min(againInterval<<min(max(0, tries-againQuick), 4), againMost)
	over := time.NewTimer(pause/2 + rand.N(pause/2)) // requests that came together do not stay so
	defer over.Stop()
	for {
		now := ""
		peer, changed := s.Owner.Peer()
		if peer != nil {
			now = peer.Pin
		}
		if now != pin {
			return true
		}
		select {
		case <-changed:
		case <-over.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// unanswered returns the reason why a request waits no longer.
func unanswered(waits context.Context, at stay) error {
	if err := at.unknown(); err != nil {
		return err
	}
	if errors.Is(waits.Err(), context.Canceled) {
		return &scheduler.Error{Reason: scheduler.Gone, Detail: "the client closed its connection before the call was sent"}
	}
	return errNoOwner
}

// here returns a request that is served by this replica after all.
func (s *Standby) here(r *http.Request, body []byte, at stay) *http.Request {
	own := r.Clone(context.WithValue(r.Context(), stayKey{}, at))
	own.Header = s.header(r, at.since)
	own.Header.Del("Host")
	own.Body, own.ContentLength, own.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return own
}

// header returns the fields of a request that is passed on. Its longest wait is what is left of it since it came; a call
// that is submitted has one if its client has given it, which may be above max_wait.
func (s *Standby) header(r *http.Request, since time.Time) http.Header {
	h := maps.Clone(upstream.EndToEnd(r.Header))
	for name, values := range r.Header {
		if strings.HasPrefix(name, "Throttler-") { // for the replica that has the calls
			h[name] = values
		}
	}
	h.Set("Host", r.Host)
	if s.Upstream == "" {
		return h
	}
	asked, async := h.Get("Throttler-Max-Wait"), submits(r.Header)
	switch wait, err := time.ParseDuration(asked); {
	case err == nil && wait >= 0:
		if !async {
			wait = min(wait, s.MaxWait)
		}
		h.Set("Throttler-Max-Wait", max(0, wait-time.Since(since)).String())
	case asked == "" && !async:
		h.Set("Throttler-Max-Wait", max(0, s.MaxWait-time.Since(since)).String())
	}
	return h
}

func (s *Standby) passage(r *http.Request, at stay) link.Passage {
	p := link.Passage{Listener: s.Listener, Target: []byte(target(r)), Names: fieldNames(r), Remote: r.RemoteAddr, TLS: access.OverTLS(r), Doubt: at.unknown() != nil}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		p.Local = local.String()
	}
	if s.Guard != nil {
		if c, ok := s.Guard.Shown(r); ok {
			p.Caller = &link.Credential{Name: c.Name, Role: string(c.Role), Via: c.Via}
		}
	}
	return p
}

// harmless reports whether a request of the admin API changes nothing.
func (s *Standby) harmless(r *http.Request) bool {
	return s.Upstream == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// submitsByKey reports whether a request of the admin API submits a call under the key in its header.
func submitsByKey(r *http.Request) bool {
	return r.Header.Get("Idempotency-Key") != "" && r.Method == http.MethodPost && r.URL.Path == "/v1/calls"
}

// repeatable reports whether a request that a replica may have taken, or gets again, can be passed on again: it changes nothing,
// or its key lets it be recognised. The configuration of that replica decides whether keys of waiting clients do.
func (s *Standby) repeatable(r *http.Request, peer *link.Peer) bool {
	if s.Upstream == "" {
		return s.harmless(r) || submitsByKey(r)
	}
	keyed := r.Header.Get("Idempotency-Key") != ""
	return keyed && (s.Replay && !peer.Differs || submits(r.Header))
}

// answer answers with that of the replica that has taken the request.
func (s *Standby) answer(w http.ResponseWriter, r *http.Request, resp *http.Response) {
	defer resp.Body.Close()
	h := w.Header()
	h["Date"], h["Content-Type"] = nil, nil // none but those of the answer
	maps.Copy(h, resp.Header)
	h.Del(link.Taken)
	w.WriteHeader(resp.StatusCode)
	s.tell("answered")
	endless := s.Stopping != nil && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if endless {
		defer context.AfterFunc(s.Stopping, func() { resp.Body.Close() })()
	}
	if err := passOn(w, resp.Body); err != nil && !(endless && s.Stopping.Err() != nil) {
		panic(http.ErrAbortHandler) // the client must not take a part of the body for all of it
	}
}

// refuse answers a request that no replica has answered.
func (s *Standby) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e := refused(nil, s.Upstream, err)
	if e.Reason == scheduler.NoAnswer {
		s.tell("unknown")
	} else {
		s.tell("refused")
	}
	if s.Upstream == "" { // its answer names no call
		writeProblem(w, r, err)
		return
	}
	s.Refusals.add(e)
	s.Refusal.write(w, e, &upstream.Request{Method: r.Method, Target: target(r), Header: r.Header})
}

func (s *Standby) tell(result string) {
	if s.Passed != nil {
		s.Passed(result)
	}
}

// Receive returns the handler of the requests that other replicas pass on. The one of a listener is found by
// its key in the configuration; nil if there is none.
func Receive(find func(listener string) http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := link.From(r.Context())
		h := find(p.Listener)
		if h == nil {
			writeProblem(w, r, &scheduler.Error{Reason: scheduler.NotFound, Detail: fmt.Sprintf("the configuration of the replica that has the calls has no %s; give all replicas the same one", p.Listener)})
			return
		}
		var caller *access.Caller
		if c := p.Caller; c != nil {
			caller = &access.Caller{Name: c.Name, Role: access.Role(c.Role), Via: c.Via}
		}
		ctx := access.PassedOn(r.Context(), caller)
		if p.Doubt {
			ctx = context.WithValue(ctx, stayKey{}, stay{doubt: true})
		}
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}
