package scheduler

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// The oracle is a scheduler without queues, gates, a ledger or a wheel. At every
// instant with an event it examines all calls and all attempts so far, and applies
// the rules as DESIGN puts them. It shares no code with the scheduler.

// A planned call has all of its data drawn beforehand.
type planned struct {
	n        int // seniority, and path
	due      time.Duration
	priority int
	flow     string
	keys     []string // by limit; empty if the limit does not apply
	costs    []int
	tries    []try // the last one ends it
	cancel   time.Duration

	state string // "", waiting, sending, ended
	sent  []time.Duration
}

// A try is the planned result of an attempt: done, failed, limited or lost.
type try struct {
	trip   time.Duration
	result string
}

// A change is an event at an instant: a pause of the upstream (limit -1), of a limit
// or of a key until another instant, or the end of a pause (zero), or a reload that
// gives a limit other calls or another window.
type change struct {
	at, until    time.Duration
	limit        int
	key          string
	calls        int
	window       time.Duration
	pause, renew bool
}

// An attempt is the oracle's record of one.
type oracleAttempt struct {
	c         *planned
	costs     []int // at the time of sending
	sent, end time.Duration
	result    string
}

type oracle struct {
	calls   []*planned
	limits  []Limit
	late    time.Duration
	weights map[string]float64
	changes []change

	attempts []*oracleAttempt
	renewed  []time.Duration // start of counting, by limit
	shut     map[[2]string]time.Duration
	virtual  map[string]float64
	last     float64
	instants []time.Duration // to examine
	messages []time.Duration // events that reach the scheduler by message, not by its wheel
}

// answerPause is the length of the pause that a limited response sets.
const answerPause = 400 * ms

const began = -time.Hour

func (o *oracle) run() {
	o.shut = map[[2]string]time.Duration{}
	o.virtual = map[string]float64{}
	o.renewed = make([]time.Duration, len(o.limits))
	for i := range o.renewed {
		o.renewed[i] = began
	}
	for _, c := range o.calls {
		o.instants = append(o.instants, c.due)
		if c.cancel > 0 {
			o.tell(c.cancel)
		}
	}
	for _, ch := range o.changes {
		o.tell(ch.at)
		if ch.until > 0 {
			o.instants = append(o.instants, ch.until)
		}
	}
	now := time.Duration(-1)
	for i := 0; ; i++ {
		next, ok := o.after(now)
		if !ok {
			return
		}
		now = next
		if !slices.ContainsFunc(o.calls, func(c *planned) bool { return c.state == "waiting" }) {
			o.last, o.virtual = 0, map[string]float64{}
		}
		again := o.end(now)
		for _, ch := range o.changes {
			if ch.at == now {
				o.apply(ch)
			}
		}
		for _, c := range o.calls {
			if c.cancel == now && (c.state == "" || c.state == "waiting") {
				c.state = "ended"
			}
			if c.due == now && c.state == "" {
				o.wait(c)
			}
		}
		for _, c := range again {
			o.wait(c)
		}
		for o.send(now) {
		}
	}
}

func (o *oracle) tell(at time.Duration) {
	o.messages = append(o.messages, at)
	o.instants = append(o.instants, at)
}

// after returns the next instant to examine.
func (o *oracle) after(now time.Duration) (next time.Duration, ok bool) {
	for _, at := range o.instants {
		if at > now && (!ok || at < next) {
			next, ok = at, true
		}
	}
	return next, ok
}

func (o *oracle) wait(c *planned) {
	if !slices.ContainsFunc(o.calls, func(other *planned) bool { return other.flow == c.flow && other.state == "waiting" }) {
		o.virtual[c.flow] = max(o.virtual[c.flow], o.last)
	}
	c.state = "waiting"
}

// end ends the attempts that are due, and returns the calls that are sent again.
func (o *oracle) end(now time.Duration) (again []*planned) {
	for _, a := range o.attempts {
		if a.end != now {
			continue
		}
		if a.c.state = "ended"; a.result != "limited" {
			continue
		}
		target := [2]string{"concurrency", ""}
		if a.c.keys[0] != "" { // the outcome rule names the first limit
			target = [2]string{o.limits[0].Name, a.c.keys[0]}
		}
		o.shut[target] = max(o.shut[target], now+answerPause)
		o.instants = append(o.instants, now+answerPause)
		again = append(again, a.c)
	}
	return again
}

