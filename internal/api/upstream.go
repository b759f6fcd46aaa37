package api

import "time"

// An Upstream is the current state of an upstream.
type Upstream struct {
	Name        string    `json:"name"`
	URL         string    `json:"url"`
	State       string    `json:"state"`                 // up, paused, down (no connection or signature), tripped (too much unknown, or silence) or removed (from the configuration)
	PausedUntil time.Time `json:"paused_until,omitzero"` // while it is down or tripped: when the next probe is due
	Cause       string    `json:"cause,omitempty"`       // of its state: operator, answer or restart; down, failing or silent
	Reason      string    `json:"reason,omitempty"`      // by whom and why it was paused; why it is down or tripped
	Since       time.Time `json:"since,omitzero"`        // it is paused, down or tripped
	Waiting     int       `json:"waiting"`
	Sending     int       `json:"sending"`
	Unknown     int       `json:"unknown"`      // submitted calls that wait for a decision
	MaxWaiting  int       `json:"max_waiting"`  // of waiting and unknown calls
	Bytes       int64     `json:"bytes"`        // of bodies and headers of all these
	ETA         time.Time `json:"eta,omitzero"` // of the last waiting call; none while that depends on attempts that hang
	// Pauses are those of its limits and of their keys, a bounded number, the latest end
	// first. While it is down or tripped, a pause of all of it is there too, of the limit
	// concurrency: no probe goes before its end.
	Pauses []LimitPause `json:"pauses,omitempty"`
}

// A LimitPause is a pause of a limit, or of one of its keys.
type LimitPause struct {
	Limit string    `json:"limit"`
	Key   string    `json:"key,omitempty"` // empty: all of them
	Until time.Time `json:"until"`
	Pause string    `json:"pause"` // by whom, since when and why
}

// A Limit is the current state of a limit.
type Limit struct {
	Upstream    string    `json:"upstream"`
	Limit       string    `json:"limit"`
	Calls       int       `json:"calls"`
	Window      string    `json:"window,omitempty"`   // a duration or a calendar unit; none for concurrency
	LiveKeys    int       `json:"live_keys"`          // with permits out, a pause or waiting calls
	Out         int       `json:"out"`                // permits of all keys
	InFlight    int       `json:"in_flight"`          // permits of attempts that have not ended
	Late        int       `json:"late"`               // permits of attempts that ended without an answer: they come back by the configured late later than others
	NextBack    time.Time `json:"next_back,omitzero"` // when the next permit comes back that is out and not in flight
	Waiting     int       `json:"waiting"`            // permits that waiting calls will take; calls that are only on disk are not counted
	Keys        []Key     `json:"keys"`               // a bounded number, those with most waiting first
	PausedUntil time.Time `json:"paused_until,omitzero"`

	// Most is the most permits of one key with calls that may have arrived within one
	// window since the limit began. Margin is the difference to Calls.
	Most   int `json:"most"`
	Margin int `json:"margin"`
	// HoldCost is the share of a saturated quota that holding permits until the
	// response costs. GuardWins is the share that a guard of each duration would win
	// back; none where the window does not slide.
	HoldCost  float64            `json:"hold_cost"`
	GuardWins map[string]float64 `json:"guard_wins,omitempty"`
	// Unanswered is how many permits attempts without an answer have used since the limit
	// began. If the upstream limits calls, it may count some of them later than late.
	Unanswered int64 `json:"unanswered"`
}

// A Key is the current state of one key of a limit.
type Key struct {
	Key         string    `json:"key"`
	Free        int       `json:"free"`
	Out         int       `json:"out"`
	InFlight    int       `json:"in_flight"`
	Late        int       `json:"late"`
	NextBack    time.Time `json:"next_back,omitzero"`
	Waiting     int       `json:"waiting"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
}

// A Pause is a request to pause an upstream, one of its limits, or one key of a
// limit. Its end is given as Until or as For.
type Pause struct {
	Limit string  `json:"limit,omitempty"`
	Key   string  `json:"key,omitempty"` // of Limit
	Until Instant `json:"until,omitzero"`
	For   string  `json:"for,omitempty"` // a duration such as 5m
	// Reason is kept with the pause, for people. At most 500 bytes.
	Reason string `json:"reason,omitempty"`
}

// A Resume is a request to end a pause of the same upstream, limit or key.
type Resume struct {
	Limit string `json:"limit,omitempty"`
	Key   string `json:"key,omitempty"` // of Limit
}

// A Reload is the result of a reload of the configuration.
type Reload struct {
	Changes []string `json:"changes"` // one sentence for each
}
