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
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// memory is the Store of one process life. None of its methods waits for anything but its
// mutex. Its Calls are never changed, only replaced.
type memory struct {
	keep      int   // finished calls in each list of finished
	keepBytes int64 // of their responses, and of the requests of unknown ones

	mu          sync.RWMutex
	calls       map[string]*Call
	order       idList           // the ids of calls
	keys        map[string]claim // by idempotency key or identity
	keysOf      map[string][]string
	requests    map[string]*upstream.Request // by id of a call with an identity that has not finished
	finished    [2][]string                  // ids, in the order in which they finished; the second list is of calls with an identity
	stripped    int                          // calls at the front of the second list whose answers have no body
	ended       map[string]string            // by identity: the call that ended it
	endedOrder  []string                     // the identities of ended, the oldest first
	bytes       int64                        // of the calls in finished
	pendingEnds map[string]pendingEnd        // by id of a call whose end is to be handled

	auditTrail
}

// A pendingEnd is an end that Config.Ended has not handled yet.
type pendingEnd struct {
	at       time.Time
	failures int
}

// A claim is the use of an idempotency key, or of an identity.
type claim struct {
	fingerprint, id string
	identity        bool
}

// NewMemory returns a Store in memory. It forgets the calls that finished first
// when there are more than keep of them, or their responses, and the requests of
// unknown ones with an identity, take more than keepBytes. Calls with an identity are
// counted apart: other calls do not displace them, and they lose their answers before they are
// forgotten. It never forgets a call that has not finished, unless its caller has had the
// answer "unknown". It keeps the last 10,000 records of the audit.
func NewMemory(keep int, keepBytes int64) Store { return newMemory(keep, keepBytes) }

func newMemory(keep int, keepBytes int64) *memory {
	return &memory{keep: keep, keepBytes: keepBytes, calls: make(map[string]*Call), keys: make(map[string]claim), keysOf: make(map[string][]string), requests: make(map[string]*upstream.Request), ended: make(map[string]string), pendingEnds: make(map[string]pendingEnd)}
}

func (m *memory) Accept(_ context.Context, e *Entry) (*Call, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, err := m.find(e); known != nil || err != nil {
		return known, err
	}
	for _, key := range []string{e.Key, e.Identity} {
		if key == "" {
			continue
		}
		before := m.keys[key].id // nothing was executed
		m.keysOf[before] = slices.DeleteFunc(m.keysOf[before], func(k string) bool { return k == key })
		if len(m.keysOf[before]) == 0 {
			delete(m.keysOf, before)
		}
		m.keys[key] = claim{e.Fingerprint, e.Call.ID, key == e.Identity}
		m.keysOf[e.Call.ID] = append(m.keysOf[e.Call.ID], key)
	}
	m.calls[e.Call.ID] = e.Call
	m.order.add(e.Call.ID)
	if e.Identity != "" && e.Request != nil {
		m.requests[e.Call.ID] = e.Request
	}
	return nil, nil
}

func (m *memory) Find(_ context.Context, e *Entry) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.find(e)
}

func (m *memory) find(e *Entry) (*Call, error) {
	for _, key := range []string{e.Key, e.Identity} {
		k, ok := m.keys[key]
		if !ok {
			continue
		}
		c := m.calls[k.id]
		switch {
		case c.State == Cancelled, c.State == Expired, c.State == Exhausted: // nothing was executed
		case c.State == Failed && k.identity: // for good
		case k.fingerprint != e.Fingerprint && e.Fingerprint != "":
			return nil, fmt.Errorf("%w, call %s", ErrKeyReused, k.id)
		default:
			return c.whole(), nil
		}
	}
	return nil, nil
}

// identified returns 1 if a call has an identity, else 0.
func (m *memory) identified(id string) int {
	if slices.ContainsFunc(m.keysOf[id], func(k string) bool { return m.keys[k].identity }) {
		return 1
	}
	return 0
}

// End keeps as many identities as finished calls.
func (m *memory) End(_ context.Context, identity, by string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended[identity] == "" {
		m.endedOrder = append(m.endedOrder, identity)
	}
	m.ended[identity] = by
	if len(m.endedOrder) > m.keep {
		delete(m.ended, m.endedOrder[0])
		m.endedOrder = m.endedOrder[1:]
	}
	return nil
}

