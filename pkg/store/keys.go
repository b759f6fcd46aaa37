package store

import (
	"crypto/sha256"
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A keyOwner is the call that an idempotency key names; zero if there is none.
type keyOwner struct {
	fingerprint, id, state string
	ended                  int64
}

const selectOwner = "SELECT k.fingerprint, c.id, c.state, c.ended_at FROM keys k JOIN calls c USING (seq) WHERE k.key = ?"

func (o *keyOwner) fields() []any { return []any{&o.fingerprint, &o.id, &o.state, &o.ended} }

// claim returns the call that owns the key, empty if the key is free. Calls that
// ended before an instant own none.
func (o *keyOwner) claim(fingerprint string, before int64) (id string, reused error) {
	switch state := scheduler.State(o.state); {
	case o.id == "", o.ended < before && state.Finished():
		return "", nil // never used, or its time is over
	case state == scheduler.Cancelled, state == scheduler.Expired, state == scheduler.Exhausted:
		return "", nil // nothing was executed
	case o.fingerprint != fingerprint:
		return "", fmt.Errorf("%w, call %s", scheduler.ErrKeyReused, o.id)
	}
	return o.id, nil
}

// hashOf returns an idempotency key as the file has it.
func hashOf(key string) []byte {
	h := sha256.Sum256([]byte(key))
	return h[:]
}
