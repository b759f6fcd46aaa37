package api

// A Login is the token with which a browser begins a session.
type Login struct {
	Token string `json:"token"`
}

// Background is the header field of requests that a page makes by itself: they do not keep the
// session of the person alive.
const Background = "Throttler-Background"

// A Session is the login of a browser, which has its id in a cookie.
type Session struct {
	Caller CallerInfo `json:"caller"`
	// EndsAt is when it ends if it is not used any more.
	EndsAt Instant `json:"ends_at"`
}
