package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// The engine stands in for the server in simulations: it speaks its protocol over connections in memory, so that the
// program's own code runs, with its driver. Its transactions are serialisable. It knows no SQL: each statement of the
// program is a function here, found by the beginning of its text (sim_sql_test.go). Tests with a real server hold that the
// texts do the same.

// A link is a connection between a process and the engine. Side 0 is the process.
type link struct {
	mu       sync.Mutex
	cond     *sync.Cond
	data     [2][]byte // that a side has yet to read
	closed   [2]bool   // by a side
	silent   bool      // the process has died, and the engine does not hear of it
	held     bool      // nothing gets through
	deadline [2]time.Time
	timer    [2]*time.Timer
}

// A linkEnd is one of the two ends of a link.
type linkEnd struct {
	*link
	side int
	p    *process // of side 0
}

func newLink(p *process) (client, server *linkEnd) {
	l := &link{}
	l.cond = sync.NewCond(&l.mu)
	return &linkEnd{l, 0, p}, &linkEnd{l, 1, nil}
}

func (e *linkEnd) Read(b []byte) (n int, err error) {
	n, err = e.read(b)
	if e.p != nil {
		e.p.awake()
	}
	return n, err
}

func (e *linkEnd) read(b []byte) (n int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for {
		switch at := e.deadline[e.side]; {
		case e.closed[e.side]:
			return 0, net.ErrClosed
		case !at.IsZero() && !time.Now().Before(at):
			return 0, os.ErrDeadlineExceeded
		case e.held:
		case len(e.data[e.side]) > 0:
			n = copy(b, e.data[e.side])
			e.data[e.side] = e.data[e.side][n:]
			return n, nil
		case e.closed[1-e.side] && !e.silent:
			return 0, io.EOF
		}
		e.cond.Wait()
	}
}

func (e *linkEnd) Write(b []byte) (n int, err error) {
	if e.p != nil {
		e.p.awake()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.closed[e.side]:
		return 0, net.ErrClosed
	case e.closed[1-e.side] && !e.held:
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	e.data[1-e.side] = append(e.data[1-e.side], b...)
	e.cond.Broadcast()
	return len(b), nil
}

func (e *linkEnd) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed[e.side] = true
	for i := range e.timer {
		if e.timer[i] != nil && i == e.side {
			e.timer[i].Stop()
		}
	}
	e.cond.Broadcast()
	return nil
}

func (e *linkEnd) SetDeadline(t time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer[e.side] != nil {
		e.timer[e.side].Stop()
		e.timer[e.side] = nil
	}
	switch e.deadline[e.side] = t; {
	case t.IsZero():
	case time.Until(t) <= 0: // no timer: with -race, Go 1.26 crashes if two goroutines of a bubble run one at once
		e.cond.Broadcast()
	default:
		e.timer[e.side] = time.AfterFunc(time.Until(t), e.wake)
	}
	return nil
}

func (l *link) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cond.Broadcast()
}

func (l *link) hold(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.cond.Broadcast()
}

type simAddr struct{}

func (simAddr) Network() string { return "tcp" }
func (simAddr) String() string  { return "127.0.0.1:5432" }

func (e *linkEnd) SetReadDeadline(t time.Time) error  { return e.SetDeadline(t) }
func (e *linkEnd) SetWriteDeadline(t time.Time) error { return nil }
func (e *linkEnd) LocalAddr() net.Addr                { return simAddr{} }
func (e *linkEnd) RemoteAddr() net.Addr               { return simAddr{} }

// A callRow is a row of calls. It is replaced, never changed.
type callRow struct {
	columns.Row
	request, response *columns.Content // nil: not kept
}

type keyRow struct {
	fingerprint string
	seq, until  int64
	endedBy     any
}

type untoldRow struct {
	seq, failures int64
	at            any
}

// Tables are those that are changed under the fence.
type tables struct {
	epoch, first, number int64
	generation, folded   int64
	mark, timeouts       string
	lost                 bool
	noted                int64           // by which notes of losses have moved the number
	outdated             bool            // the last transaction was asked about, and is held back
	doubtful             map[string]bool // arrivals
	calls                map[int64]*callRow
	flights              map[int64]*columns.Row // with the columns of a flight
	keys                 map[string]keyRow
	untold               map[string]untoldRow
	quota                map[int64]*holdRow
}

// A holdRow is a row of quota.
type holdRow struct {
	lease.Hold
	key, why, who []byte
	back, since   int64
	sum           int64
}

