package scheduler

import (
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type signAll struct{ upstream.Signer }

// TestNextAttempt has each kind of result with each kind of call: whether it goes again,
// and the history that it has then.
func TestNextAttempt(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	u := Upstream{Config: upstream.Config{URL: "http://api.test"}}
	compiled := func(change func(*Upstream)) *service {
		u := u
		if change != nil {
			change(&u)
		}
		services, err := compile(Config{Upstreams: map[string]Upstream{"api": u}}, 1)
		if err != nil {
			t.Fatal(err)
		}
		return services["api"]
	}
	plain := compiled(nil)
	resend := compiled(func(u *Upstream) { u.Resend = true })
	once := compiled(func(u *Upstream) { u.Signature.Once = true })
	repeatable := compiled(func(u *Upstream) { u.Idempotent = "true" })
	signed := compiled(func(u *Upstream) { u.Signer, u.Signature.Once = signAll{}, true })

	limited := upstream.Result{Outcome: upstream.NotExecuted, Sent: true, Answered: true}
	down := upstream.Result{Outcome: upstream.NotExecuted, Unreachable: true}
	lost := upstream.Result{Outcome: upstream.Unknown, Sent: true}
	full := upstream.Result{Outcome: upstream.NotExecuted, Err: ErrFull, RetryAfter: time.Second}
	streaming := upstream.Result{Outcome: upstream.Unknown, Sent: true, Answered: true, Truncated: true}
	parked := upstream.Result{Outcome: upstream.Unknown, Sent: true, Park: true}
	for _, tt := range []struct {
		name   string
		sv     *service
		async  bool
		before flight
		result upstream.Result
		again  bool
		after  flight
	}{
		{"done", plain, true, flight{}, upstream.Result{Outcome: upstream.Done, Sent: true}, false, flight{counted: 1, used: true}},
		{"limited, submitted", plain, true, flight{}, limited, true, flight{used: true}},
		{"limited, a caller waits", plain, false, flight{}, limited, false, flight{used: true}},
		{"limited, a caller waits, resend", resend, false, flight{}, limited, true, flight{used: true}},
		{"limited, a caller waits, signer", signed, false, flight{}, limited, true, flight{used: true}},
		{"limited, the signature is used up", once, true, flight{}, limited, false, flight{used: true}},
		{"limited ends failures", plain, true, flight{failures: 3}, limited, true, flight{used: true}},
		{"down, first dial", plain, false, flight{}, down, true, flight{failures: 1}},
		{"down, second dial, a caller waits", plain, false, flight{failures: 1}, down, false, flight{failures: 2}},
		{"down, second dial, submitted", plain, true, flight{failures: 1}, down, true, flight{failures: 2}},
		{"down, the signature is not used up", once, true, flight{}, down, true, flight{failures: 1}},
		{"lost", plain, true, flight{}, lost, false, flight{counted: 1, used: true, maybe: true}},
		{"lost, repeatable", repeatable, true, flight{}, lost, true, flight{counted: 1, used: true, maybe: true, repeat: true}},
		{"lost, repeatable, attempts used up", repeatable, true, flight{counted: 3}, lost, false, flight{counted: 4, used: true, maybe: true}},
		{"lost, repeatable, but parked", repeatable, true, flight{}, parked, false, flight{counted: 1, used: true, maybe: true}},
		{"unknown, the answer streams", resend, false, flight{}, streaming, false, flight{counted: 1, used: true, maybe: true}},
		{"disk full, a caller waits", plain, false, flight{}, full, false, flight{}},
		{"disk full, submitted", plain, true, flight{}, full, true, flight{}},
	} {
		request := &upstream.Request{Method: "POST", Target: "/"}
		d := tt.sv.Retry.Next(now, tt.sv.retryAttempt(request, tt.before, &tt.result), 0.5)
		n := nextAttempt(now, tt.sv, tt.async, tt.before, &tt.result, d)
		f := n.flight
		if n.again != tt.again || n.again && n.at.Before(now) {
			t.Errorf("%s: again %v at %v, want %v", tt.name, n.again, n.at.Sub(now), tt.again)
		}
		if f.counted != tt.after.counted || f.failures != tt.after.failures || f.used != tt.after.used || f.maybe != tt.after.maybe || f.repeat != tt.after.repeat {
			t.Errorf("%s: %d counted, %d failures, used %v, maybe %v, repeat %v; want %+v", tt.name, f.counted, f.failures, f.used, f.maybe, f.repeat, tt.after)
		}
	}
}

func TestRepeatEndsWithTheRetention(t *testing.T) {
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	u := Upstream{Config: upstream.Config{URL: "http://api.test", Idempotent: "true"}}
	u.Idempotency.Retention = time.Minute
	services, err := compile(Config{Upstreams: map[string]Upstream{"api": u}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	sv, lost := services["api"], &upstream.Result{Outcome: upstream.Unknown, Sent: true}
	request := &upstream.Request{Method: "POST", Target: "/"}
	for age, again := range map[time.Duration]bool{time.Second: true, 2 * time.Minute: false} {
		h := flight{firstSent: now.Add(-age)}
		n := nextAttempt(now, sv, true, h, lost, sv.Retry.Next(now, sv.retryAttempt(request, h, lost), 0.5))
		if n.again != again {
			t.Errorf("first sent %v ago: again %v, want %v", age, n.again, again)
		}
		if until := sv.repeatableUntil(&n.flight, now.Add(time.Hour)); !until.Equal(h.firstSent.Add(time.Minute)) {
			t.Errorf("it may wait until %v, want a minute after the first sending", until)
		}
	}
	if causeOf(&upstream.Result{Unsigned: true}) != retry.Unsigned || causeOf(&upstream.Result{}) != retry.NeverSent {
		t.Error("causes")
	}
}
