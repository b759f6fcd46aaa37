package config

// The types of this file are the file, key by key; what their comments say of a
// key, configs/throttler.yaml says too, and a test holds the two together. A
// pointer tells a key that is absent, and so has its default, from a zero, which
// is never a default in disguise.

type file struct {
	// Admin is the listen address of the admin API, host:port. Default 127.0.0.1:9090.
	Admin string `key:"admin"`
	// Store is the file in which submitted calls and the use of the quota are kept,
	// or memory, which covers one process life. Default throttler.db.
	Store string `key:"store"`
	// KeepCalls is how long finished calls and their answers are kept. Default 168h.
	KeepCalls *duration `key:"keep_calls"`
	// KeepKeys is how long idempotency keys are kept after their calls have ended, at most keep_calls. Default 24h.
	KeepKeys *duration `key:"keep_keys"`
	// LongWindow is the window above which the use of the quota is stored in
	// blocks, ahead of the sends. Default 1m.
	LongWindow *duration `key:"long_window"`
	// SealKey says where the key is that seals requests and answers in the store:
	// env:NAME or file:PATH, 32 bytes in base64. Default: they are in the clear.
	SealKey string  `key:"seal_key"`
	Log     fileLog `key:"log"`
	// Grace is how long attempts in flight may go on at a stop. Default 35s.
	Grace *duration `key:"grace"`
	// Upstreams by name: lower-case letters, digits, - and _.
	Upstreams map[string]fileUpstream `key:"upstreams"`
}

type fileLog struct {
	// Level is debug, info, warn or error. Default info.
	Level string `key:"level"`
	// Format is text or json. Default text.
	Format string `key:"format"`
}

type fileUpstream struct {
	// Listen is the address of the data listener, host:port. Without it calls come
	// only by the admin API, or from the program that embeds the scheduler.
	Listen string `key:"listen"`
	// URL is the API's scheme and host, and the path in front of every target, if any.
	URL string `key:"url"`
	// Preset names what lies beneath this upstream's keys. Default generic.
	Preset string `key:"preset"`

	// Timeout bounds an attempt, from dialling to the answer's end. Default 30s.
	Timeout *duration `key:"timeout"`
	// Late is how long after its end an unanswered attempt may still be counted by
	// the upstream: its permit comes back that much later. Default 5s.
	Late *duration `key:"late"`
	// MaxWait is how long a caller waits for its slot at most. Default 30s.
	MaxWait *duration `key:"max_wait"`
	// MaxAge is how long after its acceptance a call may be sent at all. Default 24h.
	MaxAge *duration `key:"max_age"`
	// MaxWaiting is how many calls wait at most. Default 10000.
	MaxWaiting *int `key:"max_waiting"`
	// MaxWaitingBytes is how large they are together at most. Default 256MiB.
	MaxWaitingBytes *size `key:"max_waiting_bytes"`
	// MaxBody is how large a request's body is at most. Default 1MiB.
	MaxBody *size `key:"max_body"`
	// Concurrency is how many attempts are in flight at most. Default 1024.
	Concurrency *int `key:"concurrency"`

	// Durable is true, false or a request expression: calls whose caller waits, and
	// that are stored all the same. Default false.
	Durable *condition `key:"durable"`
	// NoBody is true, false or a request expression: calls whose request is never
	// stored. Such a call is not lost in silence, but ends with the process. Default false.
	NoBody *condition `key:"no_body"`

	// ShareBy is a request expression; calls of one value are one flow, and flows
	// share fairly. Default: all calls are one flow.
	ShareBy string `key:"share_by"`
	// Weights are the shares of flows, above 0; a flow not named has 1. A flow named
	// here is the same in any case.
	Weights map[string]float64 `key:"weights"`
	Spacing fileSpacing        `key:"spacing"`

	// Outcomes are asked in order, before those of the preset; the first that
	// holds decides.
	Outcomes []fileRule `key:"outcomes"`
	// Idempotent is a request expression, true for calls whose repeat the upstream
	// itself recognises. An empty text is false for all. Default: the preset's.
	Idempotent string `key:"idempotent"`
	// Resend allows a call whose caller waits to be sent again with the same bytes.
	// Default: the preset's.
	Resend      bool            `key:"resend"`
	Idempotency fileIdempotency `key:"idempotency"`
	Retry       fileRetry       `key:"retry"`
	Signature   fileSignature   `key:"signature"`
	Signer      fileSigner      `key:"signer"`
	// Resolve settles submitted calls of unknown outcome by asking the upstream;
	// the first whose when holds does. Default: the preset's.
	Resolve []fileResolve `key:"resolve"`
	// Callbacks are the targets, by name, that a submitted call may ask to be told.
	Callbacks map[string]fileCallback `key:"callbacks"`
	// Replay lets a client that sends an Idempotency-Key a second time have the
	// stored answer. Default: the preset's.
	Replay  bool        `key:"replay"`
	Refusal fileRefusal `key:"refusal"`

	Timeouts fileTimeouts `key:"timeouts"`
	Inspect  fileInspect  `key:"inspect"`
	// HTTP2 is spoken where TLS offers it. Default true.
	HTTP2 *bool   `key:"http2"`
	TLS   fileTLS `key:"tls"`
	// Addresses are the only ones that may be dialled, as IP or CIDR. Default: any,
	// but that a name must not lead to this host or its link.
	Addresses []string `key:"addresses"`

	// Keys are names for request expressions: a limit's per_key, or share_by, may
	// be one of them. Default: the preset's.
	Keys map[string]string `key:"keys"`
	// Limits all hold at once.
	Limits []fileLimit `key:"limits"`
}

