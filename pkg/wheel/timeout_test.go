package wheel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

func TestCancelIsTrueOnlyForTheOneThatDidIt(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		o := add(t, timer, func() { t.Error("a cancelled task ran") }, time.Second)
		copied := o
		if !o.Cancel() || o.Cancel() || copied.Cancel() || o.Reschedule(time.Second) {
			t.Error("not exactly the first Cancel hit")
		}
		wantState(t, o, Cancelled)
		fired := add(t, timer, nothing, time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if fired.Cancel() {
			t.Error("Cancel after firing hit")
		}
		wantState(t, fired, Fired)
		wantState(t, o, Gone) // its node is used again
	})
}

func TestZeroTimeoutIsGone(t *testing.T) {
	var o Timeout[func()]
	if _, ok := o.Value(); ok || o.Cancel() || o.Reschedule(0) || !o.Deadline().IsZero() || o.State() != Gone {
		t.Error("the zero Timeout is something")
	}
}

func TestTaskCanBeCancelledUntilItBegins(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		var second Timeout[func()]
		add(t, timer, func() {
			if !second.Cancel() {
				t.Error("Cancel missed")
			}
		}, time.Second)
		second = add(t, timer, func() { t.Error("ran") }, time.Second)
		timer.Drain(background)
	})
}

func TestCancelWhileItFiresHasOneWinner(t *testing.T) {
	for range 20 {
		bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
			const n = 200
			var ran, cancelled [n]atomic.Int32
			var cancellers sync.WaitGroup
			for i := range n {
				o := add(t, timer, func() { ran[i].Add(1) }, 10*time.Millisecond)
				for range 2 {
					cancellers.Go(func() {
						time.Sleep(time.Until(o.Deadline()))
						if o.Cancel() {
							cancelled[i].Add(1)
						}
					})
				}
			}
			cancellers.Wait()
			timer.Drain(background)
			for i := range n {
				if ran[i].Load()+cancelled[i].Load() != 1 {
					t.Errorf("ran %d times, cancelled %d times", ran[i].Load(), cancelled[i].Load())
				}
			}
		})
	}
}

func TestCancelledTaskLeavesMemory(t *testing.T) {
	timer := NewTimer(Config{})
	defer timer.Stop(background)
	value := func() weak.Pointer[[100]byte] {
		v := new([100]byte)
		add(t, timer, func() { v[0]++ }, time.Hour).Cancel()
		return weak.Make(v)
	}()
	runtime.GC()
	if value.Value() != nil {
		t.Error("still there")
	}
}

func TestRescheduleInPlace(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		start := time.Now()
		var after time.Duration
		o := add(t, timer, func() { after = time.Since(start) }, time.Second)
		for range 10 { // like an idle time-out
			time.Sleep(900 * time.Millisecond)
			if !o.Reschedule(time.Second) {
				t.Fatal("Reschedule missed")
			}
		}
		timer.Drain(background)
		if after != 10*time.Second {
			t.Errorf("fired after %v", after)
		}
		if o.Reschedule(time.Second) {
			t.Error("Reschedule after firing hit")
		}
	})
}
