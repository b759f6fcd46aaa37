package ledger

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var (
	schedules = flag.Int("schedules", 110, "how many schedules are played, over all platforms")
	from      = flag.Uint64("seed", 0, "the first seed; with -schedules 1, the one to replay")
	fresh     = flag.Bool("fresh", false, "begin with a seed of the clock")
	only      = flag.String("platform", "", "the name of the only platform to be played, or of its first word")
)

// TestMoney plays random schedules of callers against each platform: payments, refunds and
// transfers, their repeats, cancels, queries, decisions of a person, and crashes. By the
// platform's ledger nothing was charged, refunded or transferred twice, no payment was sent
// after its cancel, and no call was told to be failed that was executed, or done that was
// not. A repeat under a new number is a new payment, and a wrong decision of a person
// takes its unit out of the count.
//
// A schedule and the faults of its platform follow from its seed; the order of goroutines
// does not. One that fails is printed with the actions that it needs:
//
//	go test ./internal/ledger -run TestMoney -platform alipay -schedules 1 -seed N
func TestMoney(t *testing.T) {
	rows := playedDialects()
	if *fresh {
		*from = rand.Uint64() >> 1
	}
	each := (*schedules + len(rows) - 1) / len(rows)
	whole := t
	for _, d := range rows {
		t.Run(d.Name, func(t *testing.T) {
			t.Parallel()
			st := stageOf(t, d)
			for seed := *from; seed < *from+uint64(each) && !whole.Failed(); seed++ {
				s := draw(d, seed)
				if faults := st.play(t, s); len(faults) > 0 {
					s, faults = st.shrink(t, s, faults)
					t.Errorf("%s\n%s\nreplay: go test ./internal/ledger -run TestMoney -platform '%s' -schedules 1 -seed %d", strings.Join(faults, "\n"), s, d.Name, seed)
				}
			}
			if !whole.Failed() {
				st.report(t, each)
			}
		})
	}
}

// A stage is where the schedules of one platform are played.
type stage struct {
	up    scheduler.Upstream
	count map[string]int // events by name
}

// playedDialects returns the platforms that the flags name.
func playedDialects() []Dialect {
	return slices.DeleteFunc(slices.Clone(Dialects), func(d Dialect) bool {
		return *only != "" && d.Name != *only && !strings.HasPrefix(d.Name, *only+" ")
	})
}

// stageOf reads the configuration of a platform.
func stageOf(t *testing.T, d Dialect) *stage {
	c, err := config.Parse(fmt.Appendf(nil, "upstreams:\n  pay:\n    url: http://platform.test\n    preset: %s\n%s\n", d.Preset, d.More))
	if err != nil {
		t.Fatal(err)
	}
	return &stage{up: c.Scheduler.Upstreams["pay"], count: make(map[string]int)}
}

// report logs how much was played, and fails if it was nothing.
func (st *stage) report(t *testing.T, schedules int) {
	for _, name := range slices.Sorted(maps.Keys(st.count)) {
		t.Logf("%7d %s", st.count[name], name)
	}
	for _, k := range []string{"told done", "told unknown", "told failed"} {
		if schedules >= 40 && st.count[k] == 0 {
			t.Errorf("no call was %s", k)
		}
	}
}

// shrink leaves out the actions that a schedule does not need to fail.
func (st *stage) shrink(t *testing.T, s *schedule, faults []string) (*schedule, []string) {
	for i := len(s.actions) - 1; i >= 0; i-- {
		less := *s
		less.actions = slices.Delete(slices.Clone(s.actions), i, i+1)
		if i < len(less.actions) {
			less.actions[i].wait += s.actions[i].wait
		}
		if f := st.play(t, &less); len(f) > 0 {
			s, faults = &less, f
		}
	}
	return s, faults
}

// A game is a schedule that is played.
type game struct {
	*schedule
	st       *stage
	p        *Platform
	path     string // of the store; empty for none
	r        *rand.Rand
	deaths   []death
	progress int // actions that were begun

	mu      sync.Mutex
	made    map[string]Operation // by the id of the call
	told    []Told
	spoilt  map[string]bool // units that a person has decided wrongly
	faults  []string
	callers sync.WaitGroup
}

