package api

// AuditLog is one page of records, the newest first.
type AuditLog struct {
	Records []AuditRecord `json:"records"`
	// Next is the cursor of the next page; none: this is the last one.
	Next string `json:"next,omitempty"`
}

// An AuditRecord tells of one change that a caller has asked for.
type AuditRecord struct {
	// Seq grows with each record.
	Seq int64   `json:"seq"`
	At  Instant `json:"at"`
	// Actor is the name of the caller.
	Actor string `json:"actor"`
	Role  string `json:"role,omitempty"`
	// Via is the way in, with the address.
	Via string `json:"via,omitempty"`
	// Action is one such as cancel, resolve, retry, ask, edit, pause, resume or reload.
	Action   string `json:"action"`
	Upstream string `json:"upstream,omitempty"`
	Call     string `json:"call,omitempty"`
	Limit    string `json:"limit,omitempty"`
	Key      string `json:"key,omitempty"`
	Before   string `json:"before,omitempty"`
	// After begins with "not done" if the change was refused or has failed.
	After  string `json:"after,omitempty"`
	Reason string `json:"reason,omitempty"`
}
