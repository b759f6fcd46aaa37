package wheel

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
	"unsafe"
	"weak"
)

func advance[T any](w *Wheel[T], now time.Duration) (fired []T) {
	w.Advance(now, func(v T) { fired = append(fired, v) })
	return fired
}

func wantFired[T comparable](t *testing.T, w *Wheel[T], now time.Duration, want ...T) {
	t.Helper()
	if got := advance(w, now); !slices.Equal(got, want) {
		t.Fatalf("Advance(%v) fired %v, want %v", now, got, want)
	}
}

func TestNodeOfUint64Is32Bytes(t *testing.T) {
	if size := unsafe.Sizeof(node[uint64]{}); size != 32 {
		t.Errorf("a node is %d bytes", size)
	}
}

func TestNewPanicsOnTickNotPositive(t *testing.T) {
	for _, tick := range []time.Duration{0, -1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New(%v) did not panic", tick)
				}
			}()
			New[int](tick)
		}()
	}
}

func TestNeverEarly(t *testing.T) {
	w := New[string](time.Millisecond)
	w.Insert(1, "1ns")
	w.Insert(time.Millisecond, "1ms")
	w.Insert(time.Millisecond+1, "1ms+1ns")
	wantFired(t, w, time.Millisecond-1)
	wantFired(t, w, time.Millisecond, "1ns", "1ms")
	wantFired(t, w, 2*time.Millisecond-1)
	wantFired(t, w, 2*time.Millisecond, "1ms+1ns")
}

func TestPastDeadlineIsDueAtOnce(t *testing.T) {
	w := New[int](time.Second)
	wantFired(t, w, time.Minute)
	for i, at := range []time.Duration{math.MinInt64, -1, 0, 1, time.Minute} {
		w.Insert(at, i)
		if next, ok := w.Next(); !ok || next > time.Minute {
			t.Errorf("Next with a deadline of %v is %v, %v", at, next, ok)
		}
		wantFired(t, w, time.Minute, i)
	}
}

func TestGreatestDeadlineFires(t *testing.T) {
	for _, tick := range []time.Duration{1, 7, time.Millisecond, time.Hour, math.MaxInt64} {
		w := New[int](tick)
		w.Insert(math.MaxInt64, 1)
		w.Insert(math.MaxInt64-1, 0)
		wantFired(t, w, math.MaxInt64-2)
		if next, ok := w.Next(); !ok || next < math.MaxInt64-2 {
			t.Errorf("tick %d: Next is %d, %v", tick, next, ok)
		}
		if fired := advance(w, math.MaxInt64); !slices.Contains(fired, 1) || w.Len() != 0 {
			t.Errorf("tick %d: fired %v at last, %d left", tick, fired, w.Len())
		}
		w.Insert(math.MaxInt64, 2)
		wantFired(t, w, math.MaxInt64, 2)
	}
}

func TestLevelBoundaries(t *testing.T) {
	for level := 1; level < levels; level++ {
		for _, start := range []time.Duration{0, 1, 63, 64, 12345} {
			boundary := time.Duration(1) << (level * slotBits)
			w := New[time.Duration](1)
			wantFired(t, w, start)
			var want []time.Duration
			for _, at := range []time.Duration{boundary - 1, boundary, boundary + 1} {
				if at > start {
					w.Insert(at, at)
					want = append(want, at)
				}
			}
			for _, at := range want {
				wantFired(t, w, at-1)
				wantFired(t, w, at, at)
			}
		}
	}
}

func TestFarTimeoutNeedsOneWakeUpPerLevel(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := New[int](1)
		now := time.Duration(random.Int64() >> random.IntN(63))
		w.Advance(now, nil)
		at := now + 1 + time.Duration(random.Int64N(math.MaxInt64-int64(now))>>random.IntN(63))
		w.Insert(at, 0)
		wakes := 0
		for w.Len() > 0 {
			next, ok := w.Next()
			if !ok || next > at || next <= now && wakes > 0 {
				t.Fatalf("seed %d: at %d, Next is %d, %v; the deadline is %d", seed, now, next, ok, at)
			}
			now = next
			if fired := advance(w, now); len(fired) > 0 && now != at {
				t.Fatalf("seed %d: fired at %d instead of %d", seed, now, at)
			}
			wakes++
		}
		if wakes > levels {
			t.Errorf("seed %d: %d wake-ups", seed, wakes)
		}
	}
}

