// Package paging decides which of the durable calls that wait are in memory, and which
// page of the others is read next.
//
// Calls wait in the order of their positions: priority first, then age. A cursor goes
// through that order, a page at a time, as room comes free:
//
//	position     ──────────────────────────────────────────────────────►
//	in memory    ■ ■ ■   ■ ■ ■ ■ ■ │
//	on disk            □           │ □ □ □ □ □ □ □ □ □ □ □ □
//	                   ▲           ▲
//	                   skipped     cursor
//
// Before the cursor every call is in memory, but for two kinds that are known:
//
//   - A class (calls that wait for the same permits) may have only so many calls in memory,
//     or a full key would fill it. From then on it is held: it has a cursor of its own, and
//     the common cursor passes it by.
//   - A call that came while a page was read, and was left to the disk, may lie before the
//     cursor. Its position is where reading starts again.
//
// A call that is submitted waits in memory if no call on disk goes before it and there is
// room; else it is left to the disk. Invariants, which a test holds by playing accepts,
// pages and sends against each other in all orders:
//
//   - No call waits on disk that no cursor will reach.
//   - No call in memory is read again.
//   - Calls that come first, one during every page, do not keep the cursor from its end.
//
// A Window is pure: it takes positions and sizes, and reads nothing itself.
package paging

import (
	"maps"
	"time"
)

// How much of a backlog is in memory, per upstream.
const (
	MaxCalls = 8192
	MaxClass = MaxCalls / 4 // calls of one class, so that a full key leaves room for others
	MaxBytes = 64 << 20     // of bodies and headers
	PageSize = 512          // calls read at a time
)

// A Position is a place among waiting calls: by priority, the highest first, or by
// instant; then by age.
type Position struct {
	Priority int
	At       time.Time
	Seq      int64
}

// Before reports whether a call at p goes before one at o.
func (p Position) Before(o Position) bool {
	if p.Priority != o.Priority {
		return p.Priority > o.Priority
	}
	return p.Seq < o.Seq
}

// below is just before a position.
func (p Position) below() Position { return Position{Priority: p.Priority, Seq: p.Seq - 1} }

// First is before every call.
var First = Position{Priority: 1 << 15}

// A Row is a waiting call as far as paging needs to know it.
type Row struct {
	Position
	Class int64
	Bytes int64
}

// A Window knows which calls of one upstream are in memory. It has one owner: its
// methods must not be called concurrently.
type Window struct {
	onDisk   int // calls on disk only
	resident int // calls that wait in memory
	bytes    int64
	classes  map[int64]int      // resident calls by class
	known    map[int64]struct{} // by seq: resident, sent, or not yet recorded
	cursor   Position
	complete bool      // no call comes after the cursor
	restart  *Position // from there to the cursor a call was left to the disk; nil if none was
	held     map[int64]Position
	request  *Request // that is under way, nil if none is
}

// NewWindow returns the window of an upstream that has so many calls on disk.
func NewWindow(onDisk int) *Window {
	return &Window{
		onDisk: onDisk, cursor: First, complete: onDisk == 0,
		classes: make(map[int64]int), known: make(map[int64]struct{}), held: make(map[int64]Position),
	}
}

// OnDisk returns how many calls wait on disk only.
func (w *Window) OnDisk() int { return w.onDisk }

// Ahead estimates how many calls on disk go before a call that is not in memory. Between
// the cursor and the call they lie as evenly as up to the youngest of all, unless the
// cursor is at another priority: then all of them count.
func (w *Window) Ahead(r Row, youngest int64) int {
	if !w.behind(r) {
		return 0
	}
	from := w.cursorOf(r.Class)
	if from.Priority != r.Priority || r.Seq >= youngest {
		return w.onDisk
	}
	return int(float64(w.onDisk) * float64(r.Seq-from.Seq) / float64(youngest-from.Seq))
}

// behind reports whether calls on disk go before a call.
func (w *Window) behind(r Row) bool {
	_, held := w.held[r.Class]
	return (held || !w.complete) && w.cursorOf(r.Class).Before(r.Position)
}

// cursorOf returns the position up to which the calls of a class were read.
func (w *Window) cursorOf(class int64) Position {
	if from, held := w.held[class]; held {
		return from
	}
	return w.cursor
}

// Admit decides whether a new call waits in memory.
func (w *Window) Admit(r Row) bool {
	if w.behind(r) || !w.makeRoom(r) {
		w.skip(r)
		return false
	}
	return true
}

// makeRoom decides about a call that goes before every call on disk: it waits in memory,
// unless that holds far too much.
func (w *Window) makeRoom(r Row) bool {
	calls, class := MaxCalls, MaxClass
	if !w.complete {
		calls *= 2
	}
	_, held := w.held[r.Class]
	if held {
		class *= 2
	}
	at := r.below()
	full := w.resident >= calls || w.bytes >= MaxBytes
	switch {
	case full && !held:
		if w.complete || at.Before(w.cursor) {
			w.cursor, w.complete = at, false
		}
		if w.restart != nil && !w.restart.Before(w.cursor) {
			w.restart = nil
		}
		return false
	case full || w.classes[r.Class] >= class:
		w.hold(r.Class, at)
		return false
	}
	return true
}

