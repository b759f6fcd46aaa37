package server

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of the refusals that are kept.
const (
	maxRefusals      = 10_000
	maxRefusalDetail = 500 // bytes
)

// Refusals keep the last calls that were refused, so that the id in the answer leads to the
// reason. A nil Refusals keeps none.
type Refusals struct {
	mu   sync.Mutex
	ring []refusal // it grows to maxRefusals
	next int       // the place of the next one
	byID map[string]int
}

// A refusal is a call that was refused.
type refusal struct {
	id, upstream, detail string
	reason               scheduler.Reason
	at                   time.Time
}

// add keeps a refusal of a call of which the scheduler keeps nothing.
func (r *Refusals) add(e *scheduler.Error) {
	if r == nil || e.Call == nil || len(e.Call.Attempts) > 0 || e.Call.Outcome() != upstream.NotExecuted {
		return
	}
	kept := refusal{e.Call.ID, e.Call.Upstream, strings.ToValidUTF8(e.Detail[:min(len(e.Detail), maxRefusalDetail)], ""), e.Reason, time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byID == nil {
		r.byID = make(map[string]int)
	}
	if len(r.ring) < maxRefusals {
		r.ring = append(r.ring, kept)
	} else {
		delete(r.byID, r.ring[r.next].id)
		r.ring[r.next] = kept
	}
	r.byID[kept.id] = r.next
	r.next = (r.next + 1) % maxRefusals
}

// explain replaces the error of a call that is not known by why it was refused.
func (r *Refusals) explain(id string, err error) error {
	if r == nil || !errors.Is(err, scheduler.ErrNotFound) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	i, ok := r.byID[id]
	if !ok {
		return err
	}
	kept := r.ring[i]
	return &scheduler.Error{
		Reason: refusedCall, Upstream: kept.upstream, Call: &scheduler.Call{ID: id, Upstream: kept.upstream},
		Detail: fmt.Sprintf("call %s was refused at %s (%s), and nothing was sent: %s", id, kept.at.UTC().Format(time.RFC3339), kept.reason, kept.detail),
	}
}