func (o *oracle) apply(ch change) {
	if ch.pause {
		target := [2]string{"concurrency", ""}
		if ch.limit >= 0 {
			target = [2]string{o.limits[ch.limit].Name, ch.key}
		}
		if o.shut[target] = max(o.shut[target], ch.until); ch.until == 0 {
			delete(o.shut, target)
		}
		return
	}
	l := &o.limits[ch.limit]
	switch {
	case ch.renew: // a pause keeps its end
		l.Window = ch.window
		o.renewed[ch.limit] = ch.at
		for _, a := range o.attempts {
			if a.end > ch.at && a.c.keys[ch.limit] != "" { // attempts in flight count
				a.costs[ch.limit] = min(a.c.costs[ch.limit], l.Calls)
			}
		}
	default:
		l.Calls = ch.calls
	}
	o.last, o.virtual = 0, map[string]float64{}
	for _, a := range o.attempts { // permits of ended attempts return by the new window
		o.instants = append(o.instants, o.back(a, ch.limit))
	}
}

// back returns the time at which the permits of an attempt return.
func (o *oracle) back(a *oracleAttempt, i int) time.Duration {
	l, end := o.limits[i], a.end
	switch {
	case a.result == "lost":
		end += o.late
	case len(l.Counts) > 0 && a.result != "failed":
		return end
	}
	if l.Calendar != nil { // the test begins with a window
		skew, unit := l.Calendar.Skew, lengthOf(l.Calendar)
		return (end + skew).Truncate(unit) + unit + skew
	}
	if l.Guard > 0 && a.result != "lost" {
		end = min(end, a.sent+l.Guard)
	}
	return end + l.Window
}

func lengthOf(c *quota.Calendar) time.Duration {
	return map[quota.Unit]time.Duration{quota.Minute: time.Minute, quota.Hour: time.Hour}[c.Unit]
}

// fits reports whether a limit has enough permits for a call.
func (o *oracle) fits(c *planned, i int, now time.Duration) bool {
	l, out := o.limits[i], 0
	for _, key := range []string{"", c.keys[i]} {
		if now < o.shut[[2]string{l.Name, key}] {
			return false
		}
	}
	for _, a := range o.attempts {
		if a.c.keys[i] == c.keys[i] && a.end > o.renewed[i] && (now < a.end || now < o.back(a, i)) {
			out += a.costs[i]
		}
	}
	return out+o.cost(c, i) <= max(l.Calls, l.Concurrency)
}

func (o *oracle) cost(c *planned, i int) int {
	return min(c.costs[i], max(o.limits[i].Calls, o.limits[i].Concurrency))
}

// send sends the first call that may be sent, and returns false if there is none.
func (o *oracle) send(now time.Duration) bool {
	if now < o.shut[[2]string{"concurrency", ""}] {
		return false
	}
	var waiting []*planned
	for _, c := range o.calls {
		if c.state == "waiting" {
			waiting = append(waiting, c)
		}
	}
	slices.SortFunc(waiting, func(a, b *planned) int {
		return cmp.Or(b.priority-a.priority, cmp.Compare(o.virtual[a.flow], o.virtual[b.flow]), a.n-b.n)
	})
	claimed := map[[2]string]bool{} // keys with permits that an earlier call waits for
	for _, c := range waiting {
		var lacks [][2]string
		free := true
		for i, key := range c.keys {
			if key == "" {
				continue
			}
			id := [2]string{o.limits[i].Name, key}
			if claimed[id] {
				free = false
			}
			if !o.fits(c, i, now) {
				lacks = append(lacks, id)
			}
		}
		switch {
		case free && len(lacks) == 0:
			o.dispatch(c, now)
			return true
		case free && len(lacks) == 1:
			claimed[lacks[0]] = true
		}
	}
	return false
}

func (o *oracle) dispatch(c *planned, now time.Duration) {
	t := c.tries[len(c.sent)]
	a := &oracleAttempt{c: c, sent: now, end: now + t.trip, result: t.result}
	c.state = "sending"
	c.sent = append(c.sent, now)
	share := 1
	for i, key := range c.keys {
		a.costs = append(a.costs, o.cost(c, i))
		if key != "" {
			share = max(share, a.costs[i])
		}
	}
	o.attempts = append(o.attempts, a)
	o.tell(a.end)
	for i := range o.limits {
		o.instants = append(o.instants, o.back(a, i))
	}
	o.last = max(o.last, o.virtual[c.flow])
	o.virtual[c.flow] += float64(share) / o.weights[c.flow]
}

// tied reports whether two events at one instant have no defined order: a message,
// and another message or a timeout of the wheel. The end of an attempt and the return
// of its own permits are no tie.
func (o *oracle) tied() bool {
	for _, at := range o.messages {
		own := 1 // each message is also one of the instants
		for _, a := range o.attempts {
			for i := range o.limits {
				if a.end == at && o.back(a, i) == at {
					own++
				}
			}
		}
		for _, other := range o.instants {
			if other == at {
				own--
			}
		}
		if own < 0 {
			return true
		}
	}
	return false
}
