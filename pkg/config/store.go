package config

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/signer"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// inMemory is the store key's value for a store without a file.
const inMemory = "memory"

// OpenStore opens or creates the file that keeps calls; it returns nil if they
// are kept in memory. The scheduler that gets the store closes it.
//
// If the calls are in PostgreSQL, and another replica has them, OpenStore waits for its end, until ctx ends.
// Seal and Restored of the options are for files.
func (c *Config) OpenStore(ctx context.Context, o store.Options) (scheduler.Store, error) {
	switch {
	case c.Store == "":
		return nil, nil
	case c.Shared() && o.Restored:
		return nil, c.Fault("store", errors.New("is a database, and --restored (Options.Restored) is for a file"))
	case c.Shared() && o.Seal:
		return nil, c.Fault("store", errors.New("is a database, which is sealed when it is empty, or never"))
	case c.Shared():
		return c.openShared(ctx, o)
	}
	o.KeepCalls, o.KeepKeys, o.KeepAudit, o.SealKey = c.Options.KeepCalls, c.Options.KeepKeys, c.Options.KeepAudit, c.Options.SealKey
	db, err := store.Open(c.Store, o)
	if err != nil {
		return nil, c.storeFault(err)
	}
	return db, nil
}

// Shared reports whether the calls are in PostgreSQL, where several replicas take over from each other.
func (c *Config) Shared() bool { return isURL(c.Store) }

func isURL(store string) bool {
	return strings.HasPrefix(store, "postgres://") || strings.HasPrefix(store, "postgresql://")
}

func (c *Config) openShared(ctx context.Context, o store.Options) (scheduler.Store, error) {
	db, err := postgres.Open(ctx, c.Store, c.fleetOptions(postgres.Options{Log: o.Log}))
	if err != nil {
		return nil, c.fleetFault(ctx, err)
	}
	return db, nil
}

// Join enters this replica into the registry of the database that Store names. The options have its Address, Pin,
// Version and Log.
func (c *Config) Join(ctx context.Context, o postgres.Options) (*postgres.Member, error) {
	m, err := postgres.Join(ctx, c.Store, c.fleetOptions(o))
	if err != nil {
		return nil, c.fleetFault(ctx, err)
	}
	return m, nil
}

// Inspect asks the database that Store names whether it can be used, and changes nothing.
func (c *Config) Inspect(ctx context.Context) (*postgres.Inspection, error) {
	i, err := postgres.Inspect(ctx, c.Store, c.fleetOptions(postgres.Options{}))
	if err != nil {
		return nil, c.fleetFault(ctx, err)
	}
	own := c.LimitsHash()
	for _, r := range i.Replicas { // the owner first
		if r.Config != "" && r.Config != own {
			has := "serves from"
			if r.Name == i.Owner {
				has = "has the calls of"
			}
			i.Warnings = append(i.Warnings, fmt.Sprintf("replica %q %s this database, with other upstreams or limits: for a fleet of its own name another database, else give both the same file", r.Name, has))
			break
		}
	}
	return i, nil
}

// Migrate brings the schema of the database that Store names to the one of this program.
func (c *Config) Migrate(ctx context.Context) error {
	if err := postgres.Migrate(ctx, c.Store, c.fleetOptions(postgres.Options{})); err != nil {
		return c.fleetFault(ctx, err)
	}
	return nil
}

func (c *Config) fleetOptions(o postgres.Options) postgres.Options {
	o.KeepCalls, o.KeepKeys, o.KeepAudit, o.SealKey = c.Options.KeepCalls, c.Options.KeepKeys, c.Options.KeepAudit, c.Options.SealKey
	o.Password, o.Lease, o.Name, o.Wait = c.Fleet.password, c.Fleet.Lease, c.Fleet.Name, true
	o.Config = c.LimitsHash()
	return o
}

// fleetFault returns an error of package postgres as the fault of the store.
func (c *Config) fleetFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.Fault("store", errors.New(strings.TrimPrefix(err.Error(), "postgres: ")))
}

