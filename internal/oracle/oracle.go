// Package oracle is a brute-force scheduler: tests compare the sends of the real ones
// with it.
//
//	load := oracle.Draw(r)     // limits, calls, answers, changes
//	h := oracle.Run(load)      // which attempt is sent when
//	h.Sent(7)                  // the instants at which call 7 is sent
//	h.Diff(load, sent)         // the first send of another scheduler that differs
//
// It has no queues, no ledger of permits and no wheel. At every instant at which
// anything happens it sorts all calls that wait, and before each send counts the permits of
// all attempts there ever were. It shares no code with the schedulers that are compared to
// it, save the names of calendar units.
//
// # Order within an instant
//
// Attempts end, and the calls of limited ones wait again; then changes are applied, in
// their order; then calls are cancelled or become due; then calls are sent, one at a time,
// the first of all that may go.
//
// A call takes permits of several limits at once. While it lacks permits of one limit
// only, no later call may take them. While it lacks permits of two, it reserves none.
//
// Instants are counted from the beginning, which is the start of an hour.
package oracle

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/quota"
)

// A Load is the input of Run.
type Load struct {
	Limits  []Limit
	Calls   []*Call // the oldest first
	Changes []Change
	Weights map[string]float64 // of the flows
	// Late is how long a receiver may take to count an attempt that was lost.
	Late time.Duration
	// Pause is how long a limited attempt pauses the first limit for the key of its
	// call; the upstream if the call is not under that limit.
	Pause time.Duration
}

// A Limit is "at most Calls per window, counted per key".
type Limit struct {
	Calls  int
	Window time.Duration // 0: at most Calls at a time
	// Calendar aligns the window to minutes or hours, if it is not nil.
	Calendar *quota.Calendar
	// Guard, if it is positive, is after how long at most an attempt counts as arrived.
	Guard time.Duration
	// FailedOnly counts failed and lost attempts only, and each while it is in flight.
	FailedOnly bool
}

// A Call is drawn beforehand with the course of each of its attempts.
type Call struct {
	Due      time.Duration // when it begins to wait
	Cancel   time.Duration // 0: never
	Cancels  int           // a call that is cancelled when this one is first sent: its index plus 1, or 0
	Priority int
	Flow     string
	Keys     []string // by limit; empty: not under it
	Costs    []int    // by limit; never more than the limit's calls
	Tries    []Try    // one for each attempt
}

// A Try is the course of one attempt.
type Try struct {
	Trip   time.Duration
	Result Result
}

// A Result is the outcome of an attempt. After a limited one the call goes again.
type Result string

const (
	Done    Result = "done"
	Failed  Result = "failed"
	Limited Result = "limited"
	Lost    Result = "lost" // no answer
)

// A Change happens at an instant: a pause of a limit, of a key or of the upstream, the
// end of one, or other numbers for a limit.
type Change struct {
	At    time.Duration
	Limit int // -1: the upstream, for a pause
	// Pause makes it a pause of a key until Until; of all keys if Key is empty. 0 ends
	// a pause.
	Pause bool
	Key   string
	Until time.Duration
	// Calls, if it is not 0, are those of the limit from now on. Window, if it is not 0,
	// makes the limit a new one: it counts attempts in flight, and later ones.
	Calls  int
	Window time.Duration
}

// A History is the course of a load.
type History struct {
	Attempts []*Attempt // in the order of sending
	// Tied reports that two things happened at one instant, and that one of them came
	// from outside: an answer, a cancel or a change. A scheduler that hears of them by
	// messages may see them in another order than Run.
	Tied bool
}

// An Attempt is one sending of a call.
type Attempt struct {
	Call      int   // index
	Costs     []int // by limit
	Sent, End time.Duration
	Result    Result
}

// Sent returns the instants at which a call was sent.
func (h *History) Sent(call int) (at []time.Duration) {
	for _, a := range h.Attempts {
		if a.Call == call {
			at = append(at, a.Sent)
		}
	}
	return at
}