func (t *tables) clone() *tables {
	c := *t
	c.calls, c.flights, c.keys = maps.Clone(t.calls), maps.Clone(t.flights), maps.Clone(t.keys)
	c.untold, c.quota, c.doubtful = maps.Clone(t.untold), maps.Clone(t.quota), maps.Clone(t.doubtful)
	return &c
}

// A leaseState is the row of lease.
type leaseState struct {
	leaseRow
	offered time.Time
}

type arrival struct {
	id, upstream string
	columns      []any
}

// A state is what has been committed. It is replaced, never changed.
type state struct {
	lease    leaseState
	tables   *tables
	arrivals []arrival
}

// A transaction has what it changes.
type transaction struct {
	explicit, failed bool
	base             *state // of a repeatable read
	lease            *leaseState
	tables           *tables
	taken            map[string]bool // ids of arrivals
	loss             bool            // it notes that commits are lost
	notices          []string
}

// A claimed term.
type claimed struct {
	epoch, era, commit int
	at                 time.Time
}

// An engine is the server.
type engine struct {
	t *testing.T

	mu                                                  sync.Mutex
	cond                                                *sync.Cond
	r, r2                                               *rand.Rand
	faults                                              bool
	down                                                bool
	state                                               *state
	history                                             []*state // of its commits
	synced                                              int      // a standby has the commits up to this one
	era                                                 int      // how many times confirmed commits were lost
	powerless                                           bool     // replicas cannot end sessions of each other
	pooled                                              bool     // nor those of their own: a pooler has other names
	asynchronous                                        bool     // its standbys: the one that takes its place may lack confirmed commits
	registry                                            map[string]*Replica
	seen                                                map[string]time.Time
	sessions                                            map[*session]bool
	owners                                              map[string]*session // of locks: lease, fence
	running                                             sync.WaitGroup
	beside                                              sync.WaitGroup // outages
	terms                                               []claimed
	lost                                                map[string]bool // writers that have lost confirmed commits, by process and epoch
	exempt                                              map[string]bool // targets of calls about which confirmed commits were lost
	targets                                             map[int64]string
	arrivals                                            int64
	connections, commits, warnings, restores, regresses int
}

func newEngine(t *testing.T, r *rand.Rand) *engine {
	e := &engine{t: t, r: r, powerless: r.IntN(4) == 0, pooled: r.IntN(4) == 0, state: &state{tables: &tables{
		calls: map[int64]*callRow{}, flights: map[int64]*columns.Row{}, keys: map[string]keyRow{}, untold: map[string]untoldRow{}, quota: map[int64]*holdRow{},
	}}, registry: map[string]*Replica{}, seen: map[string]time.Time{}, sessions: map[*session]bool{}, owners: map[string]*session{},
		lost: map[string]bool{}, exempt: map[string]bool{}, targets: map[int64]string{}}
	e.cond = sync.NewCond(&e.mu)
	e.history = []*state{e.state}
	return e
}

// chance draws whether a fault occurs that has a chance of one in n.
func (e *engine) chance(n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults && e.r.IntN(n) == 0
}

func (e *engine) random(d time.Duration) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(e.r.Int64N(int64(d)))
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// dial connects a process.
func (e *engine) dial(ctx context.Context, p *process) (net.Conn, error) {
	p.awake()
	e.mu.Lock()
	down, hangs := e.down, e.down && e.r.IntN(2) == 0
	e.mu.Unlock()
	switch {
	case p.isDead():
		return nil, errRefused
	case p.isCut(), hangs:
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	case down:
		return nil, errRefused
	}
	client, server := newLink(p)
	if !p.connected(client) {
		return nil, errRefused
	}
	s := &session{e: e, p: p, end: server, prepared: make(map[string]*statement)}
	s.be = pgproto3.NewBackend(server, &s.out)
	e.mu.Lock()
	e.connections++
	s.n = e.connections
	e.sessions[s] = true
	e.mu.Unlock()
	e.running.Go(s.run)
	return client, nil
}

// stop ends all sessions. No process goes on.
func (e *engine) stop() {
	e.mu.Lock()
	e.killAll()
	e.down = true
	e.mu.Unlock()
	e.running.Wait()
}

func (e *engine) killAll() {
	for _, s := range e.all() {
		s.kill()
	}
}

