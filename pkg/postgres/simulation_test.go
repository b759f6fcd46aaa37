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

// TestSimulation runs a fleet on the clock of a bubble: replicas, each with its scheduler and the store as it is, an engine in
// the place of the server (sim_engine_test.go), and a platform that counts arrivals and executions itself.
//
// Replicas crash before or after any trip to the engine, freeze, are slow or cut off, stop, hand over and are buried. The
// engine loses requests and answers, goes away, warns that a standby may lack a commit, and is followed by a standby, in
// some seeds by one that lacks confirmed commits.
//
// Over all of it no window has too many arrivals, nothing is sent or written in a term that is over, each acknowledged call
// ends, none is executed twice, a key names one call, and none is executed that was told as not executed. If confirmed
// commits were lost their writer must end; calls about which they were are not judged, and limits hold before and after.
//
// The same seed is the same simulation, except for the order in which goroutines run, which GOMAXPROCS=1 narrows:
//
//	GOMAXPROCS=1 go test ./pkg/postgres -run TestSimulation -sim.seeds 1 -sim.seed N -sim.log
func TestSimulation(t *testing.T) {
	const block = 20
	if testing.Short() {
		*simSeeds = min(*simSeeds, 15)
	}
	percent := debug.SetGCPercent(400)
	t.Cleanup(func() { debug.SetGCPercent(percent) })
	for first := 0; first < *simSeeds; first += block {
		t.Run(fmt.Sprint("from ", *simFirst+uint64(first)), func(t *testing.T) {
			t.Parallel()
			for seed := *simFirst + uint64(first); seed < *simFirst+uint64(min(first+block, *simSeeds)) && !t.Failed(); seed++ {
				synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
			}
		})
	}
}

const (
	ms         = time.Millisecond
	simTimeout = 1200 * ms
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

func newSimulation(t *testing.T, seed uint64) *simulation {
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
	return sim
}

func simulate(t *testing.T, seed uint64) {
	sim := newSimulation(t, seed)
	sim.engine.asynchronous = sim.r.IntN(5) == 0
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
			sim.fault()
		}
		time.Sleep(time.Duration(sim.r.Int64N(int64(sim.lease))))
	}
	sim.end()
	if *simSeeds == 1 {
		t.Logf("%d calls, %d acknowledged, %d requests, %d replicas, %d terms, ends %v, %d commits, %d warnings, %d regresses, %v", sim.next, len(sim.acked), len(sim.judge.sent), sim.started,
			len(sim.engine.terms), sim.ends, sim.engine.commits, sim.engine.warnings, sim.engine.regresses, time.Since(sim.begun))
	}
	if t.Failed() {
		t.Logf("replay: go test ./pkg/postgres -run TestSimulation -sim.seeds 1 -sim.seed %d -sim.log", seed)
	}
}

// end lets all calls come to an end, and judges.
func (sim *simulation) end() {
	sim.settle()
	sim.drain()
	sim.finish()
	sim.check()
}

// TestReturnToALostTerm: an owner is cut off for longer than its lease, another one takes over and sends, and the server loses
// the commits of that take-over. The first owner, which finds itself in the lease, may not send before the other ones have told
// of the loss.
func TestReturnToALostTerm(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			sim := newSimulation(t, seed)
			sim.engine.asynchronous = true
			for range 2 {
				sim.spawn(nil)
				time.Sleep(sim.lease)
			}
			first := sim.processes[0]
			cut := 2*sim.lease + simTimeout + simLate + 2*time.Second // the second one sends
			sim.working.Go(func() { sim.pump(cut + 10*sim.lease) })
			time.Sleep(2 * sim.lease)
			sim.working.Go(func() { first.cutOff(cut) })
			time.Sleep(cut - time.Duration(sim.r.Int64N(int64(sim.lease/6))))
			if sent := sim.judge.last(); sent.epoch < 2 {
				t.Fatalf("seed %d: the second replica has not sent: %+v", seed, sent)
			}
			sim.engine.loseTerm()
			second := sim.processes[1]
			second.cutOff(sim.lease/2 + time.Duration(sim.r.Int64N(int64(sim.lease/4)))) // it looks before the first one has been silent for a lease
			time.Sleep(3 * sim.lease)
			sim.end()
			if sim.engine.regresses == 0 || t.Failed() {
				t.Fatalf("seed %d: %d losses of commits", seed, sim.engine.regresses)
			}
		})
	}
}

