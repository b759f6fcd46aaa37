package api

// Flows are the flows of an upstream that have calls waiting, or had some sent lately: a bounded
// number, those with most calls waiting first.
type Flows struct {
	At       Instant `json:"at"`
	Upstream string  `json:"upstream"`
	// Since is the instant from which on attempts count as lately: 10 minutes ago, or when the process began.
	Since Instant `json:"since"`
	// Sent is the number of attempts of all flows since then.
	Sent  int    `json:"sent"`
	Flows []Flow `json:"flows"`
}

// A Flow is the current state of a flow.
type Flow struct {
	// Flow is its name; empty where all calls are one flow.
	Flow   string  `json:"flow"`
	Weight float64 `json:"weight"`
	// Waiting are its calls that wait for permits. Calls that wait for a time, and those that are
	// only on disk, are not counted.
	Waiting int `json:"waiting"`
	// OldestAcceptedAt is when the oldest of its calls was accepted that are first in line. Behind a
	// call of higher priority an older one may wait.
	OldestAcceptedAt Instant `json:"oldest_accepted_at,omitzero"`
	// Sent is the number of its attempts since then; Share is the part of all.
	Sent  int     `json:"sent"`
	Share float64 `json:"share"`
}
