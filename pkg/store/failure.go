package store

import (
	"fmt"
	"sync"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// An inDoubt error is that of a change whose commit failed: it may be on disk, and the next Open finds
// it there then.
type inDoubt struct{ error }

// InDoubt tells the scheduler so.
func (inDoubt) InDoubt() bool { return true }

func (e inDoubt) Unwrap() error { return e.error }

// A failure is the error that ended a store: its file cannot be trusted any more.
// Reader and writer share it.
type failure struct {
	path  string
	once  sync.Once
	ended chan struct{} // closed when err is set
	err   error
}

func newFailure(path string) *failure { return &failure{path: path, ended: make(chan struct{})} }

// set ends the store, unless an earlier error has done so.
func (f *failure) set(err error) {
	f.once.Do(func() {
		f.err = fmt.Errorf("%w: %s: %w", scheduler.ErrBroken, f.path, err)
		close(f.ended)
	})
}

// get returns why the store has ended, nil while it works.
func (f *failure) get() error {
	select {
	case <-f.ended:
		return f.err
	default:
		return nil
	}
}
