package api

// A PlanRequest asks how a load would go under a configuration: the running one, or another, with
// changes. Nothing is sent, and nothing changes. The load is one of last, settings and rows.
type PlanRequest struct {
	// Config is the text of a configuration, instead of the running one. Nothing that it names is
	// opened: no key, certificate, program or variable; of these only the form is checked. At most
	// 1 MiB.
	Config string `json:"config,omitempty"`
	// Changes are made to the configuration.
	Changes []PlanChange `json:"changes,omitempty"`
	// Variants are further ones, each with changes of its own to the configuration. At most 8.
	Variants []PlanVariant `json:"variants,omitempty"`
	// Alone leaves out the running configuration, which else is the first variant.
	Alone bool `json:"alone,omitempty"`
	// Last is the traffic that came in within a duration such as 10m, the default; of it the last
	// 50,000 calls are kept.
	Last string `json:"last,omitempty"`
	// Settings draw a load at random, as those of throttler plan --load: one text for each stream.
	Settings []string `json:"settings,omitempty"`
	// Rows are the text of a load in CSV or JSONL, such as throttler record writes. At most 10 MB.
	Rows string `json:"rows,omitempty"`
	// RTTMs is the least round trip of a call; 50 if absent.
	RTTMs *float64 `json:"rtt_ms,omitempty"`
	// RTTSpreadMs is the mean of the random time on top of it.
	RTTSpreadMs float64 `json:"rtt_spread_ms,omitempty"`
	// Seed is that of all that is drawn at random; 1 if absent. Equal seeds give equal answers.
	Seed *int `json:"seed,omitempty"`
	// FailIf are conditions such as wait.p99 > 5s. At most 20.
	FailIf []string `json:"fail_if,omitempty"`
}

// A PlanChange gives a limit other permits, or another window.
type PlanChange struct {
	Upstream string `json:"upstream"`
	// Limit is a name, or concurrency for the bound of the upstream.
	Limit string `json:"limit"`
	// Permits stay if absent.
	Permits *int `json:"permits,omitempty"`
	// Window is a duration such as 1s, or minute, hour, day or month; it stays if absent.
	Window string `json:"window,omitempty"`
}

// A PlanVariant is the configuration with other changes.
type PlanVariant struct {
	// Name is made of the changes if absent.
	Name    string       `json:"name,omitempty"`
	Changes []PlanChange `json:"changes"`
}

// A Plan tells how a load would go under each variant of a configuration.
type Plan struct {
	Variants []PlanReport `json:"variants"`
	// Findings are the result in sentences.
	Findings []PlanFinding `json:"findings"`
	// Conditions are those of the request, each for each variant.
	Conditions []PlanCondition `json:"conditions"`
}

// A PlanReport has the figures of one variant. Instants are counted from the first call.
type PlanReport struct {
	// Config is the name of the variant.
	Config string  `json:"config"`
	Begin  Instant `json:"begin"`
	Calls  int     `json:"calls"`
	Sent   int     `json:"sent"`
	// Refused are calls that Throttler refuses, by reason.
	Refused map[string]int `json:"refused"`
	// Over are calls that the upstream would limit all the same: 0.
	Over int `json:"over"`
	// LimitedWithout are calls that the upstream would limit without Throttler.
	LimitedWithout int `json:"limited_without"`
	// LengthMs is the time to the last call, MakespanMs to the last answer.
	LengthMs   float64     `json:"length_ms"`
	MakespanMs float64     `json:"makespan_ms"`
	Wait       PlanWaits   `json:"wait_ms"`
	Backlog    PlanBacklog `json:"backlog"`
	// Flows are the 100 with most calls.
	Flows     []PlanFlow  `json:"flows"`
	FlowCount int         `json:"flow_count"`
	Limits    []PlanLimit `json:"limits"`
	Series    PlanSeries  `json:"series"`
}

// PlanWaits are percentiles of the waits of calls that are sent, in milliseconds.
type PlanWaits struct {
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
	Mean float64 `json:"mean"`
}

// A PlanBacklog is the greatest number of calls that wait.
type PlanBacklog struct {
	Peak int     `json:"peak"`
	AtMs float64 `json:"at_ms"`
}

// A PlanFlow has the figures of one flow.
type PlanFlow struct {
	Upstream string    `json:"upstream"`
	Flow     string    `json:"flow"`
	Calls    int       `json:"calls"`
	Sent     int       `json:"sent"`
	Wait     PlanWaits `json:"wait_ms"`
}

// A PlanLimit has the figures of one limit.
type PlanLimit struct {
	Upstream string `json:"upstream"`
	Limit    string `json:"limit"`
	Permits  int    `json:"permits"`
	// Window is absent from a bound of calls in flight.
	Window string `json:"window,omitempty"`
	Keys   int    `json:"keys"`
	// Most permits of one key are used in any window.
	Most int `json:"most"`
	// Queued is the greatest number of calls that wait for it.
	Queued int `json:"queued"`
	// Binds are the times in which more calls wait for it than for any other limit of its upstream;
	// share is their part of the makespan.
	Binds []PlanSpan `json:"binds"`
	Share float64    `json:"share"`
	// LimitedWithout are calls that the upstream would limit by it without Throttler.
	LimitedWithout int `json:"limited_without"`
}

// A PlanSpan is a time of a load.
type PlanSpan struct {
	FromMs float64 `json:"from_ms"`
	ToMs   float64 `json:"to_ms"`
}

// A PlanSeries has counts over time, in steps of equal length.
type PlanSeries struct {
	StepMs   float64           `json:"step_ms"`
	Arrivals []int             `json:"arrivals"`
	Sends    []int             `json:"sends"`
	Waiting  []int             `json:"waiting"`
	Limits   []PlanLimitSeries `json:"limits"`
}

// A PlanLimitSeries has counts of a limit over time.
type PlanLimitSeries struct {
	Upstream string `json:"upstream"`
	Limit    string `json:"limit"`
	// Queued are calls that wait for it, most the permits of the busiest key within a window.
	Queued []int `json:"queued"`
	Most   []int `json:"most"`
}

// A PlanFinding is one sentence about a variant, with its figures. Waits are those of which 99 of
// 100 calls have at most that.
type PlanFinding struct {
	// Kind is no_wait, waits, refuses or binds; or, beside the first variant, falls, rises or stays:
	// the wait does.
	Kind   string `json:"kind"`
	Config string `json:"config"`
	Text   string `json:"text"`
	// Upstream and limit are those of the limit that binds; absent if none does.
	Upstream string `json:"upstream,omitempty"`
	Limit    string `json:"limit,omitempty"`
	Permits  int    `json:"permits,omitzero"`
	Window   string `json:"window,omitempty"`
	// Share of the time in which it binds, or of the calls that are refused.
	Share     float64 `json:"share,omitzero"`
	Calls     int     `json:"calls,omitzero"`
	BeforeMs  float64 `json:"before_ms,omitzero"`
	WaitMs    float64 `json:"wait_ms,omitzero"`
	LongestMs float64 `json:"longest_ms,omitzero"`
}

// A PlanCondition tells whether a condition holds for a variant.
type PlanCondition struct {
	Condition string `json:"condition"`
	Config    string `json:"config"`
	Holds     bool   `json:"holds"`
	// Error is why it cannot be computed, such as a flow that is not in the load.
	Error string `json:"error,omitempty"`
}
