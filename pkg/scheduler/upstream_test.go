package scheduler

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestLimitsTellOfTheirAudit: at most two of three permits were in one window, and a
// response takes a quarter of a window.
func TestLimitsTellOfTheirAudit(t *testing.T) {
	bubble(t, Upstream{Limits: perSecond(3)}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{after: 250 * ms} }
		for range 2 {
			submit(t, s, Request{})
		}
		time.Sleep(sec)
		l := limits(t, s)[1]
		if l.Most != 2 || l.Margin != 1 || l.HoldCost < 0.199 || l.HoldCost > 0.201 {
			t.Errorf("most %d, margin %d, hold costs %v; want 2, 1 and 0.2", l.Most, l.Margin, l.HoldCost)
		}
		if win := l.GuardWins["100ms"]; win < 0.119 || win > 0.121 {
			t.Errorf("a guard of 100ms wins %v, want 0.15 of 1.25 s", win)
		}
	})
}

// TestAnswersOfUnknownCallsCount: the stored responses of unknown calls count towards
// MaxWaitingBytes, as requests do.
func TestAnswersOfUnknownCallsCount(t *testing.T) {
	bubble(t, Upstream{MaxWaitingBytes: 1 << 20}, func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(int, *http.Request) answer { return answer{status: 500, body: strings.Repeat("x", 300<<10)} }
		full := 0
		for range 10 {
			c, err := s.Submit(t.Context(), Request{Upstream: "api", Target: "/"})
			if reason(err) == Full {
				full++
				continue
			}
			wait(t, s, c.ID)
		}
		if held := upstreams(t, s)[0].Bytes; full != 6 || held < 4*300<<10 {
			t.Errorf("%d calls were refused with %d bytes held, want 6: 1 MiB may be", full, held)
		}
	})
}
