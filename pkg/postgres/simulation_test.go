package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var (
	simSeeds = flag.Int("sim.seeds", 40, "how many seeds the simulation runs")
	simFirst = flag.Uint64("sim.seed", 0, "the first of them; with -sim.seeds 1, the one to replay")
	simLog   = flag.Bool("sim.log", false, "log what happens")
)

// TestSimulation runs a fleet on the clock of a bubble: replicas, each with its scheduler and its store, an engine in the
// place of the server, and a platform that counts arrivals itself. Replicas crash before or after any trip to the engine,
// freeze, are cut off, stop, hand over and are buried. The engine loses connections and answers, is slow, goes away, and is
// followed by a standby, in some seeds by one that lacks confirmed commits. Over all of it no window has too many arrivals,
// nothing is sent in a term that is over, each acknowledged call ends, none is executed twice, and none that was told as
// not executed was. Of calls about which confirmed commits were lost only the last is not asked; their writer must end.
// The same seed is the same simulation, except for the order in which goroutines run:
//
//	go test ./pkg/postgres -run TestSimulation -sim.seeds 1 -sim.seed N -sim.log
func TestSimulation(t *testing.T) {
	const block = 20
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	for first := 0; first < *simSeeds; first += block {
		t.Run(fmt.Sprint("from ", *simFirst+uint64(first)), func(t *testing.T) {
			t.Parallel()
			for seed := *simFirst + uint64(first); seed < *simFirst+uint64(min(first+block, *simSeeds)) && !t.Failed(); seed++ {
				began := time.Now()
				synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
				if d := time.Since(began); d > 3*time.Second {
					fmt.Println("SLOW", seed, d)
				}
			}
		})
	}
}

const (
	ms         = time.Millisecond
	simTimeout = 400 * ms
	simLate    = 300 * ms
)

// Calls of the pump need no permits of the store: their owner can send them while it is cut off.
const stored = `!(path startsWith "/pump")`

var simLimits = []scheduler.Limit{
	{Name: "app", Calls: 10, Window: time.Second},
	{Name: "key", PerKey: `query("key")`, Calls: 2, Window: 700 * ms},
	{Name: "long", When: stored, PerKey: `query("key")`, Calls: 9, Window: 9 * time.Second},
	{Name: "day", When: stored, Calls: 250, Calendar: &quota.Calendar{Unit: quota.Minute, Skew: 0}},
}

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
	crashed bool
	spared  bool // it does not crash any more
	links   []*end0
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

