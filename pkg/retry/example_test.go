package retry_test

import (
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
)

// A refund without an answer, on a platform that recognises the repeat by its
// number, and a payment on one that does not.
func Example() {
	policy := retry.Policy{Attempts: 3, Curve: retry.Curve{Min: time.Second}}
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

	refund := policy.Next(now, retry.Attempt{Number: 1, Outcome: retry.Unknown, Repeatable: true}, 0.5)
	fmt.Println("refund again:", refund.Again, "in", refund.At.Sub(now))

	payment := policy.Next(now, retry.Attempt{Number: 1, Outcome: retry.Unknown}, 0.5)
	fmt.Println("payment again:", payment.Again)
	// Output:
	// refund again: true in 750ms
	// payment again: false
}
