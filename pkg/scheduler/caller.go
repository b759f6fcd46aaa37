package scheduler

import (
	"context"
	"sync"
	"time"
)

// storeTime is how long Do waits, after its ctx has ended, for the store to take the end of a call.
const storeTime = time.Second

// A caller waits in Do for the end of its call, or for an answer that streams.
type caller struct {
	ctx    context.Context
	came   time.Time   // with its request
	client interface { // Request.Client
		Leave(c *Call, err error)
		Left() bool
	}

	granted chan *attempt // the attempt that the caller is to make; closed when end is set
	end     *Call         // the call as it ends; from then on its answer is the caller's
	left    bool          // the caller has left before the end

	leaving sync.WaitGroup // a leave during an attempt
	stood   *Call          // the call when its caller had left; nil if it could not be read

	until time.Time // the end of its wait for queries about its unknown call
	gone  time.Time // the latest instant of a sending for it, by ClientTimeout; zero for none
}

// grant lets the caller make an attempt; false if it does not stay for it: its ctx may end, and
// it has no Client.
func (c *caller) grant(a *attempt) bool {
	if c == nil || c.client == nil && c.ctx.Done() != nil {
		return false
	}
	c.granted <- a
	return true
}

// atOnce is the longest time from its caller's request to its attempt of a call that has not waited:
// for its slot, for the store, or for another call.
const atOnce = time.Millisecond

// await makes the attempts that the loop grants the caller of a call, until the call has ended. It
// is false if the caller's ctx ends before.
func (c *call) await(s *Scheduler) bool {
	waited := len(c.caller.granted) == 0 || time.Since(c.caller.came) > atOnce
	for ; ; waited = true {
		select {
		case a, more := <-c.caller.granted:
			if !more {
				return true
			}
			if c.stay(s, a, waited) {
				continue
			}
		case <-c.caller.ctx.Done():
			c.leave(s)
		}
		select {
		case a := <-c.caller.granted:
			if a != nil { // before the call was abandoned
				c.unsend(s, a)
			}
		default:
		}
		return false
	}
}

// stay makes an attempt; false if the caller's ctx ends meanwhile: Client.Leave has returned then.
// The client of a call that has waited is asked before whether it has left.
func (c *call) stay(s *Scheduler, a *attempt, waited bool) bool {
	caller := c.caller
	if caller.ctx.Done() == nil {
		a.run()
		return true
	}
	if waited && caller.client.Left() || caller.ctx.Err() != nil {
		s.loop.ask(context.WithoutCancel(caller.ctx), func(now time.Time) { c.up.abandon(now, c) })
		c.unsend(s, a)
		return false
	}
	caller.leaving.Add(1)
	stop := context.AfterFunc(caller.ctx, func() {
		defer caller.leaving.Done()
		c.leave(s)
		caller.client.Leave(caller.stood, caller.ctx.Err())
	})
	a.run()
	if stop() {
		caller.leaving.Done()
		return true
	}
	caller.leaving.Wait()
	return false
}

// unsend ends an attempt, which sends nothing, of a call that its caller has abandoned.
func (c *call) unsend(s *Scheduler, a *attempt) {
	a.unsent = true
	a.run()
	c.leave(s)
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
