package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Replica is a process of a fleet, as the registry has it.
type Replica struct {
	ID      string // of this life of the process
	Name    string
	Address string // host:port for other replicas; empty if it has none
	Pin     string // SHA-256 of the public key that it shows there, in hex
	Version string // of its program
	Config  string // hash of its limits; those of the owner count
	Joined  time.Time
	Silence time.Duration // since it was heard of, by the server's clock

	heard time.Time // of it last, by the server's clock
}

// A View is what a member of a fleet knows of it.
type View struct {
	At       time.Time // at which it was seen
	Epoch    int64
	Owner    string // id; empty if no replica has the calls
	Name     string // of the owner
	Next     string // name of the replica that is to have them next; empty for any
	Lease    time.Duration
	Replicas []Replica // by name
}

// Find returns the replica with an id, nil if there is none.
func (v View) Find(id string) *Replica {
	for i := range v.Replicas {
		if v.Replicas[i].ID == id {
			return &v.Replicas[i]
		}
	}
	return nil
}

// A sight is a look of a member at its fleet.
type sight struct {
	View
	n       int64 // counts them
	row     leaseRow
	known   bool          // the fleet was seen once
	silent  bool          // the owner has been silent for longer than its lease
	still   time.Duration // the time in which the owner was seen not to beat
	joined  bool          // the look has entered this replica into the registry
	arrived bool          // calls wait in the table arrivals
	err     error
}

// look makes the replica heard of, and reads the registry: one trip.
func (m *Member) look(ctx context.Context, conn **pgx.Conn) (s sight, err error) {
	ctx, cancel := context.WithTimeout(ctx, m.o.Lease)
	defer cancel()
	if *conn == nil || (*conn).IsClosed() {
		config := m.config.Copy()
		config.RuntimeParams["synchronous_commit"] = "off" // of the registry, by which nothing is decided
		config.ConnectTimeout = min(config.ConnectTimeout, m.o.Lease)
		if *conn, err = pgx.ConnectConfig(ctx, config); err != nil {
			*conn = nil
			return s, err
		}
		if _, err := (*conn).Exec(ctx, "LISTEN throttler"); err != nil {
			(*conn).Close(ctx)
			return s, err
		}
	}
	m.mu.Lock()
	hash := m.limits
	m.mu.Unlock()
	b := &pgx.Batch{}
	b.Queue(`INSERT INTO replicas (id, name, address, pin, version, config) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (id) DO UPDATE SET seen_at = clock_timestamp(), config = excluded.config RETURNING xmax = 0`, // a row that is new
		m.ID, m.o.Name, m.o.Address, m.o.Pin, m.o.Version, hash).QueryRow(func(row pgx.Row) error { return row.Scan(&s.joined) })
	b.Queue("DELETE FROM replicas WHERE seen_at < now() - $1 * interval '1 ms'", forgotten.Milliseconds())
	b.Queue(selectLease).QueryRow(s.row.scan)
	b.Queue(selectReplicas).Query(s.scan)
	b.Queue("SELECT EXISTS (SELECT FROM arrivals WHERE NOT doubtful)").QueryRow(func(row pgx.Row) error { return row.Scan(&s.arrived) })
	if err := (*conn).SendBatch(ctx, b).Close(); err != nil {
		return s, err
	}
	s.At, s.known, s.Epoch, s.Owner, s.Name, s.Next, s.Lease = time.Now(), true, s.row.epoch, s.row.owner, s.row.name, s.row.next, s.row.lease
	return s, nil
}

// forgotten is how long a replica that is not heard of stays in the registry.
const forgotten = 10 * time.Minute

const selectReplicas = `SELECT id, name, address, pin, version, config, joined_at, seen_at, extract(epoch FROM clock_timestamp() - seen_at)::float8 FROM replicas ORDER BY name, joined_at`

// scan reads the rows of selectReplicas.
func (s *sight) scan(rows pgx.Rows) error {
	for rows.Next() {
		var r Replica
		var silence float64
		if err := rows.Scan(&r.ID, &r.Name, &r.Address, &r.Pin, &r.Version, &r.Config, &r.Joined, &r.heard, &silence); err != nil {
			return err
		}
		r.Silence = time.Duration(silence * float64(time.Second))
		s.Replicas = append(s.Replicas, r)
	}
	return rows.Err()
}
