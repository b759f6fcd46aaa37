package api

// A Reload is the result of a reload of the configuration.
type Reload struct {
	// DryRun: the file was read and compared, and nothing has changed.
	DryRun  bool     `json:"dry_run,omitempty"`
	Changes []Change `json:"changes"`
}

// A Change is that of one key of the configuration.
type Change struct {
	Path string `json:"path"`
	// Before and After are absent where there is no value, or it is hidden.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Kind is new, removed or changed.
	Kind string `json:"kind"`
	// Hidden: a value is not shown, because it may be secret.
	Hidden bool `json:"hidden,omitempty"`
	// Restart: the value in force stays as it is until a restart.
	Restart bool `json:"restart,omitempty"`
}

// Info is about the running process.
type Info struct {
	Version   string  `json:"version"`
	Go        string  `json:"go"`
	StartedAt Instant `json:"started_at"`
	// ConfiguredAt is when the configuration in force was loaded.
	ConfiguredAt Instant `json:"configured_at"`
	// Store is memory or file.
	Store  string     `json:"store"`
	Caller CallerInfo `json:"caller"`
}

// A CallerInfo is about the sender of the request.
type CallerInfo struct {
	Name string `json:"name,omitempty"`
	Role string `json:"role,omitempty"`
	Via  string `json:"via,omitempty"`
	// Scopes are the kinds of operations that the caller may do.
	Scopes []string `json:"scopes"`
}
