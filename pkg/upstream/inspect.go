package upstream

import (
	"context"
	"io"
	"sync"
	"time"
)

// A head reads the beginning of a body, for rules to look into, and then is the
// whole body for whoever gets it: nothing of it changes, and none of it is held
// back once the inspection is over.
type head struct {
	body io.ReadCloser
	max  int

	done chan struct{} // closed when no more is read ahead
	err  error         // why, if not for its length; io.EOF at the end of the body. Set before done closes.

	mu   sync.Mutex
	buf  []byte // grows until done
	stop bool   // nobody waits for the inspection any more

	at int // how far the receiver has read
}

// inspect reads up to max bytes of a body for up to delay; zero waits for them as
// long as the attempt may last. It returns what is there. Reading ahead may still
// go on then: whoever has the head closes it, which waits for that.
func inspect(body io.ReadCloser, max int64, delay time.Duration) (*head, []byte) {
	h := &head{body: body, max: int(max), done: make(chan struct{})}
	if delay == 0 {
		h.fill()
		return h, h.buf
	}
	go h.fill()
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-h.done:
	case <-timer.C:
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stop = true
	return h, h.buf[:len(h.buf):len(h.buf)]
}

// fill reads ahead.
func (h *head) fill() {
	defer close(h.done)
	chunk := make([]byte, min(h.max+1, 16<<10))
	for {
		n, err := h.body.Read(chunk)
		h.mu.Lock()
		h.buf = append(h.buf, chunk[:n]...)
		enough := h.stop || len(h.buf) > h.max
		h.mu.Unlock()
		if err != nil {
			h.err = err
			return
		}
		if enough {
			return
		}
	}
}

// ended reports whether the body has been read to an end, and to which.
func (h *head) ended() (bool, error) {
	select {
	case <-h.done:
		return h.err != nil, h.err
	default:
		return false, nil
	}
}

// Read gives what was read ahead, and then the rest.
func (h *head) Read(p []byte) (int, error) {
	if n := h.read(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	<-h.done
	if n := h.read(p); n > 0 {
		return n, nil
	}
	if h.err != nil {
		return 0, h.err
	}
	return h.body.Read(p)
}

func (h *head) read(p []byte) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := copy(p, h.buf[h.at:])
	h.at += n
	return n
}

func (h *head) Close() error {
	err := h.body.Close()
	<-h.done
	return err
}

// A tail is a body that goes on after its inspection: each read gives it new time.
type tail struct {
	*head
	cancel  context.CancelCauseFunc
	idle    *time.Timer
	timeout time.Duration
}

func (t *tail) Read(p []byte) (int, error) {
	t.idle.Reset(t.timeout)
	return t.head.Read(p)
}

func (t *tail) Close() error {
	t.idle.Stop()
	t.cancel(nil) // what still reads ahead returns
	return t.head.Close()
}
