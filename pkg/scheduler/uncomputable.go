package scheduler

import (
	"errors"
	"maps"
	"sync"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// uncomputed counts rules that had no value, by upstream and name. There are no more of them than the
// configurations since the start have. It is safe for all goroutines.
type uncomputed struct {
	mu    sync.Mutex
	times map[string]map[string]int64
}

// note counts an error if it is that of a rule without a value, and returns the rule's name; empty
// for another error.
func (u *uncomputed) note(of string, err error) (rule string) {
	var e *upstream.Uncomputable
	if !errors.As(err, &e) {
		return ""
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.times == nil {
		u.times = make(map[string]map[string]int64)
	}
	if u.times[of] == nil {
		u.times[of] = make(map[string]int64)
	}
	u.times[of][e.Rule]++
	return e.Rule
}

// remedy says what to do about a rule without a value. The rule is not at fault where the answer or the
// request cannot be read.
func remedy(err error) string {
	var e *upstream.Uncomputable
	if errors.As(err, &e) && e.Unreadable {
		return "the answer or the request cannot be read: look the call up"
	}
	return "mend the rule, or look the call up"
}

// of returns the counts of an upstream.
func (u *uncomputed) of(name string) map[string]int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.times[name])
}
