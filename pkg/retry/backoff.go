package retry

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// A Backoff is a curve: the wait after the n-th failure in a row, n from 1,
// between lo and hi. The random number is in [0, 1); resp is nil if nobody answered.
type Backoff func(lo, hi time.Duration, n int, random float64, resp *http.Response) time.Duration

// Exponential doubles from lo to hi, and takes a random point of the upper half:
// calls that failed together do not come back together.
func Exponential(lo, hi time.Duration, n int, random float64, _ *http.Response) time.Duration {
	return jitter(min(float64(hi), float64(lo)*math.Pow(2, float64(n-1))), random)
}

// Linear grows by lo up to hi, with the jitter of Exponential.
func Linear(lo, hi time.Duration, n int, random float64, _ *http.Response) time.Duration {
	return jitter(min(float64(hi), float64(lo)*float64(n)), random)
}

// jitter returns a point of the upper half of d.
func jitter(d, random float64) time.Duration {
	return time.Duration(d/2 + d/2*random)
}

// FromBackoff adapts a Backoff of hashicorp/go-retryablehttp, which counts from 0
// and brings its own randomness.
func FromBackoff(b retryablehttp.Backoff) Backoff {
	return func(lo, hi time.Duration, n int, _ float64, resp *http.Response) time.Duration {
		return b(lo, hi, n-1, resp)
	}
}

// FromCheckRetry adapts a CheckRetry of hashicorp/go-retryablehttp. An error of
// its own ends the call.
func FromCheckRetry(c retryablehttp.CheckRetry) func(Attempt) bool {
	return func(a Attempt) bool {
		again, err := c(context.Background(), a.Response, a.Err)
		return again && err == nil
	}
}