// Run plays a load to its end. It does not change the load.
func Run(l *Load) *History {
	s := &state{
		Load: l, limits: slices.Clone(l.Limits), calls: make([]string, len(l.Calls)), sent: make([]int, len(l.Calls)),
		renewed: make([]time.Duration, len(l.Limits)), paused: map[target]time.Duration{}, virtual: map[string]float64{},
		instants: map[time.Duration]int{},
	}
	for i := range s.renewed {
		s.renewed[i] = -1
	}
	for _, c := range l.Calls {
		s.instants[c.Due]++
		if c.Cancel > 0 {
			s.message(c.Cancel)
		}
	}
	for _, ch := range l.Changes {
		s.message(ch.At)
		if ch.Until > 0 {
			s.instants[ch.Until]++
		}
	}
	for now, ok := s.next(-1); ok; now, ok = s.next(now) {
		s.play(now)
	}
	return &History{Attempts: s.attempts, Tied: s.tied()}
}

// Where a call is.
const (
	early   = ""
	waiting = "waiting"
	flying  = "in flight"
	ended   = "ended"
)

// A target can be paused: a key of a limit, all keys of a limit, or the upstream,
// which is limit -1.
type target struct {
	limit int
	key   string
}

type state struct {
	*Load
	limits   []Limit  // as they are now
	calls    []string // where they are
	sent     []int    // attempts, by call
	attempts []*Attempt
	renewed  []time.Duration // when each limit began to count
	paused   map[target]time.Duration
	virtual  map[string]float64    // start tag of the next call of a flow
	last     float64               // greatest start tag of a call that was sent
	instants map[time.Duration]int // how many things happen
	messages []time.Duration       // those from outside
}

// message notes an instant at which something happens from outside.
func (s *state) message(at time.Duration) {
	s.messages = append(s.messages, at)
	s.instants[at]++
}

// next returns the first instant after now at which anything happens.
func (s *state) next(now time.Duration) (next time.Duration, ok bool) {
	for at := range s.instants {
		if at > now && (!ok || at < next) {
			next, ok = at, true
		}
	}
	return next, ok
}

func (s *state) play(now time.Duration) {
	if !slices.Contains(s.calls, waiting) {
		s.resetVirtualTime()
	}
	s.end(now)
	for _, ch := range s.Changes {
		if ch.At == now {
			s.apply(ch)
		}
	}
	for i, c := range s.Calls {
		if c.Cancel > 0 && c.Cancel == now && (s.calls[i] == early || s.calls[i] == waiting) {
			s.calls[i] = ended
		}
		if c.Due == now && s.calls[i] == early {
			s.wait(i)
		}
	}
	for s.send(now) {
	}
}

func (s *state) resetVirtualTime() { s.last, s.virtual = 0, map[string]float64{} }

// wait lets a call wait. A flow that had none waiting begins at virtual time.
func (s *state) wait(call int) {
	flow := s.Calls[call].Flow
	for i, c := range s.Calls {
		if c.Flow == flow && s.calls[i] == waiting {
			s.calls[call] = waiting
			return
		}
	}
	s.virtual[flow] = max(s.virtual[flow], s.last)
	s.calls[call] = waiting
}

// end ends the attempts whose time has come. The calls of limited ones wait again.
func (s *state) end(now time.Duration) {
	for _, a := range s.attempts {
		if a.End != now {
			continue
		}
		if s.calls[a.Call] = ended; a.Result != Limited {
			continue
		}
		t := target{limit: -1}
		if key := s.Calls[a.Call].Keys[0]; key != "" {
			t = target{0, key}
		}
		s.paused[t] = max(s.paused[t], now+s.Pause)
		s.instants[now+s.Pause]++
		s.wait(a.Call)
	}
}

func (s *state) apply(ch Change) {
	if ch.Pause {
		t := target{ch.Limit, ch.Key}
		if s.paused[t] = max(s.paused[t], ch.Until); ch.Until == 0 {
			delete(s.paused, t)
		}
		return
	}
	l := &s.limits[ch.Limit]
	if ch.Calls > 0 {
		l.Calls = ch.Calls
	}
	if ch.Window > 0 {
		l.Window = ch.Window
		s.renewed[ch.Limit] = ch.At
		for _, a := range s.attempts {
			if a.End > ch.At && s.Calls[a.Call].Keys[ch.Limit] != "" {
				a.Costs[ch.Limit] = s.cost(s.Calls[a.Call], ch.Limit)
			}
		}
	}
	s.resetVirtualTime()
	for _, a := range s.attempts { // permits in flight come back by the new numbers
		s.instants[s.back(a, ch.Limit)]++
	}
}