// hold leaves the calls of a class to the disk, from a position on.
func (w *Window) hold(class int64, from Position) {
	if held, ok := w.held[class]; !ok || from.Before(held) {
		w.held[class] = from
	}
}

// Park counts a call that waits on disk only; Load one that was read from there.
func (w *Window) Park() { w.onDisk++ }
func (w *Window) Load() { w.onDisk = max(0, w.onDisk-1) }

// Enter counts a call that waits in memory, and Leave takes it out when it waits no more.
func (w *Window) Enter(r Row) {
	w.resident++
	w.bytes += r.Bytes
	w.classes[r.Class]++
	w.known[r.Seq] = struct{}{}
}

func (w *Window) Leave(r Row) {
	w.resident--
	w.bytes -= r.Bytes
	if w.classes[r.Class]--; w.classes[r.Class] == 0 {
		delete(w.classes, r.Class)
	}
}

// Forget drops a call that is not in memory any more, and whose state the store knows.
func (w *Window) Forget(seq int64) { delete(w.known, seq) }

// Crowded reports whether calls that are due soon need not be read now: memory holds
// far more than the window asks for.
func (w *Window) Crowded() bool { return w.resident > 2*MaxCalls || w.bytes > MaxBytes }

// A Request is the page to be read next: of one held class, or of all calls that follow
// a position.
type Request struct {
	From    Position
	class   int64
	ofClass bool
	known   map[int64]struct{}
	counts  map[int64]int
	held    map[int64]Position
	full    map[int64]Position // classes that have as much in memory as they may
	skipped *Position          // a call was left to the disk there meanwhile
}

// Next returns the page to be read now, nil if none. It is under way until Done.
func (w *Window) Next() *Request {
	if w.request != nil || w.bytes >= MaxBytes/2 {
		return nil
	}
	w.request = w.next()
	return w.request
}

func (w *Window) next() *Request {
	for class, from := range w.held {
		if w.classes[class] <= MaxClass/2 && w.resident < MaxCalls {
			return &Request{From: from, class: class, ofClass: true, known: maps.Clone(w.known)}
		}
	}
	if w.complete && w.restart == nil || w.resident > MaxCalls/2 {
		return nil
	}
	from := w.cursor
	if w.restart != nil {
		from = *w.restart
	}
	return &Request{From: from, known: maps.Clone(w.known), counts: maps.Clone(w.classes), held: maps.Clone(w.held), full: make(map[int64]Position)}
}

// Wants chooses the calls of the page, in order. It may be called outside the owner's
// goroutine.
func (r *Request) Wants(p Position, class int64) bool {
	if _, known := r.known[p.Seq]; known {
		return false
	}
	if r.ofClass {
		return class == r.class
	}
	if _, held := r.held[class]; held {
		return false
	}
	if _, full := r.full[class]; full {
		return false
	}
	if r.counts[class] >= MaxClass {
		r.full[class] = p.below()
		return false
	}
	r.counts[class]++
	return true
}

// Done records that the page has been read up to a position; end means that no call
// comes after it. A call that was left to the disk meanwhile is still to be read.
func (w *Window) Done(r *Request, last Position, end bool) {
	w.request = nil
	if r.ofClass {
		w.doneClass(r, last, end)
		return
	}
	for class, from := range r.full {
		if at := r.skipped; at != nil && at.Before(from) {
			from = *at
		}
		w.hold(class, from)
	}
	again := w.restart != nil && *w.restart == r.From
	if again {
		w.restart = &last
	}
	switch {
	case w.cursor != r.From && !again: // it was put back meanwhile
	case !last.Before(w.cursor):
		w.cursor, w.complete = last, end
		fallthrough
	case end:
		w.restart = nil
	}
	switch at := r.skipped; {
	case at == nil:
	case !at.Before(w.cursor):
		w.complete = false
	case w.restart == nil || at.Before(*w.restart):
		w.restart = at
	}
}

// doneClass is Done for the page of a held class.
func (w *Window) doneClass(r *Request, last Position, end bool) {
	if at := r.skipped; at != nil && (end || at.Before(last)) {
		last, end = *at, false
	}
	switch {
	case w.held[r.class] != r.From:
	case end:
		delete(w.held, r.class)
	default:
		w.held[r.class] = last
	}
}

// Rewind starts the scan anew: calls that were read could not be kept in memory.
func (w *Window) Rewind() {
	if w.onDisk == 0 {
		return
	}
	w.cursor, w.complete, w.restart = First, false, nil
	clear(w.held)
	if w.request != nil {
		from := First
		w.request.skipped = &from
	}
}

// skip notes that a call was left to the disk while a page is read.
func (w *Window) skip(r Row) {
	at := r.below()
	if q := w.request; q != nil && (!q.ofClass || q.class == r.Class) && (q.skipped == nil || at.Before(*q.skipped)) {
		q.skipped = &at
	}
}
