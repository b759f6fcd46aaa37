package postgres

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

// A Member is a replica in the registry of its fleet. It looks at the fleet six times in a lease, and
// claims the calls when it is told to. It is safe for concurrent use.
type Member struct {
	ID string

	o       Options
	codec   *columns.Codec
	pool    *pgxpool.Pool
	config  *pgx.ConnConfig
	place   string
	trips   *tripCounter
	stop    context.CancelFunc
	running sync.WaitGroup
	noticed chan struct{} // has an element when a notice of arrivals has come since the last wait for one

	mu      sync.Mutex
	limits  string // hash of them
	last    int64  // epoch of the last term of this member
	seen    sight
	changed chan struct{} // closed at the next sight
}

// Join connects to the server that a URL or a list of settings names, as libpq has them, and enters the
// replica into the registry. It fails if the server may lose commits, or if the schema was made by a newer program.
func Join(ctx context.Context, url string, o Options) (*Member, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	codec, err := columns.NewCodec(o.SealKey)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	config, err := parse(url, o)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(o.Address, ":") {
		o.Address = local(config.ConnConfig) + o.Address
	}
	m, err := newMember(ctx, config, codec, o)
	if err != nil {
		return nil, err
	}
	if err := m.prepare(ctx); err != nil {
		m.pool.Close()
		return nil, fmt.Errorf("postgres: %s: %w", m.place, explain(err))
	}
	m.start(ctx)
	return m, nil
}

// newMember returns a replica that is not in the registry yet.
func newMember(ctx context.Context, config *pgxpool.Config, codec *columns.Codec, o Options) (m *Member, err error) {
	trips := &tripCounter{}
	config.ConnConfig.Tracer = trips
	m = &Member{ID: uuid.NewString(), o: o, limits: o.Config, trips: trips, codec: codec, config: config.ConnConfig, place: place(config.ConnConfig), noticed: make(chan struct{}, 1), changed: make(chan struct{})}
	if m.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("postgres: %s: %w", m.place, err)
	}
	return m, nil
}

// start enters the replica into the registry, and lets it look at its fleet until it leaves.
func (m *Member) start(ctx context.Context) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	m.stop = stop
	m.running.Go(func() { m.run(watching) })
}

// prepare makes the schema, and binds the codec to the store.
func (m *Member) prepare(ctx context.Context) error {
	warning, err := check(ctx, m.pool)
	if err != nil {
		return err
	}
	if warning != "" {
		m.o.Log.Warn(warning)
	}
	if err := migrate(ctx, m.config); err != nil {
		return err
	}
	return bind(ctx, m.pool, m.codec)
}

// Leave takes the replica out of the registry. A store of [Member.Claim] is closed before.
func (m *Member) Leave() {
	m.stop()
	m.running.Wait()
	m.pool.Close()
}

// View returns the last look at the fleet, and a channel that is closed after the next one.
func (m *Member) View() (View, <-chan struct{}) {
	s, next := m.sight()
	return s.View, next
}

func (m *Member) sight() (sight, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen, m.changed
}

// Configured changes the hash of the replica's limits, which the others compare, after a reload.
func (m *Member) Configured(hash string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limits = hash
}

// run looks at the fleet until ctx ends.
func (m *Member) run(ctx context.Context) {
	var conn *pgx.Conn
	var w watch
	var last position // of the store, as it was seen
	namesake := false // it was told of
	away := false     // the server, and it was told of
	defer func() {
		ending, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if conn != nil {
			conn.Close(ending)
		}
		m.pool.Exec(ending, "DELETE FROM replicas WHERE id = $1", m.ID) // else it is forgotten later
	}()
	for {
		last = m.atLeast(last) // before the look, which may be older than a term that begins meanwhile
		s, err := m.look(ctx, &conn)
		if ctx.Err() != nil {
			return
		}
		if err == nil && s.row.committed.before(last) {
			err = m.regressed(ctx, conn, last, s.row.committed)
		}
		if err == nil {
			last = s.row.committed
		}
		if away != (err != nil) {
			away = err != nil
			m.tellAway(err)
		}
		if err != nil {
			w.sees(time.Now(), nil)
			last, _ := m.sight()
			s.View, s.known = last.View, last.known
		} else {
			s.silent = w.sees(time.Now(), &s.row)
			s.still = time.Since(w.since)
			namesake = namesake || m.warnOfNamesake(&s)
			if s.joined { // the owner takes requests of a replica that it has seen
				m.running.Go(func() { m.notify(ctx) })
			}
		}
		s.err = err
		m.tell(s)
		m.rest(ctx, conn)
	}
}

