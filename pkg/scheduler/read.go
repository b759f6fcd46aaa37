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
func (s *Scheduler) Get(id string) (*Call, error) {
	var live *Call
	if !s.ask(func(now time.Time) {
		if c := s.loop.calls[id]; c != nil {
			d := s.loop.look(now, c)
			live = &d
		}
	}) {
		return nil, errStopping("")
	}
	if live != nil {
		return live, nil
	}
	return s.stored(id)
}

// stored returns a call that is not in hand.
func (s *Scheduler) stored(id string) (*Call, error) {
	var c *Call
	err := s.reading(func() (err error) {
		c, err = s.store.Get(id)
		if s.durable != nil && errors.Is(err, ErrNotFound) {
			c, err = s.durable.Get(id)
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
		s.foresee(c)
	default: // its turn has not come, and need not
		s.fetch(id)
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
	var settled <-chan struct{}
	settling := func(time.Time) {
		if c := s.loop.calls[id]; c != nil {
			settled = c.settling()
		}
	}
	if s.ask(settling); settled == nil {
		s.fetch(id)
		s.ask(settling)
	}
	if settled != nil {
		select {
		case <-settled:
		case <-ctx.Done():
		case <-s.closed:
		}
	}
	return s.Get(id)
}

// List returns the calls that match a filter, by growing id.
func (s *Scheduler) List(f Filter) ([]*Call, error) {
	var calls []*Call
	err := s.reading(func() (err error) {
		calls, err = s.store.List(f)
		if err != nil || s.durable == nil {
			return err
		}
		more, err := s.durable.List(f)
		calls = append(calls, more...)
		slices.SortFunc(calls, func(a, b *Call) int { return strings.Compare(a.ID, b.ID) })
		calls = calls[:min(len(calls), f.Max)]
		return err
	})
	if err != nil {
		return nil, s.unread(err)
	}
	s.ask(func(now time.Time) {
		for _, stored := range calls {
			if c := s.loop.calls[stored.ID]; c != nil {
				*stored = s.loop.look(now, c)
			}
		}
	})
	return calls, nil
}
