// Package preview says what a configuration would make of a load, before either
// is real: it plays the load through the scheduler's own planner in virtual time.
//
//	report, err := preview.Run(ctx, cfg, load, preview.Options{RoundTrip: 50 * time.Millisecond})
//	preview.Text(w, report)                    // for people; a Report is JSON for programs
//	preview.Chart(report, other).SVG(style)    // side by side
//	condition, err := preview.Compile("wait.p99 > 5s")
//
// # What is played
//
// Calls come in as the load says, wait, go and are answered after a drawn round
// trip; each is answered well, once. So a preview has no retries, no pauses and no
// outages in it. Beside the plan, the same load is laid before an upstream that
// counts by itself, without us: it executes what is within its limits when it
// comes, and counts what it executes. What that one limits is what would happen
// without Throttler and without retries.
//
// # What is kept
//
// Waits are kept one by one, so that percentiles are exact: eight bytes a call.
// What is drawn over time is kept in at most 2,000 steps, which grow with the load.
package preview

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// Options say how a load is played.
type Options struct {
	// Name is how reports and pictures call the configuration.
	Name string
	// RoundTrip is how long an answer takes at least, and Spread by how much it is
	// longer on average, drawn from an exponential distribution.
	RoundTrip, Spread time.Duration
	// Seed makes the draws; equal seeds make equal previews.
	Seed uint64
	// Progress, if not nil, is told from time to time how much is done, from 0 to 1.
	Progress func(done float64)
}

// chunk is how many calls are played between two looks at the context.
const chunk = 4096

// Run plays a load under a configuration without faults.
func Run(ctx context.Context, c scheduler.Config, load *workload.Load, o Options) (*Report, error) {
	s, err := scheduler.NewSimulation(c, load.Begin())
	if err != nil {
		return nil, err
	}
	p := &player{s: s, c: newCollector(c, load.Begin(), o.RoundTrip+o.Spread), load: load, tell: o.Progress}
	random := rand.New(rand.NewPCG(o.Seed, 1))
	s.RoundTrip = func(*scheduler.Arrival) time.Duration {
		if o.Spread == 0 {
			return o.RoundTrip
		}
		return o.RoundTrip + time.Duration(random.ExpFloat64()*float64(o.Spread))
	}
	s.Observe = p.c.departure
	for n := 0; ; n++ {
		if n%chunk == 0 {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			p.progress()
		}
		at, a, err := load.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if err := p.arrive(at, a); err != nil {
			return nil, fmt.Errorf("call %d of the load: %w", n+1, err)
		}
	}
	if err := p.finish(ctx); err != nil {
		return nil, err
	}
	return p.c.report(o), nil
}

// A player drives a simulation, and looks at it at the end of each step.
type player struct {
	s    *scheduler.Simulation
	c    *collector
	load *workload.Load
	tell func(done float64)
}

// progress tells how much is done: half of it is to come in, half to go.
func (p *player) progress() {
	if p.tell != nil {
		waiting, _ := p.s.Pending()
		p.tell(p.load.Done() * (1 - float64(waiting)/float64(2*max(p.c.arrived, 1))))
	}
}

func (p *player) arrive(at time.Duration, a scheduler.Arrival) error {
	if at > p.s.Now() {
		p.until(at)
	}
	p.c.arrival(at, &a)
	return p.s.Arrive(at, a)
}

// until plays on to the last step that ends before an instant.
func (p *player) until(at time.Duration) {
	p.s.Advance(p.s.Now()) // what can go at once has not waited
	waiting, _ := p.s.Pending()
	p.c.backlog(p.s.Now(), waiting)
	for end := p.c.stepEnd(p.s.Now()); end < at; end = p.c.stepEnd(p.s.Now()) {
		p.s.Advance(end)
		p.c.sample(p.s)
	}
}

// finish plays on until nothing waits and all is answered.
func (p *player) finish(ctx context.Context) error {
	for {
		p.until(p.c.stepEnd(p.s.Now()) + 1)
		p.progress()
		if waiting, sending := p.s.Pending(); waiting+sending == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
