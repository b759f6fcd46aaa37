package scheduler

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// storeTime is how long a caller waits, after its ctx has ended, for the store to take the end of
// its call.
const storeTime = time.Second

// A caller waits for the end of its call, or for an answer that streams. Its goroutine may go
// meanwhile: a grant, the end of its call or that of its ctx calls it again.
type caller struct {
	ctx    context.Context
	came   time.Time   // with its request
	client interface { // Request.Client
		Leave(c *Call, err error)
		Left() bool
	}
	service *service      // that took the call
	again   func(c *call) // lets a goroutine attend to the caller again; it does not block

	presence atomic.Int32            // of a goroutine for it: present, absent or called
	granted  atomic.Pointer[attempt] // that the caller is to make; nil once it is made
	over     atomic.Bool             // end is set
	end      *Call                   // the call as it ends; from then on its answer is the caller's
	left     bool                    // the caller has left before the end

	unwatch func() bool    // ends the watch of ctx; nil before the caller has waited
	leaving sync.WaitGroup // a leave during an attempt
	stood   *Call          // the call when its caller had left; nil if it could not be read

	until time.Time // the end of its wait for queries about its unknown call
	gone  time.Time // the latest instant of a sending for it, by ClientTimeout; zero for none
}

// The presence of a caller. Its goroutine makes it present, and absent unless it has been called
// since. Others make it called: the loop by a grant or an end, and the watch of the ctx.
const (
	present int32 = iota // a goroutine looks for the next thing to do
	absent               // none does
	called               // there may be something to do
)

// The results of a caller are those of Do.
type results struct {
	resp *http.Response
	call *Call
	err  error
}

// grant lets the caller of a call make an attempt; false if it does not stay for it: its ctx may
// end, and it has no Client.
func (c *call) grant(a *attempt) bool {
	if c.caller == nil || c.caller.client == nil && c.caller.ctx.Done() != nil {
		return false
	}
	c.caller.granted.Store(a)
	c.callAgain()
	return true
}

// callAgain tells the caller that there may be something to do.
func (c *call) callAgain() {
	if c.caller.presence.Swap(called) == absent {
		c.caller.again(c)
	}
}

// goAway ends the work of this goroutine for the caller; false if there may be something to do.
func (c *call) goAway() bool {
	if c.caller.unwatch == nil {
		c.caller.unwatch = context.AfterFunc(c.caller.ctx, c.callAgain)
	}
	return c.caller.presence.CompareAndSwap(present, absent)
}

// attend makes the attempts that the loop grants the caller of a call, and returns its results. If
// the caller has to wait, a goroutine attends to it again when there is something to do. A panic, of
// the caller's ctx or of a Store, gives the call up: its goroutine may recover from it.
func (c *call) attend(s *Scheduler) (r results, waits bool) {
	whole := false
	defer func() {
		if !whole {
			c.giveUp(s)
		}
	}()
	r, waits = c.serve(s)
	whole = true
	return r, waits
}

func (c *call) serve(s *Scheduler) (r results, waits bool) {
	caller := c.caller
	for {
		caller.presence.Store(present)
		switch a := caller.granted.Load(); {
		case a != nil:
			if !c.stay(s, a) {
				return caller.departed(caller.stood), false
			}
		case caller.over.Load():
			return c.results(s), false
		case caller.ctx.Err() != nil:
			c.leave(s)
			if a := caller.granted.Load(); a != nil { // before the call was abandoned
				c.unsend(a)
				c.leave(s)
			}
			return caller.departed(caller.stood), false
		case c.goAway():
			return results{}, true
		}
	}
}

// attendSafely is attend for a goroutine of the scheduler: a fault harms this caller alone.
func (c *call) attendSafely(s *Scheduler) (r results, waits bool) {
	defer func() {
		if v := recover(); v != nil {
			s.log.Error("BUG: the results of a call cannot be told", "upstream", c.caller.service.Name, "panic", v, "stack", string(debug.Stack()))
			r, waits = results{err: &Error{Reason: NoAnswer, Upstream: c.caller.service.Name, Detail: "an internal error; the call may have been executed"}}, false
		}
	}()
	return c.attend(s)
}

