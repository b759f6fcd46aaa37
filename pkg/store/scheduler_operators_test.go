package store

import (
	"context"
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

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var (
	operatorSeeds = flag.Int("operators.seeds", 200, "how many seeds TestOperators runs")
	operatorSeed  = flag.Uint64("operators.seed", 0, "the first of them; with -operators.seeds 1, the one to replay; 0: a fresh one")
)

// TestOperators lets two operators look at calls, think, and decide: by what they have seen, while
// each other, queries and crashes change the calls. The platform counts executions. A call is
// executed once, and once more for each duplicate that an operator has accepted; a decision
// that is stale is refused, and told what has changed; each that is taken has its record.
//
//	go test ./pkg/store -run TestOperators -operators.seeds 1 -operators.seed N
func TestOperators(t *testing.T) {
	const block = 50
	begin, seeds := *operatorSeed, *operatorSeeds
	if testing.Short() {
		seeds = min(seeds, 2*block)
	}
	if begin == 0 {
		begin = uint64(time.Now().Unix())
	}
	t.Logf("seeds from %d", begin)
	empty := emptyFile(t)
	var all deeds
	t.Run("seeds", func(t *testing.T) {
		for first := 0; first < seeds; first += block {
			t.Run(fmt.Sprint("from ", begin+uint64(first)), func(t *testing.T) {
				t.Parallel()
				for n := first; n < min(first+block, seeds) && !t.Failed(); n++ {
					seed, dir := begin+uint64(n), scratch(t)
					path := filepath.Join(dir, fmt.Sprint(seed, ".db"))
					if err := os.WriteFile(path, empty, 0o600); err != nil {
						t.Fatal(err)
					}
					synctest.Test(t, func(t *testing.T) { operate(t, seed, path, &all) })
					os.RemoveAll(dir)
				}
			})
		}
	})
	t.Logf("%+v", all.figures)
	if f := all.figures; *operatorSeeds >= 200 && (f.Taken == 0 || f.Stale == 0 || f.Unsafe == 0 || f.Duplicates == 0 || f.Crashes == 0 || f.ByQueries == 0) {
		t.Errorf("something was not tried: %+v", f)
	}
}

// deeds are what all seeds have done.
type deeds struct {
	mu      sync.Mutex
	figures figures
}

type figures struct {
	Calls, Executed, Crashes      int
	Taken, Stale, Unsafe          int // decisions
	ByQueries, Duplicates, Others int
	Asked, Edited, Cancelled      int
	Doubled                       int // without an operator who has accepted it
}

// A payment is a call of the simulation.
type payment struct {
	path  string
	async bool
}

// An office has the state that the processes of one seed share.
type office struct {
	*testing.T
	path string
	db   *DB

	mu       sync.Mutex
	r        *rand.Rand
	executed map[string]int // by path, at the platform
	ids      []string
	payments map[string]payment // by id
	figures  figures
	next     int
}

func (o *office) random(n int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.r.IntN(n)
}

func (o *office) pause(most time.Duration) { time.Sleep(time.Duration(o.random(int(most)))) }

func operate(t *testing.T, seed uint64, path string, all *deeds) {
	o := &office{T: t, path: path, r: rand.New(rand.NewPCG(seed, 7)), executed: make(map[string]int), payments: make(map[string]payment)}
	db, err := Open(path, Options{Log: quiet, boot: steadyBoot, fileID: sameFile, raw: "_pragma=synchronous(OFF)", reserve: 4096})
	if err != nil {
		t.Fatal(err)
	}
	o.db = db
	defer db.Close()
	for range 2 + o.random(3) {
		o.life(1+o.random(60), o.random(2) == 0)
	}
	o.life(-1, false)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.figures.add(o.figures)
	if t.Failed() {
		t.Logf("replay: go test ./pkg/store -run TestOperators -operators.seeds 1 -operators.seed %d", seed)
	}
}

func (f *figures) add(g figures) {
	f.Calls, f.Executed, f.Crashes = f.Calls+g.Calls, f.Executed+g.Executed, f.Crashes+g.Crashes
	f.Taken, f.Stale, f.Unsafe = f.Taken+g.Taken, f.Stale+g.Stale, f.Unsafe+g.Unsafe
	f.ByQueries, f.Duplicates, f.Others = f.ByQueries+g.ByQueries, f.Duplicates+g.Duplicates, f.Others+g.Others
	f.Asked, f.Edited, f.Cancelled, f.Doubled = f.Asked+g.Asked, f.Edited+g.Edited, f.Cancelled+g.Cancelled, f.Doubled+g.Doubled
}

// life is one process: it dies at its n-th change, or, as the last one, ends cleanly.
func (o *office) life(n int, after bool) {
	pr := &process{p: &platform{r: rand.New(rand.NewPCG(uint64(o.random(1<<30)), 3))}, dead: make(chan struct{})}
	f := &fuse{DB: o.db, pr: pr, left: n, after: after}
	u := scheduler.Upstream{
		Durable: `path startsWith "/durable"`, Breaker: retry.Trip{Unknown: -1}, Limits: []scheduler.Limit{{Name: "app", Calls: 5, Window: time.Second}},
		Resolve: []scheduler.Resolve{{
			When: `method == "POST"`, Target: `"/query?path=" + path`, After: 5 * time.Second, Every: 8 * time.Second, Queries: 2,
			Outcomes: []upstream.Rule{{When: `body("state") == "made"`, Is: upstream.Done}, {When: `body("state") == "none"`, Is: upstream.NotExecuted}},
		}},
	}
	u.URL, u.Transport, u.Timeout = "http://platform.test", &bank{o, pr}, 2*time.Second
	u.Idempotent = `path contains "/safe"`
	u.Outcomes = []upstream.Rule{{When: "status == 429", Is: upstream.NotExecuted, Pause: &upstream.Pause{For: time.Second}}}
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: f, Log: quiet})
	if err != nil {
		if !errors.Is(err, scheduler.ErrBroken) {
			o.Error(err)
		}
		o.figures.Crashes++
		return
	}
	var work, operators sync.WaitGroup
	leave := make(chan struct{})
	if n > 0 {
		for _, name := range []string{"alice", "bob"} {
			operators.Go(func() { o.work(s, leave, name) })
		}
		for range 3 + o.random(5) {
			o.pay(s, pr, &work)
			o.pause(time.Second)
		}
		select {
		case <-pr.dead:
		case <-time.After(time.Duration(o.random(int(50 * time.Second)))):
		}
		if o.random(2) == 0 {
			pr.kill()
		}
	} else {
		time.Sleep(30 * time.Second)
		o.check(s)
	}
	close(leave)
	operators.Wait() // the clock of a bubble stands still while Close waits for a change of theirs
	err = s.Close()
	work.Wait()
	select {
	case <-pr.dead:
		o.mu.Lock()
		o.figures.Crashes++
		o.mu.Unlock()
	default:
		if err != nil {
			o.Error(err)
		}
	}
}

