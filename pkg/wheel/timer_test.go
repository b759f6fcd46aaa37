package wheel

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

var background = context.Background()

// single returns a timer of one wheel, so that its tasks run one after another as long
// as none is slow. Tests of several are in shard_test.go.
func single(cfg Config) *Timer[func()] {
	return newTimer(func(task func()) { task() }, cfg, 1)
}

// bubble runs a test on fake time. The bubble itself fails if a goroutine of the timer
// is left.
func bubble(t *testing.T, cfg Config, test func(t *testing.T, timer *Timer[func()])) {
	synctest.Test(t, func(t *testing.T) {
		timer := single(cfg)
		defer timer.Stop(background)
		test(t, timer)
	})
}

func add[T any](t *testing.T, timer *Timer[T], value T, delay time.Duration) Timeout[T] {
	t.Helper()
	o, err := timer.NewTimeout(value, delay)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func wantState[T any](t *testing.T, o Timeout[T], want State) {
	t.Helper()
	if got := o.State(); got != want {
		t.Errorf("State is %v, want %v", got, want)
	}
}

func wantLen[T any](t *testing.T, timer *Timer[T], want int) {
	t.Helper()
	if got := timer.Len(); got != want {
		t.Errorf("Len is %d, want %d", got, want)
	}
}

func nothing() {}

// Start and stop.

func TestFirstTimeoutStartsTheTimer(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		for i := range timer.shards {
			if s := &timer.shards[i]; s.phase != fresh || s.alarm != nil || s.wheel != nil {
				t.Error("NewTimer started something")
			}
		}
		fired := make(chan bool)
		add(t, timer, func() { close(fired) }, time.Second)
		<-fired
		if phase := timer.shards[0].phase; phase != started {
			t.Errorf("phase is %v", phase)
		}
		if _, err := timer.Stop(background); err != nil {
			t.Error(err)
		}
		if _, err := timer.NewTimeout(nothing, 0); err != ErrStopped {
			t.Errorf("NewTimeout is %v", err)
		}
	})
}

func TestStopBeforeStartAndTwice(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		for range 2 {
			if left, err := timer.Stop(background); len(left) > 0 || err != nil {
				t.Errorf("Stop is %v, %v", left, err)
			}
		}
		if err := timer.Drain(background); err != nil {
			t.Error(err)
		}
	})
}

func TestSchedulingAfterStopIsAnError(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		timer.Stop(background)
		if o, err := timer.NewTimeout(nothing, 0); !errors.Is(err, ErrStopped) || o != (Timeout[func()]{}) {
			t.Errorf("NewTimeout is %v, %v", o, err)
		}
	})
}

func TestStopReturnsPendingTimeouts(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		fired, cancelled := 0, 0
		var want []Timeout[func()]
		for i := range 300 {
			o := add(t, timer, func() { fired++ }, time.Duration(i)*10*time.Millisecond+1)
			switch {
			case i%3 == 0:
				o.Cancel()
				cancelled++
			case i > 100:
				want = append(want, o)
			}
		}
		time.Sleep(1005 * time.Millisecond)
		synctest.Wait()
		wantLen(t, timer, len(want))
		left, err := timer.Stop(background)
		if err != nil || len(left) != len(want) {
			t.Fatalf("Stop gave back %d, %v, want %d", len(left), err, len(want))
		}
		if fired != 300-cancelled-len(left) {
			t.Errorf("%d fired", fired)
		}
		for _, o := range want {
			if !slices.Contains(left, o) {
				t.Error("a timeout is missing")
			}
			wantState(t, o, Waiting)
			if o.Reschedule(0) {
				t.Error("Reschedule after Stop hit")
			}
		}
		time.Sleep(time.Hour)
		before := fired
		task, ok := left[0].Value()
		if !ok || before != 300-cancelled-len(left) {
			t.Fatalf("Value is there: %v; %d fired", ok, before)
		}
		if task(); fired != before+1 {
			t.Error("Value is another task")
		}
		wantLen(t, timer, len(left))
		if again, err := timer.Stop(background); len(again) > 0 || err != nil {
			t.Errorf("the second Stop is %v, %v", again, err)
		}
	})
}

func TestStopFromInsideATaskIsRefused(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		other := single(Config{})
		add(t, other, nothing, time.Hour)
		add(t, timer, func() {
			if left, err := timer.Stop(background); err != ErrInsideTask || len(left) > 0 {
				t.Errorf("Stop is %v, %v", left, err)
			}
			if err := timer.Drain(background); err != ErrInsideTask {
				t.Errorf("Drain is %v", err)
			}
			if left, err := other.Stop(background); err != nil || len(left) != 1 {
				t.Errorf("Stop of another timer is %v, %v", left, err)
			}
		}, time.Second)
		later := add(t, timer, nothing, time.Minute)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		wantState(t, later, Fired)
	})
}

func TestStopWaitsForRunningTasks(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		start := time.Now()
		add(t, timer, func() { time.Sleep(time.Minute) }, 0)
		add(t, timer, nothing, time.Second)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
		defer cancel()
		left, err := timer.Stop(ctx)
		if len(left) != 1 || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 task") {
			t.Errorf("Stop is %v, %v", left, err)
		}
		if left, err := timer.Stop(background); len(left) > 0 || err != nil || time.Since(start) != time.Minute {
			t.Errorf("Stop is %v, %v after %v", left, err, time.Since(start))
		}
	})
}

