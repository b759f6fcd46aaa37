package scheduler

import (
	"hash/maphash"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// subjects hashes the subjects of attempts; another process has other hashes.
var subjects = maphash.MakeSeed()

// subject returns a hash of what the attempt was about, for the circuit breaker: the attempts of one
// subject are one outcome there. The subject is, by the first that there is:
//
//	a query of Resolve       the call that is asked about; its own outcome is another one
//	Identity, Asks or Ends   the payment that it names, apart for calls, queries and ends
//	an idempotency key       the key, by Idempotency or of the request, for one account: with its credentials and flow, and
//	                         with method and path, but without what SDKs change in a repeat, as other fields and times
//	none of them             the call
func (a *attempt) subject(r *upstream.Result) uint64 {
	c, names := a.intent, a.call.identities
	switch key := r.Key; {
	case c.Resolves != "":
		return hashOf("query", c.Resolves)
	case names.identity() != "":
		return hashOf("identity", names.identity())
	case names.askedAbout() != "":
		return hashOf("asks", names.askedAbout())
	case names.toEnd() != "":
		return hashOf("ends", names.toEnd())
	case key == "" && c.IdempotencyKey == "":
		return hashOf("call", c.ID)
	default:
		return hashOf("key", key, c.IdempotencyKey, a.call.request.Credentials(), c.Flow, c.Method, c.Path)
	}
}

// hashOf returns a hash of texts.
func hashOf(texts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(subjects)
	for _, t := range texts {
		h.WriteString(t)
		h.WriteByte(0)
	}
	return h.Sum64()
}
