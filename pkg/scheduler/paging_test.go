package scheduler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A disk holds calls of which a backlog has the first in memory. Each event takes two
// steps, as in a store: a call is first written and then enqueued, and a page is read
// at some time between its request and its answer.
type disk struct {
	b       *backlog
	rows    []*call // written, not sent
	written []*call // not enqueued yet
	memory  []*call
	st      *stretch
	page    *Page
	found   []*call
	seq     uint64
	most    int64 // bytes of a call
	put     int   // of 8 calls, the number with a later start
	off     int   // written, with a later start
}

func (d *disk) accept(r *rand.Rand, lanes int64) {
	d.seq++
	c := &call{Call: &Call{Durable: true, Async: true, Priority: int16(r.IntN(3)), Stored: &Stored{Lane: r.Int64N(lanes)}}, seq: d.seq, bytes: r.Int64N(d.most)}
	if r.IntN(8) < d.put {
		c.due = 1
		d.off++
	}
	i, _ := d.find(c)
	d.rows = slices.Insert(d.rows, i, c)
	d.written = append(d.written, c)
}

func (d *disk) enqueue(r *rand.Rand) {
	i := r.IntN(len(d.written))
	c := d.written[i]
	d.written = slices.Delete(d.written, i, i+1)
	if c.due == 0 && d.b.takes(c) {
		d.b.enter(c)
		d.memory = append(d.memory, c)
	} else {
		d.b.far++
	}
}

func (d *disk) send(r *rand.Rand) {
	i := r.IntN(len(d.memory))
	c := d.memory[i]
	d.memory = slices.Delete(d.memory, i, i+1)
	d.b.leave(c)
	d.b.forget(c)
	if i, ok := d.find(c); ok {
		d.rows = slices.Delete(d.rows, i, i+1)
	} else { // sent while a page with it was in transit: the store refuses it
		d.b.far++
	}
}

func (d *disk) find(c *call) (int, bool) {
	return slices.BinarySearchFunc(d.rows, c, func(a, b *call) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.seq, b.seq))
	})
}

func (d *disk) look() {
	d.page = &Page{Last: d.st.from, End: true}
	looked := 0
	for _, c := range d.rows {
		at := c.position()
		if !d.st.from.before(at) {
			continue
		}
		if looked++; looked > 3*pageCalls || len(d.found) == pageCalls {
			d.page.End = false
			break
		}
		if d.page.Last = at; c.due == 0 && d.st.wants(at, c.Lane) {
			d.found = append(d.found, c)
		}
	}
}

func (d *disk) load() {
	d.b.read(d.st, d.page)
	for _, c := range d.found {
		if !c.near && !slices.Contains(d.written, c) {
			d.b.far--
			d.b.enter(c)
			d.memory = append(d.memory, c)
		}
	}
	d.st, d.page, d.found = nil, nil, nil
}

// read takes the next step of reading, and returns false if there is nothing to read.
func (d *disk) read() bool {
	switch {
	case d.page != nil:
		d.load()
	case d.st != nil:
		d.look()
	default:
		d.st = d.b.next()
		d.b.reads = d.st
		return d.st != nil
	}
	return true
}

// TestBacklogForgetsNoCall accepts and sends calls while pages are read, in random
// order. Every call reaches memory in the end.
func TestBacklogForgetsNoCall(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			d := &disk{b: newBacklog(0), most: 1 << r.IntN(17), put: r.IntN(7)}
			lanes := int64(1 + r.IntN(6))
			calls := r.IntN(3 * nearCalls)
			for range calls {
				d.accept(r, lanes)
			}
			if d.written = nil; r.IntN(2) == 0 { // the calls are of an earlier process
				d.b = newBacklog(calls)
			} else {
				d.written = slices.Clone(d.rows)
			}
			for range 4 * nearCalls {
				switch k := r.IntN(8); {
				case k < 1:
					d.accept(r, lanes)
				case k < 3 && len(d.written) > 0:
					d.enqueue(r)
				case k < 5 && len(d.memory) > 0:
					d.send(r)
				default:
					d.read()
				}
			}
			for len(d.written) > 0 || len(d.rows)+len(d.memory) > d.off {
				switch {
				case len(d.written) > 0:
					d.enqueue(r)
				case d.read():
				case len(d.memory) > 0:
					d.send(r)
				default:
					t.Fatalf("%d calls are on disk, and nobody reads them", len(d.rows)-d.off)
				}
			}
			if d.b.far != d.off || d.b.near != 0 || d.b.bytes != 0 || len(d.b.hand) != 0 {
				t.Errorf("nothing waits: %d far, %d near, %d bytes, %d in hand", d.b.far, d.b.near, d.b.bytes, len(d.b.hand))
			}
		})
	}
}

// TestBacklogGetsOn enters one urgent call during every page. The backlog must still
// read on to the last row, although it wants no call of the pages.
func TestBacklogGetsOn(t *testing.T) {
	const rows, page = 1_000_000, 50_000
	b := newBacklog(rows)
	for reads := 1; !b.done; reads++ {
		st := b.next()
		b.reads = st
		if st == nil || reads > 3*rows/page {
			t.Fatalf("after %d pages the backlog is at %+v", reads, b.cursor)
		}
		urgent := &call{Call: &Call{Durable: true, Async: true, Priority: 5, Stored: &Stored{}}, seq: rows + uint64(reads)}
		b.takes(urgent)
		last := Position{Seq: page}
		if st.from.Priority == 0 {
			last.Seq = min(st.from.Seq+page, rows)
		}
		b.read(st, &Page{Last: last, End: last.Seq == rows})
	}
}
