package scheduler

import (
	"context"
	"time"
)

// Durable is a Store that outlives the process. It keeps the calls that were
// submitted and the use of the quota; calls whose caller waits for the answer
// are kept in memory, unless their upstream is configured as durable.
type Durable interface {
	Store
	// Recover begins a new life of the store and tells what earlier ones left.
	// Calls that were being sent become unknown, or wait again until the instant
	// that repeat gives them; calls that cannot go on without the process that
	// accepted them are cancelled. Recent is how far back ended attempts can still
	// have permits out.
	Recover(ctx context.Context, recent time.Duration, repeat func(*Entry) (at time.Time, ok bool)) (*Past, error)
	// Restate replaces everything that is known of the quota. A pause keeps its ID.
	Restate(ctx context.Context, holds []Hold) error
	// Settle stores when the permits of holds come back that Intend took.
	Settle(ctx context.Context, holds []Hold) error
	// Untold returns the next of the calls whose notice is due and was not accepted as
	// an Entry that Tells it: those that were submitted, name a callback, and have
	// finished or are unknown, by growing id, at most max of them.
	Untold(ctx context.Context, after string, max int) ([]*Call, error)
	// Fetch returns a call that waits or is unknown, or ErrNotFound.
	Fetch(ctx context.Context, id string) (*Entry, error)
	// Scan returns waiting calls of an upstream that may go before due, by rank,
	// beginning after a position, of those that want holds good for.
	Scan(ctx context.Context, upstream string, after Position, due time.Time, max int, want func(p Position, lane int64) bool) (*Page, error)
	// Waking returns waiting calls that were put off, and whose time or deadline
	// comes before an instant, the soonest first, at most max after the page before.
	Waking(ctx context.Context, before time.Time, after Position, max int) (*Page, error)
}

// A Hold is permits of one key of a limit that are out, as a Durable keeps them.
type Hold struct {
	ID       int64  `json:"-"` // not 0 if it is not part of a call
	Upstream string `json:"-"`
	Limit    string `json:"limit"`
	Key      string `json:"key,omitempty"`
	// Every means all permits of all keys.
	Every   bool `json:"every,omitempty"`
	Permits int  `json:"permits"`
	// Back is when they come back; zero while that is not known.
	Back time.Time `json:"back,omitzero"`
	// Paused means that somebody has shut the limit, or the key, until Back.
	Paused bool `json:"-"`
}

// A pauseID is what a pause shuts: an upstream, a limit, or a key of it.
type pauseID struct{ upstream, limit, key string }

func (h *Hold) pause() pauseID { return pauseID{h.Upstream, h.Limit, h.Key} }

// Past is what earlier lives of a store left.
type Past struct {
	Epoch int64     // of this life: above that of any other
	Mark  time.Time // the latest wall clock that any life has seen
	Seq   int64     // the highest that was given
	// Holds are permits that may be out. Those without Back were never heard of again.
	Holds []Hold
	// Backlog is what lies in the store, by upstream: Waiting, Unknown and Bytes.
	Backlog map[string]UpstreamStatus
	Broken  int // calls that were being sent when the last life ended
}

// A Position is a place among waiting calls: for Scan by priority, the highest
// first, for Waking by instant; then by age.
type Position struct {
	Priority int
	At       time.Time
	Seq      int64
}

func (p Position) before(o Position) bool {
	if p.Priority != o.Priority {
		return p.Priority > o.Priority
	}
	return p.Seq < o.Seq
}

// first is before every call.
var first = Position{Priority: MaxPriority + 1}

// A Page is a stretch of the calls that wait in a store.
type Page struct {
	Entries []Entry
	Last    Position // of what was looked at
	End     bool     // there is nothing after it
}
