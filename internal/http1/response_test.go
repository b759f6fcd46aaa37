package http1

import (
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestDate: an answer has the date, once: the handler's if that gives one.
func TestDate(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		if own := r.URL.Query().Get("own"); own != "" {
			w.Header().Set("Date", own)
		}
	}
	bubble(t, h, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		time.Sleep(3 * time.Second)
		for target, want := range map[string]string{"/": "Sat, 01 Jan 2000 00:00:03 GMT", "/?own=today": "today"} {
			resp := ask(t, c, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
			if got := resp.Header["Date"]; !slices.Equal(got, []string{want}) {
				t.Errorf("%s: dates %q, want %q", target, got, want)
			}
		}
	})
}

// long writes a long answer in one piece.
func long(w http.ResponseWriter) error {
	w.Header().Set("Content-Length", "65536")
	_, err := w.Write(make([]byte, 64<<10))
	return err
}

// TestTimeOfEachPart: the time to take a part runs since the part before it was taken, or since a
// little earlier.
func TestTimeOfEachPart(t *testing.T) {
	var wrote chan error
	h := func(w http.ResponseWriter, _ *http.Request) { wrote <- long(w) }
	bubble(t, h, func() { wrote = make(chan error, 1) }, func(t *testing.T, s *Server, dial func() net.Conn) {
		for after, want := range map[time.Duration]time.Duration{coarse / 2: s.WriteTimeout, coarse: s.WriteTimeout + coarse} {
			c, began := dial(), time.Now()
			go io.WriteString(c, get)
			time.Sleep(after)
			if n, err := c.Read(make([]byte, bufferSize)); n != bufferSize || err != nil {
				t.Errorf("the first part has %d bytes, %v", n, err)
			}
			if err := next(t, wrote, time.Hour); err == nil || time.Since(began) != want {
				t.Errorf("a part that is taken after %v, and no other one: %v after %v, want %v", after, err, time.Since(began), want)
			}
		}
	})
}

// TestDeadlineOfAnAnswer: that of the handler does not hold for the next answer.
func TestDeadlineOfAnAnswer(t *testing.T) {
	var wrote chan error
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Hour))
		}
		wrote <- long(w)
	}
	bubble(t, h, func() { wrote = make(chan error, 2) }, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		ask(t, c, "GET /own HTTP/1.1\r\nHost: a\r\n\r\n")
		if err := next(t, wrote, time.Hour); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		began := time.Now()
		io.WriteString(c, get)
		if err := next(t, wrote, time.Hour); err == nil || time.Since(began) != s.WriteTimeout {
			t.Errorf("%v after %v, want %v", err, time.Since(began), s.WriteTimeout)
		}
	})
}

// TestFlushFails: a handler is told of a client that does not take its answer.
func TestFlushFails(t *testing.T) {
	var flushed chan error
	h := func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "begun")
		now := http.NewResponseController(w)
		flushed <- now.Flush()
		flushed <- now.Flush()
	}
	bubble(t, h, func() { flushed = make(chan error, 2) }, func(t *testing.T, s *Server, dial func() net.Conn) {
		io.WriteString(dial(), get)
		if first, second := next(t, flushed, time.Hour), next(t, flushed, time.Hour); first == nil || second != first {
			t.Errorf("%v, then %v", first, second)
		}
	})
}
