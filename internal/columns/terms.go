package columns

import (
	"slices"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Term is the hash of a text by which calls are found, the same for each use of the text: its
// row tells whether a call has it as a number, a key or a flow. In a sealed file only the key can
// tell whether a guess is right.
type Term uint64

// TermsOf returns the terms of a call, each once.
func TermsOf(c *Codec, call *scheduler.Call) []Term {
	texts := append(make([]string, 0, 16), call.Upstream, call.Flow, call.IdempotencyKey, call.SubmittedBy)
	for _, p := range call.Permits {
		texts = append(texts, p.Limit, p.Key)
	}
	for _, number := range call.Numbers {
		texts = append(texts, number)
	}
	all := make([]Term, 0, len(texts))
	for i, text := range texts {
		if text != "" && !slices.Contains(texts[:i], text) {
			all = append(all, c.Term(text))
		}
	}
	return all
}
