package planner_test

import (
	"fmt"
	"math"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/planner"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/wheel"
)

// Three refunds of one trade and one of another, under two limits: 10 per second of the
// app, and one per 3 seconds on one trade. The calls of the full trade do not block the
// other one, and each knows when it will go.
func Example() {
	type call struct{ planner.Item[*call] }

	start := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	limits := []quota.Limit{
		{Name: "app", Calls: 10, Window: quota.Sliding(time.Second)},
		{Name: "trade", Calls: 1, Window: quota.Sliding(3 * time.Second)},
	}
	ledger, w := quota.New(start, limits...), wheel.New[planner.Timeout](time.Millisecond)
	p := planner.New[*call](start, w, ledger, limits, func(flow string) float64 { return 1 })

	now := start
	send := func(c *call) {
		fmt.Printf("%v: call %d of %s goes\n", now.Sub(start), c.Seq, c.Demand.ID)
		// Here the answer comes at once; else the owner does this when it comes.
		ledger.Return(now, c.Demand.Needs, quota.Attempt{Sent: now, End: now})
		p.Check(now, c.Demand.Needs)
	}
	for i, trade := range []string{"T1", "T1", "T1", "T2"} {
		c := &call{}
		c.Value, c.Seq = c, uint64(i+1)
		c.Demand = &planner.Demand{ID: trade, Cost: 1, Needs: []quota.Need{{Limit: 0, Cost: 1}, {Limit: 1, Key: trade, Cost: 1}}}
		p.Add(now, &c.Item)
		p.Dispatch(now, math.MaxInt, send)
		if c.Queued() {
			f := p.ETA(now, &c.Item, planner.Elsewhere{})
			fmt.Printf("%v: call %d waits for limit %s until %v\n", now.Sub(start), c.Seq, limits[f.Limit].Name, f.At.Sub(start))
		}
	}
	// An owner sleeps until the wheel is due; here time jumps there.
	for at, ok := w.Next(); ok; at, ok = w.Next() {
		now = start.Add(at)
		w.Advance(at, func(t planner.Timeout) { t.Fire(now) })
		p.Dispatch(now, math.MaxInt, send)
	}
	// Output:
	// 0s: call 1 of T1 goes
	// 0s: call 2 waits for limit trade until 3s
	// 0s: call 3 waits for limit trade until 6s
	// 0s: call 4 of T2 goes
	// 3s: call 2 of T1 goes
	// 6s: call 3 of T1 goes
}
