package store

import (
	"container/heap"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A stream has calls in the order of a list.
type stream interface {
	// bound returns an id that is not behind the next call; ok is false at the end.
	bound() (id string, ok bool)
	// next returns the next call; nil if the stream has only come to know its bound better.
	next(l *listing) (*candidate, error)
}

// Streams are a heap: the first one has the next call, or may have it.
type streams struct {
	all   []stream
	order func(a, b string) int
}

func (s *streams) Len() int      { return len(s.all) }
func (s *streams) Swap(i, j int) { s.all[i], s.all[j] = s.all[j], s.all[i] }
func (s *streams) Push(x any)    { s.all = append(s.all, x.(stream)) }
func (s *streams) Pop() any      { panic("ended streams leave by first") }
func (s *streams) Less(i, j int) bool {
	a, _ := s.all[i].bound()
	b, _ := s.all[j].bound()
	return s.order(a, b) < 0
}

// first returns the first stream, whose bound may have moved, nil if all have ended.
func (s *streams) first() stream {
	for len(s.all) > 0 {
		if _, more := s.all[0].bound(); more {
			heap.Fix(s, 0)
			return s.all[0]
		}
		last := len(s.all) - 1
		s.all[0], s.all = s.all[last], s.all[:last]
	}
	return nil
}

// A rowStream reads the calls of a query.
type rowStream struct {
	query        string // of a stretch; its last values are the bounds of the ids, and the most rows
	args         []any
	above, below string
	newest       bool // first
	ahead        []candidate
	end          bool
}

// candidateColumns are those by which a filter rejects most calls before their rows are read.
const candidateColumns = "id, upstream, state, accepted_at, ended_at"

// A candidate is a call that a list looks at.
type candidate struct {
	located
	upstream, state string
	accepted, ended int64
}

func (c *candidate) fields() []any {
	return []any{&c.id, &c.upstream, &c.state, &c.accepted, &c.ended}
}

// may reports whether a candidate can match the filter.
func (l *listing) may(c *candidate) bool {
	state := scheduler.State(c.state)
	return (l.Upstream == "" || l.Upstream == c.upstream) &&
		(len(l.states) == 0 || slices.Contains(l.states, state) || state == scheduler.Waiting && slices.Contains(l.states, scheduler.Sending)) &&
		(l.AcceptedAfter.IsZero() || c.accepted >= columns.Micros(l.AcceptedAfter)) &&
		(l.AcceptedBefore.IsZero() || c.accepted < columns.Micros(l.AcceptedBefore)) &&
		(l.FinishedAfter.IsZero() || state.Finished() && c.ended >= columns.Micros(l.FinishedAfter)) &&
		(l.FinishedBefore.IsZero() || state.Finished() && c.ended < columns.Micros(l.FinishedBefore))
}

// rows returns the stream of a query, which begins with FROM and ends in a condition.
func (l *listing) rows(from string, args ...any) *rowStream {
	s := &rowStream{query: "SELECT seq, " + candidateColumns + " " + from + " AND id > ? AND id < ? ORDER BY id LIMIT ?", args: args, above: l.above, below: l.below, newest: !l.Oldest}
	if !l.Oldest {
		s.query = strings.Replace(s.query, "ORDER BY id", "ORDER BY id DESC", 1)
	}
	return s
}

func (s *rowStream) bound() (string, bool) {
	switch {
	case len(s.ahead) > 0:
		return s.ahead[0].id, true
	case s.newest:
		return s.below, !s.end
	}
	return s.above, !s.end
}

func (s *rowStream) next(l *listing) (*candidate, error) {
	if len(s.ahead) > 0 {
		c := &s.ahead[0]
		s.ahead = s.ahead[1:]
		if s.newest {
			s.below = c.id
		} else {
			s.above = c.id
		}
		return c, nil
	}
	rows, err := l.QueryContext(l, s.query, append(slices.Clip(s.args), s.above, s.below, listStep)...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c candidate
		if err := rows.Scan(append([]any{&c.seq}, c.fields()...)...); err != nil {
			return nil, err
		}
		s.ahead = append(s.ahead, c)
	}
	s.end = len(s.ahead) < listStep
	return nil, rows.Err()
}

// A blockStream reads the calls that a block has under all of some terms.
type blockStream struct {
	block
	view   view // that has the block, if it is in memory
	terms  []columns.Term
	limit  string // the bound until ahead is known
	opened bool
	seqs   []int64 // of the calls that are left
	ahead  *candidate
}

// under adds the streams of all blocks that can have calls of the list under all of some terms.
func (l *listing) under(m view, terms []columns.Term) {
	blocks := m.blocks
	if len(m.calls) > 0 {
		byID := func(a, b located) int { return strings.Compare(a.id, b.id) }
		ends := []located{slices.MinFunc(m.calls, byID), slices.MaxFunc(m.calls, byID)}
		blocks = append(slices.Clip(blocks), outline(0, ends))
	}
	for _, b := range blocks {
		if b.high <= l.above || b.low >= l.below {
			continue
		}
		s := &blockStream{block: b, view: m, terms: terms, limit: b.high}
		if l.Oldest {
			s.limit = b.low
		}
		l.streams.all = append(l.streams.all, s)
	}
}

func (s *blockStream) bound() (string, bool) {
	if s.ahead != nil {
		return s.ahead.id, true
	}
	return s.limit, !s.opened || len(s.seqs) > 0
}

func (s *blockStream) next(l *listing) (c *candidate, err error) {
	switch {
	case s.ahead != nil:
		c, s.ahead = s.ahead, nil
		s.limit = c.id
		return c, nil
	case !s.opened:
		s.opened = true
		return nil, s.open(l)
	}
	for s.ahead == nil && len(s.seqs) > 0 && err == nil { // some may have been swept
		s.ahead, err = l.candidate(s.seqs[0])
		s.seqs = s.seqs[1:]
	}
	if s.ahead != nil && (s.ahead.id <= l.above || s.ahead.id >= l.below) { // all that follow are, too
		s.ahead, s.seqs = nil, nil
	}
	return nil, err
}

// candidate returns a call as a candidate, nil if there is none any more.
func (l *listing) candidate(seq int64) (*candidate, error) {
	l.looked++
	c := &candidate{located: located{seq: seq}}
	err := l.QueryRowContext(l, selectCandidate, seq).Scan(c.fields()...)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return c, err
}

const selectCandidate = "SELECT " + candidateColumns + " FROM calls WHERE seq = ?"

// open finds the calls of the block, and skips those that come before the page.
func (s *blockStream) open(l *listing) (err error) {
	if s.seqs, err = s.found(l); err != nil || len(s.seqs) == 0 {
		return err
	}
	if !l.Oldest {
		slices.Reverse(s.seqs)
	}
	begun := sort.Search(len(s.seqs), func(i int) bool {
		var c *candidate
		for ; c == nil && i < len(s.seqs) && err == nil; i++ {
			c, err = l.candidate(s.seqs[i])
		}
		return c == nil || l.Oldest && c.id > l.above || !l.Oldest && c.id < l.below
	})
	s.seqs = s.seqs[begun:]
	return err
}

// found returns the calls of the block under all terms, by their ids.
func (s *blockStream) found(l *listing) ([]int64, error) {
	var calls []uint16
	for i, t := range s.terms {
		under := s.view.find(t)
		if s.number != 0 {
			var err error
			if under, err = l.find(s.number, t); err != nil {
				return nil, err
			}
		}
		if calls = slices.DeleteFunc(under, func(n uint16) bool { _, both := slices.BinarySearch(calls, n); return i > 0 && !both }); len(calls) == 0 {
			return nil, nil
		}
	}
	seqs := make([]int64, len(calls))
	if s.number == 0 {
		slices.SortFunc(calls, func(a, b uint16) int { return strings.Compare(s.view.calls[a].id, s.view.calls[b].id) })
		for i, n := range calls {
			seqs[i] = s.view.calls[n].seq
		}
		return seqs, nil
	}
	all, err := seqsOf(l, l, s.block)
	if err != nil || all == nil { // it was dropped
		return nil, err
	}
	for i, n := range calls {
		if int(n) >= len(all) {
			return nil, fmt.Errorf("terms of block %d: %w", s.number, columns.ErrChecksum)
		}
		seqs[i] = all[n]
	}
	return seqs, nil
}

// chunksAhead is how many chunks a query reads: with those of the blocks that come next.
const chunksAhead = 32

var selectChunks = "SELECT place, chunk, sum FROM terms WHERE place IN (?" + strings.Repeat(", ?", chunksAhead-1) + ")"

// A chunk is a block in the file, and a term.
type chunk struct {
	block int64
	columns.Term
}

// find returns the calls of a block in the file that have a term, by their numbers in it.
func (l *listing) find(block int64, t columns.Term) ([]uint16, error) {
	if calls, known := l.known[chunk{block, t}]; known {
		return calls, nil
	}
	ahead := int64(chunksAhead)
	if len(l.known) < 4 { // the first blocks may suffice
		ahead = 1
	}
	step := int64(-1)
	if l.Oldest {
		step = 1
	}
	places := make([]any, chunksAhead)
	for i := range places {
		b := block + min(int64(i), ahead-1)*step
		l.known[chunk{b, t}], places[i] = nil, b*buckets+bucket(t)
	}
	if err := l.readChunks(places, t); err != nil {
		return nil, err
	}
	return l.known[chunk{block, t}], nil
}

// readChunks reads the chunks of a term at some places, where these are.
func (l *listing) readChunks(places []any, t columns.Term) error {
	rows, err := l.QueryContext(l, selectChunks, places...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var place, sum int64
		var postings sql.RawBytes
		if err := rows.Scan(&place, &postings, &sum); err != nil {
			return err
		}
		if chunkSum(l.codec, place, postings) != sum {
			return fmt.Errorf("terms of block %d: %w", place/buckets, columns.ErrChecksum)
		}
		l.known[chunk{place / buckets, t}] = find(postings, t)
	}
	return rows.Err()
}
