package quota_test

import (
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// One refund under two limits: 2 calls per second of the app, and one call per
// 3 seconds on one trade.
func Example() {
	start := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	ledger := quota.New(start,
		quota.Limit{Name: "app", Calls: 2, Window: quota.Sliding(time.Second)},
		quota.Limit{Name: "trade", Calls: 1, Window: quota.Sliding(3 * time.Second)},
	)
	refund := []quota.Need{{Limit: 0, Key: "2021001", Cost: 1}, {Limit: 1, Key: "T1", Cost: 1}}

	_, ok := ledger.Take(start, refund)
	fmt.Println("first refund of T1 goes:", ok)

	answered := start.Add(40 * time.Millisecond)
	ledger.Return(answered, refund, quota.Attempt{Sent: start, End: answered})

	short, ok := ledger.Take(answered, refund)
	fmt.Println("second one goes:", ok, "- it waits for key", refund[short.Need].Key, "until", short.Until.Sub(start))
	// Output:
	// first refund of T1 goes: true
	// second one goes: false - it waits for key T1 until 3.04s
}
