package scheduler_test

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// A between store calls a function once, when it has stored a new call, which the loop has not taken in yet.
type between struct {
	*store.DB
	accepted func(id string)
}

func (b *between) Accept(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	known, err := b.DB.Accept(ctx, e)
	if f := b.accepted; f != nil && known == nil && err == nil {
		b.accepted = nil
		f(e.Call.ID)
	}
	return known, err
}

// sameMoment runs a test in a bubble over a scheduler whose upstream answers after a second. During is what others do while a
// call of first is in the store only; both tell when they have ended.
func sameMoment(t *testing.T, identity string, first func(s *scheduler.Scheduler), during func(t *testing.T, s *scheduler.Scheduler, id string)) (firstEnd, duringEnd time.Duration, sent int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "calls.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(path, store.Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		u := scheduler.Upstream{Durable: "true", Identity: identity, MaxWait: 20 * time.Second}
		u.URL = "http://api.test"
		u.Transport = roundTrip(func(r *http.Request) *http.Response {
			sent++
			time.Sleep(time.Second)
			return ok(r)
		})
		b := &between{DB: db}
		s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: b, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		began, over := time.Now(), make(chan struct{})
		b.accepted = func(id string) {
			go func() {
				defer close(over)
				during(t, s, id)
				duringEnd = time.Since(began)
			}()
			synctest.Wait()
		}
		first(s)
		firstEnd = time.Since(began)
		<-over
		s.Close()
	})
	return firstEnd, duringEnd, sent
}

// A refusing store has another end of each call than the one that is recorded, which it refuses.
type refusing struct{ *store.DB }

func (r *refusing) Record(ctx context.Context, c *scheduler.Call) error {
	if c.State == scheduler.Done {
		other := *c
		other.State = scheduler.Failed
		return errors.Join(r.DB.Record(ctx, &other), errors.New("the call is finished"))
	}
	return r.DB.Record(ctx, c)
}

// TestRefusedEnd: a reader of an end gets that of the store, where the store has refused another one.
func TestRefusedEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "calls.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(path, store.Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": upstreamAt("api")}, Store: &refusing{db}, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		c, err := s.Submit(t.Context(), keyed())
		if err == nil {
			c, err = s.Wait(t.Context(), c.ID)
		}
		if err != nil || c.State != scheduler.Failed {
			t.Errorf("%+v, %v; want the end that the store has", c, err)
		}
	})
}

// keyed is a request under a key, and of an identity.
func keyed() scheduler.Request {
	return scheduler.Request{Upstream: "api", Method: "POST", Target: "/pay?n=1", IdempotencyKey: "k"}
}

func do(t *testing.T, s *scheduler.Scheduler) {
	resp, _, err := s.Do(context.Background(), keyed())
	if err != nil {
		t.Error(err)
		return
	}
	resp.Body.Close()
}

func submitAndWait(t *testing.T, s *scheduler.Scheduler) {
	c, err := s.Submit(context.Background(), keyed())
	if err == nil {
		c, err = s.Wait(context.Background(), c.ID)
	}
	if err != nil || c.State != scheduler.Done {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestRepeatInTheSameMoment: a repeat that comes while the first call is in the store, and not yet in the loop, has its answer
// when the first has it, however both were handed over; so has a reader of its end.
func TestRepeatInTheSameMoment(t *testing.T) {
	ways := map[string]func(t *testing.T, s *scheduler.Scheduler){"Do": do, "Submit": submitAndWait}
	for name, first := range ways {
		for of, identity := range map[string]string{"key": "", "identity": `query("n")`} {
			for repeat, second := range ways {
				t.Run(name+" and "+repeat+" by "+of, func(t *testing.T) {
					end, repeated, sent := sameMoment(t, identity, func(s *scheduler.Scheduler) { first(t, s) }, func(t *testing.T, s *scheduler.Scheduler, _ string) { second(t, s) })
					if repeated != end || end != time.Second || sent != 1 {
						t.Errorf("the first ended after %v, the repeat after %v, and %d were sent", end, repeated, sent)
					}
				})
			}
		}
		t.Run(name+" and Wait", func(t *testing.T) {
			end, read, _ := sameMoment(t, "", func(s *scheduler.Scheduler) { first(t, s) }, func(t *testing.T, s *scheduler.Scheduler, id string) {
				if c, err := s.Wait(context.Background(), id); err != nil || c.State != scheduler.Done {
					t.Errorf("%+v, %v", c, err)
				}
			})
			if read != end || end != time.Second {
				t.Errorf("the first ended after %v, its reader after %v", end, read)
			}
		})
	}
}

// TestParkedInTheSameMoment: a call that goes to the disk at once, since it is due later, is watched like others.
func TestParkedInTheSameMoment(t *testing.T) {
	_, repeated, sent := sameMoment(t, "", func(s *scheduler.Scheduler) {
		r := keyed()
		r.NotBefore = time.Now().Add(2 * time.Hour)
		if _, err := s.Submit(context.Background(), r); err != nil {
			t.Error(err)
		}
	}, func(t *testing.T, s *scheduler.Scheduler, id string) {
		for range 2 {
			submitAndWait(t, s)
		}
	})
	if repeated != 2*time.Hour+time.Second || sent != 1 {
		t.Errorf("the repeat ended after %v, and %d were sent", repeated, sent)
	}
}

// TestControlInTheSameMoment: a call that is in the store, and not yet in the loop, can be cancelled and changed like one that waits.
func TestControlInTheSameMoment(t *testing.T) {
	later := func(s *scheduler.Scheduler) {
		r := keyed()
		r.NotBefore = time.Now().Add(10 * time.Second)
		if _, err := s.Submit(context.Background(), r); err != nil {
			t.Error(err)
		}
	}
	sameMoment(t, "", later, func(t *testing.T, s *scheduler.Scheduler, id string) {
		if c, err := s.Cancel(context.Background(), id); err != nil || c.State != scheduler.Cancelled {
			t.Errorf("%+v, %v; want it cancelled", c, err)
		}
	})
	sameMoment(t, "", later, func(t *testing.T, s *scheduler.Scheduler, id string) {
		to := 7
		if c, err := s.Edit(context.Background(), id, scheduler.Edit{Priority: &to}); err != nil || c.Priority != 7 {
			t.Errorf("%+v, %v; want priority 7", c, err)
		}
	})
}

// TestStopInTheSameMoment: a first call that is refused, because the scheduler stops before the loop takes it in, leaves no
// repeat behind.
func TestStopInTheSameMoment(t *testing.T) {
	_, repeated, sent := sameMoment(t, "", func(s *scheduler.Scheduler) {
		if _, c, err := s.Do(context.Background(), keyed()); err == nil {
			t.Errorf("%+v, want it refused", c)
		}
	}, func(t *testing.T, s *scheduler.Scheduler, id string) {
		go s.Close()
		_, _, err := s.Do(context.Background(), keyed())
		var refused *scheduler.Error
		if !errors.As(err, &refused) {
			t.Errorf("%v, want a refusal", err)
		}
	})
	if repeated != 0 || sent != 0 {
		t.Errorf("the repeat ended after %v, and %d were sent", repeated, sent)
	}
}
