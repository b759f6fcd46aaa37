package api

// Upstreams are the current states of all upstreams.
type Upstreams struct {
	At        Instant    `json:"at"`
	Upstreams []Upstream `json:"upstreams"`
}

// An Upstream is the current state of an upstream. Its numbers count calls.
type Upstream struct {
	Name string `json:"name"`
	// URL has the scheme and the host; … stands for a path, which may hold a secret.
	URL string `json:"url,omitempty"`
	// State is up, paused, down (no connection or signature), tripped (too much unknown, or
	// silence) or removed (from the configuration).
	State string `json:"state"`
	// PausedUntil is, while it is down or tripped, when the next probe is due.
	PausedUntil Instant `json:"paused_until,omitzero"`
	// Cause of its state is operator, answer or restart; down, failing or silent.
	Cause string `json:"cause,omitempty"`
	// Reason says by whom and why it was paused, or why it is down or tripped.
	Reason string `json:"reason,omitempty"`
	// Since is when it was paused, or went down or tripped.
	Since   Instant `json:"since,omitzero"`
	Waiting int     `json:"waiting"`
	Sending int     `json:"sending"`
	// Unknown are submitted calls that wait for a decision.
	Unknown int `json:"unknown"`
	// MaxWaiting is the most waiting and unknown calls.
	MaxWaiting int `json:"max_waiting"`
	// Bytes are those of bodies and headers of all these.
	Bytes int64 `json:"bytes"`
	// ETA is that of the last waiting call; none while that depends on attempts that hang.
	ETA Instant `json:"eta,omitzero"`
	// MayExpire says that the deadline of a waiting call may come before it can go. It ends as expired
	// then, and is not sent.
	MayExpire bool `json:"may_expire,omitempty"`
	// Pauses are those of its limits and of their keys, a bounded number, the latest end
	// first. While it is down or tripped, a pause of all of it is there too, of the limit
	// concurrency: no probe goes before its end.
	Pauses []LimitPause `json:"pauses,omitempty"`
	// Slowed is how its calls, those of a limit or of a key are held apart since the upstream limited
	// some: a bounded number, the whole upstream first, then those with the most limited calls. During
	// the first pause nothing has gone slower yet, and only the pause is there.
	Slowed []Slowed `json:"slowed,omitempty"`
}

// Slowed tells how calls go slower than their limits allow, since answers of the upstream have
// limited some. A minute after the last of these, at full speed, it is over.
type Slowed struct {
	// Limit is empty if all calls of the upstream are slowed down.
	Limit string  `json:"limit,omitempty"`
	Key   string  `json:"key,omitempty"`
	Since Instant `json:"since"`
	// CallsPerSecond is how many go now, and FullPerSecond how many at full speed.
	CallsPerSecond float64 `json:"calls_per_second"`
	FullPerSecond  float64 `json:"full_per_second"`
	// Limited and Passed count the answers since then.
	Limited int `json:"limited"`
	Passed  int `json:"passed"`
	// Within are the limits that the calls have kept, such as 100 per 1s.
	Within string `json:"within,omitempty"`
}

// A LimitPause is a pause of a limit, or of one of its keys.
type LimitPause struct {
	Limit string `json:"limit"`
	// Key is empty if all of them are paused.
	Key   string  `json:"key,omitempty"`
	Until Instant `json:"until"`
	// Pause says by whom, since when and why.
	Pause string `json:"pause"`
}
