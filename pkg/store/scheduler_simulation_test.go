package store

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var (
	seeds = flag.Int("sim.seeds", 40, "how many seeds the simulation runs")
	from  = flag.Uint64("sim.seed", 0, "the first of them; with -sim.seeds 1, the one to replay")
)

// TestSimulation runs a scheduler, a store and a platform through several processes,
// on the clock of a bubble. A process ends cleanly, or by a crash at some change of
// the store: before the change was written, or between its write and its
// acknowledgement. Over all processes no window has too many arrivals, every
// acknowledged call ends, and no call is executed twice. The same seed is the same
// simulation, except for the order in which goroutines run:
//
//	go test ./pkg/store -run TestSimulation -sim.seeds 1 -sim.seed N
func TestSimulation(t *testing.T) {
	const block = 50
	empty := emptyFile(t)
	for first := 0; first < *seeds; first += block {
		t.Run(fmt.Sprint("from ", *from+uint64(first)), func(t *testing.T) {
			t.Parallel()
			for seed := *from + uint64(first); seed < *from+uint64(min(first+block, *seeds)) && !t.Failed(); seed++ {
				dir := scratch(t)
				path := filepath.Join(dir, fmt.Sprint(seed, ".db"))
				if err := os.WriteFile(path, empty, 0o600); err != nil {
					t.Fatal(err)
				}
				synctest.Test(t, func(t *testing.T) { simulate(t, seed, path) })
				os.RemoveAll(dir)
			}
		})
	}
}

// emptyFile returns a file that no process has used. To make it takes longer than
// most simulations.
func emptyFile(t *testing.T) []byte {
	path := file(t)
	d := open(t, path, Options{reserve: 4096})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err == nil {
		_, err = db.Exec("DELETE FROM meta") // it has times of the real clock
	}
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

const (
	ms   = time.Millisecond
	late = 2 * time.Second
)

// A platform counts arrivals and executions by itself. It executes a repeat that it
// recognises once.
type platform struct {
	r        *rand.Rand
	mu       sync.Mutex
	arrivals map[string][]*time.Time // by limit and key
	executed map[string]int          // by path
}

// A process is one run of a sidecar. A dead one sends nothing and gets no response.
type process struct {
	p    *platform
	dead chan struct{}
	die  sync.Once
}

func (p *platform) random(n int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.r.Int64N(n)
}

func (pr *process) kill() { pr.die.Do(func() { close(pr.dead) }) }

func (pr *process) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-pr.dead:
		return nil, errors.New("the process is dead")
	default:
	}
	p := pr.p
	p.mu.Lock()
	kind := p.r.IntN(25)
	trip := time.Duration(p.r.Int64N(int64(300 * ms)))
	way := time.Duration(p.r.Int64N(int64(trip) + 1))
	p.mu.Unlock()
	if kind == 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	}
	if kind == 5 { // no response, and an arrival at any time up to late
		trip, way = time.Hour, time.Duration(p.random(int64(time.Second+late)))
	}
	arrival := time.Now().Add(way)
	status := map[int]int{1: 500, 2: 429, 3: 400}[kind]
	p.mu.Lock()
	key := req.URL.Query().Get("key")
	for _, limit := range []string{"app", "key " + key, "long " + key, "day"} {
		p.arrivals[limit] = append(p.arrivals[limit], &arrival)
	}
	if repeat := strings.HasPrefix(req.URL.Path, "/safe"); status != 429 && status != 400 && (!repeat || p.executed[req.URL.Path] == 0) {
		p.executed[req.URL.Path]++
	}
	p.mu.Unlock()
	select {
	case <-time.After(trip):
	case <-pr.dead: // a request that was sent still arrives, within late
		if last := time.Now().Add(late); arrival.After(last) {
			p.mu.Lock()
			arrival = last
			p.mu.Unlock()
		}
		return nil, errors.New("the process has died")
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	if kind == 4 {
		return nil, io.ErrUnexpectedEOF
	}
	if status == 0 {
		status = 200
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(req.URL.Path)), Request: req}, nil
}

// A fuse lets a process die at one of its changes of the store.
type fuse struct {
	*DB
	pr    *process
	mu    sync.Mutex
	left  int  // changes until the crash; below 0: no crash
	after bool // the last change is written
}

var errDead = fmt.Errorf("%w: the process is dead", scheduler.ErrBroken)

// change makes a change, unless the process dies before it.
func (f *fuse) change(do func() error) error {
	time.Sleep(time.Duration(f.pr.p.random(int64(10 * ms)))) // the disk is slow
	f.mu.Lock()
	select {
	case <-f.pr.dead:
		f.mu.Unlock()
		return errDead
	default:
	}
	f.left--
	now := f.left == 0
	if now {
		defer f.mu.Unlock() // nothing else is written meanwhile
		if f.after {
			do()
		}
		f.pr.kill()
		return errDead
	}
	f.mu.Unlock()
	err := do()
	select {
	case <-f.pr.dead: // written, and not acknowledged
		return errDead
	default:
		return err
	}
}

