package wheel

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestFiresAtItsDeadlineAndNotBefore(t *testing.T) {
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
		synctest.Wait() // for the alarm after the near one
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
		var late [100]time.Duration
		for i := range late {
			due := time.Now().Add(time.Duration(i) * 10 * time.Millisecond)
			add(t, timer, func() { late[i] = time.Since(due) }, time.Until(due))
		}
		time.Sleep(time.Second + 2*stallTimeout)
		synctest.Wait()
		wantLen(t, timer, 0)
		if worst := slices.Max(late[:]); worst > 2*stallTimeout {
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
		if bound := time.Duration(2 * float64(stallTimeout) * (1 + math.Log2(stuck))); late > bound {
			t.Errorf("%v late, more than %v", late, bound)
		}
	})
}

func TestTasksTooSlowForOneGoroutineGetMore(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		// 2,000 tasks a second of 2ms each keep four goroutines busy.
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
			shard := &timer.shards[0]
			shard.mu.Lock()
			wake := shard.wake
			shard.mu.Unlock()
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

func TestFarTimeoutCostsAsLittleAsANearOne(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		start := time.Now()
		const year = 365 * 24 * time.Hour
		o := add(t, timer, nothing, year)
		deadline := o.Deadline()
		if d := deadline.Sub(start); d < year || d > year+time.Millisecond {
			t.Errorf("the deadline is in %v", d)
		}
		timer.Drain(background)
		if !time.Now().Equal(deadline) {
			t.Errorf("fired %v late", time.Since(deadline))
		}
	})
}

func TestMoreThan100000InOneTickFireInThatTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fired, late int
		start := time.Now()
		timer := newTimer(func(int) {
			if fired++; time.Since(start) != time.Second {
				late++
			}
		}, Config{}, 1)
		const n = 150_000
		for i := range n {
			add(t, timer, i, time.Second)
		}
		timer.Drain(background)
		if fired != n || late != 0 {
			t.Errorf("%d fired, %d of them late", fired, late)
		}
	})
}

func TestWakesUpOnceATickHoweverManyAreDue(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		var at []time.Time // instants at which timeouts fired
		var worst time.Duration
		for i := range 10_000 {
			due := time.Now().Add(time.Second + time.Duration(i)*10*time.Microsecond)
			add(t, timer, func() {
				if now := time.Now(); len(at) == 0 || now != at[len(at)-1] {
					at = append(at, now)
				}
				worst = max(worst, time.Since(due))
			}, time.Until(due))
		}
		timer.Drain(background)
		for i := 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); d < time.Millisecond {
				t.Fatalf("fired again after %v", d)
			}
		}
		if len(at) < 99 || worst > time.Millisecond+time.Millisecond/grains {
			t.Errorf("fired at %d instants, one %v late", len(at), worst)
		}
	})
}

func TestNoLockIsHeldWhileATaskRuns(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		other := add(t, timer, nothing, time.Hour)
		ran := false
		add(t, timer, func() {
			o := add(t, timer, nothing, time.Minute)
			if timer.Len() != 2 || !o.Reschedule(time.Hour) || !o.Cancel() || other.State() != Waiting {
				t.Error("a task cannot use its timer")
			}
			ran = true
		}, time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !ran || timer.Len() != 1 {
			t.Errorf("ran: %v, %d wait", ran, timer.Len())
		}
	})
}

// TestWorkersOfSlowTasks has the instants at which tasks begin that are due together: a
// second worker begins after 1ms, and the number doubles each time that none has ended
// a task; while some end, and others still wait, there is one more each time.
func TestWorkersOfSlowTasks(t *testing.T) {
	const us = time.Microsecond
	for _, tt := range []struct {
		tasks int
		each  time.Duration
		want  []time.Duration
	}{
		{9, 20 * time.Millisecond, []time.Duration{0, 1000 * us, 1000 * us, 2000 * us, 2000 * us, 2000 * us, 2000 * us, 3000 * us, 3000 * us}},
		{12, 700 * us, []time.Duration{0, 700 * us, 1000 * us, 1400 * us, 1700 * us, 2000 * us, 2100 * us, 2400 * us, 2700 * us, 2800 * us, 3000 * us, 3100 * us}},
		{12, 1500 * us, []time.Duration{0, 1000 * us, 1000 * us, 2000 * us, 2000 * us, 2000 * us, 2000 * us, 3000 * us, 3000 * us, 3000 * us, 3000 * us, 3000 * us}},
	} {
		bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
			begin := time.Now().Add(time.Second)
			for round := range 2 { // after the first, no worker is left
				var mu sync.Mutex
				var got []time.Duration
				for range tt.tasks {
					add(t, timer, func() {
						mu.Lock()
						got = append(got, time.Since(begin))
						mu.Unlock()
						time.Sleep(tt.each)
					}, time.Second)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if !slices.Equal(got, tt.want) {
					t.Errorf("round %d, %d tasks of %v: begin after %v, want %v", round, tt.tasks, tt.each, got, tt.want)
				}
				begin = time.Now().Add(time.Second)
			}
		})
	}
}

// TestTimeoutAfterALongSleepNeedsOneAlarm: the wheel goes to the present first.
func TestTimeoutAfterALongSleepNeedsOneAlarm(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		add(t, timer, nothing, 10*time.Hour)
		for _, sleep := range []time.Duration{37 * time.Minute, time.Hour} {
			time.Sleep(sleep)
			o := add(t, timer, nothing, 3*time.Millisecond)
			if s := &timer.shards[0]; timer.origin.Add(s.wake) != o.Deadline() {
				t.Errorf("the alarm is %v before the deadline", o.Deadline().Sub(timer.origin.Add(s.wake)))
			}
			time.Sleep(time.Second)
		}
	})
}

// TestPanicIsLogged where the configuration has no OnPanic.
func TestPanicIsLogged(t *testing.T) {
	var log bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	bubble(t, Config{}, func(t *testing.T, timer *Timer[func()]) {
		add(t, timer, func() { panic("a fault of the task") }, time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if text := log.String(); !strings.Contains(text, "task panicked") || !strings.Contains(text, "a fault of the task") || !strings.Contains(text, "firing_test.go") {
			t.Errorf("the log is %q, want the panic and its stack", text)
		}
	})
}
