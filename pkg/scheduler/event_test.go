package scheduler

import (
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"
)

func TestEventsTellTheWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := map[EventKind]int{}
		f := &fake{start: time.Now()}
		u := Upstream{Limits: perSecond(1)}
		u.URL, u.Transport = "http://api.test", f
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Observe: func(e Event) { counts[e.Kind]++ }, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		wait(t, s, submit(t, s, Request{}).ID)
		s.Submit(t.Context(), Request{Upstream: "api", Target: "/", Deadline: time.Now().Add(ms)})
		s.Close()
		if want := map[EventKind]int{EventAccepted: 1, EventRefused: 1, EventSending: 1, EventAttempt: 1, EventEnded: 1}; !maps.Equal(counts, want) {
			t.Errorf("events %v, want %v", counts, want)
		}
	})
}
