package wheel_test

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// An owner with a loop of its own sleeps until Next; the example jumps there.
func ExampleWheel() {
	w := wheel.New[string](time.Millisecond)
	w.Insert(time.Second, "ping")
	w.Insert(365*24*time.Hour, "renew the certificate")
	late := w.Insert(5*time.Second, "give up")

	w.Advance(3*time.Second, func(task string) { fmt.Println("at 3s:", task) })
	w.Cancel(late) // the answer arrived

	var now time.Duration
	for at, ok := w.Next(); ok; at, ok = w.Next() {
		now = at
		w.Advance(now, func(task string) { fmt.Printf("at %v: %s\n", now, task) })
	}
	// Output:
	// at 3s: ping
	// at 8760h0m0s: renew the certificate
}

func ExampleTimer() {
	timer := wheel.NewTimer(wheel.Config{MaxPending: 1000})
	answer, err := timer.NewTimeout(func() { fmt.Println("no answer") }, time.Minute)
	if err != nil {
		fmt.Println(err)
	}
	timer.NewTimeout(func() { fmt.Println("fired") }, 2*time.Millisecond)

	fmt.Println("cancelled:", answer.Cancel())
	if err := timer.Drain(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// cancelled: true
	// fired
}

// Millions of timeouts cost the garbage collector nothing if their values hold no pointer.
func ExampleNewHandlerTimer() {
	orders := []string{"A-1", "A-2"}
	timer := wheel.NewHandlerTimer(func(i int) { fmt.Println("query", orders[i]) }, wheel.Config{})
	for i := range orders {
		timer.NewTimeout(i, time.Duration(i)*5*time.Millisecond)
	}
	timer.Drain(context.Background())
	// Output:
	// query A-1
	// query A-2
}
