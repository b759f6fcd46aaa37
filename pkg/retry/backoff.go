package retry

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// A Backoff is a curve: how long to wait after a failure.
type Backoff func(Step) time.Duration

// A Step is the input of a curve.
type Step struct {
	Min, Max time.Duration
	N        int            // failures in a row, this one included, from 1
	Last     time.Duration  // the wait before this one; zero: there was none
	Random   float64        // in [0, 1)
	Response *http.Response // nil: there was no answer
}

// Exponential doubles from Min to Max, and takes a random point of the upper half:
// calls that failed together are not repeated together.
func Exponential(s Step) time.Duration {
	return jitter(min(float64(s.Max), float64(s.Min)*math.Pow(2, float64(s.N-1))), s.Random)
}

// Linear grows by Min up to Max, with the jitter of Exponential.
func Linear(s Step) time.Duration {
	return jitter(min(float64(s.Max), float64(s.Min)*float64(s.N)), s.Random)
}

// Decorrelated takes a random point between Min and three times the last wait, at
// most Max ("decorrelated jitter", M. Brooker, Exponential Backoff And Jitter, AWS
// 2015): of these curves it spreads repeats best, and is the least predictable.
func Decorrelated(s Step) time.Duration {
	low := float64(s.Min)
	high := 3 * max(low, float64(s.Last))
	return time.Duration(min(float64(s.Max), low+s.Random*(high-low)))
}

// jitter returns a point of the upper half of d.
func jitter(d, random float64) time.Duration {
	return time.Duration(d/2 + d/2*random)
}

// FromBackoff adapts a Backoff of hashicorp/go-retryablehttp, which counts from 0
// and brings its own randomness.
func FromBackoff(b retryablehttp.Backoff) Backoff {
	return func(s Step) time.Duration { return b(s.Min, s.Max, s.N-1, s.Response) }
}

// FromCheckRetry adapts a CheckRetry of hashicorp/go-retryablehttp. An error of
// its own ends the call.
func FromCheckRetry(c retryablehttp.CheckRetry) func(Attempt) bool {
	return func(a Attempt) bool {
		again, err := c(context.Background(), a.Response, a.Err)
		return again && err == nil
	}
}
