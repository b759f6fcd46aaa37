package limiter

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

const ms = time.Millisecond

// A receiver counts calls by key, at an instant between their sending and their answer.
type receiver struct {
	mu   sync.Mutex
	came map[string][]time.Time
}

func (r *receiver) call(key string, before, after time.Duration) {
	time.Sleep(before)
	r.mu.Lock()
	r.came[key] = append(r.came[key], time.Now())
	r.mu.Unlock()
	time.Sleep(after)
}

// most returns the most calls of a key within a window.
func (r *receiver) most(key string, window time.Duration) (most int) {
	at := r.came[key]
	slices.SortFunc(at, time.Time.Compare)
	for i := range at {
		n := 0
		for n < len(at)-i && at[i+n].Sub(at[i]) < window {
			n++
		}
		most = max(most, n)
	}
	return most
}

// TestExactAtTheReceiver has many callers, and answers that take any time or never come.
func TestExactAtTheReceiver(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			l, err := New(quota.Limit{Name: "app", Calls: 10, Window: quota.Sliding(time.Second), Late: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(seed, 6))
			r := &receiver{came: make(map[string][]time.Time)}
			var callers sync.WaitGroup
			for i := range 200 {
				key, wait := fmt.Sprint(i%2), time.Duration(rnd.IntN(3000))*ms
				before, after := time.Duration(rnd.IntN(200))*ms, time.Duration(rnd.IntN(200))*ms
				patience := time.Duration(0)
				if rnd.IntN(4) == 0 {
					patience = time.Duration(1+rnd.IntN(3000)) * ms
				}
				lost := rnd.IntN(10) == 0
				callers.Go(func() {
					time.Sleep(wait)
					ctx := context.Background()
					if patience > 0 {
						c, cancel := context.WithCancel(ctx)
						defer time.AfterFunc(patience, cancel).Stop()
						ctx = c
					}
					done, err := l.Wait(ctx, key)
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					if lost { // the receiver counts it after its caller has given up
						callers.Go(func() { r.call(key, 900*ms, 0) })
						done(false)
						return
					}
					r.call(key, before, after)
					done(true)
				})
			}
			callers.Wait()
			time.Sleep(2 * time.Second)
			for key := range r.came {
				if most := r.most(key, time.Second); most > 10 || most < 9 {
					t.Errorf("key %s: %d calls in a second, of 10", key, most)
				}
			}
		})
	}
}

// TestNothingIsWasted: a backlog goes in the time that its limit needs.
func TestNothingIsWasted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Per(10, time.Second)
		begin := time.Now()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() {
				done, err := l.Wait(t.Context(), "")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(10 * ms)
				done(true)
			})
		}
		callers.Wait()
		if took, best := time.Since(begin), 9*time.Second; took < best || took > best+200*ms {
			t.Errorf("100 calls took %v, want %v and a round trip for each window", took, best)
		}
	})
}

// TestContexts: no permit is lost by callers that leave, whenever they do.
func TestContexts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Per(1, time.Second)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := l.Wait(gone, ""); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled before: %v", err)
		}
		done, err := l.Wait(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		done(true)
		done(false) // counts for nothing
		begin := time.Now()
		soon, cancel := context.WithTimeout(t.Context(), 500*ms)
		defer cancel()
		_, err = l.Wait(soon, "")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `limit "limit", key "": the next permit can be expected in 1s`) || time.Since(begin) > 0 {
			t.Errorf("a deadline that comes first: %v after %v", err, time.Since(begin))
		}
		cause := errors.New("the client left")
		leaving, leave := context.WithCancelCause(t.Context())
		time.AfterFunc(700*ms, func() { leave(cause) })
		if _, err := l.Wait(leaving, ""); !errors.Is(err, cause) || time.Since(begin) != 700*ms {
			t.Errorf("cancelled meanwhile: %v after %v", err, time.Since(begin))
		}
		if _, err = l.Wait(t.Context(), ""); err != nil || time.Since(begin) != time.Second {
			t.Errorf("the next caller: %v after %v", err, time.Since(begin))
		}
	})
}

