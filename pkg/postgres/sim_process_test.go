package postgres

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A sent is a request that the platform has got.
type sent struct {
	path, key  string
	epoch, era int
	at         time.Time // of the first byte
	arrival    *time.Time
}

// A judge is the platform: it counts arrivals and executions by itself, and executes a repeat that it recognises once.
type judge struct {
	mu       sync.Mutex
	r        *rand.Rand
	calm     bool // it answers
	sent     []sent
	executed map[string]int // by path
}

func (j *judge) random(n int64) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.r.Int64N(n)
}

// last returns the last request.
func (j *judge) last() sent {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.sent[len(j.sent)-1]
}

// A process is one life of a sidecar.
type process struct {
	sim     *simulation
	name    string
	machine string
	dead    chan struct{} // closed at its crash
	quit    chan struct{} // closed when it is to stop
	over    chan struct{} // closed when it has ended

	mu      sync.Mutex
	cond    *sync.Cond
	paused  bool
	cut     bool          // off the engine
	slow    time.Duration // of each way to the engine and back, at most
	tardy   time.Duration // of each answer
	crashed bool
	spared  bool // it does not crash any more
	links   []*linkEnd
	left    int // trips until it crashes; 0: none
	after   bool

	ends      bool // another one takes its place; guarded by sim.mu
	member    *Member
	scheduler *scheduler.Scheduler // in a term
	db        *DB
}

func (p *process) id() string { return p.member.ID }

// awake waits while the process is frozen.
func (p *process) awake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.paused && !p.crashed {
		p.cond.Wait()
	}
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.crashed
}

func (p *process) isCut() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut
}

func (p *process) slowness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.slow
}

// tardiness is how long answers of the engine are on their way besides.
func (p *process) tardiness() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tardy
}

// fade lets answers of the engine come late for two leases, and then not at all for some time.
func (p *process) fade(lease, d time.Duration) {
	set := func(tardy time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.tardy = tardy
	}
	set(lease * 2 / 5)
	time.Sleep(2 * lease)
	p.cutOff(d)
	set(0)
}

// stall holds the connection of the process's writer for some time; new ones get through.
func (p *process) stall(e *engine, d time.Duration) {
	var held []*linkEnd
	e.mu.Lock()
	for _, s := range e.all() {
		if s.p == p && strings.HasPrefix(s.app, "throttler writer") {
			held = append(held, s.end)
		}
	}
	e.mu.Unlock()
	for _, l := range held {
		l.hold(true)
	}
	time.Sleep(d)
	for _, l := range held {
		l.hold(false)
	}
}

// lag lets the process reach the engine slowly for some time.
func (p *process) lag(slow, d time.Duration) {
	set := func(slow time.Duration) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.slow = slow
	}
	set(slow)
	time.Sleep(d)
	set(0)
}

// connected notes a connection; false if the process has died.
func (p *process) connected(e *linkEnd) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return false
	}
	open := p.links[:0]
	for _, l := range p.links {
		if l.mu.Lock(); !l.closed[0] && !l.closed[1] {
			open = append(open, l)
		}
		l.mu.Unlock()
	}
	p.links = append(open, e)
	return true
}

// trip counts a trip to the engine, and tells whether the process dies before or after its effect.
func (p *process) trip() (before, after bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		return false, false
	}
	p.left--
	return p.left == 0 && !p.after, p.left == 0 && p.after
}

// kill ends the process without a word. The engine may not hear of it.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed || p.spared {
		return
	}
	p.sim.logf("%s crashes", p.name)
	p.crashed = true
	close(p.dead)
	p.cond.Broadcast()
	for _, l := range p.links {
		l.mu.Lock()
		l.silent = p.sim.engine.r2.IntN(2) == 0
		l.mu.Unlock()
		l.Close()
	}
}

// freeze stops the process for some time, as SIGSTOP does.
func (p *process) freeze(d time.Duration) {
	p.mu.Lock()
	p.paused = true
	p.mu.Unlock()
	time.Sleep(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = false
	p.cond.Broadcast()
}

// cutOff lets nothing through between the process and the engine for some time.
func (p *process) cutOff(d time.Duration) {
	set := func(cut bool) {
		p.mu.Lock()
		p.cut = cut
		links := append([]*linkEnd{}, p.links...)
		p.mu.Unlock()
		for _, l := range links {
			l.hold(cut)
		}
	}
	set(true)
	time.Sleep(d)
	set(false)
}

// serves returns the scheduler of the process in a term, else nil.
func (p *process) serves() *scheduler.Scheduler {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.crashed {
		return nil
	}
	return p.scheduler
}

// A sender is the transport of a term.
type sender struct {
	p          *process
	epoch, era int
}

// An unsentConn is a connection to the platform on which nothing was sent.
type unsentConn struct{ net.Conn }

func (unsentConn) Close() error { return nil }

func (s *sender) RoundTrip(req *http.Request) (*http.Response, error) {
	s.p.awake()
	resp, err := s.roundTrip(req)
	s.p.awake()
	return resp, err
}

func (s *sender) roundTrip(req *http.Request) (*http.Response, error) {
	if s.p.isDead() {
		return nil, errors.New("the process is dead")
	}
	j := s.p.sim.judge
	j.mu.Lock()
	kind := j.r.IntN(25)
	if j.calm {
		kind = 24
	}
	trip := time.Duration(j.r.Int64N(int64(200 * ms)))
	if j.r.IntN(3) == 0 && !j.calm {
		trip = time.Duration(j.r.Int64N(int64(simTimeout)))
	}
	way := time.Duration(j.r.Int64N(int64(trip) + 1))
	j.mu.Unlock()
	if kind == 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: unsentConn{}})
	}
	if err := context.Cause(req.Context()); err != nil { // not a byte was sent
		return nil, err
	}
	if kind == 5 || kind == 6 { // no response, and an arrival at any time up to late
		trip, way = time.Hour, time.Duration(j.random(int64(simTimeout+simLate)))
	}
	arrival := time.Now().Add(way)
	status := map[int]int{1: 500, 2: 429, 3: 400}[kind]
	j.mu.Lock()
	j.sent = append(j.sent, sent{req.URL.Path, req.URL.Query().Get("key"), s.epoch, s.era, time.Now(), &arrival})
	if repeat := strings.HasPrefix(req.URL.Path, "/safe"); status != 429 && status != 400 && (!repeat || j.executed[req.URL.Path] == 0) {
		j.executed[req.URL.Path]++
	}
	j.mu.Unlock()
	s.p.sim.logf("%s sends %s in term %d, arrives in %v", s.p.name, req.URL.Path, s.epoch, way)
	cut := func(err error) (*http.Response, error) { // a request that was sent still arrives, within late
		j.mu.Lock()
		defer j.mu.Unlock()
		if last := time.Now().Add(simLate); arrival.After(last) {
			arrival = last
		}
		return nil, err
	}
	select {
	case <-time.After(trip):
	case <-s.p.dead:
		return cut(errors.New("the process has died"))
	case <-req.Context().Done():
		return cut(context.Cause(req.Context()))
	}
	if kind == 4 {
		return nil, io.ErrUnexpectedEOF
	}
	if status == 0 {
		status = 200
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(req.URL.Path)), Request: req}, nil
}

