package scheduler

import (
	"math/rand/v2"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// maxStrikes is for how many gates a planner remembers that they were limited.
const maxStrikes = 10_000

// A strike is how often in a row answers have limited calls of a gate.
type strike struct {
	count int
	at    time.Time     // when the last of them came
	wait  time.Duration // for how long it shut the gate
}

// strike counts an answer that limited a call of a gate, and returns for how long
// it shuts the gate: longer each time in a row. Calls that were under way together
// count once.
func (p *planner) strike(now time.Time, id gateID, sentAt time.Time) time.Duration {
	if len(p.strikes) >= maxStrikes { // what is forgotten begins again
		clear(p.strikes)
	}
	s := p.strikes[id]
	if s.count == 0 || !sentAt.Before(s.at) {
		wait := p.Retry.LimitedCurve().Delay(s.count+1, s.wait, rand.Float64())
		s = strike{s.count + 1, now, wait}
		p.strikes[id] = s
	}
	return s.wait
}

// executed ends the strikes of gates that a call has passed.
func (p *planner) executed(needs []quota.Need) {
	if len(p.strikes) == 0 {
		return
	}
	for _, n := range needs {
		delete(p.strikes, gateID{n.Limit, n.Key})
	}
	delete(p.strikes, gateID{})
}
