package storetest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// The store in memory keeps what every Store must.
func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) scheduler.Store { return scheduler.NewMemory(1000, 1<<20) })
}

func Example() {
	s := scheduler.NewMemory(100, 1<<20)
	e := storetest.NewEntry(1)
	s.Accept(context.Background(), e)
	c, err := s.Get(context.Background(), e.Call.ID)
	fmt.Println(c.State, err)
	// Output: waiting <nil>
}