func TestNoTaskBeginsAfterStop(t *testing.T) {
	for seed := range uint64(50) {
		bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
			random := rand.New(rand.NewPCG(seed, 0))
			var stopped atomic.Bool
			var begun atomic.Int32
			for range 500 {
				slow := random.IntN(20) == 0
				add(t, timer, func() {
					if begun.Add(1); stopped.Load() {
						t.Errorf("seed %d: a task began after Stop", seed)
					}
					if slow {
						time.Sleep(10 * time.Millisecond)
					}
				}, time.Duration(random.IntN(20))*time.Millisecond)
			}
			time.Sleep(10 * time.Millisecond)
			left, err := timer.Stop(background)
			stopped.Store(true)
			if n := int(begun.Load()); err != nil || len(left)+n != 500 {
				t.Errorf("seed %d: %d begun and %d given back of 500, %v", seed, n, len(left), err)
			}
			time.Sleep(time.Second)
		})
	}
}

func TestDrainWaitsUntilAllHaveRun(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		var refused error
		start := time.Now()
		add(t, timer, func() { _, refused = timer.NewTimeout(nothing, 0) }, time.Second)
		add(t, timer, func() { time.Sleep(time.Minute) }, time.Hour)
		cancelled := add(t, timer, nothing, 100*time.Hour)
		time.AfterFunc(2*time.Second, func() { cancelled.Cancel() })
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		if err := timer.Drain(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Drain is %v", err)
		}
		if err := timer.Drain(background); err != nil || time.Since(start) != time.Hour+time.Minute {
			t.Errorf("Drain is %v after %v", err, time.Since(start))
		}
		if refused != ErrStopped {
			t.Errorf("NewTimeout while draining is %v", refused)
		}
		wantLen(t, timer, 0)
	})
}

func TestDrainOfCancelledTimeoutsEnds(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		o := add(t, timer, nothing, time.Hour)
		time.AfterFunc(time.Second, func() { o.Cancel() })
		start := time.Now()
		if err := timer.Drain(background); err != nil || time.Since(start) != time.Second {
			t.Errorf("Drain is %v after %v", err, time.Since(start))
		}
	})
}

func TestStopCutsDrainShort(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		add(t, timer, nothing, time.Hour)
		time.AfterFunc(time.Second, func() {
			if left, err := timer.Stop(background); len(left) != 1 || err != nil {
				t.Errorf("Stop is %v, %v", left, err)
			}
		})
		if err := timer.Drain(background); !errors.Is(err, ErrStopped) {
			t.Errorf("Drain is %v", err)
		}
	})
}

// Bounds.

func TestLimitRejectsTheNextAndMakesRoom(t *testing.T) {
	bubble(t, Config{MaxPending: 2}, func(t *testing.T, timer *Timer[func()]) {
		full := func() {
			t.Helper()
			_, err := timer.NewTimeout(nothing, 0)
			if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), "MaxPending 2") {
				t.Errorf("NewTimeout is %v", err)
			}
		}
		add(t, timer, nothing, time.Second)
		o := add(t, timer, nothing, time.Minute)
		full()
		o.Cancel()
		add(t, timer, nothing, time.Minute)
		full()
		time.Sleep(2 * time.Second)
		add(t, timer, nothing, time.Minute)
		full()
	})
}

func TestLenIsExact(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		a := add(t, timer, nothing, 0) // cancelled before it can reach a tick
		b := add(t, timer, nothing, time.Second)
		add(t, timer, nothing, time.Second)
		add(t, timer, nothing, time.Hour)
		wantLen(t, timer, 4)
		a.Cancel()
		a.Cancel()
		wantLen(t, timer, 3)
		b.Reschedule(time.Minute)
		wantLen(t, timer, 3)
		time.Sleep(30 * time.Second)
		wantLen(t, timer, 2)
		left, _ := timer.Stop(background)
		wantLen(t, timer, len(left))
	})
}

func TestNegativeConfigPanics(t *testing.T) {
	for _, cfg := range []Config{{Tick: -1}, {MaxPending: -1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("NewTimer(%+v) did not panic", cfg)
				}
			}()
			NewTimer(cfg)
		}()
	}
}

func TestAfter(t *testing.T) {
	const end = time.Duration(math.MaxInt64)
	for _, tt := range []struct{ now, delay, want time.Duration }{
		{5, -1, 0}, {5, 0, 0}, {5, 1, 6}, {5, end - 5, end}, {5, end - 4, end}, {5, end - 6, end - 1}, {0, end, end},
	} {
		if got := after(tt.now, tt.delay); got != tt.want {
			t.Errorf("after(%d, %d) = %d, want %d", tt.now, tt.delay, got, tt.want)
		}
	}
}

// TestStopTellsHowManyTasksRun of all wheels.
func TestStopTellsHowManyTasksRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer := newTimer(func(task func()) { task() }, Config{}, 3)
		for i := range 2 { // the last wheel has none
			s := &timer.shards[i]
			s.mu.Lock()
			s.startLocked()
			s.insertLocked(0, timer.now(), func() { time.Sleep(time.Hour) })
			s.mu.Unlock()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		if _, err := timer.Stop(ctx); err == nil || !strings.Contains(err.Error(), " 2 tasks still run") {
			t.Errorf("Stop is %v, want an error that counts 2 tasks", err)
		}
		time.Sleep(time.Hour)
	})
}
