package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A lifetime is a context: it, the contexts that are made of it and its functions end once, by its
// caller's, by its time-out, or by its end.
func TestLifetime(t *testing.T) {
	for name, tt := range map[string]struct {
		act   func(l *lifetime, cancel context.CancelCauseFunc)
		after time.Duration
		cause error
	}{
		"time-out":        {func(*lifetime, context.CancelCauseFunc) {}, time.Minute, errTimeout},
		"its caller's":    {func(_ *lifetime, cancel context.CancelCauseFunc) { cancel(errStale) }, 0, errStale},
		"no cause":        {func(_ *lifetime, cancel context.CancelCauseFunc) { cancel(nil) }, 0, context.Canceled},
		"cancelled":       {func(l *lifetime, _ context.CancelCauseFunc) { l.cancel(errRepeat) }, 0, errRepeat},
		"cancelled twice": {func(l *lifetime, _ context.CancelCauseFunc) { l.cancel(errRepeat); l.cancel(errStale) }, 0, errRepeat},
		"its end":         {func(l *lifetime, _ context.CancelCauseFunc) { l.end(nil) }, 0, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				type key struct{}
				ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
				defer cancel(nil)
				l := new(lifetime)
				l.begin(ctx, time.Minute)
				child, leave := context.WithTimeout(l, time.Hour)
				defer leave()
				ran := make(chan time.Time, 10)
				for range 3 {
					l.AfterFunc(func() { ran <- time.Now() })
				}
				stops := l.AfterFunc(func() { t.Error("a function that was stopped has run") })
				if !stops() || stops() {
					t.Error("a function is stopped once")
				}
				if l.Err() != nil || child.Err() != nil || l.Value(key{}) != "value" || len(ran) > 0 {
					t.Error("it has ended before its time")
				}
				began := time.Now()
				tt.act(l, cancel)
				<-child.Done()
				<-l.Done()
				if took := time.Since(began); took != tt.after || child.Err() != context.Canceled || l.Err() != context.Canceled {
					t.Errorf("%v and %v after %v, want %v", l.Err(), child.Err(), took, tt.after)
				}
				for range 3 {
					<-ran
				}
				late := l.AfterFunc(func() { ran <- time.Now() })
				if <-ran; late() {
					t.Error("a function of a context that has ended was stopped")
				}
				if err := l.end(errors.New("other")); err != tt.cause {
					t.Errorf("cause %v, want %v", err, tt.cause)
				}
			})
		})
	}
	l := new(lifetime)
	l.begin(context.Background(), time.Hour) // a context that cannot end
	other := errors.New("other")
	if err := l.end(other); err != other || l.timer.Stop() {
		t.Errorf("%v, want the error itself; or the timer runs on", err)
	}
	<-l.Done()
}

// A context that lives on keeps nothing of a lifetime that has ended.
func TestLifetimeIsForgotten(t *testing.T) {
	lives, l := new(lifetime), new(lifetime)
	lives.begin(context.Background(), time.Hour)
	defer lives.end(nil)
	l.begin(lives, time.Hour)
	l.end(nil)
	if len(lives.after) != 1 || lives.after[0] != nil {
		t.Errorf("%d functions are left", len(lives.after))
	}
	synctest.Test(t, func(t *testing.T) {
		lives := new(lifetime)
		lives.begin(t.Context(), time.Hour)
		defer lives.end(nil)
		new(lifetime).begin(lives, time.Minute) // nothing ends it, as after a panic
		time.Sleep(time.Minute)
		synctest.Wait()
		if lives.after[0] != nil {
			t.Error("one that has had its time-out is left")
		}
	})
}

// A lifetime has ended when the cancellation of its caller's context returns.
func TestLifetimeEndsAtOnce(t *testing.T) {
	for range 1000 {
		ctx, cancel := context.WithCancelCause(t.Context())
		l := new(lifetime)
		l.begin(ctx, time.Hour)
		silent := new(lifetime)
		silent.begin(ctx, time.Hour)
		cancel(errStale)
		if l.Err() != context.Canceled || l.end(nil) != errStale || silent.end(nil) != errStale {
			t.Fatal("it goes on")
		}
		late := new(lifetime)
		if late.begin(ctx, time.Hour); late.Err() != context.Canceled || late.end(nil) != errStale {
			t.Fatal("one that begins later goes on")
		}
	}
}

// A lifetime whose caller's context has a deadline ends as that does.
func TestLifetimeByADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		l := new(lifetime)
		l.begin(ctx, time.Minute)
		<-l.Done()
		if until, ok := l.Deadline(); !ok || time.Until(until) != 0 || l.Err() != context.DeadlineExceeded || l.end(nil) != context.DeadlineExceeded {
			t.Errorf("%v at %v", l.Err(), until)
		}
	})
}