// fade lets the process reach the engine slowly for two leases, and then not at all for some time.
func (p *process) fade(lease, d time.Duration) {
	p.lag(lease*2/5, 2*lease)
	p.cutOff(d)
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
func (p *process) connected(e *end0) bool {
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
		links := append([]*end0{}, p.links...)
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

// A wireOf is a connection to the platform.
type wireOf struct{ net.Conn }

func (wireOf) Close() error { return nil }

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
	way := time.Duration(j.r.Int64N(int64(trip) + 1))
	j.mu.Unlock()
	if kind == 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: wireOf{}})
	}
	if err := context.Cause(req.Context()); err != nil { // not a byte was sent, as the transport of the sidecar knows
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
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

// A simulation has the state of one seed.
type simulation struct {
	*testing.T
	r       *rand.Rand
	log     *slog.Logger
	begun   time.Time
	engine  *engine
	judge   *judge
	lease   time.Duration
	working sync.WaitGroup // faults and callers
	running sync.WaitGroup // processes
	settled chan struct{}  // closed at the end of the faults

	mu        sync.Mutex
	processes []*process
	started   int
	acked     map[string]string // paths of acknowledged calls, by id
	ids       []string          // the same, in their order
	told      map[string]string // paths of calls of which it was told that they were not executed
	names     map[string]string // ids of calls, by key
	cancelled map[string]bool   // paths of calls whose key is free again
	next      int
	pumped    int
	ends      map[string]int // of terms, by reason
}

func (sim *simulation) logf(format string, args ...any) {
	if *simLog {
		fmt.Fprintf(os.Stderr, "%9.3f %s\n", time.Since(sim.begun).Seconds(), fmt.Sprintf(format, args...))
	}
}

func simulate(t *testing.T, seed uint64) {
	sim := &simulation{T: t, settled: make(chan struct{}), r: rand.New(rand.NewPCG(seed, 1)), log: quiet, begun: time.Now(), acked: map[string]string{}, told: map[string]string{}, names: map[string]string{}, cancelled: map[string]bool{}, ends: map[string]int{}}
	if *simLog {
		sim.log = slog.New(slog.NewTextHandler(simWriter{sim}, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		}}))
	}
	sim.engine = newEngine(t, rand.New(rand.NewPCG(seed, 2)))
	sim.engine.r2 = rand.New(rand.NewPCG(seed, 4))
	sim.judge = &judge{r: rand.New(rand.NewPCG(seed, 3)), executed: map[string]int{}}
	sim.lease = []time.Duration{500 * ms, time.Second, 2 * time.Second}[sim.r.IntN(3)]
	asynchronous := sim.r.IntN(5) == 0
	for range 2 + sim.r.IntN(3) {
		sim.spawn(nil)
	}
	sim.engine.setFaults(true)
	for range 8 + sim.r.IntN(16) {
		for range sim.r.IntN(6) {
			sim.call()
		}
		if sim.r.IntN(3) == 0 {
			sim.manage()
		}
		if sim.r.IntN(3) == 0 {
			sim.fault(asynchronous)
		}
		time.Sleep(time.Duration(sim.r.Int64N(int64(sim.lease))))
	}
	sim.settle()
	sim.drain()
	sim.finish()
	sim.check()
	if *simSeeds == 1 {
		t.Logf("%d calls, %d acknowledged, %d requests, %d replicas, %d terms, ends %v, %d commits, %d warnings, %d regresses, %v", sim.next, len(sim.acked), len(sim.judge.sent), sim.started,
			len(sim.engine.terms), sim.ends, sim.engine.commits, sim.engine.warnings, sim.engine.regresses, time.Since(sim.begun))
	}
	if t.Failed() {
		t.Logf("replay: go test ./pkg/postgres -run TestSimulation -sim.seeds 1 -sim.seed %d -sim.log", seed)
	}
}

type simWriter struct{ sim *simulation }

func (w simWriter) Write(b []byte) (int, error) {
	w.sim.logf("%s", strings.TrimSpace(string(b)))
	return len(b), nil
}

// spawnAfter starts a process later, unless the simulation comes to its end.
func (sim *simulation) spawnAfter(d time.Duration) {
	select {
	case <-time.After(d):
		sim.spawn(nil)
	case <-sim.settled:
	}
}

// spawn starts a process, in the place of another one if there is one.
func (sim *simulation) spawn(before *process) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	sim.started++
	if before != nil {
		before.ends = true
	}
	p := &process{sim: sim, name: fmt.Sprint("r", sim.started), machine: fmt.Sprint("m", sim.started%3), dead: make(chan struct{}), quit: make(chan struct{}), over: make(chan struct{})}
	p.cond = sync.NewCond(&p.mu)
	config, err := parse("postgres://throttler@127.0.0.1:5432/throttler?sslmode=disable", Options{Lease: sim.lease})
	if err != nil {
		sim.Fatal(err)
	}
	config.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return sim.engine.dial(ctx, p) }
	o, err := Options{Name: p.name, Lease: sim.lease, Wait: true, Log: sim.log.With("replica", p.name)}.withDefaults()
	if err != nil {
		sim.Fatal(err)
	}
	if p.member, err = newMember(context.Background(), config, &columns.Codec{}, o); err != nil {
		sim.Fatal(err)
	}
	sim.processes = append(sim.processes, p)
	sim.running.Go(p.run)
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

