package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// memory is the Store of one process life. None of its methods waits for anything but its
// mutex. Its Calls are never changed, only replaced.
type memory struct {
	keep      int   // finished calls
	keepBytes int64 // of their responses

	mu          sync.RWMutex
	calls       map[string]*Call
	keys        map[string]claim // by idempotency key
	keyOf       map[string]string
	finished    []string // ids, in the order in which they finished
	bytes       int64
	pendingEnds map[string]pendingEnd // by id of a call whose end is to be handled
}

// A pendingEnd is an end that Config.Ended has not handled yet.
type pendingEnd struct {
	at       time.Time
	failures int
}

// A claim is the use of an idempotency key.
type claim struct{ fingerprint, id string }

// NewMemory returns a Store in memory. It forgets the calls that finished first
// when there are more than keep of them, or their responses take more than
// keepBytes. It never forgets a call that has not finished, unless its caller
// has had the answer "unknown".
func NewMemory(keep int, keepBytes int64) Store { return newMemory(keep, keepBytes) }

func newMemory(keep int, keepBytes int64) *memory {
	return &memory{keep: keep, keepBytes: keepBytes, calls: make(map[string]*Call), keys: make(map[string]claim), keyOf: make(map[string]string), pendingEnds: make(map[string]pendingEnd)}
}

func (m *memory) Accept(_ context.Context, e *Entry) (*Call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Key != "" {
		if known, err := m.find(e.Key, e.Fingerprint); known != nil || err != nil {
			return known, err
		}
		delete(m.keyOf, m.keys[e.Key].id) // nothing was executed
		m.keys[e.Key], m.keyOf[e.Call.ID] = claim{e.Fingerprint, e.Call.ID}, e.Key
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
	return m.calls[k.id].snapshot(), nil
}

func (m *memory) Intend(_ context.Context, c *Call, _ []lease.Hold) error {
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
	delete(m.pendingEnds, c.ID)
	if c.Handled() && c.Notice() != "" {
		m.pendingEnds[c.ID] = pendingEnd{at: time.Now()}
	}
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
		delete(m.pendingEnds, id)
		delete(m.keys, m.keyOf[id])
		delete(m.keyOf, id)
	}
	return nil
}

func (m *memory) Get(_ context.Context, id string) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := m.calls[id]
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return c.snapshot(), nil
}

func (m *memory) List(_ context.Context, f Filter) ([]*Call, error) {
	var calls []*Call
	m.mu.RLock() // briefly: the loop may wait for it
	for _, c := range m.calls {
		if f.matches(c) {
			calls = append(calls, c)
		}
	}
	m.mu.RUnlock()
	slices.SortFunc(calls, func(a, b *Call) int { return strings.Compare(a.ID, b.ID) })
	calls = cut(calls, f.Max)
	for i, c := range calls {
		calls[i] = c.snapshot()
		calls[i].Response = nil
	}
	return calls, nil
}

// cut returns the first calls of a list, at most so many; 0 means all.
func cut(calls []*Call, most int) []*Call {
	if most > 0 && len(calls) > most {
		return calls[:most]
	}
	return calls
}

// PendingEnds is as of a [Durable].
func (m *memory) PendingEnds(_ context.Context, most int) ([]*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	calls := make([]*Call, 0, len(m.pendingEnds))
	for id, u := range m.pendingEnds {
		c := m.calls[id].snapshot()
		c.Response, c.Stored = nil, &Stored{HandleAt: u.at, Failures: u.failures}
		calls = append(calls, c)
	}
	slices.SortFunc(calls, func(a, b *Call) int {
		return cmp.Or(a.HandleAt.Compare(b.HandleAt), strings.Compare(a.ID, b.ID))
	})
	return cut(calls, most), nil
}

// EndHandled is as of a [Durable].
func (m *memory) EndHandled(_ context.Context, notice string, again time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, _, _ := strings.Cut(notice, ".")
	u, known := m.pendingEnds[id]
	switch {
	case !known || m.calls[id].Notice() != notice: // the call has moved on
	case again.IsZero():
		delete(m.pendingEnds, id)
	default:
		m.pendingEnds[id] = pendingEnd{again, u.failures + 1}
	}
	return nil
}

func (m *memory) Close() error { return nil }
