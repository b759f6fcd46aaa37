package config

import (
	"encoding/base64"
	"errors"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// inMemory is the name of the store that is no file.
const inMemory = "memory"

// OpenStore opens the file in which calls are kept, or makes it; nil if they are
// kept in memory. The scheduler that gets it closes it.
func (c *Config) OpenStore(o store.Options) (scheduler.Store, error) {
	if c.Store == "" {
		return nil, nil
	}
	o.KeepCalls, o.KeepKeys, o.SealKey = c.Options.KeepCalls, c.Options.KeepKeys, c.Options.SealKey
	db, err := store.Open(c.Store, o)
	if err != nil {
		return nil, err
	}
	return db, nil
}

// store reads what concerns the store.
func (r *reader) store(c *Config, f *file) {
	positive(r, "keep_calls", f.KeepCalls, &c.Options.KeepCalls)
	positive(r, "keep_keys", f.KeepKeys, &c.Options.KeepKeys)
	positive(r, "long_window", f.LongWindow, &c.Scheduler.LongWindow)
	if keep := orDefault(c.Options.KeepCalls, store.DefaultKeepCalls); c.Options.KeepKeys > keep {
		r.fault("keep_keys", "is %v, longer than the calls that the keys name are kept (keep_calls: %v)", c.Options.KeepKeys, keep)
	}
	switch f.Store {
	case inMemory:
		c.Warnings = append(c.Warnings, "store: memory covers one process life; calls that wait at a stop or a crash are lost, and the use of the quota is forgotten")
	case "":
		r.fault("store", "is empty; name a file, such as throttler.db, or write memory")
	default:
		c.Store = f.Store
	}
	if f.SealKey != "" {
		var err error
		if c.Options.SealKey, err = readKey(f.SealKey); err != nil {
			r.fault("seal_key", "%w", err)
		}
	}
}

// readKey reads the key to which a reference points. No error shows any of it.
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

// source returns a condition as the scheduler takes it: an expression, empty for none.
func (c *condition) source() string {
	if c == nil || *c == "false" {
		return ""
	}
	return string(*c)
}
