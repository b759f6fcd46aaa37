package upstream

import (
	"bytes"
	"io"
	"slices"
	"sync"
	"time"
)

// A head reads the beginning of a body for the rules. Afterwards it is the
// whole body for its receiver, unchanged; nothing is held back once the
// inspection is over.
type head struct {
	body io.ReadCloser
	max  int
	size int // of the body up to max; -1 if it is not known

	done chan struct{} // closed when reading ahead has ended; nil if inspect itself has read
	err  error         // read error that ended it, io.EOF at the end of the body; nil if enough was read. Set before done closes.

	mu   sync.Mutex
	buf  []byte // grows until done
	stop bool   // the inspection is over

	at int // bytes of buf that the receiver has read
}

// inspect reads up to max bytes of a body for up to delay; with zero it waits as
// long as the attempt may last. It returns the bytes read. Reading ahead may go
// on after it; closing the head waits for its end. Size is that of the body, below
// zero if it is not known.
func inspect(body io.ReadCloser, max, size int64, delay time.Duration) (*head, []byte) {
	h := &head{body: body, max: int(max), size: int(min(size, max))}
	if delay == 0 || arrived(body, size) {
		h.fill()
		return h, h.buf
	}
	h.done = make(chan struct{})
	go func() {
		defer close(h.done)
		h.fill()
	}()
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

// arrived reports whether the whole body can be read without waiting.
func arrived(body io.ReadCloser, size int64) bool {
	b, ok := body.(interface{ Arrived(n int64) bool })
	return ok && size >= 0 && b.Arrived(size)
}

// maxRead is how many bytes of a body are read at once.
const maxRead = 16 << 10

// fill reads ahead.
func (h *head) fill() {
	for {
		h.mu.Lock()
		room := h.size + 1 - len(h.buf) // with a byte for its end
		if room <= 0 {
			room = bytes.MinRead
		}
		h.buf = slices.Grow(h.buf, min(room, maxRead))
		free := h.buf[len(h.buf):cap(h.buf)]
		h.mu.Unlock()
		n, err := h.body.Read(free[:min(len(free), maxRead, h.max+1)])
		h.mu.Lock()
		h.buf = h.buf[:len(h.buf)+n]
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

// ended reports whether the body has been read to its end or an error, and returns
// io.EOF or the error.
func (h *head) ended() (bool, error) {
	if h.done != nil {
		select {
		case <-h.done:
		default:
			return false, nil
		}
	}
	return h.err != nil, h.err
}

// wait waits until reading ahead has ended.
func (h *head) wait() {
	if h.done != nil {
		<-h.done
	}
}

// Read returns the bytes that were read ahead, and then the rest.
func (h *head) Read(p []byte) (int, error) {
	if n := h.read(p); n > 0 || len(p) == 0 {
		return n, nil
	}
	h.wait()
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
	h.wait()
	return err
}

// A tail is the body of an answer that goes on after its inspection: each read restarts
// its time-out.
type tail struct {
	*head
	life    *lifetime
	timeout time.Duration
}

func (t *tail) Read(p []byte) (int, error) {
	t.life.timer.Reset(t.timeout)
	return t.head.Read(p)
}

func (t *tail) Close() error {
	t.life.end(nil) // and reading ahead
	return t.head.Close()
}
