package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Store keeps calls. Each method returns when its arguments are as durable
// as the store promises, and is called from many goroutines at once, but not from the
// scheduler's loop, except for a store of [NewMemory]. Its arguments stay unchanged; its results are the caller's.
// An error that wraps [ErrBroken] ends the scheduler: nothing more is accepted or
// sent. A ctx that ends cuts a read short; a change that has begun goes on to its end.
// [Durable] is a Store that outlives the process.
type Store interface {
	// Accept stores a new call before its caller hears of it. If Find knows a call, it
	// stores nothing and returns the result of Find. ErrFull: there is no room. An error with a method
	// InDoubt() bool tells that the call may have been stored, and that another process may execute it.
	Accept(ctx context.Context, e *Entry) (existing *Call, err error)
	// Find returns the call that was accepted with the Key of an entry, or else with its
	// Identity, and ErrKeyReused if the fingerprints differ; an entry without a fingerprint
	// matches any. It returns nil if there is no such call, if it was not executed (cancelled,
	// expired, exhausted), and if the call of an Identity has failed.
	Find(ctx context.Context, e *Entry) (*Call, error)
	// End stores that a call, given by its id, has ended all calls of an identity. The store
	// keeps that as long as it keeps identities. EndedBy returns the id of the last such call;
	// empty if there is none.
	End(ctx context.Context, identity, by string) error
	EndedBy(ctx context.Context, identity string) (by string, err error)
	// Intend stores, before the first byte, that a call is being sent, and with it
	// the permits taken for it. The call is nil if only the permits are to be
	// kept; holds whose ID is known are. It returns ErrNotWaiting, and stores
	// nothing, if the call is not waiting in the store.
	Intend(ctx context.Context, c *Call, take []lease.Hold) error
	// Record stores the state of a call after an attempt or at its end. It returns
	// ErrNotFound if the call is not known, or finished.
	Record(ctx context.Context, c *Call) error
	// Get returns a call, or ErrNotFound.
	Get(ctx context.Context, id string) (*Call, error)
	// List returns a page of the calls that match a filter, in its order, beginning after
	// Filter.After. They come without their Response. A page looks at so many calls that it takes
	// some ten milliseconds.
	List(ctx context.Context, f Filter) (*ListPage, error)
	// Audit keeps a record, with a Seq above that of any other. No record is changed, and one is
	// forgotten only for its age, or, by a store in memory, for the number of later ones.
	Audit(ctx context.Context, r AuditRecord) error
	// AuditLog returns the records that match a filter, the latest first, at most
	// AuditFilter.Page of them.
	AuditLog(ctx context.Context, f AuditFilter) ([]AuditRecord, error)
	// Close ends the store. Nothing is called after it.
	Close() error
}

// Durable is a Store that outlives the process. It keeps the calls that were
// submitted and quota usage; calls whose caller waits for the answer
// are kept in memory, unless their upstream is configured as durable.
type Durable interface {
	Store
	// Recover begins a new life of the store and returns the state that earlier lives
	// left. Calls that were being sent become unknown, or wait again until the instant
	// that repeat gives them; calls that cannot go on without the process that
	// accepted them are cancelled. Recent is how far back ended attempts can still
	// have permits out.
	Recover(ctx context.Context, recent time.Duration, repeat func(*Entry) (at time.Time, ok bool)) (*Recovered, error)
	// Failed is closed when the store has ended by a fault that no caller may have met yet.
	// Every method then returns an error that wraps ErrBroken.
	Failed() <-chan struct{}
	// Restate replaces all holds of the quota. A pause keeps its ID.
	Restate(ctx context.Context, holds []lease.Hold) error
	// Settle stores when the permits of holds come back that Intend took.
	Settle(ctx context.Context, holds []lease.Hold) error
	// PendingWebhooks returns the calls that are due for a webhook: those that have a
	// Notice and are not Handled, if no Entry with their Notice was accepted. They come by
	// growing id, at most max of them.
	PendingWebhooks(ctx context.Context, after string, max int) ([]*Call, error)
	// PendingEnds returns the calls that have a Notice, are Handled, and whose end was not
	// handled: at most max of them, the earliest HandleAt first, without their Response. As
	// long as it has a call, the store keeps that.
	PendingEnds(ctx context.Context, max int) ([]*Call, error)
	// EndHandled stores that the end of a Notice was handled, if again is zero; else that
	// the handler has failed once more, and gets it again at that instant.
	EndHandled(ctx context.Context, notice string, again time.Time) error
	// Fetch returns a call that waits or is unknown, or ErrNotFound.
	Fetch(ctx context.Context, id string) (*Entry, error)
	// Scan returns waiting calls of an upstream that may go before due, by rank,
	// beginning after a position: those for which want holds.
	Scan(ctx context.Context, upstream string, after Position, due time.Time, max int, want func(p Position, class int64) bool) (*Page, error)
	// Waking returns waiting calls that were delayed, and whose time or deadline
	// comes before an instant, the soonest first, at most max after the page before.
	Waking(ctx context.Context, before time.Time, after Position, max int) (*Page, error)
}