// live returns the processes that have not ended.
func (sim *simulation) live() (all []*process) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for _, p := range sim.processes {
		select {
		case <-p.over:
		default:
			if !p.ends && !p.isDead() {
				all = append(all, p)
			}
		}
	}
	return all
}

// owner returns a process that serves, one that is stale at times; nil if there is none.
func (sim *simulation) owner() (*process, *scheduler.Scheduler) {
	var p *process
	var s *scheduler.Scheduler
	for _, q := range sim.live() {
		if t := q.serves(); t != nil && (s == nil || sim.judge.random(2) == 0) {
			p, s = q, t
		}
	}
	return p, s
}

// fault lets something happen.
func (sim *simulation) fault(asynchronous bool) {
	all := sim.live()
	p, _ := sim.owner()
	if len(all) == 0 {
		return
	}
	if p == nil || sim.r.IntN(4) == 0 {
		p = all[sim.r.IntN(len(all))]
	}
	var for_ time.Duration
	switch sim.r.IntN(4) {
	case 0:
		for_ = 100*ms + time.Duration(sim.r.Int64N(int64(500*ms)))
	case 1:
		for_ = 100*ms + time.Duration(sim.r.Int64N(int64(8*time.Second)))
	default: // about as long as the others wait
		for_ = sim.lease*3/4 + time.Duration(sim.r.Int64N(int64(sim.lease)))
	}
	sim.working.Go(func() { sim.pump(for_ + sim.lease) })
	switch kind := sim.r.IntN(14); kind {
	case 0, 1, 2: // a crash at some trip, and another process in its place
		p.mu.Lock()
		p.left, p.after = 1+sim.r.IntN(25), sim.r.IntN(2) == 0
		p.mu.Unlock()
		sim.working.Go(func() {
			select {
			case <-p.dead:
			case <-p.over:
				return
			case <-sim.settled:
				return
			}
			sim.spawnAfter(for_)
		})
	case 3: // at once
		p.kill()
		sim.working.Go(func() { sim.spawnAfter(for_) })
	case 4, 5, 6:
		sim.logf("%s is frozen for %v", p.name, for_)
		sim.working.Go(func() { p.freeze(for_) })
		for _, q := range all { // others meanwhile, or at its end
			if q == p {
				continue
			}
			switch sim.r.IntN(5) {
			case 0, 1:
				sim.working.Go(func() { q.lag(sim.lease/4, for_+sim.lease) })
			case 2:
				sim.working.Go(func() {
					time.Sleep(for_ - sim.engine.random(for_/2))
					q.freeze(for_ / 3)
				})
			}
		}
	case 7:
		sim.logf("%s is cut off for %v", p.name, for_)
		sim.working.Go(func() { p.cutOff(for_) })
	case 8:
		sim.logf("%s becomes slow, and is then cut off for %v", p.name, for_)
		sim.working.Go(func() { p.fade(sim.lease, for_) })
	case 9:
		sim.logf("%s stops", p.name)
		p.stop()
		sim.working.Go(func() { sim.spawnAfter(for_) })
	case 10:
		sim.working.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := all[0].member.Move(ctx, "")
			sim.logf("a move by %s: %v", all[0].name, err)
		})
	case 11:
		sim.bury(all[0])
	default:
		if sim.r.IntN(3) == 0 { // and an owner is cut off by the same event
			sim.working.Go(func() { p.cutOff(for_ + sim.lease) })
		}
		sim.outage(for_, kind == 12, kind == 12 && asynchronous)
	}
}

// pump lets callers wait for answers at each moment of some time: what is sent when it must not shows then.
func (sim *simulation) pump(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(sim.lease / 12) {
		p, s := sim.owner()
		if s == nil {
			continue
		}
		sim.mu.Lock()
		sim.pumped++
		n := sim.pumped
		sim.mu.Unlock()
		path := fmt.Sprint("/pump", n)
		r := scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprintf("%s?key=%d", path, n%16), Body: []byte(path)}
		sim.working.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
			defer cancel()
			sim.do(ctx, p, s, r, path)
		})
	}
}

