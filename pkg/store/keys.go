package store

import (
	"crypto/sha256"
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A keyOwner is the call that an idempotency key or an identity names; zero if there is none.
type keyOwner struct {
	fingerprint, id, state string
	identity               bool
	ended                  int64
}

const selectOwner = "SELECT k.fingerprint, k.ended_by IS NOT NULL, c.id, c.state, c.ended_at FROM keys k JOIN calls c USING (seq) WHERE k.key = ?"

func (o *keyOwner) fields() []any {
	return []any{&o.fingerprint, &o.identity, &o.id, &o.state, &o.ended}
}

// claim returns the call that owns the key, empty if the key is free. Calls that
// ended before an instant own none.
func (o *keyOwner) claim(fingerprint string, before int64) (id string, reused error) {
	switch state := scheduler.State(o.state); {
	case o.id == "", o.ended < before && state.Finished():
		return "", nil // never used, or its time is over
	case state == scheduler.Cancelled, state == scheduler.Expired, state == scheduler.Exhausted:
		return "", nil // nothing was executed
	case state == scheduler.Failed && o.identity:
		return "", nil // for good
	case o.fingerprint != fingerprint && fingerprint != "":
		return "", fmt.Errorf("%w, call %s", scheduler.ErrKeyReused, o.id)
	}
	return o.id, nil
}

// A storedKey is a row of keys without its call.
type storedKey struct {
	hash    []byte
	endedBy any // nil: an idempotency key; else an identity, and the call that ended it or ""
}

// keysOf returns the key and the identity of an entry, as far as it has them.
func keysOf(c *codec, e *scheduler.Entry) (keys []storedKey) {
	if e.Key != "" {
		h := sha256.Sum256([]byte(e.Key))
		keys = append(keys, storedKey{h[:], nil})
	}
	if e.Identity != "" {
		keys = append(keys, identityKey(c, e.Identity))
	}
	return keys
}

func identityKey(c *codec, text string) storedKey {
	h := sha256.Sum256([]byte(text))
	return storedKey{c.blind(h[:]), ""}
}