// play plays a schedule in a bubble of its own, and returns its faults.
func (st *stage) play(t *testing.T, s *schedule) (faults []string) {
	path := ""
	if len(s.deaths) > 0 {
		dir := scratch(t)
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, "throttler.db")
	}
	synctest.Test(t, func(t *testing.T) {
		g := &game{schedule: s, st: st, path: path, deaths: s.deaths, r: rand.New(rand.NewPCG(s.seed, 2)), made: make(map[string]Operation), spoilt: make(map[string]bool)}
		g.p = New(s.Dialect, s.seed, s.careful)
		for _, op := range s.before {
			g.p.Enter(op)
		}
		for g.run() {
		}
		faults = append(g.faults, g.p.Faults(g.told, func(unit string) bool { return g.spoilt[unit] })...)
		for name, n := range g.p.Count {
			st.count["answer to "+name] += n
		}
		for _, told := range g.told {
			st.count["told "+told.As]++
			st.count[fmt.Sprint("told ", told.As, ": ", told.Kind)]++
		}
	})
	return faults
}

// scratch returns a directory, in memory if possible.
func scratch(t *testing.T) string {
	if dir, err := os.MkdirTemp("/dev/shm", "throttler-ledger"); err == nil {
		return dir
	}
	return t.TempDir()
}

var quiet = slog.New(slog.DiscardHandler)

// unsigned stands for the signer: platforms of the tests look at no signature.
type unsigned struct{}

func (unsigned) Sign(context.Context, *upstream.Request) error { return nil }

// run is one process; false after the last one.
func (g *game) run() bool {
	pr := &process{to: g.p, dead: make(chan struct{})}
	c := scheduler.Config{Log: quiet}
	calm := func() {}
	if g.path != "" {
		db, err := store.Open(g.path, store.Options{Log: quiet})
		if err != nil {
			g.faults = append(g.faults, err.Error())
			return false
		}
		defer db.Close()
		f := &fuse{Durable: db, process: pr, r: rand.New(rand.NewPCG(g.r.Uint64(), 3)), left: -1}
		if len(g.deaths) > 0 {
			f.death, f.left = g.deaths[0], g.deaths[0].change
		}
		c.Store, calm = f, f.calm
	}
	last := len(g.deaths) == 0
	if !last {
		g.deaths = g.deaths[1:]
	}
	c.Upstreams = map[string]scheduler.Upstream{"pay": g.upstream(pr)}
	s, err := scheduler.New(c)
	if err != nil {
		if !errors.Is(err, scheduler.ErrBroken) {
			g.faults = append(g.faults, err.Error())
		}
		return !last
	}
	g.act(s, pr)
	switch {
	case pr.isDead():
	case last:
		g.settle(s)
	default:
		g.die(pr)
	}
	calm()
	s.Close()
	g.callers.Wait()
	pr.kill()
	return !last
}

// die ends a process at once, or lets it end its attempts.
func (g *game) die(pr *process) {
	if g.actions[g.progress-1].deed == dies {
		pr.kill()
	}
}

func (g *game) upstream(pr *process) scheduler.Upstream {
	u := g.st.up
	u.Transport, u.Signer = pr, unsigned{}
	u.MaxAge = 20 * time.Minute
	u.Limits = []scheduler.Limit{{Name: "all", Calls: 4, Window: time.Second}}
	if g.calm {
		u.Breaker.Unknown, u.Retry.Share = -1, 0
	}
	if g.durable {
		u.Durable = `method == "POST"`
	}
	return u
}

// act plays the actions of callers and people, until the process dies.
func (g *game) act(s *scheduler.Scheduler, pr *process) {
	for g.progress < len(g.actions) && !pr.isDead() {
		a := g.actions[g.progress]
		g.progress++
		time.Sleep(a.wait)
		switch a.deed {
		case calls:
			g.call(s, pr, a)
		case withdraws:
			if id := g.any(); id != "" {
				s.Cancel(context.Background(), id) // or it is too late
			}
		case decides, errs:
			g.decide(s, a.deed == errs)
		case dies, stops:
			if len(g.deaths) > 0 {
				return
			}
		}
	}
}