// TestFailOverWithoutLoss: a server that has all commits takes the place of another while the owner is cut off for longer than its
// lease. Its term ends, as another replica might have had the calls, but nothing is lost: calls that wait go on waiting.
func TestFailOverWithoutLoss(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			sim := newSimulation(t, seed)
			sim.engine.asynchronous, sim.judge.calm = true, true
			sim.spawn(nil)
			p, s := sim.await()
			for n := range 5 {
				path := fmt.Sprint("/once", n)
				sim.submit(p, s, scheduler.Request{Upstream: "api", Method: "POST", Target: path + "?key=1", NotBefore: time.Now().Add(20 * time.Second)}, path, true)
			}
			cut := 2 * sim.lease
			sim.working.Go(func() { p.cutOff(cut) })
			time.Sleep(sim.lease)
			sim.engine.follow()
			time.Sleep(cut + 30*time.Second)
			_, s = sim.await()
			for _, id := range sim.ids {
				if c, err := s.Get(t.Context(), id); err != nil || c.State != scheduler.Done {
					t.Errorf("seed %d: %+v, %v", seed, c, err)
				}
			}
			sim.end()
			if len(sim.ids) != 5 || sim.ends["over"] == 0 {
				t.Errorf("seed %d: %d calls, ends %v", seed, len(sim.ids), sim.ends)
			}
		})
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
func (sim *simulation) fault() {
	all := sim.live()
	p, _ := sim.owner()
	if len(all) == 0 {
		return
	}
	if p == nil || sim.r.IntN(4) == 0 {
		p = all[sim.r.IntN(len(all))]
	}
	var d time.Duration
	switch sim.r.IntN(4) {
	case 0:
		d = 100*ms + time.Duration(sim.r.Int64N(int64(500*ms)))
	case 1:
		d = 100*ms + time.Duration(sim.r.Int64N(int64(8*time.Second)))
	default: // about as long as the others wait
		d = sim.lease*3/4 + time.Duration(sim.r.Int64N(int64(sim.lease)))
	}
	sim.working.Go(func() { sim.pump(d + sim.lease + 2*time.Second) })
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
			sim.spawnAfter(d)
		})
	case 3: // at once
		p.kill()
		sim.working.Go(func() { sim.spawnAfter(d) })
	case 4, 5, 6:
		sim.logf("%s is frozen for %v", p.name, d)
		sim.working.Go(func() { p.freeze(d) })
		for _, q := range all { // others meanwhile, or at its end
			if q == p {
				continue
			}
			switch sim.r.IntN(5) {
			case 0, 1:
				sim.working.Go(func() { q.lag(sim.lease/4, d+sim.lease) })
			case 2:
				sim.working.Go(func() {
					time.Sleep(d - sim.engine.random(d/2))
					q.freeze(d / 3)
				})
			}
		}
	case 7:
		if sim.r.IntN(2) == 0 {
			sim.logf("%s is cut off for %v", p.name, d)
			sim.working.Go(func() { p.cutOff(d) })
		} else {
			longer := d + statementTimeout
			sim.logf("the writer's connection of %s is held for %v", p.name, longer)
			sim.working.Go(func() { p.stall(sim.engine, longer) })
		}
	case 8:
		sim.logf("%s hears late, and is then cut off for %v", p.name, d)
		sim.working.Go(func() { p.fade(sim.lease, d) })
	case 9:
		sim.logf("%s stops", p.name)
		p.stop()
		sim.working.Go(func() { sim.spawnAfter(d) })
	case 10:
		sim.working.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			err := all[0].member.Move(ctx, "", scheduler.AuditRecord{})
			sim.logf("a move by %s: %v", all[0].name, err)
		})
	case 11:
		sim.bury(all[0])
	default:
		if sim.r.IntN(3) == 0 { // and an owner is cut off by the same event
			sim.working.Go(func() { p.cutOff(d + sim.lease) })
		}
		sim.outage(d, kind == 12, kind == 12 && sim.engine.asynchronous)
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
				err := by.member.Bury(ctx, p.name, scheduler.AuditRecord{})
				sim.logf("%s is buried: %v", p.name, err)
			})
		}
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
