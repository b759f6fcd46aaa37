package api

// A Reload is the result of a reload of the configuration.
type Reload struct {
	// DryRun: the file was read and compared, and nothing has changed.
	DryRun bool `json:"dry_run,omitempty"`
	// FileSHA256 is the hash of the bytes of the file that was read, in hex.
	FileSHA256 string   `json:"file_sha256,omitempty"`
	Changes    []Change `json:"changes"`
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

// Config is the configuration in force.
type Config struct {
	Settings []Setting `json:"settings"`
}

// A Setting is the value of one key of the configuration.
type Setting struct {
	// Path has the items of lists by their names, as in upstreams.alipay.limits[app].calls.
	Path string `json:"path"`
	// Value is empty if it is hidden. Of a URL it has the scheme and the host.
	Value string `json:"value"`
	// Hidden: the value is not shown, because it may be secret.
	Hidden bool `json:"hidden,omitempty"`
	// Source is a line of the file, a variable, a flag, a line of a preset, or default.
	Source string `json:"source"`
}

// Info is about the running process.
type Info struct {
	Version   string  `json:"version"`
	Go        string  `json:"go"`
	StartedAt Instant `json:"started_at"`
	// ConfiguredAt is when the configuration in force was loaded.
	ConfiguredAt Instant `json:"configured_at"`
	// Store is memory, file or postgres.
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
