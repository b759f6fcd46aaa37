package paging

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A row is a call of the test.
type row struct {
	Row
	delayed  bool
	resident bool
	known    bool // resident when the page was requested
}

// A disk holds calls of which a window has the first in memory. Each event takes two
// steps, as in a store: a call is first written and then enqueued, and a page is read
// at some time between its request and its answer.
type disk struct {
	w       *Window
	rows    []*row // written, not sent
	written []*row // not enqueued yet
	memory  []*row
	request *Request
	read    bool // the page has been read
	last    Position
	end     bool
	found   []*row
	seq     int64
	most    int64 // bytes of a call
	delay   int   // of 8 calls, the number with a later start
	delayed int   // written, with a later start
	again   bool  // a call in memory was read again
}

func (d *disk) accept(r *rand.Rand, classes int64) {
	d.seq++
	c := &row{Row: Row{Position: Position{Priority: r.IntN(3), Seq: d.seq}, Class: r.Int64N(classes), Bytes: r.Int64N(d.most)}}
	if r.IntN(8) < d.delay {
		c.delayed = true
		d.delayed++
	}
	i, _ := d.find(c)
	d.rows = slices.Insert(d.rows, i, c)
	d.written = append(d.written, c)
}

func (d *disk) enqueue(r *rand.Rand) {
	i := r.IntN(len(d.written))
	c := d.written[i]
	d.written = slices.Delete(d.written, i, i+1)
	if !c.delayed && d.w.Admit(c.Row) {
		d.enter(c)
	} else {
		d.w.Park()
	}
}

func (d *disk) enter(c *row) {
	d.w.Enter(c.Row)
	c.resident = true
	d.memory = append(d.memory, c)
}

func (d *disk) send(r *rand.Rand) {
	i := r.IntN(len(d.memory))
	c := d.memory[i]
	d.memory = slices.Delete(d.memory, i, i+1)
	d.w.Leave(c.Row)
	c.resident = false
	d.w.Forget(c.Seq)
	if i, ok := d.find(c); ok {
		d.rows = slices.Delete(d.rows, i, i+1)
	} else { // it was sent while a page with it was on its way: the store refuses
		d.w.Park()
	}
}

func (d *disk) find(c *row) (int, bool) {
	return slices.BinarySearchFunc(d.rows, c, func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Seq, b.Seq))
	})
}

func (d *disk) scan() {
	d.read, d.last, d.end = true, d.request.From, true
	looked := 0
	for _, c := range d.rows {
		if !d.request.From.Before(c.Position) {
			continue
		}
		if looked++; looked > 3*PageSize || len(d.found) == PageSize {
			d.end = false
			break
		}
		if d.last = c.Position; !c.delayed && d.request.Wants(c.Position, c.Class) {
			d.found = append(d.found, c)
			d.again = d.again || c.known
		}
	}
}

func (d *disk) load() {
	d.w.Done(d.request, d.last, d.end)
	for _, c := range d.found {
		if !c.resident && !slices.Contains(d.written, c) {
			d.w.Load()
			d.enter(c)
		}
	}
	d.request, d.read, d.found = nil, false, nil
}

// step takes the next step of reading; false if there is nothing to read.
func (d *disk) step() bool {
	switch {
	case d.read:
		d.load()
	case d.request != nil:
		d.scan()
	default:
		for _, c := range d.rows {
			c.known = c.resident
		}
		d.request = d.w.Next()
		return d.request != nil
	}
	return true
}

// TestWindowForgetsNoCall: every call comes to memory in the end, and once, whichever
// calls come while pages are read, and in whichever order they are enqueued. Few calls
// make every page one at the end of a priority, where new calls are skipped.
func TestWindowForgetsNoCall(t *testing.T) {
	many, few := uint64(8), uint64(200)
	if testing.Short() {
		many, few = many/2, few/2
	}
	for seed := range many {
		t.Run(fmt.Sprint("many ", seed), func(t *testing.T) { play(t, seed, 3*MaxCalls, 4*MaxCalls) })
	}
	for seed := range few {
		t.Run(fmt.Sprint("few ", seed), func(t *testing.T) { play(t, seed, 2*PageSize, 100) })
	}
}

func play(t *testing.T, seed uint64, most, events int) {
	r := rand.New(rand.NewPCG(seed, 0))
	d := &disk{w: NewWindow(0), most: 1 << r.IntN(17), delay: r.IntN(7)}
	classes := int64(1 + r.IntN(6))
	calls := 1 + r.IntN(most)
	for range calls {
		d.accept(r, classes)
	}
	if d.written = nil; r.IntN(2) == 0 { // of an earlier process
		d.w = NewWindow(calls)
	} else {
		d.written = slices.Clone(d.rows)
	}
	for range events {
		switch k := r.IntN(8); {
		case k < 1:
			d.accept(r, classes)
		case k < 3 && len(d.written) > 0:
			d.enqueue(r)
		case k < 5 && len(d.memory) > 0:
			d.send(r)
		default:
			d.step()
		}
	}
	for len(d.written) > 0 || len(d.rows)+len(d.memory) > d.delayed {
		switch {
		case len(d.written) > 0:
			d.enqueue(r)
		case d.step():
		case len(d.memory) > 0:
			d.send(r)
		default:
			t.Fatalf("%d calls are on disk, and no page of them is read", len(d.rows)-d.delayed)
		}
	}
	if d.w.OnDisk() != d.delayed || d.w.resident != 0 || d.w.bytes != 0 || len(d.w.known) != 0 {
		t.Errorf("nothing waits: %d on disk, %d resident, %d bytes, %d known", d.w.OnDisk(), d.w.resident, d.w.bytes, len(d.w.known))
	}
	if d.again {
		t.Error("a call in memory was read again")
	}
}