// atLeast returns the later one of a transaction and the begin of this replica's last term.
func (m *Member) atLeast(seen position) position {
	m.mu.Lock()
	defer m.mu.Unlock()
	if begin := (position{epoch: m.last}); seen.before(begin) {
		return begin
	}
	return seen
}

// regressed notes that the server has lost commits which this replica has seen.
func (m *Member) regressed(ctx context.Context, conn *pgx.Conn, had, has position) error {
	ctx, cancel := context.WithTimeout(ctx, m.o.Lease)
	defer cancel()
	if err := noteLoss(ctx, conn, had.epoch); err != nil {
		return err
	}
	m.o.Log.Error("the next owner makes the calls that wait unknown", "err", errRegressed, "term", has.epoch, "transaction", has.number, "seen_term", had.epoch, "seen_transaction", had.number)
	return nil
}

// tellAway logs that the registry cannot be read, or can be read again.
func (m *Member) tellAway(err error) {
	if err != nil {
		m.o.Log.Warn("the registry of the fleet cannot be read; this replica does not claim the calls until it can", "server", m.place, "err", explain(err))
	} else {
		m.o.Log.Info("the registry of the fleet can be read again", "server", m.place)
	}
}

// warnOfNamesake warns, and reports true, if another replica has this one's name and was heard of after this one has
// joined: a life before this one, of the same process, was not.
func (m *Member) warnOfNamesake(s *sight) bool {
	self := s.Find(m.ID)
	for _, r := range s.Replicas {
		if r.Name == m.o.Name && r.ID != m.ID && self != nil && r.heard.After(self.Joined) {
			m.o.Log.Warn("another replica that lives has the name of this one, and commands cannot tell them apart; give each a name of its own (fleet.name)", "replica", m.o.Name)
			return true
		}
	}
	return false
}

// tell puts a sight in place of the last one.
func (m *Member) tell(s sight) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.n = m.seen.n + 1
	m.seen = s
	close(m.changed)
	m.changed = make(chan struct{})
}

// rest waits for the next look: a sixth of a lease, or until a notice about the fleet comes. Notices of arrivals need no
// look: it passes them on to the [inbox], which a replica that is not the owner does not have yet.
func (m *Member) rest(ctx context.Context, conn *pgx.Conn) {
	bounded, cancel := context.WithTimeout(ctx, m.o.Lease/beats)
	defer cancel()
	if conn == nil || conn.IsClosed() {
		<-bounded.Done()
		return
	}
	for {
		n, err := conn.WaitForNotification(bounded)
		if err != nil {
			<-bounded.Done() // the connection may have broken before
			return
		}
		if n.Payload == fleetNotice {
			break
		}
		select {
		case m.noticed <- struct{}{}:
		default: // the next pass has these, too
		}
	}
	ended, end := context.WithCancel(ctx)
	end()
	for { // one look is enough for those that have come meanwhile
		if _, err := conn.WaitForNotification(ended); err != nil {
			return
		}
	}
}

// sendNotice sends a notice to the replicas. At one with the payload fleetNotice, about the term or the registry, they look at the
// fleet; those about arrivals come from the function submit. A notice is sent after the commit that it tells of: the server refuses
// the commit of a notice while its queue is full.
const (
	sendNotice  = "SELECT pg_notify('throttler', $1)"
	fleetNotice = "term" // as the first version has it
)

// notify lets the replicas look at the fleet at once. Without it they look a little later.
func (m *Member) notify(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, m.o.Lease)
	defer cancel()
	_, _ = m.pool.Exec(ctx, sendNotice, fleetNotice)
}

