package api

// Limits are the current states of limits.
type Limits struct {
	At     Instant `json:"at"`
	Limits []Limit `json:"limits"`
}

// Kinds of limits.
const (
	Sliding     = "sliding"     // at most so many permits in any window
	Calendar    = "calendar"    // in each minute, hour, day or month
	Concurrency = "concurrency" // at the same time
)

// A Limit is the current state of a limit. Its numbers count permits: a call may take several.
type Limit struct {
	Upstream string `json:"upstream"`
	Limit    string `json:"limit"`
	// Kind is sliding, calendar or concurrency.
	Kind string `json:"kind,omitempty"`
	// Builtin: every upstream has it, whether it is configured or not.
	Builtin bool `json:"builtin,omitempty"`
	// Permits is how many each key has.
	Permits int `json:"permits"`
	// WindowMs is the length of a sliding window.
	WindowMs int64 `json:"window_ms,omitempty"`
	// Window is the calendar unit: minute, hour, day or month.
	Window string `json:"window,omitempty"`
	// TimeZone is that of a calendar window.
	TimeZone string `json:"time_zone,omitempty"`
	// ResetsAt is when the calendar window ends that is open now, by the platform's clock.
	ResetsAt Instant `json:"resets_at,omitzero"`
	// LiveKeys have permits out, a pause or waiting calls.
	LiveKeys int `json:"live_keys"`
	// Out are the permits of all keys that are taken.
	Out int `json:"out"`
	// InFlight are permits of attempts that have not ended.
	InFlight int `json:"in_flight"`
	// Late are permits of attempts that ended without an answer: they come back by the
	// configured late later than others.
	Late int `json:"late"`
	// NextBack is when the next permit comes back that is out and not in flight.
	NextBack Instant `json:"next_back,omitzero"`
	// WaitingPermits are those that waiting calls will take; calls that are only on disk are
	// not counted.
	WaitingPermits int `json:"waiting_permits"`
	// Keys are a bounded number, those with most waiting first.
	Keys        []Key   `json:"keys"`
	PausedUntil Instant `json:"paused_until,omitzero"`
	Audit       Audit   `json:"audit"`
}

// An Audit says whether a limit was kept, and what that costs.
type Audit struct {
	// Most is the most permits of one key with calls that may have arrived within one
	// window since the limit began, or since a reload gave it other permits. Margin is the
	// difference to permits; below zero the limit was exceeded.
	Most   int `json:"most"`
	Margin int `json:"margin"`
	// HoldCost is the share of a saturated quota that holding permits until the
	// response costs.
	HoldCost float64 `json:"hold_cost"`
	// Guards are none where the window does not slide.
	Guards []Guard `json:"guards,omitempty"`
	// Unanswered is how many permits attempts without an answer have used since the limit
	// began. If the upstream limits calls, it may count some of them later than late.
	Unanswered int64 `json:"unanswered"`
}

// A Guard is the share of a saturated quota that a guard of the duration would win back.
type Guard struct {
	GuardMs float64 `json:"guard_ms"`
	Wins    float64 `json:"wins"`
}

// Keys are current states of keys of one limit.
type Keys struct {
	At       Instant `json:"at"`
	Upstream string  `json:"upstream"`
	Limit    string  `json:"limit"`
	// Keys are the one that was asked for, or those for which most permits wait, first.
	Keys []Key `json:"keys"`
}

// A Key is the current state of one key of a limit. Its numbers count permits.
type Key struct {
	Key            string  `json:"key"`
	Free           int     `json:"free"`
	Out            int     `json:"out"`
	InFlight       int     `json:"in_flight"`
	Late           int     `json:"late"`
	NextBack       Instant `json:"next_back,omitzero"`
	WaitingPermits int     `json:"waiting_permits"`
	PausedUntil    Instant `json:"paused_until,omitzero"`
}