// TestWindowReachesTheEnd: calls that come first, one during every page, do not keep the
// cursor from the last call, though no call of the pages is wanted.
func TestWindowReachesTheEnd(t *testing.T) {
	const rows, page = 1_000_000, 50_000
	w := NewWindow(rows)
	for reads := 1; !w.complete; reads++ {
		q := w.Next()
		if q == nil || reads > 3*rows/page {
			t.Fatalf("after %d pages the cursor is at %+v", reads, w.cursor)
		}
		w.Admit(Row{Position: Position{Priority: 5, Seq: rows + int64(reads)}})
		last := Position{Seq: page}
		if q.From.Priority == 0 {
			last.Seq = min(q.From.Seq+page, rows)
		}
		w.Done(q, last, last.Seq == rows)
	}
}

// TestWindowGoesOnFromARestart: a call was left to the disk before the cursor; the pages
// from there to the cursor follow each other.
func TestWindowGoesOnFromARestart(t *testing.T) {
	w := NewWindow(1000)
	q := w.Next()
	w.Admit(Row{Position: Position{Priority: 5, Seq: 1001}})
	w.Done(q, Position{Seq: 500}, false)
	for n, from := range []Position{{Priority: 5, Seq: 1000}, {Seq: 100}, {Seq: 200}} {
		q := w.Next()
		if q == nil || q.From != from {
			t.Fatalf("page %d: %+v, want one from %+v", n+1, q, from)
		}
		w.Done(q, Position{Seq: int64(n+1) * 100}, false)
	}
	q = w.Next()
	w.Done(q, Position{Seq: 500}, false)
	if q = w.Next(); q.From != (Position{Seq: 500}) || w.restart != nil {
		t.Errorf("after the restart the next page begins at %+v", q.From)
	}
}

// TestFullClassIsHeld: a class with as much in memory as it may have is left to the disk,
// and other classes are not. When half of it has gone, its pages follow each other until
// the last.
func TestFullClassIsHeld(t *testing.T) {
	at := func(seq int64) Position { return Position{Seq: seq} }
	row := func(seq, class int64) Row { return Row{Position: at(seq), Class: class} }
	w := NewWindow(2 * MaxClass)
	for seq := range int64(MaxClass) {
		w.Load()
		w.Enter(row(seq+1, 1))
	}
	q := w.Next()
	if q.Wants(at(MaxClass+1), 1) || !q.Wants(at(MaxClass+2), 2) {
		t.Error("a page has calls of a full class, or none of another class")
	}
	w.Done(q, at(MaxClass+2), true)
	if w.Admit(row(3*MaxClass, 1)) || !w.Admit(row(3*MaxClass+1, 2)) {
		t.Error("a new call of a held class waits in memory, or one of another class does not")
	}
	for seq := range int64(MaxClass / 2) {
		if q := w.Next(); q != nil {
			t.Fatalf("a page from %+v is read while the class has %d calls in memory", q.From, w.classes[1])
		}
		w.Leave(row(seq+1, 1))
		w.Forget(seq + 1)
	}
	for page, last := range []int64{MaxClass + 10, MaxClass + 20} {
		q := w.Next()
		if from := at(MaxClass + 10*int64(page)); q == nil || q.From != from {
			t.Fatalf("page %d is %+v, want one from %+v", page+1, q, from)
		}
		if !q.Wants(at(last), 1) || q.Wants(at(last+1), 2) {
			t.Error("the page of a held class has no call of the class, or one of another class")
		}
		w.Done(q, at(last), page == 1)
	}
	if q := w.Next(); q != nil || !w.Admit(row(3*MaxClass+2, 1)) {
		t.Errorf("after its last page the class is still held; the next page is %+v", q)
	}
}

// TestAhead: a call on disk has those before it that its age makes likely.
func TestAhead(t *testing.T) {
	at := func(priority int, seq int64) Position { return Position{Priority: priority, Seq: seq} }
	w := NewWindow(80)
	w.cursor = at(0, 20)
	w.hold(7, at(0, 60))
	for _, tt := range []struct {
		r    Row
		want int
	}{
		{Row{Position: at(0, 10)}, 0},
		{Row{Position: at(0, 21)}, 1},
		{Row{Position: at(0, 60)}, 40},
		{Row{Position: at(0, 100)}, 80},
		{Row{Position: at(0, 1<<62)}, 80},
		{Row{Position: at(1, 50)}, 0},
		{Row{Position: at(-1, 50)}, 80},
		{Row{Position: at(0, 60), Class: 7}, 0},
		{Row{Position: at(0, 80), Class: 7}, 40},
	} {
		if got := w.Ahead(tt.r, 100); got != tt.want {
			t.Errorf("ahead of %+v are %d, want %d", tt.r, got, tt.want)
		}
	}
	w.complete = true
	if got := w.Ahead(Row{Position: at(0, 60)}, 100); got != 0 {
		t.Errorf("when all was read, %d are ahead", got)
	}
}
