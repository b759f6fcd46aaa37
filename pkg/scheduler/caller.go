package scheduler

import (
	"context"
	"time"
)

// A caller waits in Do for the end of its call, or for an answer that streams.
type caller struct {
	granted chan *attempt // that it is to make, if it stays; closed when end is set
	stays   bool          // for attempts
	end     *Call         // the call as it ends; from then on its answer is the caller's
	left    bool          // before

	until time.Time // the end of its wait for queries about its unknown call
	gone  time.Time // the latest instant of a sending for it, by ClientTimeout; zero for none
}

// grant lets the caller make an attempt; false if it does not stay for it.
func (c *caller) grant(a *attempt) bool {
	if c == nil || !c.stays {
		return false
	}
	c.granted <- a
	return true
}

// await makes the attempts that the loop grants the caller, until the call has ended. It is false
// if ctx ends before, and leave has run: on another goroutine if an attempt was under way.
func (c *caller) await(ctx context.Context, leave func(during bool)) bool {
	for {
		select {
		case a, more := <-c.granted:
			if !more {
				return true
			}
			if stay(ctx, a, leave) {
				continue
			}
		case <-ctx.Done():
			leave(false)
		}
		select {
		case a := <-c.granted:
			if a != nil { // before the call was abandoned
				go a.run()
			}
		default:
		}
		return false
	}
}

// stay makes an attempt; false if ctx ends meanwhile, and leave has run.
func stay(ctx context.Context, a *attempt, leave func(during bool)) bool {
	if ctx.Done() == nil {
		a.run()
		return true
	}
	left := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(left)
		leave(true)
	})
	a.run()
	if stop() {
		return true
	}
	<-left
	return false
}