// all returns the sessions, the oldest first.
func (e *engine) all() []*session {
	return slices.SortedFunc(maps.Keys(e.sessions), func(a, b *session) int { return a.n - b.n })
}

// outage takes the server away for some time. It keeps its commits, unless a standby takes its place: that has all those
// whose wait for it was not cut short, and of the others the first ones. If it is an asynchronous one, it may lack more.
func (e *engine) outage(d time.Duration, standby, asynchronous bool) {
	e.mu.Lock()
	if e.down {
		e.mu.Unlock()
		return
	}
	e.down = true
	e.killAll()
	if standby {
		from := e.synced
		if asynchronous {
			from = max(0, from-e.r.IntN(8))
		}
		e.restore(from + e.r.IntN(len(e.history)-from))
	}
	e.mu.Unlock()
	time.Sleep(d)
	e.mu.Lock()
	e.down = false
	e.mu.Unlock()
}

// failOver lets a synchronous standby take over soon.
func (e *engine) failOver(within time.Duration) {
	d, after := time.Duration(e.r.Int64N(int64(time.Second))), time.Duration(e.r.Int64N(int64(within)))
	e.beside.Go(func() {
		time.Sleep(after)
		e.outage(d, true, false)
	})
}

// loseTerm puts the server back to before the begin of the last term.
func (e *engine) loseTerm() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killAll()
	e.restore(e.terms[len(e.terms)-1].commit - 1)
}

// follow lets a standby that has all commits take the place of the server.
func (e *engine) follow() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.killAll()
	e.restore(len(e.history) - 1)
}

// restore puts the state back.
func (e *engine) restore(to int) {
	before, after := e.state, e.history[to]
	e.restores++
	e.terms = slices.DeleteFunc(e.terms, func(c claimed) bool { return c.commit > to })
	if to < e.synced {
		e.regresses++
		e.era = e.regresses
		// The writer knows of each of its commits but the last one, which may be in doubt. That counts twice if it was asked about.
		was, is := before.tables, after.tables
		last := int64(1)
		if was.outdated {
			last = 2
		}
		if was.epoch == is.epoch && was.number-is.number-(was.noted-is.noted) > last || was.epoch > is.epoch && was.number-was.first-was.noted >= last {
			e.lost[fmt.Sprint(before.lease.owner, " ", was.epoch)] = true
		}
		for seq, target := range e.targets {
			if before.tables.calls[seq] != after.tables.calls[seq] || before.tables.flights[seq] != after.tables.flights[seq] {
				e.exempt[target] = true
			}
		}
	}
	e.state, e.history, e.synced = after, e.history[:to+1], min(to, e.synced)
}

// submit hands a call over, as the function of that name does.
func (e *engine) submit(upstream, method, target, key string, body []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.down {
		return false
	}
	e.arrivals++
	id := fmt.Sprintf("%08x-%04x-7000-8000-%012x", time.Now().UnixMilli()>>16, time.Now().UnixMilli()&0xffff, e.arrivals)
	next := *e.state
	next.arrivals = append(next.arrivals[:len(next.arrivals):len(next.arrivals)], arrival{id, upstream, []any{
		id, upstream, method, target, []byte("{}"), body, key, nil, nil, int64(0), "", "clerk"}})
	e.put(&next, true)
	if e.r.IntN(4) > 0 { // else a pooler drops it
		e.notify("arrival")
	}
	return true
}

// put makes a state the committed one.
func (e *engine) put(next *state, confirmed bool) {
	e.state = next
	e.history = append(e.history, next)
	e.commits++
	if confirmed {
		e.synced = len(e.history) - 1
	}
}

// A session serves one connection. Its fields are those of its goroutine, but dead and tx, which are under the engine's mutex.
type session struct {
	n        int
	e        *engine
	p        *process
	end      *linkEnd
	be       *pgproto3.Backend
	app      string
	idle     time.Duration // in a transaction
	prepared map[string]*statement
	bound    *statement
	args     []any
	formats  []int16
	skip     bool // messages, until the next Sync
	lossy    bool // nothing is decided by its commits
	listens  bool
	out      bytes.Buffer

	dead      bool
	tx        *transaction
	committed int // the commit in history that the next answer confirms
}

var errKilled = errors.New("the session was ended")

// kill ends a session at once. The engine's mutex is locked.
func (s *session) kill() {
	if s.dead {
		return
	}
	s.dead = true
	s.rollback()
	delete(s.e.sessions, s)
	s.end.Close()
	s.e.cond.Broadcast()
}

