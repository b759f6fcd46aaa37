package api

// Pauses are those that hold now.
type Pauses struct {
	At     Instant `json:"at"`
	Pauses []Pause `json:"pauses"`
}

// A Pause keeps the calls of an upstream, a limit or a key from being sent.
type Pause struct {
	// ID stays the same for as long as the pause lasts.
	ID       string `json:"id"`
	Upstream string `json:"upstream"`
	// Limit is absent if the whole upstream is paused.
	Limit string `json:"limit,omitempty"`
	// Key is one of the limit; absent if all of them are paused.
	Key   string  `json:"key,omitempty"`
	Since Instant `json:"since,omitzero"`
	Until Instant `json:"until"`
	// By is person; answer of the upstream; breaker: its circuit breaker is open, and until is when
	// the next probe is due; or restart, also for a take-over by another replica: permits of attempts of the last
	// process may be out.
	By string `json:"by"`
	// Who is the name of the operator, or of the program.
	Who    string `json:"who,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Status is that of the answer.
	Status int `json:"status,omitzero"`
}

// A PauseRequest is a request to pause an upstream, one of its limits, or one key of a
// limit. Its end is given as until or as for.
type PauseRequest struct {
	Upstream string `json:"upstream"`
	Limit    string `json:"limit,omitempty"`
	// Key is one of Limit.
	Key   string  `json:"key,omitempty"`
	Until Instant `json:"until,omitzero"`
	// For is a duration such as 5m.
	For string `json:"for,omitempty"`
	// Reason is kept with the pause, for people. At most 500 bytes.
	Reason string `json:"reason,omitempty"`
}