// A bank is the platform: it executes a repeat that it recognises once.
type bank struct {
	*office
	pr *process
}

func (p *bank) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-p.pr.dead:
		return nil, errors.New("the process is dead")
	default:
	}
	status, body, fault, trip := 200, "{}", error(nil), time.Duration(p.random(int(300*ms)))
	p.mu.Lock()
	path := req.URL.Path
	if path == "/query" {
		body = `{"state":"none"}`
		if p.executed[req.URL.Query().Get("path")] > 0 {
			body = `{"state":"made"}`
		}
		if p.r.IntN(3) > 0 {
			status, body = 503, "{}"
		}
	} else {
		kind := p.r.IntN(9)
		if kind >= 3 && (!strings.Contains(path, "/safe") || p.executed[path] == 0) {
			p.executed[path]++
			p.figures.Executed++
		}
		switch kind {
		case 0:
			p.mu.Unlock()
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
		case 1:
			status = 429
		case 2, 3, 4, 5: // executed, or not
			fault = io.ErrUnexpectedEOF
		case 6:
			status = 500
		}
	}
	p.mu.Unlock()
	select {
	case <-time.After(trip):
	case <-p.pr.dead:
		return nil, errors.New("the process has died")
	case <-req.Context().Done():
		return nil, context.Cause(req.Context())
	}
	if fault != nil {
		return nil, fault
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// pay makes a payment: of a caller who waits, or not; recognised when repeated, or not.
func (o *office) pay(s *scheduler.Scheduler, pr *process, work *sync.WaitGroup) {
	o.mu.Lock()
	o.next++
	p := payment{path: fmt.Sprint([]string{"/once/", "/safe/", "/durable/once/"}[o.r.IntN(3)], o.next)}
	o.mu.Unlock()
	p.async = !strings.HasPrefix(p.path, "/durable")
	r := scheduler.Request{Upstream: "api", Method: "POST", Target: p.path, Priority: o.random(3)}
	if o.random(4) == 0 && p.async {
		r.NotBefore = time.Now().Add(time.Duration(o.random(int(20 * time.Second))))
	}
	keep := func(c *scheduler.Call) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.ids, o.payments[c.ID] = append(o.ids, c.ID), p
		o.figures.Calls++
	}
	if p.async {
		if c, err := s.Submit(context.Background(), r); err == nil {
			keep(c)
		}
		return
	}
	work.Go(func() {
		resp, c, err := s.Do(context.Background(), r)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if c != nil && (err == nil || errors.Is(err, scheduler.NoAnswer)) { // else it was not accepted, perhaps
			keep(c)
		}
	})
}

