package store

import (
	"container/heap"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

const (
	listLooked = 10_000          // calls that one page looks at
	listRead   = 1_000           // calls that it reads whole
	listStep   = 500             // calls that a query looks at
	narrow     = 2_000           // calls that ended in a period which is short
	clockSlack = 5 * time.Second // at most between the id of a call and its acceptance
)

// A listing makes a page of a list.
type listing struct {
	context.Context
	querier
	scheduler.Filter
	codec        *columns.Codec
	states       []scheduler.State // of the filter, each once; none for all
	above, below string            // the ids between which the page is
	streams      streams
	known        map[chunk][]uint16 // chunks that were read
	looked       int
}

// List implements [scheduler.Store].
func (r *reader) List(ctx context.Context, f scheduler.Filter) (*scheduler.ListPage, error) {
	view := r.index.look()
	return within(ctx, r, func(q querier) (*scheduler.ListPage, error) {
		l := newListing(ctx, q, r.codec, f)
		if err := l.plan(view); err != nil {
			return nil, err
		}
		return l.page()
	})
}

func newListing(ctx context.Context, q querier, d *columns.Codec, f scheduler.Filter) *listing {
	l := &listing{Context: ctx, querier: q, Filter: f, codec: d, states: slices.Clone(f.States), known: make(map[chunk][]uint16)}
	if f.NeedsPerson && len(f.States) == 0 {
		l.states = append(l.states, scheduler.Unknown)
	}
	slices.Sort(l.states)
	l.states = slices.Compact(l.states)
	l.above, l.below = l.span()
	l.streams.order = l.Compare
	return l
}

// page reads the calls of the streams until the page is full, or has looked at enough.
func (l *listing) page() (*scheduler.ListPage, error) {
	page := &scheduler.ListPage{}
	heap.Init(&l.streams)
	last, read := "", 0
	for {
		first := l.streams.first()
		if first == nil {
			return page, nil
		}
		if last != "" && (len(page.Calls) == l.Max && l.Max > 0 || l.looked >= listLooked || read >= listRead) {
			page.Next = last
			return page, nil
		}
		c, err := first.next(l)
		if err != nil {
			return nil, err
		}
		if c == nil || c.id == last { // two streams may have a call
			continue
		}
		l.looked++
		if last = c.id; !l.may(c) {
			continue
		}
		read++
		call, err := l.read(c.seq)
		if err != nil {
			return nil, err
		}
		if call != nil && l.Matches(call) {
			page.Calls = append(page.Calls, call)
		}
	}
}

// read returns a call without its response, nil if there is none any more.
func (l *listing) read(seq int64) (*scheduler.Call, error) {
	found := &columns.Row{}
	err := l.QueryRowContext(l, selectListedCall, seq).Scan(found.Fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return found.Call(l.codec)
}

// plan chooses the streams: calls under terms that few calls have; else those of states that few
// are in, or that ended in a short period; else those under other terms, or of other states; else
// all.
func (l *listing) plan(m view) error {
	if l.Q != "" {
		l.add(l.rows("FROM calls WHERE id = ?", l.Q))
	}
	if rare := l.terms(l.Number, l.IdempotencyKey, l.Q, l.Key); len(rare) > 0 {
		l.under(m, rare)
		return nil
	}
	crowded := len(l.states) == 0 || slices.Contains(l.states, scheduler.Waiting) || slices.Contains(l.states, scheduler.Done)
	if crowded {
		if short, err := l.shortPeriod(); short || err != nil {
			return err
		}
		if terms := l.terms(l.SubmittedBy, l.Flow, l.Limit, l.Upstream); len(terms) > 0 {
			l.under(m, terms)
			return nil
		}
	}
	for _, state := range l.states {
		l.add(l.rows(rowsOf[state]))
	}
	if len(l.states) == 0 {
		l.add(l.rows("FROM calls WHERE true"))
	}
	return nil
}

// terms returns the terms of the texts that are not empty.
func (l *listing) terms(texts ...string) (all []columns.Term) {
	for _, text := range texts {
		if text != "" {
			all = append(all, l.codec.Term(text))
		}
	}
	return all
}

// rowsOf are the calls of each state, by an index.
var rowsOf = map[scheduler.State]string{
	scheduler.Waiting:   "FROM calls INDEXED BY queued WHERE state = 'waiting'",
	scheduler.Sending:   "FROM flights JOIN calls USING (seq) WHERE true",
	scheduler.Unknown:   "FROM calls INDEXED BY unsettled WHERE state = 'unknown'",
	scheduler.Done:      "FROM calls INDEXED BY settled WHERE state = 'done'",
	scheduler.Failed:    "FROM calls INDEXED BY settled WHERE state = 'failed'",
	scheduler.Expired:   "FROM calls INDEXED BY settled WHERE state = 'expired'",
	scheduler.Exhausted: "FROM calls INDEXED BY settled WHERE state = 'exhausted'",
	scheduler.Cancelled: "FROM calls INDEXED BY settled WHERE state = 'cancelled'",
}

const (
	// SQLite begins where the first bound says; the last condition only names the index.
	inPeriod    = "FROM calls INDEXED BY ended WHERE ended_at >= ? AND ended_at < ? AND ended_at > 0"
	countPeriod = "SELECT count(*) FROM (SELECT 1 " + inPeriod + " LIMIT ?)"
)

// shortPeriod takes the calls that ended in a period, if these are few.
func (l *listing) shortPeriod() (short bool, err error) {
	if l.FinishedAfter.IsZero() && l.FinishedBefore.IsZero() {
		return false, nil
	}
	begin, end := max(1, columns.Micros(l.FinishedAfter)), int64(1)<<62
	if !l.FinishedBefore.IsZero() {
		end = columns.Micros(l.FinishedBefore)
	}
	n := 0
	if err := l.QueryRowContext(l, countPeriod, begin, end, narrow+1).Scan(&n); err != nil || n > narrow {
		return false, err
	}
	l.add(l.rows(inPeriod, begin, end))
	return true, nil
}

// add adds a stream.
func (l *listing) add(s stream) { l.streams.all = append(l.streams.all, s) }

// Ids are between these.
const (
	noID  = ""
	allID = "~"
)

// span returns the ids between which the page is. Ids begin with the millisecond in which they
// were made.
func (l *listing) span() (above, below string) {
	at := func(t time.Time) string {
		ms := max(0, t.UnixMilli())
		return fmt.Sprintf("%08x-%04x", ms>>16, ms&0xffff)
	}
	above, below = noID, allID
	if !l.AcceptedAfter.IsZero() {
		above = at(l.AcceptedAfter.Add(-clockSlack))
	}
	for _, before := range []time.Time{l.AcceptedBefore, l.FinishedBefore} {
		if !before.IsZero() {
			below = min(below, at(before.Add(clockSlack)))
		}
	}
	switch {
	case l.After == "":
	case l.Oldest:
		above = max(above, l.After)
	default:
		below = min(below, l.After)
	}
	return above, below
}
