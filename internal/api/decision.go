package api

// A Resolution asserts the outcome of an unknown call, as the platform knows it.
type Resolution struct {
	// Outcome is done or failed, which end the call, or not_executed: it is sent again.
	Outcome Outcome `json:"outcome"`
	// Attempt is the number of the last attempt, as the person saw it. Another one by now: 412.
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"`
}

// A Retry is a decision to send an unknown call again without knowing its outcome.
type Retry struct {
	// Attempt is the number of the last attempt, as the person saw it. Another one by now: 412.
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"`
	// AcceptDuplicate admits that the call may then be executed twice. Without it the retry is
	// refused (422) unless the platform recognises a repeat.
	AcceptDuplicate bool `json:"accept_duplicate,omitempty"`
}

// A Cancellation takes back a call that waits.
type Cancellation struct {
	Reason string `json:"reason,omitempty"`
}

// An Ask asks the platform about a call of unknown outcome.
type Ask struct {
	Reason string `json:"reason,omitempty"`
}

// An Edit changes a call while it waits. Absent members stay as they are.
type Edit struct {
	Priority  *int     `json:"priority,omitempty"`
	NotBefore *Instant `json:"not_before,omitempty"`
	Deadline  *Instant `json:"deadline,omitempty"`
	// Reason is kept in the audit.
	Reason string `json:"reason,omitempty"`
}

// Bulk is an action on all calls of a filter, at most 1,000.
type Bulk struct {
	// Action is cancel or ask. A decision is about one call, as a person has seen it. The answers to ask are
	// waited for for 30 s in all; a query that has none by then goes on.
	Action string     `json:"action"`
	Filter BulkFilter `json:"filter"`
	Reason string     `json:"reason,omitempty"`
	// DryRun: nothing is done; the answer has the calls that would be.
	DryRun bool `json:"dry_run,omitempty"`
}

// Actions are those of Bulk.
var Actions = []string{"cancel", "ask"}

// A BulkFilter chooses the calls of a bulk action. Of those that the action concerns, cancel
// those that wait, ask those that are unknown, it takes all that match.
type BulkFilter struct {
	Upstream *string `json:"upstream,omitempty"`
	Limit    *string `json:"limit,omitempty"`
	Key      *string `json:"key,omitempty"`
	Flow     *string `json:"flow,omitempty"`
	Number   *string `json:"number,omitempty"`
	// Calls are ids, at most 1,000; the other members are absent then.
	Calls []string `json:"calls,omitempty"`
}

// A BulkResult has the result of each call.
type BulkResult struct {
	DryRun bool `json:"dry_run,omitempty"`
	// Matched is the number of calls that the filter has chosen; Succeeded and Refused are its parts.
	Matched   int `json:"matched"`
	Succeeded int `json:"succeeded"`
	Refused   int `json:"refused"`
	// More: there are more calls than one action takes; send it again.
	More    bool       `json:"more,omitempty"`
	Results []BulkItem `json:"results"`
}

// A BulkItem is the result of a bulk action for one call.
type BulkItem struct {
	Call  string `json:"call"`
	State State  `json:"state,omitempty"`
	// Reason and Detail are those of the refusal, if there is one.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
}
