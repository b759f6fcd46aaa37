package ledger

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A Sense is the meaning of an answer.
type Sense string

// The senses of answers. Lost and Hung are no answers.
const (
	Truth     Sense = "truth"     // the state
	Duplicate Sense = "duplicate" // the number is in use; also the state of its entry
	Refused   Sense = "refused"   // for good
	Limited   Sense = "limited"
	Vague     Sense = "vague"   // the platform's own "perhaps"
	Gateway   Sense = "gateway" // of a gateway in between, which proves nothing
	Busy      Sense = "busy"    // the first request with the key is at work
	Lost      Sense = "lost"    // the connection broke
	Hung      Sense = "hung"    // until the time-out
)

// A Saying is the sense of an answer.
type Saying struct {
	Sense  Sense
	State  State
	Amount int
	Pick   int // chooses between spellings
	// Refunded tells about a payment that stands that a part of it was refunded.
	Refunded bool
}

// An Answer is an answer on the wire.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
}

// A Request is a request on the wire.
type Request struct {
	Method, Target string
	Header         map[string]string
	Body           string
}

// A Dialect has the requests and answers of a platform on the wire, and the repeats that it
// documents. To add a platform, add a Dialect to [Dialects].
type Dialect struct {
	Name   string
	Preset string // of the configuration, with More lines of it
	More   string
	Kinds  []Kind // of requests that callers make

	Write func(op Operation) Request
	Read  func(r Request) Operation
	Say   func(op Operation, s Saying) Answer

	// Recognises reports whether the platform documents that it executes the number of an
	// operation once. Otherwise the stand-in executes every request.
	Recognises func(op Operation) bool
	// Loose reports whether a request of a kind may have been executed although its answer is
	// Limited or Refused.
	Loose func(k Kind, w Sense) bool
	// Unit names the object that is executed once: an order, a refund of an order, a key.
	Unit func(op Operation) string
	// Keeps is true if the number of a failed entry cannot be used again.
	Keeps bool
	// Replays is true if the platform stores its answer to a key and repeats it.
	Replays bool
	// Keyed is true if the platform has keys too, and answers a repeat with the latest state.
	Keyed bool
}

// A Platform is a stand-in. Its methods may be called concurrently, Enter not.
type Platform struct {
	Dialect
	book
	seed uint64
	// careful makes the platform recognise repeats that it does not document.
	careful bool

	mu    sync.Mutex
	seen  map[string]int // requests by kind, unit and tag
	Count map[string]int // answers by kind and sense, to be read when all is quiet
}

// New returns a platform whose faults follow from a seed. A careful one recognises the
// numbers of all repeats.
func New(d Dialect, seed uint64, careful bool) *Platform {
	return &Platform{Dialect: d, seed: seed, careful: careful, seen: make(map[string]int), Count: make(map[string]int),
		book: book{entries: make(map[string][]*entry), stops: make(map[string]time.Time), done: make(map[string]bool)}}
}

func (p *Platform) unit(op Operation) string {
	switch op.Kind { // a query and a cancel are about another operation
	case Cancel, Close, QueryPay:
		op.Kind = Pay
	case QueryRefund:
		op.Kind = Refund
	case QueryTransfer, Recall:
		op.Kind = Transfer
	}
	return string(op.Kind) + " " + p.Unit(op)
}

// UnitOf names the unit of an operation, which moves money once.
func (p *Platform) UnitOf(op Operation) string { return p.unit(op) }

// A fault is the fate of one request.
type fault struct {
	dial    bool
	in, out time.Duration // of the request and of the answer on their ways
	effect  effect
	later   time.Duration // until it is executed, or processed
	end     State         // after it was processed
	say     Sense
	pick    int
}

type effect int

const (
	nothing effect = iota
	now
	later     // executed, but not yet known to queries
	processed // in work, and known to queries
)

