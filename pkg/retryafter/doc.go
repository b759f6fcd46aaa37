// Package retryafter reads how long an answer of an HTTP API asks its client to wait.
//
// [Wait] reads the fields of an answer, [Remaining] how much of the quota they leave, and
// [Parse] one value, such as a member of a body. All are pure: they take the time.
//
//	field                                    value                            of
//	Retry-After                              2 or 292.05 (s), a date          RFC 9110, 10.2.3; Shopify
//	Retry-After-Ms, X-Ms-Retry-After-Ms      2000 (ms)                        OpenAI, Azure
//	X-Retry-In                               8ms                              Traefik
//	RateLimit                                "day";r=0;t=30                   drafts 8 to 10 of [ratelimit]
//	RateLimit                                limit=9, remaining=0, reset=30   draft 7
//	RateLimit-Reset, X-RateLimit-Reset       30 (s), epoch s or ms, a date    drafts 3 to 6, GitHub, Upstash
//	X-Rate-Limit-Reset                       epoch s                          X
//	X-RateLimit-Reset-Requests, -Tokens      6m0s, 20ms                       OpenAI, Groq
//	Anthropic-RateLimit-Requests-Reset, …    a date (RFC 3339)                Anthropic
//	X-RateLimit-Reset-After                  0.35 (s)                         Discord
//
// Vendors add prefixes and suffixes, so a name counts by its words: Retry-After (in
// milliseconds before Ms or Milliseconds), and RateLimit or Rate-Limit with Reset.
//
// # Units
//
// A number is seconds, whole or with a fraction, unless it is near the present Unix time in
// seconds, milliseconds, microseconds or nanoseconds: from 366 days before it to 366 days
// after it. Then it is an instant, because no platform limits for 55 years. Instants are
// compared with the answer's own Date, so that the clocks need not agree. Dates are the three
// of RFC 9110, and others with their offset from UTC, of RFC 1123 or ISO 8601. One without an
// offset is not read, for it may be hours off. Waits are rounded up to whole milliseconds.
//
// # Precedence
//
// Retry-After stands above resets, as the drafts say: the platform may want more or less than
// the end of a window. A finer field replaces a Retry-After from which it differs by less than a
// second, because that is it in whole seconds; else the longer one counts. Of several values the longest
// counts. A reset counts if its own Remaining field is 0 or, where no such field says anything, if the
// answer limits: a platform names its next reset in each answer.
//
// # Sanity
//
// Zero, a past instant, a sign, an exponent, a hexadecimal number and NaN are no wait. A
// Retry-After beyond [Longest] is Longest; a reset beyond it is no wait.
//
// [ratelimit]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
package retryafter
