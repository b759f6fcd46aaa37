package scheduler

import "context"

// A watch is the wait of callers for news of a call: that it has come from the store into the loop,
// has left memory, or has ended. The loop has at most one of a call, by its id: a call may be watched
// wherever it is, and has nothing to take along when it moves.
//
// No end is missed. The loop runs one message at a time, and each end is in the store before the
// message that tells it. So a caller that first begins to watch, by a message, and then looks for
// the call, in memory and in the store, finds the end, or is told of it: an end that is not in
// the store when the caller looks is told by a later message than that with which the watch
// began. This also holds for a call that is in the store and has yet to come into the loop.
type watch struct {
	news    chan struct{} // closed at the next news
	end     *Call         // before they come: the call, if it has finished and the store has that; else it is looked for
	callers int           // that have not had them
}

// watches are the watches of calls by id.
type watches map[string]*watch

// join returns the watch of a call, with one caller more.
func (all watches) join(id string) *watch {
	w := all[id]
	if w == nil {
		w = &watch{news: make(chan struct{})}
		all[id] = w
	}
	w.callers++
	return w
}

// leave takes a caller away.
func (all watches) leave(id string, w *watch) {
	if w.callers--; w.callers == 0 && all[id] == w {
		delete(all, id)
	}
}

// tell tells the callers that watch a call that there is news of it. An end, nil for none, is theirs at
// once: they have the answer when the first caller has it, and not a reading of the store later.
func (all watches) tell(id string, end *Call) {
	if w := all[id]; w != nil {
		delete(all, id)
		w.end = end
		close(w.news)
	}
}

// whenEnded returns a channel that is closed when the end of the call, which is being recorded,
// is stored.
func (c *call) whenEnded() <-chan struct{} { return c.up.loop.watched.join(c.ID).news }

// tellEnd tells that the end of the call is recorded. A store that has refused it knows better.
func (c *call) tellEnd() {
	c.ending = false
	var end *Call
	if c.stored && c.State.Finished() {
		end = c.Call
	}
	c.up.loop.watched.tell(c.ID, end)
}

// await waits until a channel is closed, or ctx ends.
func await(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
