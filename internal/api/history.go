package api

// A History tells the past of an upstream, or of one of its limits, since the process began. A step
// without a sample, as before that, is left out.
type History struct {
	At       Instant `json:"at"`
	Upstream string  `json:"upstream"`
	Limit    string  `json:"limit,omitempty"`
	// StepMs is the length of a step: 1,000, kept for 5 minutes; 10,000, for an hour; or 60,000, for a day.
	StepMs int64 `json:"step_ms"`
	// Calls are there without limit, the oldest step first.
	Calls []HistoryCalls `json:"calls,omitzero"`
	// Permits are there with limit, the oldest step first.
	Permits []HistoryPermits `json:"permits,omitzero"`
}

// HistoryCalls are the calls and attempts of an upstream in one step.
type HistoryCalls struct {
	// At is the beginning of the step.
	At Instant `json:"at"`
	// Accepted and Refused are calls; refused are those that Throttler did not take.
	Accepted int `json:"accepted"`
	Refused  int `json:"refused"`
	// Sent are attempts that began; the others ended, by their outcome. A query about an unknown call
	// that has ended counts in limited alone: its outcome is not that of a payment.
	Sent        int `json:"sent"`
	Done        int `json:"done"`
	Failed      int `json:"failed"`
	NotExecuted int `json:"not_executed"`
	Unknown     int `json:"unknown"`
	// Limited are those of not_executed that the upstream has limited.
	Limited int `json:"limited"`
	// Waiting is the most calls that waited at a sample; there is one a second.
	Waiting int `json:"waiting"`
}

// HistoryPermits are the permits of a limit in one step, of all its keys: the most at a sample. There
// is one sample a second.
type HistoryPermits struct {
	// At is the beginning of the step.
	At Instant `json:"at"`
	// Out are those that are taken. With a sliding window some may count for a thousandth of it too long.
	Out      int `json:"out"`
	InFlight int `json:"in_flight"`
	// WaitingPermits are those that waiting calls will take.
	WaitingPermits int `json:"waiting_permits"`
	// Most is the most permits of one key within one window, from the beginning of the limit until then.
	Most int `json:"most"`
}