func (f *fuse) Accept(ctx context.Context, e *scheduler.Entry) (existing *scheduler.Call, err error) {
	err = f.change(func() error { existing, err = f.DB.Accept(ctx, e); return err })
	if err != nil {
		existing = nil
	}
	return existing, err
}
func (f *fuse) End(ctx context.Context, identity, by string) error {
	return f.change(func() error { return f.DB.End(ctx, identity, by) })
}
func (f *fuse) Intend(ctx context.Context, c *scheduler.Call, take []lease.Hold) error {
	return f.change(func() error { return f.DB.Intend(ctx, c, take) })
}
func (f *fuse) Record(ctx context.Context, c *scheduler.Call) error {
	return f.change(func() error { return f.DB.Record(ctx, c) })
}
func (f *fuse) Audit(ctx context.Context, r scheduler.AuditRecord) error {
	return f.change(func() error { return f.DB.Audit(ctx, r) })
}
func (f *fuse) Settle(ctx context.Context, h []lease.Hold) error {
	return f.change(func() error { return f.DB.Settle(ctx, h) })
}
func (f *fuse) Restate(ctx context.Context, h []lease.Hold) error {
	return f.change(func() error { return f.DB.Restate(ctx, h) })
}
func (f *fuse) Recover(ctx context.Context, d time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) (past *scheduler.Recovered, err error) {
	err = f.change(func() error { past, err = f.DB.Recover(ctx, d, repeat); return err })
	return past, err
}
func (f *fuse) Close() error { return nil }

// A simulation has the state that the processes of one seed share.
type simulation struct {
	*testing.T
	r     *rand.Rand
	p     *platform
	path  string
	db    *DB
	acked map[string]string // paths of acknowledged calls, by id
	next  int
}

func simulate(t *testing.T, seed uint64, path string) {
	sim := &simulation{T: t, r: rand.New(rand.NewPCG(seed, 1)), path: path, acked: make(map[string]string)}
	sim.p = &platform{r: rand.New(rand.NewPCG(seed, 2)), arrivals: make(map[string][]*time.Time), executed: make(map[string]int)}
	sim.reopen()
	defer func() { sim.db.Close() }()
	for range 2 + sim.r.IntN(4) {
		sim.process(1+sim.r.IntN(40), sim.r.IntN(2) == 0)
		if sim.r.IntN(2) == 0 { // else the next process comes at once
			time.Sleep(time.Duration(sim.r.Int64N(int64(5 * time.Second))))
		}
	}
	sim.process(-1, false)
	sim.check()
	if *seeds == 1 {
		t.Logf("%d calls, %d acknowledged, %d executed, %d arrivals", sim.next, len(sim.acked), len(sim.p.executed), len(sim.p.arrivals["app"]))
	}
	if t.Failed() {
		t.Logf("replay: go test ./pkg/store -run TestSimulation -sim.seeds 1 -sim.seed %d", seed)
	}
}

func (sim *simulation) reopen() {
	if sim.db != nil {
		if err := sim.db.Close(); err != nil {
			sim.Fatal(err)
		}
		if sim.r.IntN(4) == 0 { // the wall clock is put forward, or back, meanwhile
			putMark(sim.T, sim.path, time.Duration(sim.r.Int64N(int64(4*time.Hour)))-2*time.Hour)
		}
	}
	db, err := Open(sim.path, Options{Log: quiet, boot: steadyBoot, fileID: sameFile, raw: "_pragma=synchronous(OFF)", reserve: 4096, longLog: 20})
	if err != nil {
		sim.Fatal(err)
	}
	sim.db = db
}

var limits = []scheduler.Limit{
	{Name: "app", Calls: 4, Window: time.Second},
	{Name: "key", PerKey: `query("key")`, Calls: 1, Window: 700 * ms},
	{Name: "long", PerKey: `query("key")`, Calls: 8, Window: 2 * time.Minute},
	{Name: "day", Calls: 45, Calendar: &quota.Calendar{Unit: quota.Minute, Skew: 0}},
}

