package retry

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

var now = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

func TestNext(t *testing.T) {
	p := Policy{Attempts: 3, Min: time.Second, Max: 10 * time.Second}
	never := p
	never.Check = func(Attempt) bool { return false }
	tests := []struct {
		name   string
		policy Policy
		a      Attempt
		want   Decision
	}{
		{"done is the end", p, Attempt{Number: 1, Outcome: Done}, Decision{Burnt: true}},
		{"failed is the end", p, Attempt{Number: 1, Outcome: Failed, Repeatable: true}, Decision{Burnt: true}},
		{"limited comes back and burns nothing", p, Attempt{Number: 9, Outcome: NotExecuted, RetryAfter: 3 * time.Second}, Decision{Again: true, At: now.Add(3 * time.Second)}},
		{"unknown is not sent again", p, Attempt{Number: 1, Outcome: Unknown}, Decision{Burnt: true}},
		{"unknown is sent again where the upstream recognises it", p, Attempt{Number: 1, Outcome: Unknown, Repeatable: true}, Decision{Again: true, At: now.Add(750 * time.Millisecond), Burnt: true}},
		{"the backoff grows", p, Attempt{Number: 2, Outcome: Unknown, Repeatable: true}, Decision{Again: true, At: now.Add(1500 * time.Millisecond), Burnt: true}},
		{"a longer Retry-After wins", p, Attempt{Number: 1, Outcome: Unknown, Repeatable: true, RetryAfter: time.Minute}, Decision{Again: true, At: now.Add(time.Minute), Burnt: true}},
		{"attempts used up", p, Attempt{Number: 3, Outcome: Unknown, Repeatable: true}, Decision{Burnt: true}},
		{"Check ends a repeat", never, Attempt{Number: 1, Outcome: Unknown, Repeatable: true}, Decision{Burnt: true}},
		{"Check ends what was limited", never, Attempt{Number: 1, Outcome: NotExecuted}, Decision{At: now}},
		{"the zero policy has defaults", Policy{}, Attempt{Number: 1, Outcome: Unknown, Repeatable: true}, Decision{Again: true, At: now.Add(375 * time.Millisecond), Burnt: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.policy.Next(now, tt.a, 0.5); got != tt.want {
				t.Errorf("Next = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDelayStaysWithinItsBounds(t *testing.T) {
	for name, curve := range map[string]Backoff{"exponential": Exponential, "linear": Linear} {
		p := Policy{Min: 100 * time.Millisecond, Max: 5 * time.Second, Backoff: curve}
		last := time.Duration(0)
		for n := 1; n <= 2000; n++ {
			lo, hi := p.Delay(n, 0), p.Delay(n, 0.999999)
			if lo < 50*time.Millisecond || hi > 5*time.Second || lo > hi || hi < last {
				t.Fatalf("%s: after failure %d between %v and %v; want within [50ms, 5s] and growing", name, n, lo, hi)
			}
			last = hi
		}
		if last < 4900*time.Millisecond {
			t.Errorf("%s: never reaches its maximum, ends at %v", name, last)
		}
	}
}

func TestHooksOfRetryablehttp(t *testing.T) {
	p := Policy{
		Min: time.Second, Max: time.Minute,
		Backoff: FromBackoff(retryablehttp.DefaultBackoff),
		Check:   FromCheckRetry(retryablehttp.DefaultRetryPolicy),
	}
	busy := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"7"}}}
	tests := []struct {
		name string
		a    Attempt
		want time.Duration // 0: not again
	}{
		{"its backoff, counted from 0", Attempt{Number: 3, Err: errors.New("reset")}, 4 * time.Second},
		{"its reading of Retry-After", Attempt{Number: 1, Response: busy}, 7 * time.Second},
		{"its no to a 501", Attempt{Number: 1, Response: &http.Response{StatusCode: http.StatusNotImplemented}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.a.Outcome, tt.a.Repeatable = Unknown, true
			got := p.Next(now, tt.a, 0.5)
			if got.Again != (tt.want > 0) || got.Again && got.At.Sub(now) != tt.want {
				t.Errorf("Next = %+v, want again after %v", got, tt.want)
			}
		})
	}
}
