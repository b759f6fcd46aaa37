package scheduler

import (
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a := newAlarm(&Scheduler{precise: true, log: slog.Default()})
	defer a.stop()
	if a.rings() == nil {
		t.Skip("this system has no alarm")
	}
	start := time.Now()
	a.set(time.Hour)
	a.set(5 * ms)
	<-a.rings()
	if late := time.Since(start); late < 5*ms {
		t.Errorf("rings after %v, set to 5 ms", late)
	}
	for _, in := range []time.Duration{0, -time.Hour, 1} {
		a.set(in)
		<-a.rings()
	}
	a.set(time.Hour) // and is stopped before it rings
}

// What the bubbles show by their own clock holds by the system's timer too: all go,
// and none early.
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