func TestWheelWrapsManyTimes(t *testing.T) {
	w := New[int](time.Millisecond)
	now := time.Duration(0)
	for i := range 5000 {
		w.Insert(now+63*time.Millisecond, i)
		wantFired(t, w, now+62*time.Millisecond)
		now += 63 * time.Millisecond
		wantFired(t, w, now, i)
	}
}

func TestJumpFiresEverythingInTickOrder(t *testing.T) {
	w := New[time.Duration](time.Millisecond)
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		at := time.Duration(random.Int64() >> random.IntN(50))
		w.Insert(at, w.instant(w.tickFrom(at)))
	}
	fired := advance(w, math.MaxInt64)
	if len(fired) != 10_000 || !slices.IsSorted(fired) {
		t.Errorf("%d fired, in order: %v", len(fired), slices.IsSorted(fired))
	}
}

func TestTimeStandingStillOrGoingBackFiresNothing(t *testing.T) {
	w := New[int](time.Millisecond)
	w.Advance(time.Second, nil)
	w.Insert(time.Second+time.Millisecond, 1)
	for _, now := range []time.Duration{time.Second, time.Second, 0, -1, math.MinInt64} {
		wantFired(t, w, now)
	}
	wantFired(t, w, time.Hour, 1)
	wantFired(t, w, time.Hour)
}

func TestCancel(t *testing.T) {
	w := New[int](time.Millisecond)
	for _, at := range []time.Duration{0, time.Millisecond, time.Second, time.Hour, math.MaxInt64} {
		h := w.Insert(at, 7)
		if v, ok := w.Cancel(h); v != 7 || !ok {
			t.Errorf("Cancel is %v, %v", v, ok)
		}
		if v, ok := w.Cancel(h); v != 0 || ok {
			t.Errorf("the second Cancel is %v, %v", v, ok)
		}
	}
	if _, ok := w.Next(); ok || w.Len() != 0 {
		t.Errorf("%d left", w.Len())
	}
	wantFired(t, w, math.MaxInt64)
}

func TestStaleHandleHitsNothing(t *testing.T) {
	w := New[int](time.Millisecond)
	fired := w.Insert(0, 1)
	wantFired(t, w, 0, 1)
	cancelled := w.Insert(time.Second, 2)
	w.Cancel(cancelled)
	w.Insert(time.Second, 3) // reuses the node of both
	for _, h := range []Handle{{}, fired, cancelled, {index: 5}, {index: math.MaxUint32}} {
		if _, ok := w.Cancel(h); ok {
			t.Errorf("Cancel(%v) hit", h)
		}
		if w.Reschedule(h, time.Minute) {
			t.Errorf("Reschedule(%v) hit", h)
		}
	}
	wantFired(t, w, time.Second, 3)
}

func TestHandleIsNeverGivenOutTwice(t *testing.T) {
	w := New[int](time.Millisecond)
	first := w.Insert(time.Second, 1)
	w.node(first.index).generation = math.MaxUint32 - 1 // as after four billion timeouts
	last := Handle{first.index, math.MaxUint32 - 1}
	if _, ok := w.Cancel(last); !ok {
		t.Fatal("the last generation was not live")
	}
	if next := w.Insert(time.Second, 2); next.index == first.index {
		t.Errorf("used again as %v", next)
	}
	for _, h := range []Handle{first, last} {
		if _, ok := w.Cancel(h); ok {
			t.Errorf("Cancel(%v) hit", h)
		}
	}
}

func TestEndedValueLeavesMemory(t *testing.T) {
	w := New[*[100]byte](time.Millisecond)
	var values []weak.Pointer[[100]byte]
	insert := func() Handle {
		v := new([100]byte)
		values = append(values, weak.Make(v))
		return w.Insert(time.Second, v)
	}
	w.Cancel(insert())
	insert()
	w.Advance(time.Minute, func(*[100]byte) {})
	runtime.GC()
	for i, v := range values {
		if v.Value() != nil {
			t.Errorf("value %d is still there", i)
		}
	}
	runtime.KeepAlive(w)
}