// work is an operator's: to look at a call and at the platform, to think, and to act.
func (o *office) work(s *scheduler.Scheduler, leave <-chan struct{}, name string) {
	for {
		o.pause(1500 * ms)
		o.mu.Lock()
		id := ""
		if len(o.ids) > 0 {
			id = o.ids[max(0, len(o.ids)-1-o.r.IntN(6))] // both look at the same few
		}
		o.mu.Unlock()
		select {
		case <-leave:
			return
		default:
		}
		seen, err := s.Get(context.Background(), id)
		if err != nil {
			continue
		}
		o.mu.Lock()
		made := o.executed[o.payments[id].path] > 0 // after the look: no earlier than what it shows
		o.mu.Unlock()
		o.pause(3 * time.Second)
		switch seen.State {
		case scheduler.Waiting:
			o.move(s, seen)
		case scheduler.Unknown:
			o.decide(s, seen, made, name)
		}
	}
}

// move cancels or changes a waiting call.
func (o *office) move(s *scheduler.Scheduler, seen *scheduler.Call) {
	if o.random(4) == 0 {
		if _, err := s.Cancel(context.Background(), seen.ID); err == nil {
			o.count(&o.figures.Cancelled)
		}
		return
	}
	priority, notBefore := o.random(5), time.Now().Add(time.Duration(o.random(int(10*time.Second))))
	e := scheduler.Edit{Priority: &priority}
	if o.random(2) == 0 {
		e.NotBefore = &notBefore
	}
	if _, err := s.Edit(context.Background(), seen.ID, e); err == nil {
		o.count(&o.figures.Edited)
	}
}

func (o *office) count(n *int) {
	o.mu.Lock()
	*n++
	o.mu.Unlock()
}

