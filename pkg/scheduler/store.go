package scheduler

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Store keeps calls. Each method returns when what it was given is as durable
// as the store promises, and is called from many goroutines at once, never from
// the scheduler's loop. The calls and requests that it gets stay unchanged; what
// it returns is the caller's.
type Store interface {
	// Accept stores a new call before its caller hears of it. If the key is not
	// empty and a call with it is known, it stores nothing and returns that call,
	// or ErrKeyReused if the fingerprints differ.
	Accept(ctx context.Context, c *Call, r *upstream.Request, key, fingerprint string) (existing *Call, err error)
	// Find returns the call that was accepted with a key, nil if there is none, or
	// ErrKeyReused if the fingerprints differ.
	Find(key, fingerprint string) (*Call, error)
	// Intend stores that a call is being sent, before the first byte.
	Intend(c *Call) error
	// Record stores where a call stands after an attempt or at its end.
	Record(c *Call) error
	// Get returns a call, or ErrNotFound.
	Get(id string) (*Call, error)
	// List returns the calls that match a filter by growing id, at most
	// Filter.Max, beginning after Filter.After.
	List(f Filter) ([]*Call, error)
	// Close ends the store. Nothing is called after it.
	Close() error
}

// A Filter chooses calls. Empty fields choose all.
type Filter struct {
	Upstream string
	State    State
	After    string // an id
	Max      int
}

func (f *Filter) matches(c *Call) bool {
	return (f.Upstream == "" || c.Upstream == f.Upstream) && (f.State == "" || c.State == f.State) && c.ID > f.After
}

// Errors of a Store.
var (
	ErrNotFound  = errors.New("no such call")
	ErrKeyReused = errors.New("the idempotency key was used for another request")
)

// memory is the Store of one process life.
type memory struct {
	keep      int   // finished calls
	keepBytes int64 // of their responses

	mu       sync.RWMutex
	calls    map[string]*Call
	keys     map[string]keyed // by idempotency key
	keyOf    map[string]string
	finished []string // ids, in the order in which they finished
	bytes    int64
}

type keyed struct{ fingerprint, id string }

// NewMemory returns a Store in memory. It forgets the calls that finished first
// when there are more than keep of them, or their responses take more than
// keepBytes. It never forgets a call that has not finished, unless its caller
// has had the answer "unknown".
func NewMemory(keep int, keepBytes int64) Store {
	return &memory{keep: keep, keepBytes: keepBytes, calls: make(map[string]*Call), keys: make(map[string]keyed), keyOf: make(map[string]string)}
}

func (m *memory) Accept(_ context.Context, c *Call, _ *upstream.Request, key, fingerprint string) (*Call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if key != "" {
		if known, err := m.find(key, fingerprint); known != nil || err != nil {
			return known, err
		}
		m.keys[key], m.keyOf[c.ID] = keyed{fingerprint, c.ID}, key
	}
	m.calls[c.ID] = c
	return nil, nil
}

func (m *memory) Find(key, fingerprint string) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.find(key, fingerprint)
}

func (m *memory) find(key, fingerprint string) (*Call, error) {
	k, ok := m.keys[key]
	if !ok {
		return nil, nil
	}
	if k.fingerprint != fingerprint {
		return nil, ErrKeyReused
	}
	known := m.calls[k.id].snapshot()
	return &known, nil
}

func (m *memory) Intend(c *Call) error { return m.Record(c) }

func (m *memory) Record(c *Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	swept := func(c *Call) bool { return c != nil && (c.State.Finished() || c.State == Unknown && !c.Async) }
	before := m.calls[c.ID]
	m.calls[c.ID] = c
	switch {
	case swept(before):
		m.bytes += c.Response.size() - before.Response.size()
	case swept(c):
		m.finished = append(m.finished, c.ID)
		m.bytes += c.Response.size()
	}
	for len(m.finished) > m.keep || m.bytes > m.keepBytes && len(m.finished) > 1 {
		id := m.finished[0]
		m.finished = m.finished[1:]
		m.bytes -= m.calls[id].Response.size()
		delete(m.calls, id)
		delete(m.keys, m.keyOf[id])
		delete(m.keyOf, id)
	}
	return nil
}

func (r *Response) size() int64 {
	if r == nil {
		return 0
	}
	n := len(r.Body)
	for name, values := range r.Headers {
		n += len(name)
		for _, v := range values {
			n += len(v)
		}
	}
	return int64(n)
}

func (m *memory) Get(id string) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := m.calls[id]
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	s := c.snapshot()
	return &s, nil
}

func (m *memory) List(f Filter) ([]*Call, error) {
	// The first Max by id: a pile with the last of them on top.
	best := pile[*Call]{before: func(a, b *Call) bool { return a.ID > b.ID }, place: func(*Call) *int { return new(int) }}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, c := range m.calls {
		if !f.matches(c) || best.Len() == f.Max && (f.Max == 0 || c.ID > best.first().ID) {
			continue
		}
		best.add(c)
		if best.Len() > f.Max {
			popFirst(&best)
		}
	}
	calls := make([]*Call, best.Len())
	for i := len(calls) - 1; i >= 0; i-- {
		s := popFirst(&best).snapshot()
		calls[i] = &s
	}
	return calls, nil
}

func (m *memory) Close() error { return nil }
