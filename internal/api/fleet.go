package api

// A Fleet is the replicas that serve from one store. Without a database it has one.
type Fleet struct {
	At Instant `json:"at"`
	// Epoch counts the owners so far.
	Epoch int64 `json:"epoch"`
	// Owner is the name of the replica that has the calls; absent if none has them now.
	Owner string `json:"owner,omitempty"`
	// Next is the name of the replica that is to have them next, or * for any other one.
	Next string `json:"next,omitempty"`
	// LeaseMS is how long an owner that has fallen silent keeps the calls.
	LeaseMS  int64     `json:"lease_ms,omitzero"`
	Replicas []Replica `json:"replicas"`
}

// A Replica is a process of a fleet.
type Replica struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// Address is that for other replicas.
	Address  string  `json:"address,omitempty"`
	Version  string  `json:"version"`
	JoinedAt Instant `json:"joined_at"`
	// SilentMS is the time since it was heard of.
	SilentMS int64 `json:"silent_ms"`
	// Owner: it has the calls.
	Owner bool `json:"owner,omitempty"`
	// Self: it gives this answer.
	Self bool `json:"self,omitempty"`
	// Config is a hash of its upstreams and limits.
	Config string `json:"config"`
	// Differs: they are not those of the owner, which are in force.
	Differs bool `json:"differs,omitempty"`
}

// A Move hands the calls over to another replica.
type Move struct {
	// To is the name of the replica; absent: any other one.
	To string `json:"to,omitempty"`
	// Reason is for people. At most 500 bytes.
	Reason string `json:"reason,omitempty"`
}

// A Burial states that the process of a replica has ended.
type Burial struct {
	// Replica is its name.
	Replica string `json:"replica"`
	// ItHasEnded is true: a process that lives must not be buried.
	ItHasEnded bool `json:"it_has_ended"`
	// Reason is for people. At most 500 bytes.
	Reason string `json:"reason,omitempty"`
}