func (s *session) rollback() {
	s.tx = nil
	for name, owner := range s.e.owners {
		if owner == s {
			delete(s.e.owners, name)
		}
	}
	s.e.cond.Broadcast()
}

// lock waits for a row. The engine's mutex is locked.
func (s *session) lock(name string) error {
	for s.e.owners[name] != nil && s.e.owners[name] != s && !s.dead {
		s.e.cond.Wait()
	}
	if s.dead {
		return errKilled
	}
	s.e.owners[name] = s
	return nil
}

// run serves the connection until it or the session ends.
func (s *session) run() {
	defer func() {
		s.e.mu.Lock()
		defer s.e.mu.Unlock()
		s.kill()
	}()
	if !s.start() {
		return
	}
	for s.request() == nil {
	}
}

func (s *session) start() bool {
	for {
		m, err := s.be.ReceiveStartupMessage()
		if err != nil {
			return false
		}
		switch m := m.(type) {
		case *pgproto3.StartupMessage:
			s.app, s.lossy = m.Parameters["application_name"], m.Parameters["synchronous_commit"] == "off"
			fmt.Sscan(m.Parameters["idle_in_transaction_session_timeout"], &s.idle)
			s.idle *= time.Millisecond
			if !s.delay() {
				return false
			}
			s.be.Send(&pgproto3.AuthenticationOk{})
			s.be.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
			s.be.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
			s.be.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
			return s.reply() == nil
		case *pgproto3.SSLRequest:
			if _, err := s.end.Write([]byte{'N'}); err != nil {
				return false
			}
		default:
			return false
		}
	}
}

// delay waits as long as a message is on its way; false if the session ended meanwhile.
func (s *session) delay() bool {
	d := s.e.random(4 * time.Millisecond)
	switch {
	case s.e.chance(150):
		d = s.e.random(time.Second)
	case s.e.chance(200):
		d = s.e.random(8 * time.Second)
	}
	if slow := s.p.slowness(); slow > 0 {
		d += s.e.random(slow)
	}
	time.Sleep(d)
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	return !s.dead
}

// request serves the messages up to the next Sync, or a simple query.
func (s *session) request() error {
	s.e.mu.Lock()
	if s.end.SetDeadline(time.Time{}); s.tx != nil && s.idle > 0 {
		s.end.SetDeadline(time.Now().Add(s.idle))
	}
	s.e.mu.Unlock()
	first := true
	for {
		m, err := s.be.Receive()
		if err != nil {
			return err
		}
		if first {
			first = false
			before, after := s.p.trip()
			if s.lossy {
				before, after = false, false
			}
			if before || s.e.chance(300) { // the request does not come
				if before {
					s.p.kill()
				}
				return errKilled
			}
			if after {
				defer s.p.kill()
			}
			if !s.delay() {
				return errKilled
			}
		}
		done, err := s.handle(m)
		if err != nil {
			return err
		}
		if done {
			return s.reply()
		}
	}
}

// reply sends the answer, unless it is lost, or a part of it.
func (s *session) reply() error {
	status := byte('I')
	s.e.mu.Lock()
	if s.tx != nil && s.tx.failed {
		status = 'E'
	} else if s.tx != nil {
		status = 'T'
	}
	s.e.mu.Unlock()
	s.be.Send(&pgproto3.ReadyForQuery{TxStatus: status})
	time.Sleep(s.p.tardiness())
	if err := s.be.Flush(); err != nil || !s.delay() {
		return errKilled
	}
	text := s.out.Bytes()
	s.out.Reset()
	if s.e.chance(250) || s.committed > 0 && s.e.chance(60) { // the connection is cut at some byte
		s.end.Write(text[:s.e.random(time.Duration(len(text)))])
		if s.committed > 0 && s.e.chance(2) {
			s.e.mu.Lock()
			s.e.failOver(200 * time.Millisecond)
			s.e.mu.Unlock()
		}
		return errKilled
	}
	s.e.mu.Lock()
	if !s.dead && s.committed > s.e.synced {
		s.e.synced = s.committed
	}
	s.committed = 0
	s.e.mu.Unlock()
	_, err := s.end.Write(text)
	return err
}

