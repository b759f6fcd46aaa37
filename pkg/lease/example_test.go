package lease_test

import (
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// A limit of 500 per day is leased in ones, twos, fours and then fives: the store is told
// of one permit before the first call, and of the next two before the second.
func Example() {
	id := int64(0)
	book := lease.NewBook("api", func() int64 { id++; return id })
	book.SetLimits([]lease.Limit{{Name: "day", Calls: 500, Long: true}})
	now := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)
	midnight := now.Add(15 * time.Hour)
	needs := []quota.Need{{Limit: 0, Cost: 1}}

	for n := 1; n <= 6; n++ {
		_, take, used := book.Take(now, needs, false)
		for _, h := range take {
			fmt.Printf("call %d: store lease %d, %d permits\n", n, h.ID, h.Permits)
		}
		book.Stored(used)
		_, over := book.Return(now, needs, used, false, func(n quota.Need) (int, time.Time) { return n.Cost, midnight })
		for _, h := range over {
			fmt.Printf("call %d: lease %d is back at %s\n", n, h.ID, h.Back.Format(time.TimeOnly))
		}
	}
	// Output:
	// call 1: store lease 1, 1 permits
	// call 2: store lease 2, 2 permits
	// call 2: lease 1 is back at 00:00:00
	// call 4: store lease 3, 4 permits
	// call 4: lease 2 is back at 00:00:00
}
