package wheel

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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

// busyShards returns a timer of four shards with timeouts in each: the other shards
// were locked while one was filled.
func busyShards(t *testing.T, cfg Config, each int, delay time.Duration) (timer *Timer[func()], ran *atomic.Int32) {
	timer = newTimer(func(task func()) { task() }, cfg, 4)
	ran = new(atomic.Int32)
	for i := range timer.shards {
		for j := range timer.shards {
			if j != i {
				timer.shards[j].mu.Lock()
			}
		}
		for range each {
			add(t, timer, func() { ran.Add(1) }, delay)
		}
		for j := range timer.shards {
			if j != i {
				timer.shards[j].mu.Unlock()
			}
		}
		if n := timer.shards[i].wheel.Len(); n != each {
			t.Fatalf("shard %d has %d", i, n)
		}
	}
	return timer, ran
}

func TestShardInUseLetsCallersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer, ran := busyShards(t, Config{}, 3, time.Second)
		wantLen(t, timer, 12)
		start := time.Now()
		if err := timer.Drain(background); err != nil || ran.Load() != 12 || time.Since(start) != time.Second {
			t.Errorf("%d ran in %v, %v", ran.Load(), time.Since(start), err)
		}
	})
}

func TestStopGivesBackFromAllShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer, ran := busyShards(t, Config{}, 3, time.Second)
		left, err := timer.Stop(background)
		if len(left) != 12 || err != nil {
			t.Errorf("Stop is %d timeouts, %v", len(left), err)
		}
		time.Sleep(time.Minute)
		if ran.Load() != 0 {
			t.Errorf("%d ran", ran.Load())
		}
	})
}

func TestStopFromInsideATaskOfAnyShardIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer, _ := busyShards(t, Config{}, 1, time.Hour)
		var refused atomic.Int32
		for range 2 {
			timer.shards[0].mu.Lock() // so that the timeout goes to another shard
			add(t, timer, func() {
				if _, err := timer.Stop(background); err == ErrInsideTask {
					refused.Add(1)
				}
			}, time.Second)
			timer.shards[0].mu.Unlock()
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left, _ := timer.Stop(background); len(left) != 4 || refused.Load() != 2 {
			t.Errorf("%d refused, %d left", refused.Load(), len(left))
		}
	})
}

func TestLimitHoldsAcrossShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		timer, _ := busyShards(t, Config{MaxPending: 12}, 3, time.Second)
		if _, err := timer.NewTimeout(nothing, 0); !errors.Is(err, ErrFull) {
			t.Errorf("NewTimeout is %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for range 12 {
			add(t, timer, nothing, 0)
		}
		timer.Drain(background)
	})
}

func TestLimitHoldsWithManyCallers(t *testing.T) {
	timer := NewTimer(Config{MaxPending: 1000})
	var accepted, full atomic.Int32
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 500 {
				switch _, err := timer.NewTimeout(nothing, time.Hour); {
				case err == nil:
					accepted.Add(1)
				case errors.Is(err, ErrFull):
					full.Add(1)
				}
			}
		})
	}
	callers.Wait()
	if accepted.Load() != 1000 || full.Load() != 3000 {
		t.Errorf("%d accepted, %d refused", accepted.Load(), full.Load())
	}
	if left, err := timer.Stop(background); len(left) != 1000 || err != nil {
		t.Errorf("Stop is %d timeouts, %v", len(left), err)
	}
}

// TestManyCallersOfOneShard wait for it.
func TestManyCallersOfOneShard(t *testing.T) {
	timer := newTimer(func(task func()) { task() }, Config{}, 1)
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 20_000 {
				if o, err := timer.NewTimeout(nothing, time.Hour); err != nil || !o.Cancel() {
					t.Errorf("NewTimeout is %v, or was cancelled", err)
				}
			}
		})
	}
	callers.Wait()
	if left, err := timer.Stop(background); len(left) != 0 || err != nil {
		t.Errorf("Stop is %d timeouts, %v", len(left), err)
	}
}
