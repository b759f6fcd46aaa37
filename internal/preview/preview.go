// Package preview plays a load under a configuration, before either is real: through
// the planner and the ledger of the scheduler, in virtual time.
//
//	report, err := preview.Run(ctx, cfg, load, preview.Options{RoundTrip: 50 * time.Millisecond})
//	preview.Text(w, report)                    // for people; a Report is JSON for programs
//	preview.Chart(report, other).SVG(style)    // side by side
//	condition, err := preview.Compile("wait.p99 > 5s")
//	both, err := preview.Compare(ctx, load, options, conditions, now, wanted) // with findings in words
//	preview.HTML(w, both, page)                // a file by itself
//
// # Course of a preview
//
// Calls come in as the load says, wait and are sent. Each has one attempt, which is done
// after a round trip drawn at random. So a preview has no retries, pauses or outages.
//
//	load ── arrival ──► simulation ── departure ──► collector ──► Report
//	            └───────────────────────────────────────▲
//
// The collector also plays the arrivals against a receiver that counts them itself: it
// executes a call that is within its limits as it comes in, and limits the others. They
// are the calls that the upstream would limit without Throttler and without retries.
//
// # Memory
//
// The wait of every call is kept, so that percentiles are exact: eight bytes a call.
// Series over time have at most 2,000 steps, which grow with the load.
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

// Options are the settings of Run.
type Options struct {
	// Name is the configuration's in reports and pictures.
	Name string
	// RoundTrip is the least time to an answer. Spread is the mean of the random time
	// on top of it, which has an exponential distribution.
	RoundTrip, Spread time.Duration
	// Seed is that of the random times; equal seeds give equal previews.
	Seed uint64
	// Progress, if not nil, is called from time to time with the part that is done,
	// from 0 to 1.
	Progress func(done float64)
}

// chunk is the number of calls that are played between two checks of the context.
const chunk = 4096

// Run plays a load under a configuration without faults.
func Run(ctx context.Context, c scheduler.Config, load *workload.Load, o Options) (*Report, error) {
	s, err := newSimulation(c, load.Begin())
	if err != nil {
		return nil, err
	}
	p := &player{s: s, c: newCollector(s, o.RoundTrip+o.Spread), load: load, done: o.Progress}
	random := rand.New(rand.NewPCG(o.Seed, 1))
	s.roundTrip = func(*workload.Arrival) time.Duration {
		if o.Spread == 0 {
			return o.RoundTrip
		}
		return o.RoundTrip + time.Duration(random.ExpFloat64()*float64(o.Spread))
	}
	s.observe = p.c.departure
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

// A player drives a simulation, and samples it at the end of each step.
type player struct {
	s    *simulation
	c    *collector
	load *workload.Load
	done func(part float64)
}

// progress reports the part that is done: half of it are arrivals, half departures.
func (p *player) progress() {
	if p.done != nil {
		waiting, _ := p.s.pending()
		p.done(p.load.Done() * (1 - float64(waiting)/float64(2*max(p.c.arrived, 1))))
	}
}

func (p *player) arrive(at time.Duration, a workload.Arrival) error {
	if at > p.s.now {
		p.until(at)
	}
	d, err := p.s.arrive(at, a)
	if err != nil {
		return err
	}
	p.c.arrival(at, a.Upstream, d)
	return nil
}

// until plays on to the last step that ends before an instant.
func (p *player) until(at time.Duration) {
	p.s.advance(p.s.now) // a call that can go at once has not waited
	waiting, _ := p.s.pending()
	p.c.backlog(p.s.now, waiting)
	for end := p.c.stepEnd(p.s.now); end < at; end = p.c.stepEnd(p.s.now) {
		p.s.advance(end)
		p.c.sample(p.s)
	}
}

// finish plays on until every call has been sent and answered, or refused.
func (p *player) finish(ctx context.Context) error {
	for {
		p.until(p.c.stepEnd(p.s.now) + 1)
		p.progress()
		if waiting, sending := p.s.pending(); waiting+sending == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}
