package wheel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

var background = context.Background()

// bubble runs a test on fake time. The bubble itself fails if a goroutine of the timer
// is left.
func bubble(t *testing.T, cfg Config, test func(t *testing.T, timer *Timer[func()])) {
	synctest.Test(t, func(t *testing.T) {
		timer := NewTimer(cfg)
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

func TestSchedulingStartsTheWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		timer := NewTimer(Config{})
		if n := runtime.NumGoroutine(); n != before {
			t.Errorf("NewTimer started %d goroutines", n-before)
		}
		fired := make(chan bool)
		add(t, timer, func() { close(fired) }, time.Second)
		<-fired
		if _, err := timer.Stop(background); err != nil {
			t.Error(err)
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

func TestStopReturnsWhatNeitherFiredNorWasCancelled(t *testing.T) {
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
		other := NewTimer(Config{})
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

func TestDrainOfWhatIsCancelledEnds(t *testing.T) {
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

// Firing.

func TestFiresAtItsTickAndNotBefore(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		for _, delay := range []time.Duration{1, time.Millisecond, 63 * time.Millisecond, 64 * time.Millisecond,
			65*time.Millisecond + 1, time.Minute, 25 * time.Hour, 365 * 24 * time.Hour} {
			start := time.Now()
			fired := make(chan time.Time)
			o := add(t, timer, func() { fired <- time.Now() }, delay)
			deadline := o.Deadline()
			if late := deadline.Sub(start.Add(delay)); late < 0 || late >= time.Millisecond {
				t.Errorf("Deadline of %v is %v late", delay, late)
			}
			if at := <-fired; !at.Equal(deadline) {
				t.Errorf("after %v fired %v after its deadline", delay, at.Sub(deadline))
			}
			wantState(t, o, Fired)
			if !o.Deadline().IsZero() {
				t.Error("Deadline after firing")
			}
		}
	})
}

func TestPastDelaysFireAtOnce(t *testing.T) {
	bubble(t, Config{Tick: time.Hour}, func(t *testing.T, timer *Timer[func()]) {
		time.Sleep(90 * time.Minute)
		start := time.Now()
		for _, delay := range []time.Duration{0, -1, math.MinInt64} {
			fired := make(chan bool)
			add(t, timer, func() { close(fired) }, delay)
			<-fired
		}
		if d := time.Since(start); d != 0 {
			t.Errorf("after %v", d)
		}
	})
}

func TestGreatestDelayDoesNotOverflow(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		time.Sleep(time.Second)
		o := add(t, timer, nothing, math.MaxInt64)
		time.Sleep(1000 * time.Hour)
		wantState(t, o, Waiting)
		if o.Deadline().Before(time.Now().Add(200 * 365 * 24 * time.Hour)) {
			t.Errorf("Deadline is %v", o.Deadline())
		}
	})
}

func TestEachFiresOnceInOrderOfTicks(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		var fired []int
		for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(1000) {
			add(t, timer, func() { fired = append(fired, i) }, time.Duration(i)*time.Millisecond)
		}
		timer.Drain(background)
		if len(fired) != 1000 || !slices.IsSorted(fired) {
			t.Errorf("%d fired, sorted: %v", len(fired), slices.IsSorted(fired))
		}
	})
}

func TestEarlierTimeoutWakesTheSleeper(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		far := add(t, timer, nothing, time.Hour)
		synctest.Wait()
		start := time.Now()
		near := make(chan bool)
		add(t, timer, func() { close(near) }, time.Second)
		<-near
		if d := time.Since(start); d != time.Second {
			t.Errorf("the near one fired after %v", d)
		}
		far.Reschedule(time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		wantState(t, far, Fired)
	})
}

func TestTaskSchedulesInTheSameTick(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		start, n := time.Now(), 0
		var task func()
		task = func() {
			if n++; n < 100 {
				add(t, timer, task, 0)
			}
		}
		add(t, timer, task, time.Second)
		time.Sleep(time.Second)
		synctest.Wait()
		if n != 100 || time.Since(start) != time.Second {
			t.Errorf("%d ran in %v", n, time.Since(start))
		}
	})
}

func TestPanicIsReportedAndHarmsNoOther(t *testing.T) {
	var reports []string
	cfg := Config{OnPanic: func(v any, stack []byte) {
		reports = append(reports, fmt.Sprint(v, strings.Contains(string(stack), "TestPanicIsReported")))
	}}
	bubble(t, cfg, func(t *testing.T, timer *Timer[func()]) {
		ran := 0
		for i := range 6 {
			add(t, timer, func() {
				if i%2 == 0 {
					panic(i)
				}
				ran++
			}, time.Second)
		}
		add(t, timer, nil, time.Second)
		timer.Drain(background)
		if ran != 3 || len(reports) != 4 || reports[0] != "0 true" {
			t.Errorf("%d ran, reported %q", ran, reports)
		}
	})
}

func TestTaskThatEndsItsGoroutineHarmsNoOther(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		ran := 0
		for range 10 {
			add(t, timer, func() { ran++; runtime.Goexit() }, time.Second)
		}
		if err := timer.Drain(background); err != nil || ran != 10 {
			t.Errorf("%d ran, %v", ran, err)
		}
	})
}

func TestSlowTaskDelaysNoTick(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		add(t, timer, func() { time.Sleep(time.Hour) }, 0)
		var worst time.Duration
		for i := range 100 {
			due := time.Now().Add(time.Duration(i) * 10 * time.Millisecond)
			add(t, timer, func() { worst = max(worst, time.Since(due)) }, time.Until(due))
		}
		time.Sleep(time.Second + 2*patience)
		synctest.Wait()
		wantLen(t, timer, 0)
		if worst > 2*patience {
			t.Errorf("a task was %v late", worst)
		}
	})
}

