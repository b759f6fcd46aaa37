package server

import (
	"context"
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Fleet is the replicas that serve from one store, as one of them sees it.
type Fleet interface {
	// View returns the replicas.
	View() api.Fleet
	// Move asks the owner to hand the calls over to the replica with a name; empty: to any other one. The audit gets the record,
	// whose subject the fleet fills in, also if no replica has the calls.
	Move(ctx context.Context, to string, record scheduler.AuditRecord) error
	// Bury states that the process of the replica with a name has ended, as Move does.
	Bury(ctx context.Context, name string, record scheduler.AuditRecord) error
	// Ready returns the reason why this replica should get no traffic; nil if it should.
	Ready() error
	// Alike returns an error if the limits of this replica are not those of the owner. It takes requests all the same.
	Alike() error
	// Lease returns how much is left of the lease of this replica; 0 if it does not have the calls.
	Lease() time.Duration
}

func getFleet(a *Admin, _ request[none]) (*api.Fleet, error) {
	if a.Fleet != nil {
		v := a.Fleet.View()
		return &v, nil
	}
	info := a.Info()
	return &api.Fleet{At: api.At(time.Now()), Replicas: []api.Replica{{ID: "self", Name: "self", Version: info.Version, JoinedAt: info.StartedAt, Owner: true, Self: true}}}, nil
}

func moveCalls(a *Admin, r request[api.Move]) (*api.Fleet, error) {
	var in api.Move
	if len(r.bytes) > 0 {
		var f *faults
		in, f = r.body()
		checkReason(in.Reason, f)
		if err := f.err(); err != nil {
			return nil, err
		}
	}
	return changeFleet(a, r.Request, scheduler.AuditRecord{Action: "move", After: in.To, Reason: in.Reason}, func(record scheduler.AuditRecord) error {
		return a.Fleet.Move(r.Context(), in.To, record)
	})
}

func buryReplica(a *Admin, r request[api.Burial]) (*api.Fleet, error) {
	in, f := r.body()
	if !f.empty {
		if in.Replica == "" {
			f.add("/replica", "replica is missing; name the one whose process has ended")
		}
		if !in.ItHasEnded {
			f.add("/it_has_ended", "it_has_ended must be true: a replica that lives and is buried may break limits; look that its process has ended")
		}
		checkReason(in.Reason, f)
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return changeFleet(a, r.Request, scheduler.AuditRecord{Action: "bury", Before: in.Replica, Reason: in.Reason}, func(record scheduler.AuditRecord) error {
		return a.Fleet.Bury(r.Context(), in.Replica, record)
	})
}

// changeFleet makes a change of the fleet, which keeps its record: the scheduler may be that of another replica, or of none.
func changeFleet(a *Admin, r *http.Request, record scheduler.AuditRecord, do func(scheduler.AuditRecord) error) (*api.Fleet, error) {
	if a.Fleet == nil {
		return nil, &scheduler.Error{Reason: scheduler.WrongState, Detail: "the calls are not in a database, so there is one replica; see store: postgres://…"}
	}
	record = recordOf(r, record)
	err := do(record)
	logRecord(a, r, record, err)
	if err != nil {
		return nil, &scheduler.Error{Reason: scheduler.WrongState, Detail: err.Error()}
	}
	v := a.Fleet.View()
	return &v, nil
}
