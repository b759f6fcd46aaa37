package alarm

import (
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	start := time.Now()
	a.Set(time.Hour)
	a.Set(5 * time.Millisecond)
	<-a.C()
	if in := time.Since(start); in < 5*time.Millisecond {
		t.Errorf("rings after %v, set to 5 ms", in)
	}
	for _, in := range []time.Duration{0, -time.Hour, 1} {
		a.Set(in)
		<-a.C()
	}
	a.Set(time.Hour) // stopped before it rings
}
