package api

// A Problem is the body of a refusal or an error: application/problem+json (RFC
// 9457) with members of its own.
type Problem struct {
	// Type is a page that explains the reason.
	Type  string `json:"type"`
	Title string `json:"title"`
	// Status is that of the answer.
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Instance is the path of the request; of the admin API only.
	Instance string `json:"instance,omitempty"`
	// Reason is for programs.
	Reason string `json:"reason"`
	// Errors are all faults of the request, or of the configuration, if there is one to point at.
	Errors []Fault `json:"errors,omitempty"`
	// Outcome is that of the call so far; none if there is no call, and in the admin API.
	Outcome string `json:"outcome,omitempty"`
	// Call is its id.
	Call string `json:"call,omitempty"`
	// RetryAfter is in seconds.
	RetryAfter       int      `json:"retry_after,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// A Fault is one fault of a request, at one place.
type Fault struct {
	// Pointer is the JSON Pointer (RFC 6901) of a member of the body, or a path of the
	// configuration.
	Pointer string `json:"pointer,omitempty"`
	// Parameter is the name of one of the query.
	Parameter string `json:"parameter,omitempty"`
	Detail    string `json:"detail"`
}
