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
// the scheduler's loop. What it gets stays unchanged; what it returns is the
// caller's. An error that wraps [ErrBroken] ends the scheduler: nothing more is
// accepted or sent. [Durable] is a Store that outlives the process.
type Store interface {
	// Accept stores a new call before its caller hears of it. If the entry's key
	// is not empty and Find knows a call, it stores nothing and returns what Find
	// does. ErrFull: there is no room.
	Accept(ctx context.Context, e *Entry) (existing *Call, err error)
	// Find returns the call that was accepted with a key, nil if there is none or
	// nothing was executed (cancelled, expired, exhausted), or ErrKeyReused if the
	// fingerprints differ.
	Find(ctx context.Context, key, fingerprint string) (*Call, error)
	// Intend stores, before the first byte, that a call is being sent, and with it
	// the permits taken for it. The call is nil if only the permits are to be
	// kept; holds whose ID is known are. It returns ErrNotWaiting, and stores
	// nothing, if the call it knows is not waiting.
	Intend(ctx context.Context, c *Call, take []Hold) error
	// Record stores where a call stands after an attempt or at its end. It returns
	// ErrNotFound if the call is not known, or finished.
	Record(ctx context.Context, c *Call) error
	// Get returns a call, or ErrNotFound.
	Get(ctx context.Context, id string) (*Call, error)
	// List returns the calls that match a filter by growing id, at most
	// Filter.Max, beginning after Filter.After.
	List(ctx context.Context, f Filter) ([]*Call, error)
	// Close ends the store. Nothing is called after it.
	Close() error
}

// An Entry is a call as a Store accepts it.
type Entry struct {
	Call    *Call
	Request *upstream.Request
	// Bytes is what the call counts for in max_waiting_bytes.
	Bytes int64
	// Key is the idempotency key, with the fingerprint of what it may be used for.
	Key, Fingerprint string
	// Tells is the notice that the call is the webhook of; it is not Untold any more.
	Tells string
	// NoBody keeps the request out of the store: the call ends with the process.
	NoBody bool
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
	ErrNotFound = errors.New("no such call")
	// ErrKeyReused refuses a key of another request. What wraps it names the call.
	ErrKeyReused = errors.New("the key was used for another request")
	// ErrNotWaiting refuses an intent: somebody else has decided about the call.
	ErrNotWaiting = errors.New("the call is not waiting")
	// ErrFull means that there is no room for a new call; what is known is safe.
	ErrFull = errors.New("the disk is full")
	// ErrBroken means that the store can promise nothing any more.
	ErrBroken = errors.New("the store has failed")
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

func (m *memory) Accept(_ context.Context, e *Entry) (*Call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Key != "" {
		if known, err := m.find(e.Key, e.Fingerprint); known != nil || err != nil {
			return known, err
		}
		delete(m.keyOf, m.keys[e.Key].id) // nothing was executed
		m.keys[e.Key], m.keyOf[e.Call.ID] = keyed{e.Fingerprint, e.Call.ID}, e.Key
	}
	m.calls[e.Call.ID] = e.Call
	return nil, nil
}

func (m *memory) Find(_ context.Context, key, fingerprint string) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.find(key, fingerprint)
}

func (m *memory) find(key, fingerprint string) (*Call, error) {
	k, ok := m.keys[key]
	if !ok {
		return nil, nil
	}
	switch m.calls[k.id].State {
	case Cancelled, Expired, Exhausted: // nothing was executed
		return nil, nil
	}
	if k.fingerprint != fingerprint {
		return nil, fmt.Errorf("%w, call %s", ErrKeyReused, k.id)
	}
	known := m.calls[k.id].snapshot()
	return &known, nil
}

func (m *memory) Intend(_ context.Context, c *Call, _ []Hold) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c == nil {
		return nil
	}
	if known := m.calls[c.ID]; known == nil || known.State != Waiting {
		return fmt.Errorf("%w: %s", ErrNotWaiting, c.ID)
	}
	m.calls[c.ID] = c
	return nil
}

func (m *memory) Record(_ context.Context, c *Call) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	swept := func(c *Call) bool { return c.State.Finished() || c.State == Unknown && !c.Async }
	before := m.calls[c.ID]
	if before == nil || before.State.Finished() {
		return fmt.Errorf("%w, or it is finished: %s", ErrNotFound, c.ID)
	}
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

func (m *memory) Get(_ context.Context, id string) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := m.calls[id]
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	s := c.snapshot()
	return &s, nil
}

func (m *memory) List(_ context.Context, f Filter) ([]*Call, error) {
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
