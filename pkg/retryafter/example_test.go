package retryafter_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retryafter"
)

func Example() {
	now := time.Date(2026, 11, 29, 11, 0, 0, 0, time.UTC)
	fields := make(http.Header)
	fields.Set("X-RateLimit-Remaining", "0")
	fields.Set("X-RateLimit-Reset", "1795950003") // a Unix time
	left, known := retryafter.Remaining(fields)
	fmt.Println(retryafter.Wait(fields, now, true), left, known)

	fields.Set("Retry-After", "1.963")
	fmt.Println(retryafter.Wait(fields, now, true))
	// Output:
	// 3s 0 true
	// 1.963s
}
