package alarm_test

import (
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler/internal/alarm"
)

func Example() {
	a, err := alarm.New()
	if err != nil {
		a = alarm.Silent{} // the caller's own timer rings
	}
	defer a.Stop()
	a.Set(time.Millisecond)
	select {
	case <-a.C():
	case <-time.After(time.Second):
	}
	fmt.Println("awake")
	// Output: awake
}
