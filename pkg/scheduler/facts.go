package scheduler

import (
	"cmp"
	"strings"
)

// The facts by which people know a call.

// A Permit is what an attempt takes of one limit.
type Permit struct {
	Limit, Key string
	Cost       int
	// Free is how many permits of the key are free now; nil unless the call waits, and Get or Wait
	// returns it. A pause of the limit or the key leaves none.
	Free *int
}

// An Origin is the way on which a call came.
type Origin string

const (
	OriginData     Origin = "data"     // the data listener
	OriginAdmin    Origin = "admin"    // the admin API
	OriginEmbedded Origin = "embedded" // a program that embeds the scheduler
	OriginQuery    Origin = "query"    // the scheduler asks about an unknown call
	OriginWebhook  Origin = "webhook"  // the scheduler tells the end of a call
)

// pathOf returns a target without its query.
func pathOf(target string) string {
	path, _, _ := strings.Cut(target, "?")
	return path
}

// cameFrom returns the way on which the request came.
func (r *Request) cameFrom() Origin {
	switch {
	case r.origin != nil && r.origin.resolves != "":
		return OriginQuery
	case r.origin != nil:
		return OriginWebhook
	}
	return cmp.Or(r.Origin, OriginEmbedded)
}
