// Package ledger has stand-ins of payment platforms that keep a ledger of their own: each
// charge, refund, transfer and cancel, its request and its time. Its tests
// play random schedules of callers against them, through the real scheduler and presets,
// and compare the outcomes that callers were told with the ledger.
//
// A [Platform] is an http.RoundTripper. It reads requests and writes answers in the
// [Dialect] of a platform, which is one row of [Dialects]. The fate of each request is
// drawn from its seed: the request is executed or not, now, later, or after a time in which
// it is processed; the answer says so, says something vague, comes from a gateway in
// between, which may call anything a success, or is lost. Some answers have a content coding,
// and some of a limit ask for a wait, in the forms that platforms use. The rules are those that
// the platforms document. For the rest the stand-in behaves in the way that loses most money.
//
// Instants are those of time.Now: the package is for bubbles of testing/synctest. Only its
// tests use a scheduler.
package ledger

import (
	"fmt"
	"slices"
	"time"
)

// A Kind is the purpose of a request.
type Kind string

// The kinds of requests. A close ends an unpaid order, a cancel also a paid one.
const (
	Pay           Kind = "pay"
	Cancel        Kind = "cancel"
	Close         Kind = "close"
	Refund        Kind = "refund"
	Transfer      Kind = "transfer"
	Recall        Kind = "cancel of a transfer"
	QueryPay      Kind = "query of a payment"
	QueryRefund   Kind = "query of a refund"
	QueryTransfer Kind = "query of a transfer"
)

// moves reports whether requests of the kind move money.
func (k Kind) moves() bool { return k == Pay || k == Refund || k == Transfer }

func (k Kind) stops() bool { return k == Cancel || k == Close || k == Recall }

func (k Kind) query() bool { return k == QueryPay || k == QueryRefund || k == QueryTransfer }

// An Operation is the purpose and the content of one request.
type Operation struct {
	Kind   Kind
	Order  string // number of the payment or transfer
	Refund string // number of the refund; empty for one without
	Amount int    // in cents
	Key    string // idempotency key that the platform gets; empty for none
	Tag    string // names the caller's call: it goes in User-Agent
}

// A State is that of a payment, refund or transfer.
type State string

// The states. None means that the platform does not know it, or not yet.
const (
	None       State = "none"
	Processing State = "processing"
	Executed   State = "executed"
	Failed     State = "failed" // for good: no money has moved
	Closed     State = "closed" // likewise, because its order is closed
	Reversed   State = "reversed"
)

// An entry is a payment, refund or transfer that one request has begun.
type entry struct {
	op      Operation
	visible time.Time // from when on queries find it
	final   time.Time // from when on its state is end
	end     State     // Executed, Failed or Closed
	stopped time.Time // when a cancel closed or reversed it
	stored  *Saying   // the answer that a platform with keys repeats
}

// state returns the state at an instant, as the platform tells it.
func (e *entry) state(now time.Time) State {
	switch {
	case now.Before(e.visible):
		return None
	case !e.stopped.IsZero() && e.stopped.Before(e.final):
		return Closed
	case now.Before(e.final):
		return Processing
	case !e.stopped.IsZero():
		return Reversed
	}
	return e.end
}

// executed reports whether money moves, and when.
func (e *entry) executed() (at time.Time, ok bool) {
	if e.end != Executed || !e.stopped.IsZero() && e.stopped.Before(e.final) {
		return time.Time{}, false
	}
	return e.final, true
}

// A book is the ledger of a platform.
type book struct {
	entries map[string][]*entry  // by unit
	stops   map[string]time.Time // by unit: when the first cancel or close was sent
	done    map[string]bool      // tags of cancels and closes that closed the order
	faults  []string             // found while requests were played
}

// sent notes that a request has left for the platform.
func (b *book) sent(unit string, op Operation) {
	now := time.Now()
	stop, stopped := b.stops[unit]
	switch {
	case op.Kind.stops() && !stopped:
		b.stops[unit] = now
	case op.Kind.moves() && stopped && now.After(stop):
		b.fault("SENT AFTER ITS CANCEL: %s by %s, %v after it", unit, op.Tag, now.Sub(stop))
	}
}