// outage takes the engine away.
func (sim *simulation) outage(d time.Duration, standby, asynchronous bool) {
	if sim.engine.isDown() {
		return
	}
	sim.logf("the engine is away for %v, a standby follows: %v, asynchronous: %v", d, standby, asynchronous)
	sim.working.Go(func() {
		sim.engine.outage(d, standby, asynchronous)
		sim.logf("the engine is back")
	})
}

// bury states that a process has ended which has.
func (sim *simulation) bury(by *process) {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	for _, p := range sim.processes {
		if p.isDead() {
			sim.working.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				err := by.member.Bury(ctx, p.name)
				sim.logf("%s is buried: %v", p.name, err)
			})
		}
	}
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

// call hands a call of a random kind over to the owner, or to the next one.
func (sim *simulation) call() {
	sim.next++
	kind := []string{"/once", "/safe", "/keyed", "/safe-keyed"}[sim.r.IntN(4)]
	path := fmt.Sprint(kind, sim.next)
	r := scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprintf("%s?key=%d", path, sim.r.IntN(4)), Body: []byte(path), Priority: sim.r.IntN(3)}
	if sim.r.IntN(8) == 0 {
		r.NotBefore = time.Now().Add(time.Duration(sim.r.Int64N(int64(10 * time.Second))))
	}
	if strings.Contains(kind, "keyed") {
		r.IdempotencyKey = path
	}
	repeats, pause := r.IdempotencyKey != "" && sim.r.IntN(2) == 0, time.Duration(sim.r.Int64N(int64(6*time.Second)))
	switch sim.r.IntN(8) {
	case 0, 1, 2, 3:
		r.NotBefore = time.Time{}
		sim.working.Go(func() {
			if p, s := sim.await(); s != nil {
				sim.do(context.Background(), p, s, r, path)
			}
		})
	case 4:
		if sim.engine.submit("api", "POST", r.Target, r.IdempotencyKey, r.Body) {
			sim.logf("a program hands %s over", path)
		}
	default:
		sim.working.Go(func() {
			if p, s := sim.await(); s != nil {
				sim.submit(p, s, r, path, !repeats)
			}
			if !repeats {
				return
			}
			time.Sleep(pause)
			if p, s := sim.await(); s != nil {
				sim.submit(p, s, r, path, false)
			}
		})
	}
}

// await waits for an owner, for some time.
func (sim *simulation) await() (*process, *scheduler.Scheduler) {
	for range 50 {
		if p, s := sim.owner(); s != nil {
			return p, s
		}
		time.Sleep(100 * ms)
	}
	return nil, nil
}

// do makes a call and waits for its answer.
func (sim *simulation) do(ctx context.Context, p *process, s *scheduler.Scheduler, r scheduler.Request, path string) {
	resp, _, err := s.Do(ctx, r)
	if p.awake(); p.isDead() { // its caller hears nothing
		return
	}
	sim.logf("%s answers %s: %v", p.name, path, err)
	if err == nil {
		if body, _ := io.ReadAll(resp.Body); string(body) != path {
			sim.Errorf("%s was answered %q", path, body)
		}
		resp.Body.Close()
		return
	}
	// The end of a call with a key may not have been stored: the next owner goes on with it, and the key finds it.
	if r.IdempotencyKey == "" {
		sim.refused(path, err)
	}
}

// refused notes that a caller was told that its call was not executed.
func (sim *simulation) refused(path string, err error) {
	var refused *scheduler.Error
	if !errors.As(err, &refused) {
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(path, "/pump") { // its caller has left
			sim.Errorf("%s: %v", path, err)
		}
		return
	}
	if refused.Outcome() == upstream.NotExecuted {
		sim.mu.Lock()
		defer sim.mu.Unlock()
		sim.told[path] = err.Error()
	}
}