// handle serves a message; done if it ends a request.
func (s *session) handle(m pgproto3.FrontendMessage) (done bool, err error) {
	if _, sync := m.(*pgproto3.Sync); s.skip && !sync {
		return false, nil
	}
	switch m := m.(type) {
	case *pgproto3.Parse:
		st, err := statementOf(m.Query)
		if err != nil {
			s.e.t.Error(err)
			return false, err
		}
		s.prepared[m.Name] = st
		s.be.Send(&pgproto3.ParseComplete{})
	case *pgproto3.Describe:
		st := s.bound
		if m.ObjectType == 'S' {
			st = s.prepared[m.Name]
			s.be.Send(&pgproto3.ParameterDescription{ParameterOIDs: oids(st.params)})
		}
		s.describe(st)
	case *pgproto3.Bind:
		s.bound = s.prepared[m.PreparedStatement]
		s.formats = append(s.formats[:0], m.ResultFormatCodes...)
		s.args = decodeArgs(s.bound.params, m.ParameterFormatCodes, m.Parameters)
		s.be.Send(&pgproto3.BindComplete{})
	case *pgproto3.Execute:
		return false, s.execute(s.bound, s.args)
	case *pgproto3.Close:
		delete(s.prepared, m.Name)
		s.be.Send(&pgproto3.CloseComplete{})
	case *pgproto3.Query:
		st, err := statementOf(m.String)
		if err != nil {
			s.e.t.Error(err)
			return false, err
		}
		s.formats = nil
		if st.cols != "" {
			s.describe(st)
		}
		if err := s.execute(st, nil); err != nil {
			return false, err
		}
		s.endImplicit()
		s.skip = false
		return true, nil
	case *pgproto3.Sync:
		s.endImplicit()
		s.skip = false
		return true, nil
	case *pgproto3.Terminate:
		return false, io.EOF
	default:
		err = fmt.Errorf("the engine does not know the message %T", m)
		s.e.t.Error(err)
		return false, err
	}
	return false, nil
}

// endImplicit commits what was not in a transaction of the client's.
func (s *session) endImplicit() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.tx != nil && !s.tx.explicit {
		if s.tx.failed {
			s.rollback()
		} else {
			s.commit()
		}
	}
}

func (s *session) describe(st *statement) {
	if st.cols == "" {
		s.be.Send(&pgproto3.NoData{})
		return
	}
	d := &pgproto3.RowDescription{}
	for i, oid := range oids(st.cols) {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{Name: []byte(fmt.Sprint("c", i)), DataTypeOID: oid, DataTypeSize: -1, TypeModifier: -1})
	}
	s.be.Send(d)
}

// A sqlError is an error of the server.
type sqlError struct{ code, text string }

func (e *sqlError) Error() string { return e.text }

// execute runs a statement. Its error ends the session; one of the server's is sent.
func (s *session) execute(st *statement, args []any) error {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.dead {
		return errKilled
	}
	rows, n, err := s.statement(st, args)
	if st.cols == "" {
		rows = nil
	}
	var refused *sqlError
	switch {
	case s.dead:
		return errKilled
	case errors.As(err, &refused):
		if s.tx != nil {
			s.tx.failed = true
		}
		s.skip = true
		s.be.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: refused.code, Message: refused.text})
		return nil
	case err != nil:
		return err
	}
	for _, row := range rows {
		s.be.Send(&pgproto3.DataRow{Values: encodeRow(st.cols, s.formats, row)})
	}
	switch {
	case st.begins == "":
		s.be.Send(&pgproto3.EmptyQueryResponse{})
	case rows != nil || st.cols != "" && st.verb == "SELECT":
		s.be.Send(&pgproto3.CommandComplete{CommandTag: []byte(fmt.Sprint(st.verb, " ", len(rows)))})
	case st.verb == "INSERT":
		s.be.Send(&pgproto3.CommandComplete{CommandTag: []byte(fmt.Sprint("INSERT 0 ", n))})
	case st.verb == "UPDATE", st.verb == "DELETE":
		s.be.Send(&pgproto3.CommandComplete{CommandTag: []byte(fmt.Sprint(st.verb, " ", n))})
	default:
		s.be.Send(&pgproto3.CommandComplete{CommandTag: []byte(st.verb)})
	}
	return nil
}

