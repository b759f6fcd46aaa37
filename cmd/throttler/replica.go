package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// registryWait is how long a connection of another replica waits until it is seen in the registry: a notice of one that joins lets
// this replica look at once. It is shorter than a handshake may take.
const registryWait = 3 * time.Second

// A replica is the place of a sidecar in a fleet.
type replica struct {
	member          *postgres.Member
	link            *link.Client // nil without fleet.listen
	room, adminRoom *server.Room // of requests that wait at data listeners, and at admin listeners
	log             *slog.Logger
	term            atomic.Pointer[postgres.DB] // nil while this replica does not have the calls

	stop    context.CancelFunc
	running sync.WaitGroup
	moved   chan struct{} // gets a value when the owner is asked to hand over
}

// join enters the sidecar into the registry of its fleet, and takes requests that others pass on. find returns the handler
// of a listener by its key.
func join(ctx context.Context, cfg *config.Config, find func(listener string) http.Handler, log *slog.Logger) (*replica, error) {
	r := &replica{room: server.NewRoom(server.DataRoom), adminRoom: server.NewRoom(server.AdminRoom), log: log, moved: make(chan struct{}, 1)}
	own, err := link.NewIdentity()
	if err != nil {
		return nil, err
	}
	o := postgres.Options{Version: version, Log: log}
	var socket net.Listener
	if cfg.Fleet.Listen != "" {
		if socket, err = bind(cfg, "fleet.listen", cfg.Fleet.Listen); err != nil {
			return nil, err
		}
		o.Pin, o.Address = own.Pin, cfg.Fleet.Advertise
		if o.Address == "" {
			o.Address = reachable(socket.Addr().(*net.TCPAddr))
		}
		log.Info("listening", "key", "fleet.listen", "addr", socket.Addr().String(), "advertise", o.Address)
	}
	if r.member, err = cfg.Join(ctx, o); err != nil {
		if socket != nil {
			socket.Close()
		}
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = stop
	if socket != nil {
		r.link = link.NewClient(own, max(cmp.Or(cfg.Fleet.Lease, postgres.DefaultLease), time.Second))
		r.running.Go(func() {
			if err := link.Serve(serving, socket, own, r.known, server.Receive(find), drainTimeout, log); err != nil {
				log.Error("fleet.listen failed; other replicas reach this one no more", "err", err)
			}
		})
	}
	r.running.Go(func() { r.follow(serving) })
	return r, nil
}

// recovered starts a scheduler, which recovers the calls of its store, and waits for a server that is away not much longer than
// until ctx ends. After an error the store is closed.
func recovered(ctx context.Context, cfg scheduler.Config) (*scheduler.Scheduler, error) {
	if term, leased := cfg.Store.(*postgres.DB); leased {
		defer term.GiveUpAfter(ctx)()
	}
	s, err := scheduler.New(cfg)
	if err != nil && cfg.Store != nil {
		err = errors.Join(err, cfg.Store.Close())
	}
	return s, err
}

// reachable returns the address of a listener for others; without a host, if it listens on all addresses.
func reachable(at *net.TCPAddr) string {
	if at.IP.IsUnspecified() {
		return fmt.Sprint(":", at.Port)
	}
	return at.String()
}

// leave takes the sidecar out of the registry, and closes its links.
func (r *replica) leave() {
	r.stop()
	if r.link != nil {
		r.link.Close()
	}
	r.running.Wait()
	r.member.Leave()
}

// known reports whether a pin is that of a replica in the registry. One that has just joined may not have been seen yet.
func (r *replica) known(pin string) bool {
	has := func(p postgres.Replica) bool { return p.Pin == pin }
	for deadline := time.After(registryWait); ; {
		v, next := r.member.View()
		if slices.ContainsFunc(v.Replicas, has) {
			return true
		}
		select {
		case <-next:
		case <-deadline:
			return false
		}
	}
}

// Peer implements server.Owner.
func (r *replica) Peer() (*link.Peer, <-chan struct{}) {
	v, changed := r.member.View()
	self, owner := v.Find(r.member.ID), v.Find(v.Owner)
	if owner == nil || owner.ID == r.member.ID {
		return nil, changed
	}
	peer := &link.Peer{ID: owner.ID, Address: owner.Address, Pin: owner.Pin, Differs: self == nil || differs(v, self)}
	if owner.Address == "" {
		peer.Pin = ""
	}
	return peer, changed
}

// follow logs which limits are not those of the owner, and tells when the owner is to hand over, until ctx ends.
func (r *replica) follow(ctx context.Context) {
	var told map[string]string
	asked := int64(-1)
	for {
		v, next := r.member.View()
		told = r.compare(v, told)
		if v.Owner == r.member.ID && v.Next != "" && asked != v.Epoch {
			asked = v.Epoch
			r.log.Warn("an operator moves the calls to another replica", "to", v.Next)
			select {
			case r.moved <- struct{}{}:
			default: // it was told before
			}
		}
		select {
		case <-next:
		case <-ctx.Done():
			return
		}
	}
}

// compare logs it if the limits of this replica are not those of the owner. The owner logs each replica that lives and has
// others. It returns the differences, by replica; those that were told before are not told again.
func (r *replica) compare(v postgres.View, told map[string]string) map[string]string {
	owner, differing := v.Find(v.Owner), make(map[string]string)
	if owner == nil {
		return told
	}
	for _, p := range v.Replicas {
		own := p.ID == r.member.ID
		if p.Config == owner.Config || !own && (owner.ID != r.member.ID || p.Silence > v.Lease) {
			continue
		}
		differing[p.ID] = owner.ID + " " + owner.Config + " " + p.Config
		switch {
		case told[p.ID] == differing[p.ID]:
		case own:
			r.log.Warn("the upstreams and limits of this replica's configuration are not those of the replica that has the calls, whose limits count; give both the same file, and reload, or name another database for a fleet of its own", "owner", owner.Name, "own", p.Config, "owners", owner.Config)
		default:
			r.log.Warn("the upstreams and limits of another replica's configuration are not those of this one, which has the calls, and whose limits count; give both the same file, and reload", "replica", p.Name, "its", p.Config, "own", owner.Config)
		}
	}
	return differing
}

// differs reports whether the limits of a replica are not those of the owner; false while one of the two is not known.
func differs(v postgres.View, p *postgres.Replica) bool {
	owner := v.Find(v.Owner)
	return p != nil && owner != nil && p.Config != owner.Config
}

// View implements server.Fleet.
func (r *replica) View() api.Fleet {
	v, _ := r.member.View()
	out := api.Fleet{At: api.At(v.At), Epoch: v.Epoch, Next: v.Next, LeaseMS: v.Lease.Milliseconds(), Replicas: []api.Replica{}}
	if v.Owner != "" {
		out.Owner = v.Name
	}
	for _, p := range v.Replicas {
		out.Replicas = append(out.Replicas, api.Replica{
			ID: p.ID, Name: p.Name, Address: p.Address, Version: p.Version, JoinedAt: api.At(p.Joined), SilentMS: p.Silence.Milliseconds(),
			Owner: p.ID == v.Owner && (p.ID != r.member.ID || r.fresh(v)), Self: p.ID == r.member.ID, Config: p.Config, Differs: differs(v, &p),
		})
	}
	return out
}

// fresh reports whether a view is not older than a lease: then this replica may have the calls.
func (*replica) fresh(v postgres.View) bool { return time.Since(v.At) <= v.Lease }

// Move implements server.Fleet.
func (r *replica) Move(ctx context.Context, to string, record scheduler.AuditRecord) error {
	return r.member.Move(ctx, to, record)
}

// Bury implements server.Fleet.
func (r *replica) Bury(ctx context.Context, name string, record scheduler.AuditRecord) error {
	return r.member.Bury(ctx, name, record)
}

// Ready implements server.Fleet: a replica takes requests if it has the calls, or can pass them on.
func (r *replica) Ready() error {
	v, _ := r.member.View()
	owner := v.Find(v.Owner)
	switch {
	case v.At.IsZero():
		return errors.New("no_owner: the database has not answered yet")
	case !r.fresh(v):
		return fmt.Errorf("no_owner: the database has not answered for %v, longer than a lease", time.Since(v.At).Round(time.Millisecond))
	case owner == nil:
		return errors.New("no_owner: no replica has the calls")
	case owner.ID == r.member.ID:
		return nil
	case r.link == nil || owner.Pin == "":
		return fmt.Errorf("no_owner: replica %s has the calls, and requests are not passed on to it without fleet.listen at both", owner.Name)
	}
	return nil
}

// Alike implements server.Fleet.
func (r *replica) Alike() error {
	v, _ := r.member.View()
	if differs(v, v.Find(r.member.ID)) {
		return fmt.Errorf("differ from those of the owner, replica %s, which are in force", v.Find(v.Owner).Name)
	}
	return nil
}

// Lease implements server.Fleet.
func (r *replica) Lease() time.Duration {
	if term := r.term.Load(); term != nil {
		return term.Lease()
	}
	return 0
}
