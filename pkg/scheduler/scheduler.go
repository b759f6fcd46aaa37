// Package scheduler calls rate-limited APIs; it breaks no limit and loses no call.
//
//	s, err := scheduler.New(cfg)
//	client := &http.Client{Transport: s.Transport("alipay")} // waits for the answer
//	call, err := s.Submit(ctx, request)                      // does not
//
//	Submit ─► waiting ── its slot fires ──► sending ──► done, failed
//	           ▲   └─► expired, cancelled     │ └─────► unknown ─► waiting, done, failed
//	           └── a new single-shot timeout ─┴───────► exhausted
//
// A call that was limited, or is safe to repeat, waits again; an unknown one waits for a
// query ([Resolve]) or a person. The order is priority, turns of flows, and age. A
// [Durable] store outlives the process. All methods may be called concurrently.
//
// # Inside
//
// The loop owns the wheel and the state of each upstream. Goroutines post messages to it, which
// run one at a time, each on the goroutine that posts it. A call passes
//
//	submit.go     the caller's goroutine: check the request, compute its demand
//	waiting.go    the loop: admit, plan (package planner), refuse by ETA
//	attempt.go    the caller's goroutine or another one: intent, signature, request, retry policy
//	conclude.go   the loop: permits back, state recorded, caller woken
//
// and journal.go is the only part that calls a [Store].
package scheduler

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
)

// A Scheduler schedules calls to a set of upstreams.
type Scheduler struct {
	// Set by New.
	log       *slog.Logger
	journal   *journal
	loop      *loop
	followUps *followUps
	sampler   *sampler
	relay     *relay             // nil without Config.Ended
	cuts      context.Context    // ends when attempts in flight are cut off
	cut       context.CancelFunc // ends cuts

	// services are the upstreams as they are configured now; Reload replaces them in the
	// loop, others read them.
	services   atomic.Pointer[map[string]*service]
	reloading  sync.Mutex // held by Reload
	generation uint32     // of services; guarded by reloading
	times      attemptTimes

	pausing   sync.Mutex    // held while a pause takes effect and is stored
	resolving chan struct{} // has an element while a call that is not in memory is decided

	stopping atomic.Bool // since the beginning of a stop
	closing  sync.Once
	closed   chan struct{}
	err      error // of the stores; set before closed is closed
}

// New starts a scheduler. The error joins all faults of the config.
func New(c Config) (*Scheduler, error) {
	services, err := compile(c, 1)
	if err != nil {
		return nil, err
	}
	s := &Scheduler{log: c.Log, generation: 1, sampler: newSampler(), resolving: make(chan struct{}, 1), closed: make(chan struct{})}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.services.Store(&services)
	s.cuts, s.cut = context.WithCancel(context.Background())
	s.journal = newJournal(c.Store, s.log)
	s.loop = newLoop(s, c)
	s.followUps = newFollowUps(s)
	s.loop.after, s.loop.settleBy, s.loop.progress = s.followUps.after, s.followUps.settleBy, s.followUps.questions.progress
	s.journal.onFail = func() {
		s.stopping.Store(true)
		s.loop.post(s.loop.stop)
	}
	if s.journal.outlives() {
		err := s.loop.recover()
		if err == nil {
			s.times.stored = s.loop.timeouts
			s.times.in, _ = s.journal.durable.(Leased)
			err = s.times.extend(s.cuts, services)
		}
		if err != nil {
			s.cut()
			return nil, err
		}
	}
	s.loop.begin()
	if c.Ended != nil {
		s.relay = newRelay(c.Ended, s.journal, s.log)
		s.followUps.work.Go(func() { s.relay.run(s.followUps.ctx) })
	}
	s.loop.work.Go(s.loop.run)
	if s.journal.outlives() {
		s.followUps.work.Go(func() { s.journal.watch(s.followUps.ctx) })
		s.followUps.resumeAll(services)
		if from, ok := s.journal.durable.(arrivalStore); ok {
			s.followUps.work.Go(func() { (&intake{s, from, make(map[string]bool)}).run(s.followUps.ctx) })
		}
		if s.times.in != nil {
			s.followUps.work.Go(func() { s.times.shorten(s.followUps.ctx, s) })
		}
	}
	return s, nil
}

// service returns an upstream as it is configured now, nil if it is not.
func (s *Scheduler) service(upstream string) *service { return (*s.services.Load())[upstream] }

// Failed is closed when the store has failed: the scheduler accepts and sends
// nothing any more, and Close returns the reason. The process should end; the next one
// finds all that was stored.
func (s *Scheduler) Failed() <-chan struct{} { return s.journal.failed }

// Close refuses new calls and those whose callers wait, ends the ctx of handlers (see
// Config.Ended), lets the attempts in flight end, each within its time-out, and returns
// when every goroutine has, but those that tell callers of [Scheduler.Begin] their results.
func (s *Scheduler) Close() error { return s.Shutdown(context.Background()) }

// Shutdown is Close with a bound: when ctx ends, attempts in flight are cut off;
// the outcome of those that may have been executed is unknown. It waits no longer then for the
// server of a [Leased] store that is away.
func (s *Scheduler) Shutdown(ctx context.Context) error {
	stop := context.AfterFunc(ctx, s.cut)
	defer stop()
	s.closing.Do(func() {
		defer s.journal.giveUpAfter(ctx)()
		s.stopping.Store(true)
		s.loop.ask(context.Background(), s.loop.stop)
		s.followUps.stop()
		<-s.loop.ended
		s.loop.work.Wait()
		s.followUps.work.Wait()
		if !s.journal.outlives() {
			s.loop.logLosses(int(s.followUps.refused.Load()), s.journal.unhandled())
		}
		for _, sv := range *s.services.Load() {
			sv.up.Close()
		}
		s.err = s.journal.close(s.loop.holdsNow)
		close(s.closed)
	})
	<-s.closed
	return s.err
}
