package scheduler

import (
	"context"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type signFunc func(context.Context, *upstream.Request) error

func (f signFunc) Sign(ctx context.Context, r *upstream.Request) error { return f(ctx, r) }

func TestSignerThatHangs(t *testing.T) {
	u := Upstream{}
	u.Timeout = sec
	u.Signer = signFunc(func(ctx context.Context, _ *upstream.Request) error { <-ctx.Done(); return ctx.Err() })
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		c := submit(t, s, Request{})
		time.Sleep(48 * time.Hour)
		if got := s.mustGet(t, c.ID); got.State == Sending || got.State == Unknown || len(f.at()) > 0 {
			t.Errorf("two days later it is %s after %d requests; nothing was ever sent", got.State, len(f.at()))
		}
	})
}

// The guard counts from the first byte, not from when the signer was asked.
func TestGuardCountsFromTheFirstByte(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: sec, Guard: 100 * ms}}}
	asked := 0
	u.Signer = signFunc(func(context.Context, *upstream.Request) error {
		if asked++; asked == 1 {
			time.Sleep(500 * ms)
		}
		return nil
	})
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		submit(t, s, Request{})
		wait(t, s, submit(t, s, Request{}).ID)
		if at := f.at(); at[1]-at[0] < sec {
			t.Errorf("arrivals at %v: two in one second, one may", at)
		}
	})
}