// draw returns the fault of a request: the same for the same seed, however requests of
// others come.
func (p *Platform) draw(op Operation, unit string) fault {
	name := fmt.Sprint(op.Kind, " ", unit, " ", op.Tag)
	p.seen[name]++
	h := fnv.New64a()
	fmt.Fprint(h, name, " ", p.seen[name])
	r := rand.New(rand.NewPCG(p.seed, h.Sum64()))
	f := fault{in: time.Duration(r.Int64N(int64(100 * time.Millisecond))), out: time.Duration(r.Int64N(int64(200 * time.Millisecond))), pick: r.IntN(1 << 20)}
	if r.IntN(20) == 0 {
		f.out += time.Duration(r.Int64N(int64(40 * time.Second)))
	}
	vague := []Sense{Vague, Vague, Gateway, Lost, Hung}[r.IntN(5)]
	switch n := r.IntN(20); {
	case n == 0:
		f.dial = true
	case n < 9:
		f.effect, f.say = now, Truth
	case n < 11:
		f.effect, f.say = now, vague
	case n < 13:
		f.effect, f.say, f.later = later, vague, time.Duration(r.Int64N(int64(35*time.Second)))
	case n < 16:
		f.effect, f.say, f.later = processed, []Sense{Truth, Truth, vague}[r.IntN(3)], time.Second+time.Duration(r.Int64N(int64(45*time.Second)))
		f.end = []State{Executed, Executed, Failed, Closed}[r.IntN(4)]
	case n < 17:
		f.say = vague
	default:
		f.say = []Sense{Refused, Limited}[r.IntN(2)]
		if p.Loose != nil && p.Loose(op.Kind, f.say) {
			f.effect, f.later = []effect{nothing, now, later}[r.IntN(3)], time.Duration(r.Int64N(int64(35*time.Second)))
		}
	}
	if op.Kind.query() && f.say != Truth && r.IntN(2) == 0 {
		f.say = Truth
	}
	if op.Kind.stops() && r.IntN(3) == 0 { // to be made again
		f.effect, f.say = nothing, Vague
	}
	return f
}

