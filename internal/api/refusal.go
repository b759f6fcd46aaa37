package api

// Refusals is one page of the last calls that were refused, the newest first.
type Refusals struct {
	Refusals []RefusedCall `json:"refusals"`
	// Next is the cursor of the next page; none: this is the last one. It is opaque, and good
	// for the same filter only.
	Next string `json:"next,omitempty"`
}

// A RefusedCall is a call that Throttler has refused: nothing of it was sent.
type RefusedCall struct {
	// ID is the one in Throttler-Call of the answer.
	ID string `json:"id"`
	// Upstream is absent if the request named none of the configuration.
	Upstream string  `json:"upstream,omitempty"`
	At       Instant `json:"at"`
	// Reason is for programs; /problems/REASON explains it.
	Reason string `json:"reason"`
	// Detail is at most 500 bytes of that of the answer.
	Detail string `json:"detail"`
}
