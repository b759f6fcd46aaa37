package ledger

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A schedule is the actions of callers and people, one after another, and how the
// processes end. It follows from its seed.
type schedule struct {
	Dialect
	seed    uint64
	before  []Operation // executed, by other programs
	actions []action
	deaths  []death // none: one process, which keeps calls in memory
	durable bool    // calls whose caller waits are stored too
	careful bool    // the platform recognises repeats that it does not document
	calm    bool    // the breaker and the retry budget hold nothing back
}

// A death is the end of a process: at its n-th change of the store, before or after it is
// written, or when the schedule says so.
type death struct {
	change int
	after  bool
}

type action struct {
	wait   time.Duration // before it
	deed   deed
	op     Operation
	how    how
	known  bool          // it has an idempotency key of the caller
	at     time.Duration // if positive, it is not to be sent before
	leaves time.Duration // if positive, the caller goes away
}

type deed string

const (
	calls     deed = "call"
	withdraws deed = "withdraw"          // a caller takes its call back
	decides   deed = "decide"            // a person looks at the ledger, and decides an unknown call
	errs      deed = "decide wrongly"    // the same without a look
	dies      deed = "the process dies"  //
	stops     deed = "the process stops" //
)

type how string

const (
	waits   how = "wait"
	submits how = "submit"
)

func (a action) String() string {
	s := fmt.Sprintf("%6.1fs  %s", a.wait.Seconds(), a.deed)
	if a.op.Kind == "" {
		return s
	}
	s += fmt.Sprintf(" %s %s: %s %s", a.op.Tag, a.how, a.op.Kind, a.op.Order)
	if a.op.Refund != "" {
		s += " refund " + a.op.Refund
	}
	s += fmt.Sprintf(", amount %d", a.op.Amount)
	if a.op.Key != "" {
		s += ", key " + a.op.Key
	}
	if a.known {
		s += ", own key"
	}
	if a.at > 0 {
		s += fmt.Sprintf(", in %v", a.at)
	}
	if a.leaves > 0 {
		s += fmt.Sprintf(", leaves after %v", a.leaves)
	}
	return s
}

func (s *schedule) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, seed %d: deaths %v, all durable %v, careful platform %v, calm %v\n", s.Name, s.seed, s.deaths, s.durable, s.careful, s.calm)
	for _, op := range s.before {
		fmt.Fprintf(&b, "   before  %s %s%s, amount %d\n", op.Kind, op.Order, op.Refund, op.Amount)
	}
	for _, a := range s.actions {
		fmt.Fprintln(&b, "  ", a)
	}
	return b.String()
}

// prepaid are orders that were paid before; others are paid by the schedule.
const (
	prepaid = "A"
	amount  = 10_000
)

// draw returns the schedule of a seed.
func draw(d Dialect, seed uint64) *schedule {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &schedule{Dialect: d, seed: seed, calm: r.IntN(3) > 0, before: []Operation{{Kind: Pay, Order: prepaid, Amount: amount, Tag: "before"}}}
	if r.IntN(4) == 0 && !d.Replays { // the platform must know the numbers
		s.careful = true
		for _, op := range []Operation{{Kind: Pay, Order: "C", Amount: amount}, {Kind: Transfer, Order: "TC", Amount: amount}, {Kind: Refund, Order: prepaid, Refund: prepaid + "-R1", Amount: amount / 2}} {
			if r.IntN(3) == 0 {
				op.Amount -= 1000
			}
			op.Tag = "elsewhere"
			s.before = append(s.before, op)
		}
	}
	if r.IntN(8) == 0 {
		for range 1 + r.IntN(3) {
			s.deaths = append(s.deaths, death{1 + r.IntN(40), r.IntN(2) == 0})
		}
		s.durable = r.IntN(3) > 0
		s.careful = s.careful || !s.durable // a call in memory is known to one process alone
	}
	s.careful = s.careful || r.IntN(4) == 0
	for i := range 4 + r.IntN(14) {
		a := action{wait: time.Duration(r.Int64N(int64(3 * time.Second)))}
		if r.IntN(5) == 0 {
			a.wait *= 12
		}
		switch n := r.IntN(20); {
		case n < 15:
			drawCall(r, &a, d, fmt.Sprint("c", i))
		case n == 15:
			a.deed = withdraws
		case n < 18:
			a.deed = decides
		case n == 18 && r.IntN(4) == 0:
			a.deed = errs
		case n == 18:
			a.deed = decides
		default:
			a.deed = []deed{dies, stops}[r.IntN(2)]
		}
		s.actions = append(s.actions, a)
	}
	return s
}

// drawCall chooses few orders, so that many calls are repeats.
func drawCall(r *rand.Rand, a *action, d Dialect, tag string) {
	kind := d.Kinds[r.IntN(len(d.Kinds))]
	if r.IntN(3) == 0 {
		kind = d.Kinds[0]
	}
	a.deed, a.op = calls, Operation{Kind: kind, Order: []string{"B", "C"}[r.IntN(2)], Amount: amount, Tag: tag}
	switch kind {
	case Refund, QueryRefund:
		a.op.Order, a.op.Amount = []string{prepaid, prepaid, "B"}[r.IntN(3)], amount/2
		if kind == QueryRefund || r.IntN(8) > 0 {
			a.op.Refund = a.op.Order + "-" + fmt.Sprint("R", r.IntN(2))
		}
	case Transfer, Recall:
		a.op.Order = "T" + a.op.Order
	}
	if kind.moves() && r.IntN(20) == 0 {
		a.op.Amount -= 1000
	}
	if (d.Replays || d.Keyed) && r.IntN(4) > 0 {
		a.op.Key = strings.Join([]string{string(kind), a.op.Order, a.op.Refund}, "-")
	}
	a.known = kind.moves() && r.IntN(3) == 0
	a.how = []how{waits, submits}[r.IntN(2)]
	switch n := r.IntN(10); {
	case n < 2 && a.how == submits:
		a.at = time.Duration(r.Int64N(int64(40 * time.Second)))
	case n < 2:
		a.leaves = time.Duration(r.Int64N(int64(5 * time.Second)))
	}
}
