package config

import (
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// inMemory is the store key's value for a store without a file.
const inMemory = "memory"

// OpenStore opens or creates the file that keeps calls; it returns nil if they
// are kept in memory. The scheduler that gets the store closes it.
func (c *Config) OpenStore(o store.Options) (scheduler.Store, error) {
	if c.Store == "" {
		return nil, nil
	}
	o.KeepCalls, o.KeepKeys, o.KeepAudit, o.SealKey = c.Options.KeepCalls, c.Options.KeepKeys, c.Options.KeepAudit, c.Options.SealKey
	db, err := store.Open(c.Store, o)
	if err != nil {
		return nil, c.storeFault(err)
	}
	return db, nil
}

// CheckStore returns the fault with which OpenStore would fail, as far as that shows without
// making or changing a file.
func (c *Config) CheckStore() error {
	if c.Store == "" {
		return nil
	}
	if err := store.Probe(c.Store, c.Options); err != nil {
		return c.storeFault(err)
	}
	return nil
}

// storeFault returns an error of the store as the fault of its key.
func (c *Config) storeFault(err error) error {
	if inner := errors.Unwrap(err); inner != nil { // without "store: " in front
		err = fmt.Errorf("%s: %w", c.Store, inner)
	}
	return c.Fault("store", err)
}

// store converts the keys of the store.
func (f *file) store(faults *faultList, c *Config) {
	positive(faults, "keep_calls", f.KeepCalls, &c.Options.KeepCalls)
	positive(faults, "keep_keys", f.KeepKeys, &c.Options.KeepKeys)
	positive(faults, "keep_audit", f.KeepAudit, &c.Options.KeepAudit)
	positive(faults, "long_window", f.LongWindow, &c.Scheduler.LongWindow)
	if keep := orDefault(c.Options.KeepCalls, store.DefaultKeepCalls); c.Options.KeepKeys > keep {
		faults.add("keep_keys", "is %v, longer than the calls that the keys name are kept (keep_calls: %v)", c.Options.KeepKeys, keep)
	}
	switch f.Store {
	case inMemory:
		faults.warn("store", "memory covers one process life; calls that wait at a stop or a crash are lost, and quota usage is forgotten; name a file to keep them")
	case "":
		faults.add("store", "is empty; name a file, such as throttler.db, or write memory")
	default:
		c.Store = f.Store
	}
	switch {
	case f.SealKey != "" && faults.closed:
		faults.reference("seal_key", f.SealKey)
	case f.SealKey != "":
		var err error
		if c.Options.SealKey, err = readKey(f.SealKey); err != nil {
			faults.add("seal_key", "%w", err)
		}
	}
}

// readKey reads the key that a reference names. No error shows any of it.
func readKey(reference string) ([]byte, error) {
	text, err := signer.Secret(reference)
	if err != nil {
		return nil, err
	}
	key, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(key) != 32 {
		return nil, errors.New("does not lead to 32 bytes in base64; make some with: openssl rand -base64 32")
	}
	return key, nil
}
