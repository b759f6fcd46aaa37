package scheduler

import (
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"
)

// TestPrecise uses the system's clock and timer instead of a bubble's: every call is
// sent, and none too early.
func TestPrecise(t *testing.T) {
	const calls, apart = 25, 4 * ms
	f := &fake{start: time.Now(), serve: func(int, *http.Request) answer { return answer{} }}
	u := Upstream{Limits: []Limit{{Name: "app", Calls: 1, Window: apart}}}
	u.URL, u.Transport = "http://api.test", f
	s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Precise: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all sync.WaitGroup
	for range calls {
		c := submit(t, s, Request{Target: "/"})
		all.Go(func() { s.Wait(t.Context(), c.ID) })
	}
	all.Wait()
	if len(f.arrivals) != calls {
		t.Fatalf("%d calls were sent, want %d", len(f.arrivals), calls)
	}
	for i, next := range f.arrivals[1:] {
		if d := next.at - f.arrivals[i].at; d < apart {
			t.Errorf("call %d went %v after the one before, under 1 per %v", i+1, d, apart)
		}
	}
}