func (b *book) fault(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// last returns the last entry of a unit; nil if there is none.
func (b *book) last(unit string) *entry {
	if all := b.entries[unit]; len(all) > 0 {
		return all[len(all)-1]
	}
	return nil
}

// A Told is the outcome that a caller was told of its call.
type Told struct {
	Operation
	At time.Time
	As string // done, failed, not_executed, or another word that claims nothing
}

// Enter enters a payment, refund or transfer that was made before, by another program.
func (p *Platform) Enter(op Operation) {
	unit := p.unit(op)
	p.entries[unit] = append(p.entries[unit], &entry{op: op, visible: time.Now(), final: time.Now(), end: Executed})
}

// Truth returns the state of an operation, or of another one of its unit and amount: Executed;
// None if it is not executed without a further request; or Processing if that is not final.
func (p *Platform) Truth(op Operation) State {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case op.Kind.moves():
	case p.done[op.Tag]:
		return Executed
	default:
		return None
	}
	truth := None
	for _, e := range p.entries[p.unit(op)] {
		switch at, ok := e.executed(); {
		case !ok, e.op.Amount != op.Amount:
		case !e.stopped.IsZero(), at.After(time.Now()):
			return Processing
		default:
			truth = Executed
		}
	}
	return truth
}

// Faults compares the ledger with the outcomes that callers were told. It leaves out the units for
// which spoilt holds: a person has decided them wrongly.
func (p *Platform) Faults(told []Told, spoilt func(unit string) bool) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := slices.Clone(p.faults)
	for unit, all := range p.entries {
		var by []string
		for _, e := range all {
			if _, ok := e.executed(); ok {
				by = append(by, e.op.Tag)
			}
		}
		if len(by) > 1 && !spoilt(unit) {
			faults = append(faults, fmt.Sprintf("TWICE: %s was executed by %v", unit, by))
		}
	}
	for _, t := range told {
		if unit := p.unit(t.Operation); !spoilt(unit) && !t.Kind.query() {
			if wrong := p.wrong(t, unit); wrong != "" {
				faults = append(faults, fmt.Sprintf("TOLD %s at %v: %s of %s by %s: %s", t.As, t.At.Format("05.000"), t.Kind, unit, t.Tag, wrong))
			}
		}
	}
	slices.Sort(faults)
	return slices.Compact(faults)
}

// wrong says how the ledger refutes an outcome that a caller was told; empty if it does not.
func (p *Platform) wrong(t Told, unit string) string {
	switch {
	case t.As == "done" && t.Kind.moves():
		return p.wrongDone(t, unit)
	case t.As == "done":
		if e := p.last(unit); e != nil {
			if _, ok := e.executed(); ok && e.stopped.IsZero() {
				return "the payment stands"
			}
		}
	case (t.As == "failed" || t.As == "not_executed") && t.Kind.moves():
		return p.wrongFailed(t, unit)
	case t.As == "failed" || t.As == "not_executed":
		if p.done[t.Tag] {
			return "the order was closed by it"
		}
	case t.As == "waiting" || t.As == "sending":
		return "it never ends"
	}
	return ""
}

func (p *Platform) wrongDone(t Told, unit string) string {
	for _, e := range p.entries[unit] {
		if at, ok := e.executed(); ok && e.op.Amount == t.Amount && !at.After(t.At) {
			return ""
		}
	}
	return "it was not executed"
}

// wrongFailed looks for money that this call has moved, or will, and for money that
// another call of the same unit and amount has moved before.
func (p *Platform) wrongFailed(t Told, unit string) string {
	for _, e := range p.entries[unit] {
		at, ok := e.executed()
		switch {
		case !ok, !e.stopped.IsZero() && !e.stopped.After(t.At):
		case e.op.Tag == t.Tag:
			return "it was executed at " + at.Format("05.000")
		case t.As == "failed" && e.op.Amount == t.Amount && !at.After(t.At):
			return "it was executed by " + e.op.Tag + " at " + at.Format("05.000")
		}
	}
	return ""
}