// any returns the id of a call that was made.
func (g *game) any() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	ids := slices.Sorted(maps.Keys(g.made))
	if len(ids) == 0 {
		return ""
	}
	return ids[g.r.IntN(len(ids))]
}

// call hands over a call, as its caller does.
func (g *game) call(s *scheduler.Scheduler, pr *process, a action) {
	w := g.Write(a.op)
	r := scheduler.Request{Upstream: "pay", Method: w.Method, Target: w.Target, Header: http.Header{"User-Agent": {a.op.Tag}}, Body: []byte(w.Body)}
	for name, value := range w.Header {
		r.Header.Set(name, value)
	}
	if a.known {
		r.IdempotencyKey = g.p.UnitOf(a.op)
	}
	if a.at > 0 {
		r.NotBefore = time.Now().Add(a.at)
	}
	g.callers.Go(func() {
		ctx := context.Background()
		if a.leaves > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, a.leaves)
			defer cancel()
		}
		var c *scheduler.Call
		var err error
		if a.how == submits {
			c, err = s.Submit(ctx, r)
		} else {
			var resp *http.Response
			if resp, c, err = s.Do(ctx, r); err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		if !pr.isDead() { // else its caller hears nothing
			g.note(a, c, err)
		}
	})
}

// note keeps the outcome that a caller was told at once.
func (g *game) note(a action, c *scheduler.Call, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c != nil && !c.Repeated {
		g.made[c.ID] = a.op
	}
	var refused *scheduler.Error
	switch {
	case a.how == submits && err == nil: // see settle
	case err == nil:
		g.tell(a.op, time.Now(), string(c.Outcome()))
	case errors.As(err, &refused) && (refused.Call == nil || !refused.Call.Repeated):
		g.tell(a.op, time.Now(), string(refused.Outcome()))
	}
}

func (g *game) tell(op Operation, at time.Time, as string) {
	g.told = append(g.told, Told{op, at, as})
}

// decide lets a person look at the ledger and decide an unknown call.
func (g *game) decide(s *scheduler.Scheduler, wrongly bool) {
	unknown, err := s.List(context.Background(), scheduler.Filter{States: []scheduler.State{scheduler.Unknown}, Oldest: true})
	if err != nil {
		return // the process has died
	}
	for _, c := range unknown.Calls {
		g.mu.Lock()
		op, known := g.made[c.ID]
		g.mu.Unlock()
		if !known || g.r.IntN(2) == 0 {
			continue
		}
		truth := g.p.Truth(op)
		if truth == Processing {
			continue // a person waits, too
		}
		as := upstream.Done
		if (truth == Executed) == wrongly {
			as = []upstream.Outcome{upstream.Failed, upstream.NotExecuted}[g.r.IntN(2)]
		}
		if wrongly {
			g.mu.Lock()
			g.spoilt[g.p.UnitOf(op)] = true
			g.mu.Unlock()
		}
		s.Resolve(context.Background(), c.ID, scheduler.Decision{As: as, Reason: "seen at the platform"}) // or it is ended, or being sent
	}
}

// settle waits until nothing happens any more, and keeps how each call ended.
func (g *game) settle(s *scheduler.Scheduler) {
	g.callers.Wait()
	time.Sleep(35 * time.Minute) // longer than max_age
	for id, op := range g.made {
		c, err := s.Get(context.Background(), id)
		if err != nil {
			continue // it was in the memory of another process
		}
		at := c.FinishedAt
		if at.IsZero() {
			at = time.Now()
		}
		as := string(c.State)
		switch c.State {
		case scheduler.Cancelled, scheduler.Expired, scheduler.Exhausted:
			as = "not_executed"
		}
		g.tell(op, at, as)
	}
}