func (s *session) statement(st *statement, args []any) (rows [][]any, n int64, err error) {
	switch strings.ToUpper(st.begins) {
	case "BEGIN":
		s.tx = &transaction{explicit: true}
		if strings.Contains(st.text, "repeatable read") {
			s.tx.base = s.e.state
		}
		return nil, 0, nil
	case "ROLLBACK":
		s.rollback()
		return nil, 0, nil
	case "COMMIT":
		if s.tx == nil || s.tx.failed {
			s.rollback()
			return nil, 0, &sqlError{"25P02", "the transaction has failed"}
		}
		s.commit()
		return nil, 0, nil
	case "":
		return nil, 0, nil
	}
	if s.tx == nil {
		s.tx = &transaction{}
	}
	if s.tx.failed {
		return nil, 0, &sqlError{"25P02", "current transaction is aborted"}
	}
	return st.run(s, args)
}

// view returns what the session reads.
func (s *session) view() (v state) {
	if s.tx != nil && s.tx.base != nil {
		return *s.tx.base
	}
	v = *s.e.state
	if s.tx != nil && s.tx.lease != nil {
		v.lease = *s.tx.lease
	}
	if s.tx != nil && s.tx.tables != nil {
		v.tables = s.tx.tables
	}
	return v
}

// change returns the tables for a change. The session has the fence.
func (s *session) change() (*tables, error) {
	if err := s.lock("fence"); err != nil {
		return nil, err
	}
	if s.tx.tables == nil {
		s.tx.tables = s.e.state.tables.clone()
	}
	return s.tx.tables, nil
}

// changeLease returns the row of lease for a change.
func (s *session) changeLease() (*leaseState, error) {
	if err := s.lock("lease"); err != nil {
		return nil, err
	}
	if s.tx.lease == nil {
		row := s.e.state.lease
		s.tx.lease = &row
	}
	return s.tx.lease, nil
}

// commit makes the transaction of the session the state. A warning tells that a standby may lack it.
func (s *session) commit() {
	tx := s.tx
	next := *s.e.state
	if tx.lease != nil {
		if tx.lease.epoch != next.lease.epoch && !tx.loss {
			delete(s.e.lost, fmt.Sprint(tx.lease.owner, " ", tx.lease.epoch))
			s.e.terms = append(s.e.terms, claimed{int(tx.lease.epoch), s.e.era, len(s.e.history), time.Now()})
		}
		next.lease = *tx.lease
	}
	switch {
	case tx.tables != nil && tx.loss: // any replica notes it
		next.tables = tx.tables
	case tx.tables != nil:
		next.tables = tx.tables
		if l := s.e.state.lease; tx.lease == nil && (l.owner != s.p.id() || l.epoch != tx.tables.epoch) {
			s.e.t.Errorf("FENCE: %s writes in term %d; term %d is that of %s", s.p.name, tx.tables.epoch, l.epoch, l.name)
		}
		if tx.lease == nil && s.e.lost[fmt.Sprint(s.p.id(), " ", tx.tables.epoch)] {
			s.e.t.Errorf("REGRESS: %s goes on in term %d after confirmed commits were lost", s.p.name, tx.tables.epoch)
		}
	}
	if len(tx.taken) > 0 {
		next.arrivals = nil
		for _, a := range s.e.state.arrivals {
			if !tx.taken[a.id] {
				next.arrivals = append(next.arrivals, a)
			}
		}
	}
	if tx.lease != nil || tx.tables != nil {
		warns := s.e.faults && s.e.r.IntN(25) == 0
		s.e.put(&next, false)
		if s.committed = len(s.e.history) - 1; warns {
			s.committed = 0
			s.e.warnings++
			if s.e.r.IntN(3) == 0 { // that is why the wait was cut short
				s.e.failOver(20 * time.Millisecond)
			}
			s.be.Send(&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Message: "canceling wait for synchronous replication"})
		}
	}
	s.rollback() // frees the locks
	for _, payload := range tx.notices {
		s.e.notify(payload)
	}
}

// notify tells the sessions that listen.
func (e *engine) notify(payload string) {
	m := &pgproto3.NotificationResponse{PID: 1, Channel: "throttler", Payload: payload}
	text, _ := m.Encode(nil)
	for _, s := range e.all() {
		if s.listens {
			s.end.Write(text)
		}
	}
}

func (e *engine) setFaults(on bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults = on
}

func (e *engine) isDown() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.down
}

func (e *engine) isExempt(target string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exempt[target]
}

// eraOf returns the era in which a term was claimed last.
func (e *engine) eraOf(epoch int) (era int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.terms {
		if c.epoch == epoch {
			era = c.era
		}
	}
	return era
}

func (e *engine) wasRestored() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.restores > 0
}
