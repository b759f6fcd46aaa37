package columns

import (
	"crypto/sha256"
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A KeyOwner is the call that an idempotency key or an identity names; zero if there is none.
type KeyOwner struct {
	fingerprint, id, state string
	identity               bool
	ended                  int64
}

// NewOwner returns the call that has taken a key, and waits.
func NewOwner(k StoredKey, fingerprint, id string) *KeyOwner {
	return &KeyOwner{fingerprint: fingerprint, id: id, state: string(scheduler.Waiting), identity: k.EndedBy != nil}
}

func (o *KeyOwner) Fields() []any {
	return []any{&o.fingerprint, &o.identity, &o.id, &o.state, &o.ended}
}

// Claim returns the call that owns the key, empty if the key is free. Calls that
// ended before an instant own none.
func (o *KeyOwner) Claim(fingerprint string, before int64) (id string, reused error) {
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

// A StoredKey is a row of keys without its call.
type StoredKey struct {
	Hash    []byte
	EndedBy any // nil: an idempotency key; else an identity, and the call that ended it or ""
}

// KeysOf returns the key and the identity of an entry, as far as it has them.
func KeysOf(c *Codec, e *scheduler.Entry) (keys []StoredKey) {
	if e.Key != "" {
		h := sha256.Sum256([]byte(e.Key))
		keys = append(keys, StoredKey{h[:], nil})
	}
	if e.Identity != "" {
		keys = append(keys, IdentityKey(c, e.Identity))
	}
	return keys
}

func IdentityKey(c *Codec, text string) StoredKey {
	h := sha256.Sum256([]byte(text))
	return StoredKey{c.Blind(h[:]), ""}
}
