package scheduler

import (
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A streamed answer goes to the caller of a durable call as it comes, while a copy of it is
// made for the store. The copy grows at the upstream's pace, also after the caller has left,
// until the answer ends or the copy is full. The caller sees the end of the answer when the
// store has the end of the call, so that a repeat of a call whose answer was seen gets it too.
//
// The caller reads and closes; one goroutine makes the copy.
type streamed struct {
	status int
	header http.Header
	body   io.ReadCloser // read by makeCopy while it runs, else by Read
	max    int64         // bytes of the copy
	stored chan struct{} // closed when the store has the end of the call

	mu      sync.Mutex
	changed sync.Cond // more of it, up to read
	copying bool
	closed  bool
	copied  []byte
	err     error // that ended the answer; nil if the copy was full before
	read    int   // bytes of the copy that the caller has
}

// stream lets the answer of a result be read while it is copied, from begin on.
func stream(r *upstream.Result, max int64) {
	s := &streamed{status: r.Response.StatusCode, header: r.Response.Header.Clone(), body: r.Response.Body, max: max, stored: make(chan struct{})}
	s.changed.L = &s.mu
	r.Response.Body = s
}

// passOn gives the caller of a call an answer that goes on, and ends the call with a copy
// of it.
func passOn(now time.Time, u *upstreamState, c *call, state State, s *streamed) {
	s.begin()
	if c.passesOn(state) {
		end := c.Call.snapshot()
		end.become(now, state)
		c.tell(end)
	}
	u.setPhase(c, recording)
	var kept *Response
	u.loop.beside(func() { kept = s.makeCopy() }, func(now time.Time) {
		c.change().Response = kept
		u.end(now, c, state)
	})
}

// begin announces makeCopy, before the caller has the answer.
func (s *streamed) begin() { s.copying = true }

// makeCopy reads the answer up to its end, or until the copy is full.
func (s *streamed) makeCopy() *Response {
	chunk := make([]byte, 16<<10)
	for s.copying { // which this goroutine alone changes
		n, err := s.body.Read(chunk)
		s.mu.Lock()
		s.copied = append(s.copied, chunk[:n]...)
		s.err = err
		s.copying = err == nil && int64(len(s.copied)) <= s.max
		s.changed.Broadcast()
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		s.body.Close()
	}
	end := min(int64(len(s.copied)), s.max)
	return &Response{Status: s.status, Headers: s.header, Body: s.copied[:end:end], Truncated: s.err != io.EOF || end < int64(len(s.copied))}
}

// Read returns bytes of the copy, and then the rest of the answer.
func (s *streamed) Read(p []byte) (int, error) {
	s.mu.Lock()
	for s.copying && !s.closed && s.read == len(s.copied) {
		s.changed.Wait()
	}
	n := copy(p, s.copied[s.read:])
	s.read += n
	last := !s.copying && s.err != nil && s.read == len(s.copied)
	err, closed := s.err, s.closed
	s.mu.Unlock()
	switch {
	case closed:
		return 0, http.ErrBodyReadAfterClose
	case last:
		<-s.stored
	}
	switch {
	case n > 0 || len(p) == 0:
		return n, nil
	case err == nil:
		if n, err = s.body.Read(p); err != nil {
			<-s.stored
		}
	}
	return n, err
}

// Close leaves the rest of the answer to the copy.
func (s *streamed) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.changed.Broadcast()
	if s.copying {
		return nil
	}
	return s.body.Close()
}
