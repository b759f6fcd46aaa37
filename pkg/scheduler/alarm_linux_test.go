package scheduler

import (
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a, err := newPreciseAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.stop()
	start := time.Now()
	a.set(time.Hour)
	a.set(5 * ms)
	<-a.rings()
	if in := time.Since(start); in < 5*ms {
		t.Errorf("rings after %v, set to 5 ms", in)
	}
	for _, in := range []time.Duration{0, -time.Hour, 1} {
		a.set(in)
		<-a.rings()
	}
	a.set(time.Hour) // stopped before it rings
}
