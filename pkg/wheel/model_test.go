package wheel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// model is a wheel written for clarity, not speed.
type model struct {
	tick    time.Duration
	reached time.Duration // start of the last tick that was reached
	pending []modelTimeout
}

type modelTimeout struct {
	id  int
	at  time.Duration // start of its tick
	due bool          // its tick was reached before it was inserted
}

func (m *model) timeout(id int, at time.Duration) modelTimeout {
	start := max(at, 0)
	if rest := start % m.tick; rest != 0 {
		start += min(m.tick-rest, math.MaxInt64-start)
	}
	return modelTimeout{id, start, start <= m.reached}
}

func (m *model) remove(id int) bool {
	n := len(m.pending)
	m.pending = slices.DeleteFunc(m.pending, func(p modelTimeout) bool { return p.id == id })
	return len(m.pending) < n
}

// advance returns the ids that fire, grouped by tick.
func (m *model) advance(now time.Duration) (fire [][]int) {
	if now != math.MaxInt64 {
		now -= now % m.tick
	}
	m.reached = max(m.reached, now)
	slices.SortStableFunc(m.pending, func(a, b modelTimeout) int {
		switch {
		case a.due && b.due:
			return 0
		case a.due:
			return -1
		case b.due:
			return 1
		}
		return int(min(max(a.at-b.at, -1), 1))
	})
	for len(m.pending) > 0 && m.pending[0].at <= m.reached {
		first := m.pending[0]
		var group []int
		for len(m.pending) > 0 && (first.due && m.pending[0].due || !m.pending[0].due && first.at == m.pending[0].at) {
			group = append(group, m.pending[0].id)
			m.pending = m.pending[1:]
		}
		slices.Sort(group)
		fire = append(fire, group)
	}
	return fire
}

// checkAgainstModel reads operations from data, does them on a wheel and its model, and
// compares.
func checkAgainstModel(t *testing.T, data []byte) {
	number := func() (n uint64) {
		var b [8]byte
		data = data[copy(b[:], data):]
		return binary.LittleEndian.Uint64(b[:])
	}
	// distance is anything from a tick to three centuries, mostly short, often at a
	// power of 64.
	distance := func() time.Duration {
		n := number()
		d := time.Duration(1) << (n % 63)
		switch n >> 8 % 4 {
		case 0:
			return d + time.Duration(n>>16%3) - 1
		case 1:
			return time.Duration(n>>16%7) - 3
		}
		return time.Duration(n >> 1 & uint64(d-1))
	}
	ticks := []time.Duration{1, 3, time.Microsecond, time.Millisecond, time.Hour}
	tick := ticks[number()%uint64(len(ticks))]
	w, m := New[int](tick), &model{tick: tick}
	var handles []Handle
	now := time.Duration(0)
	scheduled, extra := 0, 0 // deadlines set; wake-ups at Next without a timeout
	from := func(d time.Duration) time.Duration {
		if d > math.MaxInt64-now {
			return math.MaxInt64
		}
		return now + d
	}
	for len(data) > 0 {
		op := data[0]
		data = data[1:]
		switch op % 8 {
		case 0, 1, 2:
			at := from(distance())
			m.pending = append(m.pending, m.timeout(len(handles), at))
			handles = append(handles, w.Insert(at, len(handles)))
			scheduled++
		case 3, 4:
			if len(handles) == 0 {
				continue
			}
			id := int(number() % uint64(len(handles)))
			v, ok := w.Cancel(handles[id])
			if want := m.remove(id); ok != want || ok && v != id {
				t.Fatalf("Cancel of %d is %d, %v, want %v", id, v, ok, want)
			}
		case 5:
			if len(handles) == 0 {
				continue
			}
			id, at := int(number()%uint64(len(handles))), from(distance())
			ok := w.Reschedule(handles[id], at)
			if want := m.remove(id); ok != want {
				t.Fatalf("Reschedule of %d is %v, want %v", id, ok, want)
			}
			if ok {
				m.pending = append(m.pending, m.timeout(id, at))
				scheduled++
			}
		case 6:
			now = from(max(distance(), 0))
			checkAdvance(t, w, m, now)
		case 7: // wake up at Next, as an owner does
			next, ok := w.Next()
			if !ok {
				continue
			}
			now = max(now, next)
			if checkAdvance(t, w, m, now) == 0 {
				extra++
			}
			if extra > scheduled*(levels-1) {
				t.Fatalf("%d wake-ups without firing for %d timeouts", extra, scheduled)
			}
		}
		checkNext(t, w, m)
	}
	checkAdvance(t, w, m, math.MaxInt64)
	if w.Len() != 0 {
		t.Fatalf("%d lost", w.Len())
	}
}

func checkAdvance(t *testing.T, w *Wheel[int], m *model, now time.Duration) (count int) {
	t.Helper()
	fired := advance(w, now)
	count = len(fired)
	for _, group := range m.advance(now) {
		if len(fired) < len(group) {
			t.Fatalf("Advance(%d): %v missing", now, group[len(fired):])
		}
		got := fired[:len(group)]
		slices.Sort(got)
		if !slices.Equal(got, group) {
			t.Fatalf("Advance(%d) fired %v, want %v", now, got, group)
		}
		fired = fired[len(group):]
	}
	if len(fired) > 0 {
		t.Fatalf("Advance(%d) fired %v too early", now, fired)
	}
	return count
}

func checkNext(t *testing.T, w *Wheel[int], m *model) {
	if w.Len() != len(m.pending) {
		t.Fatalf("Len is %d, want %d", w.Len(), len(m.pending))
	}
	next, ok := w.Next()
	if ok != (len(m.pending) > 0) {
		t.Fatalf("Next is %v with %d pending", ok, len(m.pending))
	}
	for _, p := range m.pending {
		if next > max(p.at, m.reached) {
			t.Fatalf("Next is %d, after the deadline %d", next, p.at)
		}
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			data := make([]byte, 4000)
			for i := range data {
				data[i] = byte(random.Uint32())
			}
			checkAgainstModel(t, data)
		})
	}
}

func FuzzAgainstModel(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x12\x00\x05\x00\x00\x00\x00\x00\x07\x06\x3e"))
	f.Fuzz(checkAgainstModel)
}