// Claim begins a term, and returns the store of its calls. It waits until the last term has ended, or its
// owner is silent for longer than its lease; without Options.Wait not for longer than a lease and a half.
func (m *Member) Claim(ctx context.Context) (*DB, error) {
	begun, told, away := time.Now(), false, false
	for {
		s, next := m.sight()
		switch {
		case s.err != nil && !isAway(s.err):
			return nil, fmt.Errorf("postgres: %s: %w", m.place, explain(s.err))
		case s.err == nil && s.known && m.mayTake(&s):
			won, err := take(ctx, m.pool, s.row, m)
			switch {
			case won != nil:
				return m.begin(won), nil
			case err != nil && !isAway(err) && ctx.Err() == nil:
				return nil, fmt.Errorf("postgres: %s: %w", m.place, explain(err))
			case err != nil:
				if !away && ctx.Err() == nil {
					away = true
					m.o.Log.Warn("this replica may have the calls, and cannot claim them; it tries again", "err", explain(err))
				}
				m.pool.Reset() // its idle connections may be to a server that is gone
			}
		}
		if limit := 3*max(s.Lease, m.o.Lease)/2 + time.Second; !m.o.Wait && time.Since(begun) > limit {
			return nil, fmt.Errorf("postgres: %s: replica %q has the calls, and lives; stop it first, or wait for its end (Options.Wait)", m.place, s.Name)
		}
		if !told && s.err == nil && s.Owner != "" && m.o.Wait {
			told = true
			m.o.Log.Info("another replica has the calls; this one waits for its end", "replica", s.Name, "lease", s.Lease.String())
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// mayTake reports whether the term has ended, and this replica may have the next one: the one that
// an operator has named comes before the others, for a lease.
func (m *Member) mayTake(s *sight) bool {
	free := s.Owner == "" || s.row.exited || s.silent
	if !free || s.Next == "" || s.row.offered > s.Lease {
		return free
	}
	if s.Next == anyReplica {
		m.mu.Lock()
		defer m.mu.Unlock()
		return s.Epoch != m.last
	}
	named := s.named(s.Next)
	return s.Next == m.o.Name || named == nil || named.Silence > s.Lease
}

// begin starts the goroutines of a term.
func (m *Member) begin(won *term) *DB {
	m.mu.Lock()
	m.last = won.epoch
	m.mu.Unlock()
	d := &DB{
		ended:  make(chan struct{}),
		reader: &reader{db: m.pool, codec: m.codec, failure: newFailure(m.place), keepKeys: m.o.KeepKeys},
		clock:  columns.Clock{Start: time.Now(), Boot: columns.MachineClock},
	}
	switch {
	case won.follows && won.exited:
		m.o.Log.Warn("the last owner of the calls has ended without a word, and its process is known to have ended", "replica", won.before)
	case won.follows:
		d.after = time.Now()
		m.o.Log.Warn("the last owner of the calls has ended without a word, or is cut off; short limits hold back until its attempts cannot count any more", "replica", won.before)
	}
	d.tenure = newTenure(won, m.o, m.config, d.failure)
	d.writer = newWriter(won, m.config, m.o, d.clock, m.codec, d.failure)
	d.tenure.compare = d.writer.compare
	d.inbox = &inbox{reader: d.reader, member: m, writer: d.writer}
	d.beside.Go(func() { m.notify(context.Background()) }) // the others pass requests on to this one
	d.beside.Go(d.tenure.run)
	d.beside.Go(d.writer.run)
	d.beside.Go((&sweeper{writer: d.writer, keepCalls: m.o.KeepCalls, keepKeys: m.o.KeepKeys, keepAudit: m.o.KeepAudit}).run)
	return d
}

// local returns the address of this host on the way to the server.
func local(c *pgx.ConnConfig) string {
	conn, err := net.Dial("udp", net.JoinHostPort(c.Host, fmt.Sprint(c.Port))) // it sends nothing
	if err != nil {
		return "127.0.0.1" // the server is at a socket
	}
	defer conn.Close()
	host, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host
}
