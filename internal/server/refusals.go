package server

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
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

// A refusalFilter chooses refusals; an empty member chooses all.
type refusalFilter struct {
	upstream string
	reason   scheduler.Reason
}

// list returns a page of at most size refusals, the newest first, that begins behind the one with
// the id after, and whether there are more. If that one has gone, so have all behind it.
func (r *Refusals) list(f refusalFilter, after string, size int) (page []refusal, more bool) {
	if r == nil {
		return nil, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.ring)
	passed := 0 // refusals that are newer than the page
	if after != "" {
		i, ok := r.byID[after]
		if !ok {
			return nil, false
		}
		passed = (r.next-i+maxRefusals-1)%maxRefusals + 1
	}
	for age := passed; age < n; age++ {
		kept := r.ring[(r.next-1-age+maxRefusals)%maxRefusals]
		if f.upstream != "" && kept.upstream != f.upstream || f.reason != "" && kept.reason != f.reason {
			continue
		}
		if len(page) == size {
			return page, true
		}
		page = append(page, kept)
	}
	return page, false
}

// listRefusals lists calls that were refused, the newest first.
func listRefusals(a *Admin, r request[none]) (*api.Refusals, error) {
	if err := checkFilter(r.query); err != nil {
		return nil, err
	}
	f := refusalFilter{r.query.Get("upstream"), scheduler.Reason(r.query.Get("reason"))}
	last, err := after(f, r.query.Get("cursor"))
	if err != nil {
		return nil, err
	}
	page, more := a.Refusals.list(f, last, r.op.number(r.query, "page_size"))
	if len(page) == 0 { // a removed upstream may have some
		if err := a.known(r.Request, f.upstream); err != nil {
			return nil, err
		}
	}
	out := &api.Refusals{Refusals: make([]api.RefusedCall, len(page))}
	for i, kept := range page {
		out.Refusals[i] = api.RefusedCall{ID: kept.id, Upstream: kept.upstream, At: api.At(kept.at), Reason: string(kept.reason), Detail: kept.detail}
	}
	if more {
		out.Next = cursor(f, page[len(page)-1].id)
	}
	return out, nil
}

var refusalParams = []Param{
	upstreamParam,
	{Name: "reason", Type: "string", Enum: names(slices.Sorted(maps.Keys(statuses))), Doc: "Only refusals for this reason."},
	{Name: "page_size", Type: "integer", Max: maxPage, Default: defaultPage, Doc: "The most refusals of a page."},
	{Name: "cursor", Type: "string", Doc: "Next of the page before, of the same filter."},
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