// departed returns the results of a caller that has left: by its Client, before its ctx ends, or with
// its ctx.
func (c *caller) departed(stood *Call) results {
	return results{nil, stood, cmp.Or(c.ctx.Err(), context.Canceled)}
}

// results returns the results of a call that has ended.
func (c *call) results(s *Scheduler) results {
	caller := c.caller
	if caller.unwatch != nil {
		caller.unwatch()
	}
	last := caller.end.snapshot()
	if c.abandoned() { // while it was accepted
		return caller.departed(last)
	}
	answer := c.answer()
	if last.State == Unknown && c.streams() == nil && (answer == nil || !answer.Truncated) {
		last = s.followUps.askFor(caller.ctx, caller.service, c, last)
	}
	if answer != nil {
		if c.passesOn(caller.end.State) {
			return results{answer.Response, last, nil}
		}
		answer.Response.Body.Close()
	}
	if c.Durable && s.journal.hasFailed() && last.Outcome() == upstream.NotExecuted {
		last.State = Unknown
		return results{nil, last, &Error{Reason: NoAnswer, Upstream: c.Upstream, Call: last, Detail: fmt.Sprintf("the store has failed before the end of call %s was stored: the next process may send it; look it up before you send it again", c.ID)}}
	}
	return results{nil, last, explain(c, last)}
}

// atOnce is the longest time from its caller's request to its attempt of a call that has not waited:
// for its slot, for the store, or for another call.
const atOnce = time.Millisecond

// stay makes an attempt; false if the caller's ctx ends meanwhile: Client.Leave has returned then.
// The client of a call that has waited is asked before whether it has left.
func (c *call) stay(s *Scheduler, a *attempt) bool {
	caller := c.caller
	if caller.ctx.Done() == nil {
		c.run(a)
		return true
	}
	waited := caller.unwatch != nil || time.Since(caller.came) > atOnce
	if waited && caller.hasLeft(s.log) || caller.ctx.Err() != nil {
		s.loop.post(func(now time.Time) { c.up.abandon(now, c) })
		c.unsend(a)
		c.leave(s)
		return false
	}
	caller.leaving.Add(1)
	stop := context.AfterFunc(caller.ctx, func() {
		defer caller.leaving.Done()
		c.leave(s)
		caller.client.Leave(caller.stood, caller.ctx.Err())
	})
	c.run(a)
	if stop() {
		caller.leaving.Done()
		return true
	}
	caller.leaving.Wait()
	return false
}

// hasLeft asks the client whether it has left. If it panics, the attempt is made.
func (c *caller) hasLeft(log *slog.Logger) bool {
	defer func() {
		if v := recover(); v != nil {
			log.Error("Left of a Client panicked", "panic", v, "stack", string(debug.Stack()))
		}
	}()
	return c.client.Left()
}

// run makes the attempt that the caller was granted. The loop may grant the next one meanwhile.
func (c *call) run(a *attempt) {
	c.caller.granted.Store(nil)
	a.run()
}

// unsend ends an attempt, which sends nothing, of a call that its caller has abandoned.
func (c *call) unsend(a *attempt) {
	a.unsent = true
	c.run(a)
}

// giveUp abandons the call of a caller that no goroutine attends to any more.
func (c *call) giveUp(s *Scheduler) {
	s.loop.post(func(now time.Time) { c.up.abandon(now, c) })
	if a := c.caller.granted.Load(); a != nil {
		c.unsend(a)
	}
	if c.caller.unwatch != nil {
		c.caller.unwatch()
	}
}

// leave abandons a call whose caller's ctx has ended, and notes how it stands. If that ends the
// call, the end is told when it is stored, which may take up to storeTime.
func (c *call) leave(s *Scheduler) {
	inLoop := context.WithoutCancel(c.caller.ctx)
	id := ""
	var ended <-chan struct{}
	s.loop.ask(inLoop, func(now time.Time) {
		id = c.ID
		c.up.abandon(now, c)
		if c.ending {
			ended = c.whenEnded()
		}
	})
	if ended != nil {
		bounded, cancel := context.WithTimeout(inLoop, storeTime)
		defer cancel()
		await(bounded, ended)
	}
	if stood, err := s.Get(inLoop, id); err == nil {
		c.caller.stood = stood
	}
}
