package scheduler

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of calls, and the names of the limits that calls wait for besides those of
// their upstream.
const (
	MaxPriority  = 100 // a priority is from -MaxPriority to MaxPriority
	DataPriority = 10  // of calls whose caller waits, unless it says otherwise

	// ConcurrencyLimit is the name of the limit that every upstream has: its
	// concurrency. A pause of the upstream is a pause of this limit.
	ConcurrencyLimit = "concurrency"
	// repeatLimit is the name of the retry budget, for a call whose repeat it does not
	// cover yet.
	repeatLimit = "retry_budget"

	// DefaultLongWindow is the LongWindow of a Config that has none.
	DefaultLongWindow = time.Minute
)

// Defaults returns the values that zero fields of an [Upstream] stand for.
func Defaults() Upstream {
	return Upstream{
		Concurrency: 1024, Late: 5 * time.Second, Breaker: retry.Trip{Unknown: 10, Of: 20},
		MaxWait: 30 * time.Second, MaxAge: 24 * time.Hour,
		MaxWaiting: 10_000, MaxWaitingBytes: 64 << 20, MaxBody: 1 << 20,
	}
}

// A Config describes a scheduler.
type Config struct {
	// Upstreams by name.
	Upstreams map[string]Upstream
	// Store keeps the calls; nil keeps them in memory. If it is a [Durable],
	// submitted calls and quota usage outlive the process. The scheduler
	// closes it.
	Store Store
	// LongWindow is the window above which the permits are leased in the store, ahead
	// of the sends; zero means DefaultLongWindow.
	LongWindow time.Duration
	// Precise fires slots by a timer of the operating system too where it has one (a
	// timerfd on Linux): in an idle process some 0.05 ms late and not up to a
	// millisecond, for twice the processor time of a wake-up. Such a timer knows no
	// time but the real one: leave it out in a testing/synctest bubble.
	Precise bool
	// Log gets the messages for an operator; nil means slog.Default().
	Log *slog.Logger
	// Observe, if not nil, gets every event, in order and one at a time, from within the scheduler's
	// loop: it must return at once, call nothing of the scheduler, and keep no pointer of the event.
	// Events are for metrics and logs: those before a crash do not come again. Ended is for
	// work that must be done.
	Observe func(Event)
	// Ended, if not nil, handles the end of each call that is submitted while it is set,
	// and whose Request names no Callback. It gets the call with its Response, finished or
	// unknown; an unknown call comes again when it is decided, unless that was before it
	// came as unknown. A nil error means that the end is handled. After an error or a
	// panic, which is logged, the same end comes again, a second later at first, after
	// more failures up to 10 minutes later.
	//
	// An end that is not handled stays in the store. With a [Durable], whose PendingEnds lists
	// those, each comes at least once, over restarts and crashes, and perhaps more often: a
	// crash may follow the handler before the store knows of it. Without one the ends that
	// are left are lost with the process, and with their calls when [NewMemory] forgets these.
	//
	// At most 16 handlers run at once, for a call only one, in no order that is promised.
	// They may use the scheduler, but not end it. Their ctx ends with the beginning of a
	// stop, which waits for their return; a reload changes nothing of them.
	Ended func(ctx context.Context, c *Call) error
}

