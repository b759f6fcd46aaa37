package workload

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// NewArrival returns the call of an event: one that was accepted or refused at an instant. Its
// caller waits until the deadline, and it is not sent before notBefore; both may be zero.
func NewArrival(upstream string, priority int, at, deadline, notBefore time.Time, route *scheduler.Route) Arrival {
	a := Arrival{Upstream: upstream, Priority: priority, Route: route}
	if !deadline.IsZero() {
		a.MaxWait = max(time.Millisecond, deadline.Sub(at).Round(time.Millisecond))
	}
	if notBefore.After(at) {
		a.Delay = notBefore.Sub(at).Round(time.Millisecond)
	}
	return a
}

// A Recorder writes arrivals as a JSONL load. Of a call it writes the instant, the
// upstream, the priority, the caller's longest wait, the delay, and the values of the
// limits' expressions; nothing else of the request. Keys and flows may be personal or
// secret, so they are written as a keyed hash: equal ones stay equal inside a recording,
// and cannot be guessed, nor matched with another recording. A flow with a weight is not
// hashed: its name is in the configuration.
type Recorder struct {
	w      *json.Encoder
	secret []byte // nil: keys are not hashed
	limits map[string][]string
	last   time.Time
}

// NewRecorder returns a recorder for upstreams with these limits, by name. Plain
// writes keys and flows without hashing.
func NewRecorder(w io.Writer, limits map[string][]string, plain bool) *Recorder {
	r := &Recorder{w: json.NewEncoder(w), limits: limits}
	if !plain {
		r.secret = make([]byte, 32)
		rand.Read(r.secret)
	}
	return r
}

// Write writes an arrival. One that comes before the last, by a wall clock that was
// put back, counts as of the same instant.
func (r *Recorder) Write(at time.Time, a Arrival) error {
	if at.Before(r.last) {
		at = r.last
	}
	r.last = at
	line := map[string]any{"at": at.UTC().Format(time.RFC3339Nano), "upstream": a.Upstream}
	if a.Priority != 0 {
		line["priority"] = a.Priority
	}
	if a.MaxWait > 0 {
		line["wait"] = a.MaxWait.String()
	}
	if a.Delay > 0 {
		line["delay"] = a.Delay.String()
	}
	for _, limit := range r.limits[a.Upstream] {
		line["key."+limit] = nil // not under the limit
	}
	for limit, key := range a.Route.Keys {
		line["key."+limit] = r.hide(key)
		if key == "" {
			line["key."+limit] = OneKey
		}
	}
	for limit, cost := range a.Route.Costs {
		line["cost."+limit] = cost
	}
	line["flow"] = a.Route.Flow
	if !a.Route.Weighted && a.Route.Flow != "" {
		line["flow"] = r.hide(a.Route.Flow)
	}
	return r.w.Encode(line) // with sorted names, in one write
}

// hide returns the hash of a key, or the key itself if plain.
func (r *Recorder) hide(key string) string {
	if r.secret == nil {
		return key
	}
	mac := hmac.New(sha256.New, r.secret)
	io.WriteString(mac, key)
	return hashText(binary.BigEndian.Uint64(mac.Sum(nil)))
}

// hashText returns a hash as recordings have it; empty for 0.
func hashText(hash uint64) string {
	if hash == 0 {
		return ""
	}
	return fmt.Sprintf("h%016x", hash)
}
