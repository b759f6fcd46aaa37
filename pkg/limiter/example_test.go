package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/limiter"
	"github.com/seed-30fe103d/throttler/pkg/quota"
)

func Example() {
	l := limiter.Per(2, 100*time.Millisecond)
	begin := time.Now()
	for range 3 {
		done, err := l.Wait(context.Background(), "account 7")
		if err != nil {
			fmt.Println(err)
			return
		}
		// The call would be here.
		done(true)
	}
	fmt.Println("the third call waited for a window:", time.Since(begin) >= 100*time.Millisecond)
	// Output:
	// the third call waited for a window: true
}

func ExampleLimiter_WaitFor() {
	l, err := limiter.New(
		quota.Limit{Name: "app", Calls: 100, Window: quota.Sliding(time.Second), Late: limiter.DefaultLate},
		quota.Limit{Name: "export", Calls: 1, Window: quota.InFlight()},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	done, err := l.WaitFor(ctx, limiter.Need{Limit: "app", Cost: 10}, limiter.Need{Limit: "export", Cost: 1})
	fmt.Println(err)
	defer done(true)

	_, err = l.WaitFor(ctx, limiter.Need{Limit: "app", Cost: 101})
	fmt.Println(err)
	// Output:
	// <nil>
	// limiter: cost of limit "app" is 101, must be from 1 to its calls (100)
}

// Keys wait for themselves alone, and a deadline that comes before the permit can is an
// error at once.
func ExampleLimiter_Wait() {
	l := limiter.Per(1, time.Hour)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, account := range []string{"7", "8", "7"} {
		done, err := l.Wait(ctx, account)
		if err != nil {
			fmt.Println(account, "must wait for too long:", errors.Is(err, context.DeadlineExceeded))
			continue
		}
		fmt.Println(account, "calls")
		done(true) // at the response; false if there was none
	}
	// Output:
	// 7 calls
	// 8 calls
	// 7 must wait for too long: true
}