// An Upstream is an API host, its limits and how its calls come back. Zero fields stand
// for the values of [Defaults], or for none. Only URL is needed:
//
//	var pay scheduler.Upstream
//	pay.URL = "https://pay.example" // without an import of package upstream
type Upstream struct {
	upstream.Config // Name is taken from Config.Upstreams

	Limits []Limit
	Retry  retry.Policy
	// Resend allows a call whose caller waits for the answer to be sent again as
	// it is. Without it, and without a Signer, the upstream's first answer is the
	// caller's answer.
	Resend bool
	// Resolve settles calls of unknown outcome; the first whose When holds does. A 202
	// (accepted) is unknown if a Resolve fits its call, unless a rule says otherwise.
	Resolve []Resolve
	// Callbacks are the targets, by name, that submitted calls may name.
	Callbacks map[string]Callback
	// Signature bounds the use of requests that callers have signed. It counts for
	// nothing with a Signer, which makes a new signature for each attempt.
	Signature Signature

	// Breaker says when unknown outcomes, or silence, stop the calls until a probe has an
	// answer. Zero fields mean those of Defaults; a negative Unknown means never.
	Breaker retry.Trip

	// Concurrency is how many attempts are in flight at most.
	Concurrency int
	// Late is how long after its end an unanswered attempt may still be counted.
	Late time.Duration
	// Burst, if positive, spaces calls inside the sliding windows of all limits but
	// those with Counts: calls that these do not count have no part in their rate.
	Burst int

	// MaxWait is how long a caller of Do or Begin waits, at most, until its call is sent.
	MaxWait time.Duration
	// ClientTimeout is the time-out of the callers of Do and Begin, counted from the acceptance of a call.
	// A call is sent only if the usual answer would come within it; otherwise it is refused, or
	// ends. The usual time of an answer is that of the last attempts; it is half of
	// ClientTimeout at most, and before the first answer. The caller of an unknown call waits for
	// queries that long, instead of MaxWait. Zero: none.
	ClientTimeout time.Duration
	// MaxAge is how long after its acceptance a call may be sent at all.
	MaxAge time.Duration
	// MaxWaiting and MaxWaitingBytes bound the calls that wait, in number and in bytes
	// of bodies and headers.
	MaxWaiting      int
	MaxWaitingBytes int64
	// MaxBody bounds a request's body, in bytes.
	MaxBody int64

	// Durable is a request expression: calls whose caller waits, and that are kept
	// in a [Durable] all the same. With a Request.IdempotencyKey a later caller
	// finds them. Empty means none.
	Durable string
	// NoBody is a request expression: calls whose request is kept out of the
	// store. They are not lost in silence, but end with the process. Empty means none.
	NoBody string

	// Numbers are request expressions, by name, that give business numbers, such as that
	// of an order: they are kept with the call, in Call.Numbers. A number that is empty, or
	// cannot be computed for a request, is left out.
	Numbers map[string]string
	// Identity is a request expression: calls of one value mean one operation on one
	// number, such as the payment of an order, and the second one is a repeat of the
	// first, as under one Request.IdempotencyKey. It joins the first if its content is the same
	// by Idempotency.Same, and is refused otherwise. A call whose identity cannot be computed is
	// refused. Nil, or an empty text, is no identity. A call that has failed, or was not
	// executed, frees its identity for a new one.
	//
	// The identities of durable calls are kept as keys are. The process keeps those of other
	// calls while it runs, the last 10,000 that ended.
	Identity string
	// Ends is a request expression: the Identity of the calls that a call ends, such as the
	// payment of an order that a cancel, close or reverse names. From the start of its first
	// attempt on, with any outcome, no call of that identity is sent: a waiting call is cancelled,
	// or becomes unknown if it may have been executed; a new one is refused for as long as
	// identities are kept. An attempt in flight goes on. Nil, or an empty text, ends no call.
	Ends string
	// Asks is a request expression: the Identity of the call that a caller's query asks
	// about. If that call is unknown, and was so before the query was sent, the answer
	// settles it as done or failed by the Outcomes of its Resolve, also without a Signer.
	// Another answer settles nothing, and never sends the call again. An expression that cannot
	// be computed for a request names no call.
	Asks string

	// ShareBy is a request expression: calls of one value are one flow. Empty
	// makes all calls one flow.
	ShareBy string
	// Weights are the flows' shares, 1 for those not named. Values of ShareBy that
	// differ from a name here only in case are that flow: configuration files give
	// names in lower case.
	Weights map[string]float64
}

// SignatureUntil returns until when the signature is good that the caller of a call has made which
// was accepted at an instant. It is zero if signatures do not age, or if a Signer makes them.
func (u *Upstream) SignatureUntil(accepted time.Time) time.Time {
	if u.Signer != nil || u.Signature.Life == 0 {
		return time.Time{}
	}
	return accepted.Add(u.Signature.Life)
}

// A Signature bounds the use of signatures that callers bring. The zero value is one
// that does not age.
type Signature struct {
	// Life is how long after its acceptance a call is sent at most: a later
	// attempt would be stale. Zero: no bound.
	Life time.Duration
	// Once tells that the same bytes are good for one sending: they hold a nonce.
	Once bool
}

// A ConfigError is one fault of a Config.
type ConfigError struct {
	Path string // as in YAML, for instance upstreams.alipay.limits[0].window
	Err  error
}

func (e *ConfigError) Error() string { return e.Path + ": " + e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// Validate reports all faults at once, each a [*ConfigError], joined.
func (c Config) Validate() error {
	_, err := compile(c, 0)
	return err
}