func TestManySlowTasksDelayOthersByTheStatedBound(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		const stuck = 1000
		for range stuck {
			add(t, timer, func() { time.Sleep(time.Hour) }, time.Second)
		}
		start := time.Now().Add(time.Second)
		var late time.Duration
		add(t, timer, func() { late = time.Since(start) }, time.Second)
		time.Sleep(time.Minute)
		synctest.Wait()
		wantLen(t, timer, 0)
		if bound := time.Duration(2 * float64(patience) * (1 + math.Log2(stuck))); late > bound {
			t.Errorf("%v late, more than %v", late, bound)
		}
	})
}

func TestTasksTooSlowForOneGoroutineGetMore(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		// 2,000 tasks a second of 2ms each need four goroutines.
		var begun [2000]time.Duration
		for i := range begun {
			due := time.Now().Add(time.Duration(i) * time.Millisecond / 2)
			add(t, timer, func() { begun[i] = time.Since(due); time.Sleep(2 * time.Millisecond) }, time.Until(due))
		}
		timer.Drain(background)
		if worst := slices.Max(begun[:]); worst > 20*time.Millisecond {
			t.Errorf("a task was %v late", worst)
		}
	})
}

func TestIdleTimerDoesNotWakeUp(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		add(t, timer, nothing, time.Hour)
		synctest.Wait()
		wakes := 0
		for {
			timer.mu.Lock()
			wake := timer.wake
			timer.mu.Unlock()
			if wake == never {
				break
			}
			wakes++
			time.Sleep(wake - timer.now())
			synctest.Wait()
		}
		if wakes > levels {
			t.Errorf("%d wake-ups in an hour", wakes)
		}
	})
}

// Cancel and reschedule.

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
		wantState(t, o, Gone) // its place was taken
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
		for range 10 { // as an idle time-out is
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

// Executor and handler.

func TestExecutorRunsTheTasksInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, queue := 0, make(chan func(), 100)
		go func() {
			for run := range queue {
				run()
			}
		}()
		defer close(queue)
		timer := NewTimer(Config{Executor: func(run func()) { calls++; queue <- run }})
		ran := 0
		for i := range 1000 {
			add(t, timer, func() { ran++ }, time.Duration(1+i%10)*time.Second)
		}
		if err := timer.Drain(background); err != nil || ran != 1000 || calls != 10 {
			t.Errorf("%d ran in %d calls, %v", ran, calls, err)
		}
	})
}

func TestFullExecutorIsNotAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, queue := 0, make(chan func(), 100)
		go func() { // one goroutine, which the first task holds for a minute
			for run := range queue {
				run()
			}
		}()
		defer close(queue)
		timer := NewTimer(Config{Executor: func(run func()) { calls++; queue <- run }})
		ran := 0
		add(t, timer, func() { time.Sleep(time.Minute) }, time.Second)
		for range 10 {
			add(t, timer, func() { ran++ }, time.Second)
		}
		if err := timer.Drain(background); err != nil || ran != 10 || calls > 3 {
			t.Errorf("%d ran in %d calls, %v", ran, calls, err)
		}
	})
}

func TestRunnerThatBeginsAfterStopRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept func()
		timer := NewTimer(Config{Executor: func(run func()) { kept = run }})
		add(t, timer, func() { t.Error("ran") }, 0)
		synctest.Wait()
		if left, err := timer.Stop(background); len(left) != 1 || err != nil {
			t.Errorf("Stop is %v, %v", left, err)
		}
		kept()
	})
}

func TestHandlerGetsTheValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []uint64
		timer := NewHandlerTimer(func(n uint64) { got = append(got, n) }, Config{})
		for n := range uint64(5) {
			add(t, timer, n, time.Duration(n)*time.Second)
		}
		timer.Drain(background)
		if !slices.Equal(got, []uint64{0, 1, 2, 3, 4}) {
			t.Errorf("got %v", got)
		}
	})
}

func TestTimerInSteadyStateAllocatesNothing(t *testing.T) {
	timer := NewTimer(Config{})
	defer timer.Stop(background)
	add(t, timer, nothing, time.Hour)
	if n := testing.AllocsPerRun(1000, func() {
		o, _ := timer.NewTimeout(nothing, time.Minute)
		o.Reschedule(time.Hour)
		o.Cancel()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestConcurrentUse is for the race detector, on real time.
func TestConcurrentUse(t *testing.T) {
	timer := NewTimer(Config{Tick: 100 * time.Microsecond})
	var added, cancelled, ran atomic.Int32
	var users sync.WaitGroup
	for user := range uint64(8) {
		users.Go(func() {
			random := rand.New(rand.NewPCG(user, 0))
			var mine []Timeout[func()]
			for range 2000 {
				delay := time.Duration(random.IntN(5000)) * time.Microsecond
				o, err := timer.NewTimeout(func() { ran.Add(1) }, delay)
				if err != nil {
					t.Error(err)
				}
				added.Add(1)
				mine = append(mine, o)
				switch o = mine[random.IntN(len(mine))]; random.IntN(4) {
				case 0:
					if o.Cancel() {
						cancelled.Add(1)
					}
				case 1:
					o.Reschedule(delay)
				case 2:
					o.State()
					o.Deadline()
				}
			}
		})
	}
	users.Wait()
	if err := timer.Drain(background); err != nil {
		t.Error(err)
	}
	if ran.Load()+cancelled.Load() != added.Load() {
		t.Errorf("%d ran and %d were cancelled of %d", ran.Load(), cancelled.Load(), added.Load())
	}
}