func TestReschedule(t *testing.T) {
	w := New[int](time.Millisecond)
	h := w.Insert(time.Second, 1)
	for _, at := range []time.Duration{time.Hour, time.Minute, math.MaxInt64, 2 * time.Second} {
		if !w.Reschedule(h, at) {
			t.Fatal("Reschedule missed")
		}
		wantFired(t, w, time.Second)
	}
	wantFired(t, w, 2*time.Second, 1)
	if w.Reschedule(h, time.Hour) {
		t.Error("Reschedule after firing hit")
	}
	h = w.Insert(time.Hour, 2)
	w.Reschedule(h, 0)
	wantFired(t, w, 2*time.Second, 2)
}

func TestFireMayChangeTheWheel(t *testing.T) {
	w := New[string](time.Millisecond)
	self := w.Insert(10*time.Millisecond, "first")
	other := w.Insert(20*time.Millisecond, "other")
	moved := w.Insert(30*time.Millisecond, "moved")
	var fired []string
	w.Advance(time.Second, func(v string) {
		fired = append(fired, v)
		if v != "first" {
			return
		}
		if _, ok := w.Cancel(self); ok || w.Reschedule(self, time.Second) {
			t.Error("a timeout that fires is still there")
		}
		if _, ok := w.Cancel(other); !ok {
			t.Error("Cancel missed")
		}
		w.Reschedule(moved, 50*time.Millisecond)
		w.Insert(40*time.Millisecond, "later in this Advance")
		w.Insert(10*time.Millisecond, "same tick")
		w.Insert(time.Hour, "far")
	})
	if want := []string{"first", "later in this Advance", "moved"}; !slices.Equal(fired, want) {
		t.Errorf("fired %v, want %v", fired, want)
	}
	if next, ok := w.Next(); !ok || next > time.Second {
		t.Errorf("Next is %v, %v with a timeout due", next, ok)
	}
	wantFired(t, w, time.Second, "same tick")
	wantFired(t, w, time.Hour, "far")
}

func TestAdvanceEndsThoughEachTimeoutInsertsOneThatIsDue(t *testing.T) {
	w := New[int](time.Millisecond)
	w.Insert(0, 0)
	for want := 1; want < 5; want++ {
		fired := 0
		w.Advance(0, func(v int) { fired++; w.Insert(0, v) })
		if fired != 1 {
			t.Fatalf("fired %d times", fired)
		}
	}
}