func (m *memory) EndedBy(_ context.Context, identity string) (string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.ended[identity], nil
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
	was := m.sizeOf(c.ID)
	m.calls[c.ID] = c
	if c.State.Finished() {
		delete(m.requests, c.ID)
	}
	delete(m.pendingEnds, c.ID)
	if c.Handled() && c.Notice() != "" {
		m.pendingEnds[c.ID] = pendingEnd{at: time.Now()}
	}
	switch {
	case swept(before):
		m.bytes += m.sizeOf(c.ID) - was
	case swept(c):
		of := m.identified(c.ID)
		m.finished[of] = append(m.finished[of], c.ID)
		m.bytes += m.sizeOf(c.ID)
	}
	for i := range m.finished {
		for len(m.finished[i]) > m.keep || i == 0 && m.bytes > m.keepBytes && len(m.finished[i]) > 1 {
			m.forgetFirst(i)
		}
	}
	for m.bytes > m.keepBytes && m.stripped < len(m.finished[1])-1 { // identities outlive answers
		m.strip(m.finished[1][m.stripped])
		m.stripped++
	}
	for m.bytes > m.keepBytes && len(m.finished[1]) > 1 {
		m.forgetFirst(1)
	}
	return nil
}

// forgetFirst removes the call of a list that ended first.
func (m *memory) forgetFirst(list int) {
	m.forget(m.finished[list][0])
	m.finished[list] = m.finished[list][1:]
	if list == 1 {
		m.stripped = max(m.stripped-1, 0)
	}
}

// strip drops the header and the body of a call's answer, and marks it as truncated.
func (m *memory) strip(id string) {
	c := m.calls[id]
	if c.Response == nil {
		return
	}
	m.bytes -= m.sizeOf(id)
	c = c.snapshot()
	c.Response = &Response{Status: c.Response.Status, Truncated: true}
	m.calls[id] = c
	m.bytes += m.sizeOf(id)
}

// sizeOf returns the bytes that a call holds.
func (m *memory) sizeOf(id string) int64 {
	n := m.calls[id].Response.size()
	if r := m.requests[id]; r != nil {
		n += requestSize(r)
	}
	return n
}

// request returns the request of a call with an identity that has not finished, else nil.
func (m *memory) request(id string) *upstream.Request {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.requests[id]
}

// forget removes a call that has ended.
func (m *memory) forget(id string) {
	m.bytes -= m.sizeOf(id)
	delete(m.calls, id)
	m.order.remove(id)
	delete(m.requests, id)
	delete(m.pendingEnds, id)
	for _, key := range m.keysOf[id] {
		delete(m.keys, key)
	}
	delete(m.keysOf, id)
}

func (m *memory) Get(_ context.Context, id string) (*Call, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := m.calls[id]
	if c == nil {
		return nil, fmt.Errorf("%w: %s", ErrNotFound, id)
	}
	return c.whole(), nil
}

// Bounds of a page of a list.
const (
	memoryStep   = 256     // calls that are looked up at once: the loop may wait for that
	memoryLooked = 100_000 // calls that are looked at
)

func (m *memory) List(_ context.Context, f Filter) (*ListPage, error) {
	page := &ListPage{Next: f.After}
	for looked := 0; looked < memoryLooked; looked += memoryStep {
		calls := m.step(page.Next, f.Oldest)
		for i, c := range calls {
			if page.Next = c.ID; !f.Matches(c) {
				continue
			}
			c = c.whole()
			c.Response = nil
			if page.Calls = append(page.Calls, c); len(page.Calls) == f.Max {
				if i == len(calls)-1 && len(calls) < memoryStep {
					page.Next = ""
				}
				return page, nil
			}
		}
		if len(calls) < memoryStep {
			page.Next = ""
			return page, nil
		}
	}
	return page, nil
}

// step returns the calls that come after one.
func (m *memory) step(after string, oldest bool) []*Call {
	m.mu.RLock()
	defer m.mu.RUnlock()
	ids := m.order.page(after, oldest, memoryStep)
	calls := make([]*Call, len(ids))
	for i, id := range ids {
		calls[i] = m.calls[id]
	}
	return calls
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
		c := m.calls[id].whole()
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