// RoundTrip plays one request.
func (p *Platform) RoundTrip(req *http.Request) (*http.Response, error) {
	r := Request{Method: req.Method, Target: req.URL.RequestURI(), Header: make(map[string]string)}
	for name := range req.Header {
		r.Header[name] = req.Header.Get(name)
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		r.Body = string(body)
	}
	op := p.Read(r)
	op.Tag = r.Header["User-Agent"]
	unit := p.unit(op)
	p.mu.Lock()
	f := p.draw(op, unit)
	if !f.dial {
		p.sent(unit, op)
	}
	p.mu.Unlock()
	if f.dial {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	}
	time.Sleep(f.in) // it arrives, even if its sender ends meanwhile
	p.mu.Lock()
	s := p.arrive(unit, op, f)
	s.Pick = f.pick
	p.Count[fmt.Sprint(op.Kind, ": ", s.Sense, " ", s.State)]++
	p.mu.Unlock()
	answer := time.After(f.out)
	if s.Sense == Hung {
		answer = nil
	}
	select {
	case <-answer:
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	if s.Sense == Lost {
		return nil, io.ErrUnexpectedEOF
	}
	a := p.Say(op, s)
	switch s.Sense {
	case Gateway:
		a = gatewayAnswer(p.Say(op, Saying{Sense: Truth, State: Executed, Amount: op.Amount, Pick: s.Pick}), s.Pick)
	case Limited:
		a = asked(a, s.Pick)
	}
	a = encoded(a, s.Pick)
	h := make(http.Header)
	for name, value := range a.Header {
		h.Set(name, value)
	}
	return &http.Response{StatusCode: a.Status, Header: h, Body: io.NopCloser(strings.NewReader(a.Body)), ContentLength: int64(len(a.Body)), Request: req, ProtoMajor: 1, ProtoMinor: 1}, nil
}

// arrive enters a request, and returns the sense of the answer.
func (p *Platform) arrive(unit string, op Operation, f fault) Saying {
	t := time.Now()
	e := p.last(unit)
	switch {
	case op.Kind.query():
		if f.say == Refused {
			f.say = Truth
		}
		s := Saying{Sense: f.say, State: None}
		if e != nil {
			s.State, s.Amount = e.state(t), e.op.Amount
			s.Refunded = op.Kind == QueryPay && s.State == Executed && p.refunded(op.Order) > 0
		}
		return s
	case op.Kind.stops():
		return p.stop(e, op, f)
	}
	if e == nil {
		return p.begin(unit, op, f)
	}
	switch known := p.careful || p.Recognises(op); e.state(t) {
	case Closed, Reversed:
		return p.again(e, op, f)
	case Failed:
		if known && p.Keeps {
			return p.again(e, op, f)
		}
	default:
		if known {
			return p.again(e, op, f)
		}
	}
	return p.begin(unit, op, f)
}

// again answers a request whose number is in use.
func (p *Platform) again(e *entry, op Operation, f fault) Saying {
	t := time.Now()
	switch {
	case f.say == Refused && e.op.Tag == op.Tag: // this sending is refused before its number is looked up
	case f.say == Refused, f.say == Truth, f.say == Vague && p.Replays:
		f.say = Duplicate
	}
	s := Saying{Sense: f.say, State: e.state(t), Amount: e.op.Amount}
	if s.State == None { // it is known inside the platform
		s.State = Processing
	}
	switch {
	case f.say != Duplicate || !p.Replays:
	case t.Before(e.visible):
		s.Sense = Busy
	case e.op.Amount != op.Amount: // the content of the key is another one
	case e.stored != nil:
		s = *e.stored
	default:
		s.Sense = Truth
	}
	return s
}

// begin enters a new payment, refund or transfer.
func (p *Platform) begin(unit string, op Operation, f fault) Saying {
	t := time.Now()
	if op.Kind == Refund && !p.refundable(op) {
		return Saying{Sense: Refused, State: None}
	}
	if p.Replays && f.effect == processed { // these platforms have no such state
		f.effect, f.end = later, Executed
		if f.say == Truth {
			f.say = Vague
		}
	}
	e := &entry{op: op, visible: t, final: t, end: Executed}
	switch f.effect {
	case nothing:
		e = nil
		if p.Replays && (f.say == Refused || f.say == Vague) {
			e = &entry{op: op, visible: t, final: t, end: Failed}
		}
	case later:
		e.visible, e.final = t.Add(f.later), t.Add(f.later)
	case processed:
		e.final, e.end = t.Add(f.later), f.end
	}
	s := Saying{Sense: f.say, State: None, Amount: op.Amount}
	if e == nil {
		return s
	}
	s.State = e.state(t)
	if p.Replays && (f.say == Refused || f.say == Vague) {
		stored := s
		e.stored = &stored
	}
	p.entries[unit] = append(p.entries[unit], e)
	return s
}

// refundable reports whether the payment stands, and has the amount left.
func (p *Platform) refundable(op Operation) bool {
	pay := p.last(p.unit(Operation{Kind: Pay, Order: op.Order, Tag: op.Tag}))
	if p.Replays {
		return true // payments are not known by the number of their order
	}
	if pay == nil || pay.state(time.Now()) != Executed {
		return false
	}
	return pay.op.Amount-p.refunded(op.Order) >= op.Amount
}

// refunded returns the sum of the refunds of an order, with those at work.
func (p *Platform) refunded(order string) (sum int) {
	for _, all := range p.entries {
		for _, e := range all {
			if e.op.Kind == Refund && e.op.Order == order && e.end == Executed {
				sum += e.op.Amount
			}
		}
	}
	return sum
}

// stop lets a cancel or a close end the payment of an order.
func (p *Platform) stop(e *entry, op Operation, f fault) Saying {
	t := time.Now()
	s := Saying{Sense: f.say, State: None}
	if e != nil {
		s.State, s.Amount = e.state(t), e.op.Amount
	}
	acts := f.effect != nothing
	switch {
	case s.State == Closed, s.State == Reversed, s.State == None, s.State == Failed:
	case op.Kind != Cancel && s.State == Executed:
		if f.say == Truth {
			s.Sense = Refused
		}
	case acts:
		e.stopped = t
		p.done[op.Tag] = true
		s.State = e.state(t)
	}
	if !acts && s.Sense == Truth || s.Sense == Refused && (s.State == Closed || s.State == Reversed) {
		s.Sense = Vague
	}
	return s
}