// Leased is a Durable that several processes use, one at a time.
type Leased interface {
	Durable
	// Allowed reports whether the calls are this process's now. It is asked before the first byte
	// of each attempt. While it is false calls wait.
	Allowed() bool
	// Timeouts stores how long attempts may go on, by upstream. The next owner gets them in Recovered.
	Timeouts(ctx context.Context, longest map[string]time.Duration) error
	// GiveUpAfter ends the store if it cannot be reached some seconds after ctx has ended, so that changes wait no longer.
	// The next owner takes the process for one that has crashed. Stop ends the wait.
	GiveUpAfter(ctx context.Context) (stop func())
}

// An Entry is a call as a Store accepts it.
type Entry struct {
	Call    *Call
	Request *upstream.Request
	// Bytes is the size of the call in max_waiting_bytes.
	Bytes int64
	// Key is the idempotency key, and Identity the value of Upstream.Identity; each is empty for
	// none, and no Key equals an Identity. Fingerprint is that of the only request that may use
	// them again.
	Key, Identity, Fingerprint string
	// Notice is set if the call is a webhook: that of the call of which it tells.
	Notice string
	// Restored is set if the call waited, or was being sent, when a copy of the store was
	// made that is restored: it may have been sent since, and answered.
	Restored bool
	// NoBody keeps the request out of the store: the call ends with the process.
	NoBody bool
	// Arrived is set if the call lies among those that programs have handed to the store: Accept takes it
	// out of them. It returns ErrNotFound if it is not there.
	Arrived bool
}

// Recovered is the state that earlier lives of a store left.
type Recovered struct {
	Epoch int64 // of this life: above that of any other
	Seq   int64 // the highest that was given
	// Step is how far the wall clock was put forward since the last life, or back if it
	// is negative, beyond the time that has passed.
	Step time.Duration
	// Holds are permits that may be out. Those without Back have no recorded end.
	Holds []lease.Hold
	// Backlog is the calls in the store, by upstream.
	Backlog     map[string]Backlog
	Interrupted int // calls that were being sent when the last life ended
	Keys        int // idempotency keys that are kept, 100,000 at most
	// Alive is set if the last process may have begun attempts until then, and these may go on. Zero: it
	// has ended, and its attempts with it.
	Alive time.Time
	// Timeouts are the longest ones of attempts that may go on since, by upstream, of a [Leased] store.
	Timeouts map[string]time.Duration
	// Restored is set if the store is a copy that takes the place of the store itself. It
	// does not know the permits that went out since, and Interrupted counts all calls that
	// waited as well.
	Restored bool
}

// A Backlog counts the calls of an upstream that lie in a store.
type Backlog struct {
	Waiting, Unknown int
	Bytes            int64 // of bodies and headers
}

// A Position is a place among waiting calls: for Scan by priority, the highest
// first, for Waking by instant; then by age.
type Position struct {
	Priority int
	At       time.Time
	Seq      int64
}

// A Page is a stretch of the calls that wait in a store.
type Page struct {
	Entries []Entry
	Last    Position // of the calls that were looked at
	End     bool     // no call comes after it
}

// Errors of a Store.
var (
	ErrNotFound = errors.New("no such call")
	// ErrKeyReused refuses a key of another request. The error that wraps it names the call.
	ErrKeyReused = errors.New("the key was used for another request")
	// ErrNotWaiting refuses an intent: the call was decided otherwise.
	ErrNotWaiting = errors.New("the call is not waiting")
	// ErrFull means that there is no room for a new call; stored calls are safe.
	ErrFull = errors.New("the disk is full")
	// ErrBroken means that the store can promise nothing any more.
	ErrBroken = errors.New("the store has failed")
)
