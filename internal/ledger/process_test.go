package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A process is one run of a sidecar: a dead one sends nothing, gets no answer, and writes
// nothing.
type process struct {
	to   http.RoundTripper
	dead chan struct{}
	die  sync.Once
}

func (p *process) kill() { p.die.Do(func() { close(p.dead) }) }

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

func (p *process) RoundTrip(req *http.Request) (*http.Response, error) {
	if p.isDead() {
		return nil, errors.New("the process is dead")
	}
	ctx, cancel := context.WithCancel(req.Context())
	defer cancel()
	go func() {
		select {
		case <-p.dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	resp, err := p.to.RoundTrip(req.WithContext(ctx))
	if p.isDead() {
		return nil, errors.New("the process has died")
	}
	return resp, err
}

// A fuse is a store whose process dies at one of its changes.
type fuse struct {
	scheduler.Durable
	*process
	mu   sync.Mutex
	r    *rand.Rand
	left int
	fast bool
	death
}

const slowest = 10 * time.Millisecond // change of a store

// calm ends the time that changes take: the end of a scheduler waits for a mutex that they
// hold, and the clock of a bubble stands still meanwhile.
func (f *fuse) calm() {
	f.mu.Lock()
	f.fast = true
	f.mu.Unlock()
	time.Sleep(slowest)
}

var errDead = fmt.Errorf("%w: the process is dead", scheduler.ErrBroken)

// change makes a change, unless the process dies before it.
func (f *fuse) change(do func() error) error {
	f.mu.Lock()
	slow := time.Duration(f.r.Int64N(int64(slowest)))
	if f.fast {
		slow = 0
	}
	f.mu.Unlock()
	time.Sleep(slow)
	f.mu.Lock()
	if f.isDead() {
		f.mu.Unlock()
		return errDead
	}
	f.left--
	if f.left == 0 {
		defer f.mu.Unlock() // nothing else is written meanwhile
		if f.after {
			do()
		}
		f.kill()
		return errDead
	}
	f.mu.Unlock()
	err := do()
	if f.isDead() { // written, and not acknowledged
		return errDead
	}
	return err
}

func (f *fuse) Accept(ctx context.Context, e *scheduler.Entry) (existing *scheduler.Call, err error) {
	err = f.change(func() error { existing, err = f.Durable.Accept(ctx, e); return err })
	if errors.Is(err, errDead) {
		existing = nil
	}
	return existing, err
}

func (f *fuse) End(ctx context.Context, identity, by string) error {
	return f.change(func() error { return f.Durable.End(ctx, identity, by) })
}

func (f *fuse) Intend(ctx context.Context, c *scheduler.Call, take []lease.Hold) error {
	return f.change(func() error { return f.Durable.Intend(ctx, c, take) })
}

func (f *fuse) Record(ctx context.Context, c *scheduler.Call) error {
	return f.change(func() error { return f.Durable.Record(ctx, c) })
}

func (f *fuse) Settle(ctx context.Context, h []lease.Hold) error {
	return f.change(func() error { return f.Durable.Settle(ctx, h) })
}

func (f *fuse) Restate(ctx context.Context, h []lease.Hold) error {
	return f.change(func() error { return f.Durable.Restate(ctx, h) })
}

func (f *fuse) Recover(ctx context.Context, d time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) (past *scheduler.Recovered, err error) {
	err = f.change(func() error { past, err = f.Durable.Recover(ctx, d, repeat); return err })
	return past, err
}

func (f *fuse) Close() error { return nil } // game.run closes the file
