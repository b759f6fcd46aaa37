package limiter_test

import (
	"context"
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