func TestPanicInFireLosesNoOther(t *testing.T) {
	w := New[int](time.Millisecond)
	for i := range 3 {
		w.Insert(0, i)
		w.Insert(time.Second, 10+i)
	}
	var fired []int
	for w.Len() > 0 {
		func() {
			defer func() { recover() }()
			w.Advance(time.Second, func(v int) { fired = append(fired, v); panic("task") })
		}()
	}
	slices.Sort(fired)
	if want := []int{0, 1, 2, 10, 11, 12}; !slices.Equal(fired, want) {
		t.Errorf("fired %v, want %v", fired, want)
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	w := New[uint64](time.Millisecond)
	now := time.Duration(0)
	w.Insert(time.Hour, 0)
	if n := testing.AllocsPerRun(1000, func() {
		h := w.Insert(now+time.Second, 1)
		w.Reschedule(h, now+time.Minute)
		w.Cancel(h)
		w.Insert(now+5*time.Millisecond, 2)
		now += 10 * time.Millisecond
		w.Advance(now, func(uint64) {})
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAdvanceWithNothingDueTouchesNothing(t *testing.T) {
	w := New[int](time.Millisecond)
	for i := range 1000 {
		w.Insert(365*24*time.Hour, i)
	}
	const noMove = 0
	w.raise(100 * 24 * time.Hour)
	if found := w.seek(noMove); found != idle {
		t.Errorf("after 100 days seek found %v", found)
	}
}

// A step moves no more than its budget out of a coarse slot, and timeouts due
// meanwhile fire first.
func TestCoarseSlotMovesInBoundedStepsWhileOthersFire(t *testing.T) {
	const n, budget = 10_000, 256
	w := New[int](time.Millisecond)
	for i := range n {
		w.Insert(9*time.Second+time.Duration(i)*time.Microsecond, i)
	}
	opens, _ := w.Next()
	if opens >= 9*time.Second-time.Second {
		t.Fatalf("the slot opens only at %v", opens)
	}
	w.Insert(opens, n)
	due1 := w.Insert(opens+10*time.Millisecond, n+1)
	w.raise(opens)
	steps := 0
	for w.seek(budget) != idle {
		if found := w.seek(budget); found == due {
			if v := w.pop(); v != n {
				t.Fatalf("fired %d", v)
			}
		}
		if steps++; steps == 5 { // time goes on in the middle of it
			w.raise(opens + 10*time.Millisecond)
			if w.seek(budget) != due || w.pop() != n+1 || w.find(due1) != nil {
				t.Fatal("a due timeout does not come first")
			}
		}
	}
	if steps < n/budget/2 || w.Len() != n {
		t.Errorf("%d steps, %d left", steps, w.Len())
	}
	fired := advance(w, time.Minute)
	slices.Sort(fired)
	if len(fired) != n || fired[0] != 0 || fired[n-1] != n-1 {
		t.Errorf("%d fired", len(fired))
	}
}

// TestHandleOfAnotherWheel: a handle with a number that the wheel has not given out names
// nothing.
func TestHandleOfAnotherWheel(t *testing.T) {
	larger, w := New[int](1), New[int](1)
	for range chunkNodes {
		h := larger.Insert(time.Second, 1)
		if _, ok := w.Cancel(h); ok || w.Reschedule(h, 0) || w.state(h) != Gone {
			t.Fatalf("%v names a timeout of a wheel with %d", h, w.Len())
		}
		if h.index > 1 {
			w.Insert(time.Second, 1)
		}
	}
}

// TestOverdueTimeoutsFireInOrder also when others come in between, from the side.
func TestOverdueTimeoutsFireInOrder(t *testing.T) {
	w := New[int](1)
	for i := range 3 {
		w.Insert(0, i)
	}
	for i := range 6 {
		w.raise(0)
		if w.seek(budget) != due {
			t.Fatalf("%d: nothing is due", i)
		}
		if got := w.pop(); got != i {
			t.Errorf("timeout %d fires in place of %d", got, i)
		}
		if i < 3 {
			w.Insert(0, 3+i)
		}
	}
}

// TestEmptyWheelFollowsTime: a timeout of a wheel that was empty for long is on the level
// of its delay, and needs no step in between.
func TestEmptyWheelFollowsTime(t *testing.T) {
	w := New[int](time.Millisecond)
	for _, now := range []time.Duration{63 * time.Millisecond, time.Hour, 1000 * time.Hour} {
		wantFired(t, w, now)
		at := now + 20*time.Millisecond
		w.Insert(at, 1)
		if next, ok := w.Next(); !ok || next != at {
			t.Errorf("after %v: the next step is at %v, want %v", now, next, at)
		}
		wantFired(t, w, at, 1)
	}
}

// TestMoveInSteps moves a slot down in small steps, and cancels timeouts of it in between:
// all others fire, once.
func TestMoveInSteps(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		w := New[int](1)
		left := map[int]Handle{}
		for i := range 2 + random.IntN(20) {
			left[i] = w.Insert(time.Duration(64*70+random.IntN(64)), i)
		}
		w.raise(64 * 72)
		for found := busy; found != idle; {
			if found = w.seek(1 + random.IntN(3)); found == due {
				i := w.pop()
				if _, ok := left[i]; !ok {
					t.Fatalf("seed %d: %d fired, and was cancelled or had fired", seed, i)
				}
				delete(left, i)
				continue
			}
			for i, h := range left {
				if random.IntN(3) == 0 {
					if v, ok := w.Cancel(h); !ok || v != i {
						t.Fatalf("seed %d: the cancelled timeout is %d, %v, want %d", seed, v, ok, i)
					}
					delete(left, i)
				}
				break
			}
		}
		if len(left) != 0 || w.Len() != 0 {
			t.Fatalf("seed %d: %d have not fired, the wheel has %d", seed, len(left), w.Len())
		}
	}
}