// TestUnanswered: without an answer the permit is out until late and a window have passed.
func TestUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Per(1, time.Second)
		begin := time.Now()
		done, _ := l.Wait(t.Context(), "a")
		time.Sleep(100 * ms)
		done(false)
		if _, err := l.Wait(t.Context(), "a"); err != nil || time.Since(begin) != 100*ms+DefaultLate+time.Second {
			t.Errorf("the next permit after %v, %v", time.Since(begin), err)
		}
	})
}

// TestCosts: a call of a greater cost is not overtaken for ever.
func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(quota.Limit{Name: "app", Calls: 2, Window: quota.Sliding(time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		take := func(cost int) { // each at its turn
			done, err := l.WaitFor(t.Context(), Need{Limit: "app", Cost: cost})
			if err != nil {
				t.Error(err)
				return
			}
			done(true)
		}
		go func() {
			for range 60 {
				go take(1)
				time.Sleep(500 * ms)
			}
		}()
		time.Sleep(1100 * ms)
		if take(2); time.Since(begin) > 4*time.Second {
			t.Errorf("a call that costs 2 waited until %v", time.Since(begin))
		}
		time.Sleep(time.Minute)
	})
}

func TestFaults(t *testing.T) {
	l, err := New(quota.Limit{Name: "app", Calls: 2, Window: quota.Sliding(time.Second)}, quota.Limit{Name: "day", Calls: 5, Window: quota.Sliding(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for want, needs := range map[string][]Need{
		"a call without needs has no limit; make it without the limiter":                     {},
		`limit "ap" is not one of the limiter's`:                                             {{Limit: "ap", Cost: 1}},
		`cost of limit "app" is 0, must be from 1 to its calls (2)`:                          {{Limit: "app"}},
		`cost of limit "day" is 6, must be from 1 to its calls (5)`:                          {{Limit: "day", Cost: 6}},
		`limit "app" is needed twice; add the costs up, or wait twice`:                       {{Limit: "app", Cost: 1}, {Limit: "app", Key: "b", Cost: 1}},
		"cost of limit \"app\" is -1, must be from 1 to its calls (2)\nlimiter: limit \"x\"": {{Limit: "app", Cost: -1}, {Limit: "x", Cost: 1}},
	} {
		if _, err := l.WaitFor(t.Context(), needs...); err == nil || !strings.Contains(err.Error(), "limiter: "+want) {
			t.Errorf("%v: %v, want %s", needs, err, want)
		}
	}
	_, err = New(quota.Limit{Name: "a", Calls: 0, Window: quota.Sliding(time.Second)}, quota.Limit{Name: "a", Calls: 1})
	if err == nil || !strings.Contains(err.Error(), `limit "a": calls: is 0`) || !strings.Contains(err.Error(), "window: is missing") || !strings.Contains(err.Error(), `two limits have the name "a"`) {
		t.Errorf("impossible limits: %v", err)
	}
	if _, err := New(); err == nil {
		t.Error("a limiter without limits")
	}
	func() {
		defer func() { recover() }()
		Per(0, time.Second)
		t.Error("Per(0) does not panic")
	}()
}

// BenchmarkWait takes permits that are free, beside golang.org/x/time/rate.
func BenchmarkWait(b *testing.B) {
	b.Run("Limiter", func(b *testing.B) {
		l, err := New(quota.Limit{Name: "app", Calls: quota.MaxCalls, Window: quota.Sliding(time.Second)})
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			done, err := l.Wait(b.Context(), "")
			if err != nil {
				b.Fatal(err)
			}
			done(true)
		}
	})
	b.Run("rate", func(b *testing.B) {
		l := rate.NewLimiter(1e9, 1e9)
		for b.Loop() {
			if err := l.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
}