// run lets the process wait for the calls and serve them, term after term, until it stops, crashes, or its store fails.
func (p *process) run() {
	defer close(p.over)
	p.member.start(context.Background())
	defer p.member.Leave()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p.sim.running.Go(func() {
		select {
		case <-p.dead:
		case <-p.quit:
		case <-ctx.Done():
		}
		cancel()
	})
	for {
		d, err := p.member.Claim(ctx)
		if err != nil {
			if ctx.Err() == nil {
				p.sim.Errorf("%s: %v", p.name, err)
			}
			return
		}
		if !p.term(ctx, d) {
			return
		}
	}
}

// term serves a term; false if the process has ended with it.
func (p *process) term(ctx context.Context, d *DB) (goesOn bool) {
	epoch := int(d.tenure.term.epoch)
	p.sim.logf("%s has term %d, before: %s", p.name, epoch, d.Before())
	d.clock.Boot = func() columns.Boot { return columns.Boot{ID: p.machine, Since: time.Hour + time.Since(p.sim.begun)} }
	d.writer.Clock = d.clock
	u := scheduler.Upstream{Limits: simLimits, Late: simLate, Resend: true, Durable: `path startsWith "/keyed" || path startsWith "/safe-keyed"`}
	u.URL, u.Transport, u.Timeout = "http://platform.test", &sender{p, epoch, p.sim.engine.eraOf(epoch)}, simTimeout
	u.Idempotent = `path startsWith "/safe"`
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	dying := make(chan struct{})
	p.sim.running.Go(func() { // a crash ends the store's goroutines
		select {
		case <-p.dead:
			crash(d)
		case <-dying:
		}
	})
	defer close(dying)
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, LongWindow: 8 * time.Second, Log: p.sim.log.With("replica", p.name)})
	if err != nil {
		d.Close()
		return p.goesOn(d, err)
	}
	p.mu.Lock()
	p.scheduler, p.db = s, d
	p.mu.Unlock()
	p.wait(ctx, s, epoch)
	p.mu.Lock()
	p.scheduler = nil
	p.mu.Unlock()
	grace, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = s.Shutdown(grace)
	p.sim.logf("%s ends term %d: %v", p.name, epoch, err)
	return p.goesOn(d, err)
}

// wait waits for the end of the term: a stop, a crash, a failure of the store, or a move.
func (p *process) wait(ctx context.Context, s *scheduler.Scheduler, epoch int) {
	for {
		v, next := p.member.View()
		if v.Owner == p.member.ID && v.Next != "" && v.Epoch == int64(epoch) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-s.Failed():
			return
		case <-next:
		}
	}
}

// goesOn reports whether the process waits for another term after one: if another replica has the calls, or it was asked to
// hand them over. After another failure of the store it ends, and is started anew.
func (p *process) goesOn(d *DB, err error) bool {
	failed := d.failure.get()
	reason := "clean"
	defer func() {
		p.sim.mu.Lock()
		defer p.sim.mu.Unlock()
		p.sim.ends[reason]++
	}()
	switch {
	case p.isDead():
		reason = "crash"
		return false
	case errors.Is(failed, ErrTermOver):
		reason = "over"
		return true
	case errors.Is(failed, errRegressed):
		if reason = "regress"; !p.sim.engine.wasRestored() {
			p.sim.Errorf("%s: %v; it was not", p.name, failed)
		}
	case failed != nil:
		reason = "failed"
		p.sim.Errorf("%s: the store has failed: %v", p.name, failed)
	case err != nil && !errors.Is(err, errAway):
		p.sim.Errorf("%s: %v", p.name, err)
		reason = "error"
	case err != nil:
		reason = "away"
		return true
	default:
		return true
	}
	p.sim.spawn(p)
	return false
}

// stop asks the process to stop.
func (p *process) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.quit:
	default:
		close(p.quit)
	}
}
