package wheel

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestExecutorRunsTheTasksInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, queue := 0, make(chan func(), 100)
		go func() {
			for run := range queue {
				run()
			}
		}()
		defer close(queue)
		timer := single(Config{Executor: func(run func()) { calls++; queue <- run }})
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
		go func() { // one goroutine, blocked by the first task for a minute
			for run := range queue {
				run()
			}
		}()
		defer close(queue)
		timer := single(Config{Executor: func(run func()) { calls++; queue <- run }})
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
		timer := single(Config{Executor: func(run func()) { kept = run }})
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
		timer := newTimer(func(n uint64) { got = append(got, n) }, Config{}, 1)
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
	timer := single(Config{})
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

// TestStopDoesNotWaitForAFullExecutor: an Executor without room holds up neither Stop nor
// Drain for longer than their contexts say.
func TestStopDoesNotWaitForAFullExecutor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room, ran := make(chan struct{}), 0
		timer := single(Config{Executor: func(run func()) { <-room; go run() }})
		add(t, timer, func() { ran++ }, time.Second)
		time.Sleep(2 * time.Second)
		within := func() context.Context {
			ctx, cancel := context.WithTimeout(background, time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		begin := time.Now()
		if err := timer.Drain(within()); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Second {
			t.Errorf("Drain is %v after %v", err, time.Since(begin))
		}
		if left, err := timer.Stop(within()); len(left) != 1 || !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 2*time.Second {
			t.Errorf("Stop is %v, %v after %v", left, err, time.Since(begin))
		}
		close(room)
		if left, err := timer.Stop(background); len(left) != 0 || err != nil || ran != 0 {
			t.Errorf("Stop is %v, %v, and %d tasks ran after it", left, err, ran)
		}
	})
}

// TestDrainEndsWithAnExecutorThatIsLate: the last task has run before Executor returns.
func TestDrainEndsWithAnExecutorThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := 0
		timer := single(Config{Executor: func(run func()) {
			go run()
			time.Sleep(time.Second)
		}})
		add(t, timer, func() { ran++ }, time.Second)
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		if err := timer.Drain(ctx); err != nil || ran != 1 {
			t.Errorf("%d ran, Drain is %v", ran, err)
		}
	})
}
