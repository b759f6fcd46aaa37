package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatchesEnd: a watch goes with its last caller, or with the call's end.
func TestWatchesEnd(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(1)}, func(t *testing.T, s *Scheduler, f *fake) {
		watched := func() (calls, callers int) {
			s.loop.post(func(time.Time) {
				for _, w := range s.loop.watched {
					calls, callers = calls+1, callers+w.callers
				}
			})
			return calls, callers
		}
		first, second := submit(t, s, Request{}), submit(t, s, Request{})
		leaves, leave := context.WithCancel(t.Context())
		for _, w := range []struct {
			ctx context.Context
			id  string
		}{{leaves, first.ID}, {leaves, second.ID}, {t.Context(), second.ID}} {
			go func() {
				if c, err := s.Wait(w.ctx, w.id); err != nil || w.ctx == t.Context() && c.State != Done {
					t.Errorf("%+v, %v", c, err)
				}
			}()
		}
		synctest.Wait()
		if calls, callers := watched(); calls != 2 || callers != 3 {
			t.Errorf("%d callers watch %d calls, want 3 and 2", callers, calls)
		}
		leave()
		synctest.Wait()
		if calls, callers := watched(); calls != 1 || callers != 1 {
			t.Errorf("%d callers watch %d calls after two have left, want 1", callers, calls)
		}
		time.Sleep(5 * sec)
		if calls, _ := watched(); calls != 0 {
			t.Errorf("%d calls are watched after their ends", calls)
		}
	})
}