type fileSpacing struct {
	// Burst spreads calls evenly inside sliding windows without counts, but for so
	// many at once.
	// Default: calls go as soon as permits are free.
	Burst *int `key:"burst"`
}

type fileRule struct {
	// When is an expression over status, header(name) and body(path) of the
	// answer, error and sent where there is none, repeat (an earlier sending may have
	// been executed), and method, path, query, form, param and json of the request.
	When string `key:"when"`
	// Is is done, failed, not_executed or unknown.
	Is string `key:"is"`
	// Pause says what a not_executed answer shuts. Default: the upstream, for as
	// long as Retry-After or the backoff says.
	Pause *filePause `key:"pause"`
	// After is how long this call waits at least before it is sent again. Default:
	// what the answer, the pause or the backoff says.
	After *duration `key:"after"`
	// Park keeps an unknown call from being repeated. Default false.
	Park bool `key:"park"`
}

type filePause struct {
	// Limit names the limit whose key is shut. Default: the whole upstream.
	Limit string `key:"limit"`
	// For is how long, where the answer has no Retry-After. Default: the backoff.
	For *duration `key:"for"`
}

type fileRetry struct {
	// Attempts is how many attempts with unknown outcome a call has. Default 4.
	Attempts  *int `key:"attempts"`
	fileCurve `key:",squash"`
	// Budget is how many repeats after unknown outcomes there are per first
	// sending, above 0 and at most 1. Default: no bound.
	Budget *float64 `key:"budget"`
	// Limited is the delay of calls that were limited, where the answer and the
	// rule do not say. Default: as above.
	Limited *fileCurve `key:"limited"`
}

type fileCurve struct {
	// Backoff is exponential, linear or decorrelated, each with jitter. Default exponential.
	Backoff string `key:"backoff"`
	// Min is the first delay; jitter takes up to half of it off, but not where it
	// is decorrelated. Default 500ms.
	Min *duration `key:"min"`
	// Max is the longest delay. Default 1m.
	Max *duration `key:"max"`
}

type fileRefusal struct {
	// Status replaces the status of Throttler's own answers; 0 keeps it.
	Status int `key:"status"`
	// Headers are added; names are taken without regard to case. Without a
	// content-type it is application/problem+json.
	Headers map[string]string `key:"headers"`
	// Body is sent as it is or, with {{ in it, is a text/template over [Problem]
	// with the functions json and replace. Default: the preset's; an empty one is a problem of
	// RFC 9457.
	Body string `key:"body"`
}

type fileLimit struct {
	// Name is how answers and metrics call the limit, unique within the upstream.
	Name string `key:"name"`
	// When is a request expression: the calls under the limit. Default: all.
	When string `key:"when"`
	// PerKey is a request expression; each value is counted apart. Default: one count.
	PerKey string `key:"per_key"`
	// Cost is how many permits a call takes: a number, or a request expression. Default 1.
	Cost *cost `key:"cost"`
	// Calls is how many permits a window has.
	Calls int `key:"calls"`
	// Window is a duration, or minute, hour, day or month of the provider's clock.
	Window *window `key:"window"`
	// TimeZone is the provider's, by its IANA name; not with a duration. Default UTC.
	TimeZone string `key:"time_zone"`
	// Skew is how far the provider's clock and ours may be apart; not with a
	// duration. Default 1s.
	Skew *duration `key:"skew"`
	// Guard caps the hold of a slow answer: exact while the way to the upstream is
	// shorter. Default: no cap.
	Guard *duration `key:"guard"`
	// Counts are the outcomes that use a permit up: done, failed, not_executed,
	// unknown; others give it back with the response. Default: all.
	Counts []string `key:"counts"`
	// Concurrency stands instead of calls and window: so many attempts in flight.
	Concurrency *int `key:"concurrency"`
}
