package scheduler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// newCall checks a request and computes what it needs, on the caller's goroutine.
func (s *Scheduler) newCall(r Request) (*call, *Error) {
	sv := r.by
	if sv == nil {
		sv = s.service(r.Upstream)
	}
	if sv == nil || sv.target != "" && r.by == nil {
		return nil, errNoUpstream(r.Upstream)
	}
	bad := func(format string, args ...any) (*call, *Error) {
		return nil, &Error{Reason: BadRequest, Upstream: r.Upstream, Detail: fmt.Sprintf(format, args...)}
	}
	if r.Priority < -MaxPriority || r.Priority > MaxPriority {
		return bad("priority is %d, must be from %d to %d", r.Priority, -MaxPriority, MaxPriority)
	}
	if !sv.knows(r.Callback) {
		return bad("callback %q is not one of upstream %q's callbacks in the configuration", r.Callback, r.Upstream)
	}
	if int64(len(r.Body)) > sv.MaxBody {
		return nil, &Error{Reason: TooLarge, Upstream: r.Upstream, Detail: fmt.Sprintf("the body has %d bytes, upstream %q takes at most %d (max_body)", len(r.Body), r.Upstream, sv.MaxBody)}
	}
	if r.Method == "" {
		r.Method = http.MethodGet
	}
	// The call outlives its caller, who may use the memory for something else.
	r.Header, r.Body = r.Header.Clone(), bytes.Clone(r.Body)
	wire := r.wire()
	if err := wire.Check(); err != nil {
		return bad("%v", err)
	}
	in := upstream.NewInput(wire)
	way, refused := sv.route(in)
	if refused != nil {
		refused.Upstream = r.Upstream
		return nil, refused
	}
	// Instants that come from outside are on the wall clock; from here on they
	// are on the monotonic one, which nobody puts back.
	now := time.Now()
	earliest := now
	if r.NotBefore.After(now) {
		earliest = now.Add(r.NotBefore.Sub(now))
	}
	deadline := sv.goodUntil(now, earliest.Add(sv.MaxAge))
	if deadline.Before(earliest) {
		return bad("not_before %s is after %s, when the call's signature is stale (signature.life is %v)", stamp(earliest), stamp(deadline), sv.Signature.Life)
	}
	if !r.Deadline.IsZero() {
		if !r.Deadline.After(now) {
			return bad("the deadline %s has passed", stamp(r.Deadline))
		}
		if r.Deadline.Before(earliest) {
			return bad("not_before %s is after the deadline %s", stamp(r.NotBefore), stamp(r.Deadline))
		}
		deadline = earlier(deadline, now.Add(r.Deadline.Sub(now)))
	}
	c := &call{
		Call: &Call{
			ID: uuid.Must(uuid.NewV7()).String(), Upstream: r.Upstream, State: Waiting, Priority: int16(r.Priority),
			AcceptedAt: now, NotBefore: r.NotBefore, Deadline: deadline, Attempts: []Attempt{},
			Callback: r.Callback, Resolves: r.resolves,
		},
		request: wire, route: way, bytes: size(wire),
	}
	if s.durable != nil {
		c.Stored = &Stored{Lane: laneOf(way)}
		c.Durable, c.noBody = sv.durable.holds(in, false), sv.noBody.holds(in, true)
	}
	if earliest.After(now) {
		c.due = earliest.Sub(s.loop.origin)
		c.putOff(earliest)
	}
	return c, nil
}

// accept takes a new call and stores it, or returns the one that has its key.
func (s *Scheduler) accept(ctx context.Context, c *call, r *Request) (known *Call, refused *Error) {
	e := &Entry{Call: c.Call, Request: c.request, Bytes: c.bytes, Tells: r.tells, NoBody: c.noBody}
	store := s.storeOf(c.Call)
	if r.IdempotencyKey != "" {
		e.Key, e.Fingerprint = r.Upstream+" "+r.IdempotencyKey, c.route.service.up.Fingerprint(c.request)
		// What was accepted stays so, whatever would refuse it now.
		err := s.reading(func() (err error) {
			known, err = store.Find(ctx, e.Key, e.Fingerprint)
			return err
		})
		if known != nil || err != nil {
			return known, s.unstored(r, err)
		}
	}
	if refused := s.admit(ctx, c); refused != nil {
		return nil, refused
	}
	known, err := store.Accept(ctx, e)
	if known != nil || err != nil {
		s.ask(context.WithoutCancel(ctx), func(time.Time) { s.loop.withdraw(c) })
	}
	return known, s.unstored(r, err)
}

// unstored says why the store did not take a call; nil if it did.
func (s *Scheduler) unstored(r *Request, err error) *Error {
	var refused *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return refused
	case errors.Is(err, ErrKeyReused):
		return &Error{Reason: KeyReused, Upstream: r.Upstream, Detail: fmt.Sprintf("%v (idempotency key %q). If this is meant as a repeat, look that call up: a new key would make a second one. If it is not, give it a key of its own", err, r.IdempotencyKey)}
	case errors.Is(err, ErrFull):
		return &Error{Reason: DiskFull, Upstream: r.Upstream, RetryAfter: time.Second, Detail: "the store's disk is full and the call was not taken; free some space, or send it again later"}
	}
	s.check(err)
	return &Error{Reason: StoreFailed, Upstream: r.Upstream, Detail: "the call could not be stored: " + err.Error()}
}

// admit reserves a place for the call, or says why it is refused.
func (s *Scheduler) admit(ctx context.Context, c *call) *Error {
	var refused *Error
	if s.ask(context.WithoutCancel(ctx), func(now time.Time) { refused = s.loop.admit(now, c) }) != nil {
		return errStopping(c.Upstream)
	}
	return refused
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laneOf(r *route) int64 {
	h := fnv.New64a()
	io.WriteString(h, r.id)
	return int64(h.Sum64())
}

// size estimates what a request holds in memory, in bytes.
func size(r *upstream.Request) int64 {
	n := len(r.Target) + len(r.Body)
	for name, values := range r.Header {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return int64(n)
}
