package scheduler

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// maxParted bounds the entries of calls whose callers had their answers: no bound of an upstream
// counts such calls.
const maxParted = 10000

// questions are the unknown calls that are being queried, calls whose queries are used up, and,
// of those with business numbers, the last calls whose callers had their answers. A notification can
// let those with numbers be queried at once. There is one entry for a call, and none for a
// decided call.
type questions struct {
	mu       sync.Mutex
	byID     map[string]*question
	byNumber map[numbered]map[*question]struct{}
	parted   []string            // ids of calls whose callers had their answers, the oldest first
	asked    map[string]*inquiry // queries by Ask that are under way, by id of their calls
}

// A numbered is a business number of an upstream.
type numbered struct{ upstream, name, value string }

// A question is the entry of an unknown call.
type question struct {
	call     *Call         // nil for one without numbers
	now      chan struct{} // holds one value: ask without waiting
	earliest time.Time     // of the next query, as the last answer asks; guarded by the mutex
	progress               // guarded by the mutex; idle: its queries have ended, and it is still unknown
}

// An inquiry is a query by Ask.
type inquiry struct {
	by   string
	over chan struct{} // closed at its end
	err  error         // why there was no answer; set before over is closed
}

func newQuestions() *questions {
	return &questions{byID: make(map[string]*question), byNumber: make(map[numbered]map[*question]struct{}), asked: make(map[string]*inquiry)}
}

// open returns the entry of a call that is queried from now on.
func (qs *questions) open(c *Call) *question {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.add(c)
	q.progress = progress{}
	return q
}

// entry returns the entry of a call, which may be new and is then idle.
func (qs *questions) entry(c *Call) *question {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byID[c.ID]
	if q == nil {
		q = qs.add(c)
		q.idle = true
	}
	return q
}

// plan notes when the next query is due, of so many.
func (qs *questions) plan(q *question, at time.Time, most int) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.next, q.most = at, most
}

// begin notes that the query that was due is under way.
func (qs *questions) begin(q *question) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.next = time.Time{}
}

// delay notes until when an answer asks to leave the upstream alone.
func (qs *questions) delay(q *question, until time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.earliest = until
}

// delayed returns how long the next query waits for that.
func (qs *questions) delayed(q *question, now time.Time) time.Duration {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q.earliest.IsZero() {
		return 0
	}
	return q.earliest.Sub(now)
}

// made notes that a query was accepted: it is a call, and will be sent.
func (qs *questions) made(q *question, now time.Time) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.last = now
	q.progress.made++
}

// heard notes the answer to the last query.
func (qs *questions) heard(q *question, query *Call) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q.query, q.answer = query.ID, query.lastWords()
	if query.Response != nil {
		q.answer = fmt.Sprintf("status %d", query.Response.Status)
	}
}

// doubt notes why queries settle nothing.
func (qs *questions) doubt(q *question, why string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q.query != "" {
		why = q.answer + ", and " + why
	}
	q.answer = why
}

// progress returns how far the queries about a call are.
func (qs *questions) progress(id string) progress {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.byID[id]; q != nil {
		return q.progress
	}
	return progress{idle: true}
}

// inquire returns the query by Ask about a call that is under way, or begins one.
func (qs *questions) inquire(id, by string) (i *inquiry, begun bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if i = qs.asked[id]; i == nil {
		i, begun = &inquiry{by: by, over: make(chan struct{})}, true
		qs.asked[id] = i
	}
	return i, begun
}

// answered ends a query by Ask.
func (qs *questions) answered(id string, i *inquiry, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	i.err = err
	delete(qs.asked, id)
	close(i.over)
}

// part adds an entry of a call whose caller has its answer, unless there is one.
func (qs *questions) part(c *Call) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if qs.byID[c.ID] != nil || len(c.Numbers) == 0 {
		return
	}
	c = c.snapshot()
	c.Response = nil
	qs.add(c).idle = true
}

// add returns the entry of a call, which may be new. Without numbers no notification can
// find it, and it is not kept if its caller had the answer.
func (qs *questions) add(c *Call) *question {
	q := qs.byID[c.ID]
	if q == nil {
		q = &question{now: make(chan struct{}, 1)}
		switch {
		case len(c.Numbers) > 0:
			q.call = c
		case !c.Async:
			return q
		}
		if !c.Async {
			qs.parted = append(qs.parted, c.ID)
			if len(qs.parted) > maxParted {
				qs.remove(qs.parted[0])
				qs.parted = qs.parted[1:]
			}
		}
		qs.byID[c.ID] = q
		for name, value := range c.Numbers {
			n := numbered{c.Upstream, name, value}
			if qs.byNumber[n] == nil {
				qs.byNumber[n] = make(map[*question]struct{})
			}
			qs.byNumber[n][q] = struct{}{}
		}
	}
	return q
}

// rest notes that the queries about a call have ended undecided, or reports that a
// notification has come meanwhile.
func (qs *questions) rest(id string) (again bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.byID[id]
	if q == nil {
		return false
	}
	q.idle = len(q.now) == 0
	q.next = time.Time{}
	return !q.idle
}

// drop removes the entry of a call that is decided.
func (qs *questions) drop(id string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.remove(id)
}

func (qs *questions) remove(id string) {
	q := qs.byID[id]
	if q == nil {
		return
	}
	delete(qs.byID, id)
	if q.call == nil {
		return
	}
	for name, value := range q.call.Numbers {
		n := numbered{q.call.Upstream, name, value}
		if delete(qs.byNumber[n], q); len(qs.byNumber[n]) == 0 {
			delete(qs.byNumber, n)
		}
	}
}

// wake sends at once the next queries about the calls that a notification concerns: calls that
// share one of its numbers and contradict none. It returns their number, and the calls that are
// not being queried.
func (qs *questions) wake(upstream string, numbers map[string]string) (concerned int, idle []*Call) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	seen := make(map[*question]bool)
	for name, value := range numbers {
		for q := range qs.byNumber[numbered{upstream, name, value}] {
			if seen[q] || contradicts(q.call.Numbers, numbers) {
				continue
			}
			seen[q] = true
			select {
			case q.now <- struct{}{}:
			default: // the query that is due counts for this notification too
			}
			if q.idle {
				idle = append(idle, q.call)
			}
		}
	}
	return len(seen), idle
}

// contradicts reports whether two sets of numbers have one name with two values.
func contradicts(a, b map[string]string) bool {
	for name, value := range a {
		if other, both := b[name]; both && other != value {
			return true
		}
	}
	return false
}

// wait waits until the next query is due: after a time, or early after a notification. Ok is false
// if ctx ends before.
func (q *question) wait(ctx context.Context, wait time.Duration) (early, ok bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, false
	case <-q.now:
		return true, ctx.Err() == nil
	case <-timer.C:
		return false, true
	}
}