// decide decides about a call as it was seen.
func (o *office) decide(s *scheduler.Scheduler, seen *scheduler.Call, made bool, name string) {
	d := scheduler.Decision{As: upstream.NotExecuted, Attempt: seen.Last().N, By: name, Reason: "looked up"}
	o.mu.Lock()
	safe := strings.Contains(o.payments[seen.ID].path, "/safe")
	o.mu.Unlock()
	if seen.Pending == nil || seen.Pending.Attempt != d.Attempt || seen.Pending.RepeatIsSafe != safe {
		o.Errorf("%s is shown as %+v", seen.ID, seen.Pending)
	}
	if made {
		d.As = upstream.Done
	}
	how := s.Resolve
	switch o.random(8) {
	case 0, 1:
		if _, err := s.Ask(context.Background(), seen.ID, name); err == nil {
			o.count(&o.figures.Asked)
		}
		return
	case 2, 3:
		how = s.Retry
	case 4:
		how, d.AcceptDuplicate = s.Retry, true
	}
	record := scheduler.AuditRecord{Actor: name, Action: "decide", Call: seen.ID}
	err := s.Audited(context.Background(), record, func() error {
		_, err := how(context.Background(), seen.ID, d)
		return err
	})
	var refused *scheduler.Error
	switch {
	case err == nil:
		o.count(&o.figures.Taken)
	case !errors.As(err, &refused):
		o.Errorf("%s: %v", seen.ID, err)
	case refused.Reason == scheduler.ChangedSince:
		o.count(&o.figures.Stale)
		now := refused.Call
		if now == nil || now.State == scheduler.Unknown && now.Last().N == d.Attempt || !strings.Contains(refused.Detail, fmt.Sprintf("since attempt %d, which the decision is about: it is %s now, after attempt %d", d.Attempt, now.State, now.Last().N)) {
			o.Errorf("stale: %v, %+v", err, now)
		}
	case refused.Reason == scheduler.MayExecuteTwice:
		o.count(&o.figures.Unsafe)
		if d.AcceptDuplicate || strings.Contains(o.payments[seen.ID].path, "/safe") {
			o.Errorf("%s: %v", seen.ID, err)
		}
	case refused.Reason == scheduler.Stopping, refused.Reason == scheduler.StoreFailed,
		refused.Reason == scheduler.WrongState && !seen.Async: // only its caller can send it again
		o.count(&o.figures.Others)
	default:
		o.Errorf("%s, seen as %+v: %v", seen.ID, seen, err)
	}
}

// check compares the calls with the platform, with the order of decisions, and with the records.
func (o *office) check(s *scheduler.Scheduler) {
	for id, p := range o.payments {
		c, err := s.Get(context.Background(), id)
		if err != nil {
			o.Errorf("LOST: %s: %v", p.path, err)
			continue
		}
		executed, accepted := o.executed[p.path], 0
		for _, d := range c.Decisions {
			if d.AcceptDuplicate {
				accepted++
				o.figures.Duplicates++
			}
			if strings.HasPrefix(d.By, "query") {
				o.figures.ByQueries++
			} else {
				o.recorded(s, c, d)
			}
			for _, a := range c.Attempts {
				if (a.N > d.Attempt) == a.SentAt.Before(d.At.Truncate(time.Microsecond)) {
					o.Errorf("STALE: decision %+v of %s, attempts %+v", d, p.path, c.Attempts)
				}
			}
		}
		if executed > 1+accepted {
			o.figures.Doubled++
			o.Errorf("DOUBLED: %s was executed %d times, %d duplicates were accepted: %+v", p.path, executed, accepted, c)
		}
		switch c.State {
		case scheduler.Done:
			if executed == 0 {
				o.Errorf("%s is done and was not executed: %+v", p.path, c)
			}
		case scheduler.Cancelled, scheduler.Expired, scheduler.Exhausted:
			if executed > 0 {
				o.Errorf("%s is %s and was executed: %+v", p.path, c.State, c)
			}
		}
	}
}

// recorded looks for the record of a decision, which came before it.
func (o *office) recorded(s *scheduler.Scheduler, c *scheduler.Call, d scheduler.Decision) {
	records, err := s.AuditLog(context.Background(), scheduler.AuditFilter{Call: c.ID, Actor: d.By})
	if err != nil {
		o.Error(err)
	}
	for _, r := range records {
		if !r.At.After(d.At) && r.After == "" {
			return
		}
	}
	o.Errorf("decision %+v of %s has no record: %+v", d, c.ID, records)
}