// submit hands a call over.
func (sim *simulation) submit(p *process, s *scheduler.Scheduler, r scheduler.Request, path string, once bool) {
	c, err := s.Submit(context.Background(), r)
	if p.awake(); p.isDead() {
		return
	}
	if err != nil {
		sim.logf("%s refuses %s: %v", p.name, path, err)
		if once {
			sim.refused(path, err)
		}
		return
	}
	sim.logf("%s accepts %s as %s", p.name, path, c.ID)
	sim.mu.Lock()
	defer sim.mu.Unlock()
	if sim.acked[c.ID] == "" {
		sim.ids = append(sim.ids, c.ID)
	}
	sim.acked[c.ID] = path
	if r.IdempotencyKey == "" {
		return
	}
	if first := sim.names[path]; first != "" && first != c.ID && !sim.cancelled[path] && !sim.engine.isExempt(path) {
		sim.Errorf("the key of %s names %s as well (%s)", first, c.ID, path)
	}
	sim.names[path] = c.ID
}

// manage cancels a call, or decides an unknown one as the platform tells.
func (sim *simulation) manage() {
	p, s := sim.owner()
	sim.mu.Lock()
	if s == nil || len(sim.ids) == 0 {
		sim.mu.Unlock()
		return
	}
	id := sim.ids[sim.r.IntN(len(sim.ids))]
	path := sim.acked[id]
	sim.mu.Unlock()
	cancels := sim.r.IntN(4) == 0
	sim.working.Go(func() {
		c, err := s.Get(context.Background(), id)
		if err != nil {
			return
		}
		switch {
		case c.State == scheduler.Waiting && cancels:
			sim.mu.Lock()
			sim.cancelled[path] = true
			sim.mu.Unlock()
			c, err = s.Cancel(context.Background(), id)
			if p.awake(); err == nil && !p.isDead() && c.State == scheduler.Cancelled {
				sim.logf("%s has cancelled %s", p.name, path)
				sim.mu.Lock()
				if !strings.Contains(path, "keyed") {
					sim.told[path] = "cancelled"
				}
				sim.mu.Unlock()
			}
		case c.State == scheduler.Unknown:
			as := upstream.Failed
			sim.judge.mu.Lock()
			if sim.judge.executed[path] > 0 {
				as = upstream.Done
			}
			sim.judge.mu.Unlock()
			_, err = s.Resolve(context.Background(), id, scheduler.Decision{By: "clerk", As: as, Attempt: c.Last().N})
			if p.awake(); err == nil && !p.isDead() {
				sim.logf("%s has decided %s as %s", p.name, path, as)
				if as == upstream.Failed {
					sim.mu.Lock()
					sim.told[path] = "failed, by a decision"
					sim.mu.Unlock()
				}
			}
		}
	})
}

// settle ends the faults, and leaves one replica.
func (sim *simulation) settle() {
	close(sim.settled)
	sim.engine.setFaults(false)
	sim.judge.mu.Lock()
	sim.judge.calm = true
	sim.judge.mu.Unlock()
	for _, p := range sim.live() {
		p.mu.Lock()
		p.spared = true
		p.mu.Unlock()
	}
	var left *process
	for _, p := range sim.live() {
		select {
		case <-p.quit:
			continue
		default:
		}
		if left == nil {
			left = p
		} else {
			p.stop()
		}
	}
	sim.working.Wait() // also the faults that go on
	sim.engine.beside.Wait()
	if left == nil {
		sim.spawn(nil)
	}
}

// drain waits until each acknowledged call has ended.
func (sim *simulation) drain() {
	sim.mu.Lock()
	ids := append([]string{}, sim.ids...)
	sim.mu.Unlock()
	deadline := time.Now().Add(10 * time.Minute)
	for _, id := range ids {
		path := sim.acked[id]
		for !sim.ended(id, path) {
			if time.Now().After(deadline) {
				_, s := sim.owner()
				if s == nil {
					sim.Errorf("STUCK: %s: no replica has the calls; %d live", path, len(sim.live()))
					return
				}
				c, err := s.Get(context.Background(), id)
				sim.Errorf("STUCK: %s: %+v, %v", path, c, err)
				return
			}
			time.Sleep(time.Second)
		}
	}
}

