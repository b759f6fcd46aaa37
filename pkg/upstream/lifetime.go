package upstream

import (
	"context"
	"sync"
	"time"
)

// A lifetime is the context of an attempt, with its time-out. Contexts of the standard library
// would do, with ten allocations for each attempt.
type lifetime struct {
	context.Context // of the caller
	timer           *time.Timer
	unlink          func() bool // from the caller's

	mu    sync.Mutex
	err   error // once it has ended
	cause error // of that
	done  chan struct{}
	after []func() // by AfterFunc; nil for one that was stopped
	first [1]func()
}

// begin begins a lifetime. It ends with ctx, with its time-out, or by end.
func (l *lifetime) begin(ctx context.Context, timeout time.Duration) {
	l.Context, l.unlink = ctx, func() bool { return true }
	if ctx.Done() != nil {
		l.unlink = context.AfterFunc(ctx, l.follow)
	}
	l.timer = time.AfterFunc(timeout, func() {
		l.cancel(errTimeout)
		l.unlink() // also if nothing ends it, as after a panic of a transport
	})
}

// follow ends the lifetime as its caller's context has.
func (l *lifetime) follow() { l.finish(l.Context.Err(), context.Cause(l.Context)) }

// end ends the lifetime. It returns the cause of an earlier end, which explains err, and err if
// there was none.
func (l *lifetime) end(err error) error {
	l.Err() // that of the caller's context comes first
	l.timer.Stop()
	l.unlink()
	if cause := l.finish(context.Canceled, context.Canceled); cause != nil {
		return cause
	}
	return err
}

// cancel ends the lifetime, if there is one, for a cause.
func (l *lifetime) cancel(cause error) {
	if l != nil {
		l.finish(context.Canceled, cause)
	}
}

// finish ends the lifetime, if it has not ended, and returns the cause of an earlier end.
func (l *lifetime) finish(err, cause error) (earlier error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.cause
	}
	l.err, l.cause = err, cause
	if l.done != nil {
		close(l.done)
	}
	for _, f := range l.after {
		if f != nil {
			go f()
		}
	}
	return nil
}

// Done implements [context.Context].
func (l *lifetime) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.err != nil {
			close(l.done)
		}
	}
	return l.done
}

// Err implements [context.Context]. It does not wait until follow has run.
func (l *lifetime) Err() error {
	if l.Context.Err() != nil {
		l.follow()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// AfterFunc is as [context.AfterFunc]. Package context calls it for a context that is made of this
// one, where it would else start a goroutine.
func (l *lifetime) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	if l.after == nil {
		l.after = l.first[:0]
	}
	place := len(l.after)
	l.after = append(l.after, f)
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.err != nil || l.after[place] == nil {
			return false
		}
		l.after[place] = nil
		return true
	}
}
