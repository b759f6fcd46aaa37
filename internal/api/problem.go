package api

// A Problem is the body of a refusal or an error: application/problem+json (RFC
// 9457) with the members reason, outcome, call, retry_after and violated-policies
// of its own.
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail"`
	Reason           string   `json:"reason"`
	Outcome          string   `json:"outcome,omitempty"`     // of the call so far; none if there is no call
	Call             string   `json:"call,omitempty"`        // its id
	RetryAfter       int      `json:"retry_after,omitempty"` // seconds
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}