// back returns when the permits of an attempt come back.
func (s *state) back(a *Attempt, limit int) time.Duration {
	l, end := &s.limits[limit], a.End
	switch {
	case a.Result == Lost:
		end += s.Late
	case l.FailedOnly && a.Result != Failed:
		return end
	}
	if l.Calendar != nil {
		skew, unit := l.Calendar.Skew, length(l.Calendar.Unit)
		return (end + skew).Truncate(unit) + unit + skew
	}
	if l.Guard > 0 && a.Result != Lost {
		end = min(end, a.Sent+l.Guard)
	}
	return end + l.Window
}

func length(u quota.Unit) time.Duration {
	if u == quota.Hour {
		return time.Hour
	}
	return time.Minute
}

// free returns how many permits of a target may be taken; none while it is paused.
func (s *state) free(t target, now time.Duration) int {
	if now < s.paused[target{t.limit, ""}] || now < s.paused[t] {
		return 0
	}
	free := s.limits[t.limit].Calls
	for _, a := range s.attempts {
		if s.Calls[a.Call].Keys[t.limit] == t.key && a.End > s.renewed[t.limit] && (now < a.End || now < s.back(a, t.limit)) {
			free -= a.Costs[t.limit]
		}
	}
	return free
}

func (s *state) cost(c *Call, limit int) int { return min(c.Costs[limit], s.limits[limit].Calls) }

// send sends the first call of all that may go; false if none may.
func (s *state) send(now time.Duration) bool {
	if now < s.paused[target{limit: -1}] {
		return false
	}
	var line []int
	for i := range s.Calls {
		if s.calls[i] == waiting {
			line = append(line, i)
		}
	}
	slices.SortFunc(line, func(i, j int) int {
		a, b := s.Calls[i], s.Calls[j]
		return cmp.Or(b.Priority-a.Priority, cmp.Compare(s.virtual[a.Flow], s.virtual[b.Flow]), i-j)
	})
	reserved := map[target]bool{} // for an earlier call
	permits := map[target]int{}   // those counted for an earlier call: none is taken before this send
	for _, i := range line {
		var lacks []target
		free := true
		for limit, key := range s.Calls[i].Keys {
			if key == "" {
				continue
			}
			t := target{limit, key}
			if reserved[t] {
				free = false
			}
			n, ok := permits[t]
			if !ok {
				n = s.free(t, now)
				permits[t] = n
			}
			if n < s.cost(s.Calls[i], limit) {
				lacks = append(lacks, t)
			}
		}
		switch {
		case free && len(lacks) == 0:
			s.dispatch(i, now)
			return true
		case free && len(lacks) == 1:
			reserved[lacks[0]] = true
		}
	}
	return false
}

func (s *state) dispatch(call int, now time.Duration) {
	c := s.Calls[call]
	try := c.Tries[s.sent[call]]
	a := &Attempt{Call: call, Sent: now, End: now + try.Trip, Result: try.Result}
	s.sent[call]++
	s.calls[call] = flying
	if i := c.Cancels - 1; i >= 0 && s.sent[call] == 1 && (s.calls[i] == early || s.calls[i] == waiting) {
		s.calls[i] = ended
	}
	most := 1
	for i, key := range c.Keys {
		a.Costs = append(a.Costs, s.cost(c, i))
		if key != "" {
			most = max(most, a.Costs[i])
		}
	}
	s.attempts = append(s.attempts, a)
	s.message(a.End)
	for i := range s.limits {
		s.instants[s.back(a, i)]++
	}
	s.last = max(s.last, s.virtual[c.Flow])
	s.virtual[c.Flow] += float64(most) / s.Weights[c.Flow]
}
