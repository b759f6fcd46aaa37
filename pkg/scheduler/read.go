package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Get returns a call.
func (s *Scheduler) Get(ctx context.Context, id string) (*Call, error) {
	var live *Call
	if err := s.ask(ctx, func(now time.Time) {
		if c := s.loop.calls[id]; c != nil {
			d := s.loop.look(now, c)
			live = &d
		}
	}); err != nil {
		return nil, err
	}
	if live != nil {
		return live, nil
	}
	return s.stored(ctx, id)
}

// stored returns a call that is not in hand.
func (s *Scheduler) stored(ctx context.Context, id string) (*Call, error) {
	var c *Call
	err := s.reading(func() (err error) {
		c, err = s.store.Get(ctx, id)
		if s.durable != nil && errors.Is(err, ErrNotFound) {
			c, err = s.durable.Get(ctx, id)
		}
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return nil, &Error{Reason: NotFound, Detail: fmt.Sprintf("call %q is not known; it may have been forgotten some time after it finished", id)}
	case err != nil:
		return nil, s.unread(err)
	case !c.Durable || c.State != Waiting:
	case c.Deadline.After(time.Now()):
		s.foresee(ctx, c)
	default: // its turn has not come, and need not
		s.fetch(ctx, id)
	}
	return c, nil
}

// reading runs f while the store is open.
func (s *Scheduler) reading(f func() error) error {
	s.readers.RLock()
	defer s.readers.RUnlock()
	select {
	case <-s.loop.ended:
		return errStopping("")
	default:
		return f()
	}
}

// unread says why nothing could be read from the store.
func (s *Scheduler) unread(err error) error {
	var stopping *Error
	if errors.As(err, &stopping) {
		return err
	}
	s.check(err)
	return &Error{Reason: StoreFailed, Detail: "the store could not be read: " + err.Error()}
}

// Wait returns a call when it is finished or unknown, or as it is when ctx ends.
func (s *Scheduler) Wait(ctx context.Context, id string) (*Call, error) {
	inLoop := context.WithoutCancel(ctx) // the call is told as it is when ctx ends
	var settled <-chan struct{}
	settling := func(time.Time) {
		if c := s.loop.calls[id]; c != nil {
			settled = c.settling()
		}
	}
	if s.ask(inLoop, settling); settled == nil {
		s.fetch(inLoop, id)
		s.ask(inLoop, settling)
	}
	if settled != nil {
		select {
		case <-settled:
		case <-ctx.Done():
		case <-s.closed:
		}
	}
	return s.Get(inLoop, id)
}

// List returns the calls that match a filter, by growing id.
func (s *Scheduler) List(ctx context.Context, f Filter) ([]*Call, error) {
	var calls []*Call
	err := s.reading(func() (err error) {
		calls, err = s.store.List(ctx, f)
		if err != nil || s.durable == nil {
			return err
		}
		more, err := s.durable.List(ctx, f)
		calls = append(calls, more...)
		slices.SortFunc(calls, func(a, b *Call) int { return strings.Compare(a.ID, b.ID) })
		calls = calls[:min(len(calls), f.Max)]
		return err
	})
	if err != nil {
		return nil, s.unread(err)
	}
	err = s.ask(ctx, func(now time.Time) {
		for _, stored := range calls {
			if c := s.loop.calls[stored.ID]; c != nil {
				*stored = s.loop.look(now, c)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return calls, nil
}