// process runs a process until it dies at its n-th change, or ends cleanly.
func (sim *simulation) process(n int, after bool) {
	pr := &process{p: sim.p, dead: make(chan struct{})}
	f := &fuse{DB: sim.db, pr: pr, left: n, after: after}
	u := scheduler.Upstream{Limits: limits, Late: late, Resend: true, Durable: `path startsWith "/keyed" || path startsWith "/safe-keyed"`}
	u.URL, u.Transport, u.Timeout = "http://platform.test", pr, time.Second
	u.Idempotent = `path startsWith "/safe"`
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted}}
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: f, LongWindow: time.Minute, Log: quiet})
	if err != nil {
		if !errors.Is(err, scheduler.ErrBroken) {
			sim.Error(err)
		}
		return
	}
	var callers sync.WaitGroup
	if n > 0 {
		for range 5 + sim.r.IntN(15) {
			sim.call(s, &callers)
			if sim.r.IntN(3) == 0 {
				time.Sleep(time.Duration(sim.r.Int64N(int64(400 * ms))))
			}
		}
		select { // it goes on for a while
		case <-pr.dead:
		case <-time.After(time.Duration(sim.r.Int64N(int64(20 * time.Second)))):
		}
	} else {
		sim.drain(s)
	}
	select {
	case <-pr.dead:
	default:
		if n > 0 && sim.r.IntN(2) == 0 { // kill -9 at any time
			pr.kill()
		}
	}
	err = s.Close()
	callers.Wait()
	select {
	case <-pr.dead:
	default:
		if err != nil {
			sim.Error(err)
		}
		if sim.r.IntN(2) == 0 {
			sim.reopen()
		}
	}
}

// call submits a call of a random kind.
func (sim *simulation) call(s *scheduler.Scheduler, callers *sync.WaitGroup) {
	sim.next++
	kind := []string{"/once", "/safe", "/keyed", "/safe-keyed"}[sim.r.IntN(4)]
	path := fmt.Sprint(kind, sim.next)
	r := scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprintf("%s?key=%d", path, sim.r.IntN(3)), Body: []byte(path), Priority: sim.r.IntN(3)}
	if sim.r.IntN(8) == 0 {
		r.NotBefore = time.Now().Add(time.Duration(sim.r.Int64N(int64(3 * time.Minute))))
	}
	if strings.Contains(kind, "keyed") {
		r.IdempotencyKey = path
	}
	if sim.r.IntN(3) == 0 {
		r.NotBefore = time.Time{}
		callers.Go(func() {
			if resp, _, err := s.Do(context.Background(), r); err == nil {
				if body, _ := io.ReadAll(resp.Body); string(body) != path {
					sim.Errorf("%s was answered %q", path, body)
				}
				resp.Body.Close()
			}
		})
		return
	}
	c, err := s.Submit(context.Background(), r)
	var refused *scheduler.Error
	switch {
	case err == nil:
		sim.acked[c.ID] = path
	case !errors.As(err, &refused), refused.Reason != scheduler.StoreFailed && refused.Reason != scheduler.Stopping:
		sim.Errorf("Submit: %v", err)
	}
	if err == nil && r.IdempotencyKey != "" && sim.r.IntN(2) == 0 {
		if again, err := s.Submit(context.Background(), r); err == nil && again.ID != c.ID {
			sim.Errorf("the key of %s names %s as well", c.ID, again.ID)
		}
	}
}

// drain waits until every acknowledged call has ended.
func (sim *simulation) drain(s *scheduler.Scheduler) {
	deadline := time.Now().Add(2 * time.Hour)
	for id, path := range sim.acked {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		c, err := s.Wait(ctx, id)
		cancel()
		if err != nil {
			sim.Errorf("LOST: %s: %v", path, err)
			continue
		}
		if c.State == scheduler.Waiting || c.State == scheduler.Sending {
			sim.Errorf("STUCK: %s is %s: %+v", path, c.State, c)
		}
		if c.State == scheduler.Unknown && strings.HasPrefix(path, "/safe") && c.Last().N < 4 && c.Last().Outcome != upstream.Failed {
			sim.Errorf("%s is unknown, but might have been repeated: %+v", path, c)
		}
		sim.p.mu.Lock()
		if c.State == scheduler.Done && sim.p.executed[path] == 0 {
			sim.Errorf("%s is done and was not executed", path)
		}
		sim.p.mu.Unlock()
	}
}

// check compares the records of the platform with the limits.
func (sim *simulation) check() {
	sim.p.mu.Lock()
	defer sim.p.mu.Unlock()
	for path, n := range sim.p.executed {
		if n > 1 {
			sim.Errorf("TWICE: %s was executed %d times", path, n)
		}
	}
	for name, arrivals := range sim.p.arrivals {
		kind, _, _ := strings.Cut(name, " ")
		for _, l := range limits {
			if l.Name != kind {
				continue
			}
			if n := most(arrivals, l); n > l.Calls {
				sim.Errorf("OVER: %d arrivals of %s in one window, at most %d may", n, name, l.Calls)
			}
		}
	}
}

// most returns the most arrivals in one window.
func most(arrivals []*time.Time, l scheduler.Limit) int {
	best := 0
	for _, last := range arrivals {
		n := 0
		for _, a := range arrivals {
			if l.Calendar != nil && a.Truncate(time.Minute).Equal(last.Truncate(time.Minute)) {
				n++
			} else if d := last.Sub(*a); l.Calendar == nil && d >= 0 && d < l.Window {
				n++
			}
		}
		best = max(best, n)
	}
	return best
}