// LimitsHash returns a hash of the upstreams and their limits, by which replicas tell whether their files differ. Values
// that may be secrets, and addresses of listeners, do not count.
func (c *Config) LimitsHash() string {
	h := sha256.New()
	for _, s := range c.Settings() {
		if strings.HasPrefix(s.Path, "upstreams.") && !strings.HasSuffix(s.Path, ".listen") {
			fmt.Fprintf(h, "%s=%s\n", s.Path, s.Value)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:12]
}

// CheckStore returns the fault with which OpenStore would fail, as far as that shows without
// making or changing a file.
func (c *Config) CheckStore() error {
	if c.Store == "" || c.Shared() { // a server is asked at the start
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
		faults.add("store", "is empty; name a file, such as throttler.db, a database, as in postgres://throttler@db.internal/throttler, or write memory")
	default:
		c.Store = f.Store
	}
	referred(faults, "seal_key", f.SealKey, &c.Options.SealKey, readKey)
}

// referred reads the secret that a reference names, if there is one, and the configuration is read as a whole.
func referred[T any](faults *faultList, path, reference string, to *T, read func(reference string) (T, error)) {
	switch {
	case reference == "":
	case faults.closed:
		faults.reference(path, reference)
	default:
		var err error
		if *to, err = read(reference); err != nil {
			faults.add(path, "%w", err)
		}
	}
}

// fleet converts the keys of a store in PostgreSQL.
func (f *file) fleet(faults *faultList, c *Config, taken *[]listenAddress) {
	if !isURL(f.Store) {
		const elsewhere = "is for a store in PostgreSQL, and store is %s; name a database, as in postgres://throttler@db.internal/throttler, or leave it out"
		if f.StoreSecret != "" {
			faults.add("store_secret", elsewhere, shortened(f.Store))
		}
		for _, key := range []struct{ path, value string }{{"fleet.listen", string(f.Fleet.Listen)}, {"fleet.advertise", f.Fleet.Advertise}, {"fleet.name", f.Fleet.Name}} {
			if key.value != "" {
				faults.add(key.path, elsewhere, shortened(f.Store))
			}
		}
		if l := f.Fleet.Lease; l != nil && time.Duration(*l) != postgres.DefaultLease {
			faults.add("fleet.lease", elsewhere, shortened(f.Store))
		}
		return
	}
	if u, err := url.Parse(f.Store); err != nil || u.Host == "" {
		faults.add("store", "is no URL of a database; it is as in postgres://throttler@db.internal:5432/throttler?sslmode=verify-full")
	} else if _, has := u.User.Password(); has || u.Query().Has("password") || u.Query().Has("sslpassword") {
		faults.add("store", "has a password in its URL, where it would be shown; put it into store_secret, as in file:/run/secrets/database")
	}
	positive(faults, "fleet.lease", f.Fleet.Lease, &c.Fleet.Lease)
	if l := c.Fleet.Lease; l != 0 && (l < postgres.MinLease || l > postgres.MaxLease) {
		faults.add("fleet.lease", "is %v, must be from %v to %v", l, postgres.MinLease, postgres.MaxLease)
	}
	if f.Fleet.Listen != "" {
		listen(faults, "fleet.listen", string(f.Fleet.Listen), taken)
	}
	if f.Fleet.Advertise != "" {
		switch host, port, err := net.SplitHostPort(f.Fleet.Advertise); {
		case f.Fleet.Listen == "":
			faults.add("fleet.advertise", "is %s, and there is no fleet.listen; give the address to listen on", f.Fleet.Advertise)
		case err != nil || host == "" || port == "" || port == "0":
			faults.add("fleet.advertise", "is %s, must be host:port, as in 10.0.0.7:9191", f.Fleet.Advertise)
		}
	}
	c.Fleet.Listen, c.Fleet.Advertise, c.Fleet.Name = string(f.Fleet.Listen), f.Fleet.Advertise, f.Fleet.Name
	referred(faults, "store_secret", f.StoreSecret, &c.Fleet.password, signer.Secret)
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