// ended waits for a call; false if it has to be asked for again.
func (sim *simulation) ended(id, path string) bool {
	_, s := sim.owner()
	if s == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := s.Wait(ctx, id)
	switch {
	case errors.Is(err, scheduler.ErrNotFound):
		if !sim.engine.isExempt(path) {
			sim.Errorf("LOST: %s: %v", path, err)
		}
		return true
	case err != nil || c.State == scheduler.Waiting || c.State == scheduler.Sending:
		return false
	}
	if c.State == scheduler.Unknown && strings.HasPrefix(path, "/safe") && c.EndedBy == "" && c.Last().N < 4 && c.Last().Outcome != upstream.Failed && !sim.engine.wasRestored() {
		sim.Errorf("%s is unknown, but might have been repeated: %+v %+v", path, c, c.Last())
	}
	sim.judge.mu.Lock()
	defer sim.judge.mu.Unlock()
	if c.State == scheduler.Done && sim.judge.executed[path] == 0 {
		sim.Errorf("%s is done and was not executed", path)
	}
	return true
}

// finish stops all.
func (sim *simulation) finish() {
	for all := sim.live(); len(all) > 0; all = sim.live() { // one whose store has failed is followed by another one
		for _, p := range all {
			p.stop()
		}
		time.Sleep(time.Second)
	}
	sim.running.Wait()
	sim.engine.stop()
	time.Sleep(time.Minute) // the driver closes connections besides
}

// check compares the records of the platform with the limits, and with what was told.
func (sim *simulation) check() {
	j, e := sim.judge, sim.engine
	for path, n := range j.executed {
		if n > 1 && !e.exempt[path] {
			sim.Errorf("TWICE: %s was executed %d times", path, n)
		}
	}
	for path, why := range sim.told {
		if j.executed[path] > 0 && !e.exempt[path] {
			sim.Errorf("TOLD: %s was executed, and its caller was told that it was not: %s", path, why)
		}
	}
	for _, s := range j.sent {
		for _, term := range e.terms {
			if term.era == s.era && term.epoch > s.epoch && !s.at.Before(term.at) {
				sim.Errorf("STALE: %s was sent in term %d, %v after the begin of term %d", s.path, s.epoch, s.at.Sub(term.at), term.epoch)
			}
		}
	}
	arrivals := map[string][]time.Time{}
	for _, s := range j.sent {
		limits := []string{"app", "key " + s.key, "long " + s.key, "day"}
		if strings.HasPrefix(s.path, "/pump") {
			limits = limits[:2]
		}
		for _, limit := range limits {
			arrivals[limit] = append(arrivals[limit], *s.arrival)
		}
	}
	for name, at := range arrivals {
		limit, _, _ := strings.Cut(name, " ")
		for _, l := range simLimits {
			if l.Name == limit {
				if n, last := most(at, l); n > l.Calls {
					sim.Errorf("OVER: %d arrivals of %s in one window, up to %.3f; at most %d may", n, name, last.Sub(sim.begun).Seconds(), l.Calls)
				}
			}
		}
	}
}

// most returns the most arrivals in one window, and the last of them.
func most(arrivals []time.Time, l scheduler.Limit) (best int, at time.Time) {
	for _, last := range arrivals {
		n := 0
		for _, a := range arrivals {
			if l.Calendar != nil && a.Truncate(time.Minute).Equal(last.Truncate(time.Minute)) {
				n++
			} else if d := last.Sub(a); l.Calendar == nil && d >= 0 && d < l.Window {
				n++
			}
		}
		if n > best {
			best, at = n, last
		}
	}
	return best, at
}
