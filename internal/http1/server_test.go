package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections are pipes.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { close(p.conns); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// bubble serves h in virtual time; dial returns the client's end of a new connection. Channels of
// h are made by prepare, in the bubble.
func bubble(t *testing.T, h http.HandlerFunc, prepare func(), test func(t *testing.T, s *Server, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		prepare()
		l, s, ended := pipes{make(chan net.Conn)}, newServer(h), make(chan struct{})
		go func() {
			defer close(ended)
			if err := s.Serve(l); err != http.ErrServerClosed {
				t.Error(err)
			}
		}()
		var opened []net.Conn
		defer func() {
			s.Close()
			for _, c := range opened {
				c.Close()
			}
			next(t, ended, time.Hour)
		}()
		test(t, s, func() net.Conn {
			here, there := net.Pipe()
			opened = append(opened, here)
			here.SetDeadline(time.Now().Add(24 * time.Hour))
			l.conns <- there
			synctest.Wait()
			return here
		})
	})
}

const get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

func nothing(http.ResponseWriter, *http.Request) {}

// endsAfter fails the test unless the server closes c after d, without a byte.
func endsAfter(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	began := time.Now()
	c.SetReadDeadline(began.Add(time.Hour))
	if n, err := c.Read(make([]byte, 1)); n > 0 || err != io.EOF || time.Since(began) != d {
		t.Errorf("%d bytes and %v after %v; want the end after %v", n, err, time.Since(began), d)
	}
}

// next returns the next value of a channel, which comes within d.
func next[T any](t *testing.T, values <-chan T, d time.Duration) (v T) {
	t.Helper()
	select {
	case v = <-values:
	case <-time.After(d):
		t.Fatalf("nothing comes for %v", d)
	}
	return v
}

// ask sends a request and reads its answer.
func ask(t *testing.T, c net.Conn, request string) *http.Response {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Hour))
	go io.WriteString(c, request)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp
}

func TestTimeouts(t *testing.T) {
	bubble(t, nothing, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		endsAfter(t, dial(), s.HeaderTimeout)
		c := dial()
		ask(t, c, get)
		for range 3 {
			time.Sleep(s.IdleTimeout - 2*time.Second)
			ask(t, c, get)
		}
		time.Sleep(coarse / 2)
		ask(t, c, get)
		synctest.Wait()
		endsAfter(t, c, s.IdleTimeout-coarse/2) // the deadline of half a second ago
		drips := func(c net.Conn) {             // each piece of the head comes in time, the whole does not
			for range 3 {
				io.WriteString(c, "GET /")
				time.Sleep(3 * time.Second)
			}
			endsAfter(t, c, s.HeaderTimeout-9*time.Second)
		}
		drips(dial())
		c = dial()
		time.Sleep(s.HeaderTimeout / 2)
		io.WriteString(c, "GET /")
		endsAfter(t, c, s.HeaderTimeout/2) // the time of the first head runs since the connection began
		c = dial()
		ask(t, c, get)
		time.Sleep(coarse)
		ask(t, c, get)
		synctest.Wait()
		endsAfter(t, c, s.IdleTimeout)
		c = dial()
		ask(t, c, get)
		time.Sleep(time.Minute)
		drips(c)
	})
}

func TestTimeToTakeAnAnswer(t *testing.T) {
	var wrote chan error
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NewResponseController(w).SetWriteDeadline(time.Now().Add(5 * time.Second))
		}
		if r.URL.Path == "/given-back" {
			http.NewResponseController(w).SetWriteDeadline(time.Time{})
		}
		w.Header().Set("Content-Length", "65536")
		_, err := w.Write(make([]byte, 64<<10))
		wrote <- err
	}
	bubble(t, h, func() { wrote = make(chan error, 2) }, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		go io.WriteString(c, get)
		for range 8 { // 4 KiB with the head, then 16 KiB each
			time.Sleep(s.WriteTimeout - coarse)
			c.Read(make([]byte, writeSize))
		}
		if err := next(t, wrote, time.Hour); err != nil {
			t.Errorf("an answer that is taken in parts: %v", err)
		}
		c = dial()
		began := time.Now()
		io.WriteString(c, get)
		if err := next(t, wrote, time.Hour); err == nil || time.Since(began) != s.WriteTimeout {
			t.Errorf("an answer that is not taken: %v after %v", err, time.Since(began))
		}
		c = dial()
		began = time.Now()
		io.WriteString(c, "GET /own HTTP/1.1\r\nHost: a\r\n\r\n")
		if err := next(t, wrote, time.Hour); err == nil || time.Since(began) != 5*time.Second {
			t.Errorf("a deadline of the handler: %v after %v", err, time.Since(began))
		}
		c = dial()
		began = time.Now()
		io.WriteString(c, "GET /given-back HTTP/1.1\r\nHost: a\r\n\r\n")
		if err := next(t, wrote, time.Hour); err == nil || time.Since(began) != s.WriteTimeout {
			t.Errorf("a deadline that the handler gives back: %v after %v", err, time.Since(began))
		}
	})
}

// A handler's deadline for reading holds for the body, and for no later request.
func TestDeadlineOfABody(t *testing.T) {
	var read chan error
	h := func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		_, err := io.ReadAll(r.Body)
		read <- err
	}
	bubble(t, h, func() { read = make(chan error, 1) }, func(t *testing.T, s *Server, dial func() net.Conn) {
		c := dial()
		ask(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
		if err := next(t, read, time.Hour); err != nil {
			t.Error(err)
		}
		time.Sleep(s.IdleTimeout - time.Second)
		began := time.Now()
		if resp := ask(t, c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx"); !resp.Close {
			t.Error("the connection lives on, with the rest of a body")
		}
		if err := next(t, read, time.Hour); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// halves is a pipe whose halves can be closed apart, as far as a server sees.
type halves struct{ net.Conn }

func (halves) CloseWrite() error { return nil }

// A client that is answered before it has sent its body may go on sending for a while, so that it
// reads the answer.
func TestLinger(t *testing.T) {
	for name, tt := range map[string]struct {
		every time.Duration
		size  int           // of each piece
		ends  time.Duration // after the answer
	}{
		"sends and ends":  {400 * time.Millisecond, 10, 0},
		"pauses too long": {time.Minute, 10, lingerPause},
		"does not end":    {400 * time.Millisecond, 10, lingerTime + 400*time.Millisecond}, // its next piece is refused
		"sends much":      {400 * time.Millisecond, 1 << 20, lingerTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, s, ended := pipes{make(chan net.Conn)}, newServer(nothing), make(chan struct{})
				go func() {
					defer close(ended)
					s.Serve(l)
				}()
				here, there := net.Pipe()
				l.conns <- halves{there}
				if resp := ask(t, here, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n"); !resp.Close {
					t.Error("the connection lives on")
				}
				began := time.Now()
				for n := 0; ; n++ {
					if name == "sends and ends" && n == 5 {
						here.Close()
						break
					}
					if _, err := here.Write(make([]byte, tt.size)); err != nil {
						break
					}
					synctest.Wait()
					if n == 0 && tt.every == time.Minute {
						endsAfter(t, here, tt.ends)
						break
					}
					time.Sleep(tt.every)
				}
				if d := time.Since(began); tt.ends > 0 && d != tt.ends {
					t.Errorf("the connection ended after %v, want %v", d, tt.ends)
				}
				s.Stop()
				<-ended
			})
		})
	}
}

// A server that stops closes the connections between two requests at once. It answers requests
// that have begun, and the first request of a connection for a while.
func TestStop(t *testing.T) {
	var release chan struct{}
	h := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-release
		}
	}
	for _, h := range []http.HandlerFunc{h, later(h)} {
		bubble(t, h, func() { release = make(chan struct{}) }, func(t *testing.T, s *Server, dial func() net.Conn) {
			old := dial()
			time.Sleep(newTime)
			idle, fresh, late, slow, half := dial(), dial(), dial(), dial(), dial()
			ask(t, idle, get)
			io.WriteString(slow, "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
			io.WriteString(half, "GET / ")
			synctest.Wait()
			down := make(chan error)
			go func() { down <- s.Shutdown(t.Context()) }()
			synctest.Wait()
			endsAfter(t, old, 0)
			endsAfter(t, idle, 0)
			if resp := ask(t, fresh, get); !resp.Close {
				t.Error("a connection of a server that stops lives on")
			}
			endsAfter(t, fresh, 0)
			if resp := ask(t, half, "HTTP/1.1\r\nHost: a\r\n\r\n"); !resp.Close {
				t.Error("a connection of a server that stops lives on")
			}
			endsAfter(t, late, newTime)
			select {
			case err := <-down:
				t.Errorf("the server has ended before its last request: %v", err)
			default:
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := s.Shutdown(ctx); err != context.DeadlineExceeded {
				t.Errorf("a shutdown within 1s: %v", err)
			}
			close(release)
			if resp := ask(t, slow, ""); !resp.Close {
				t.Error("a connection of a server that stops lives on")
			}
			if err := next(t, down, time.Hour); err != nil {
				t.Error(err)
			}
			again := pipes{make(chan net.Conn)}
			if err := s.Serve(again); err != http.ErrServerClosed {
				t.Errorf("serves again: %v", err)
			}
			if _, err := again.Accept(); err != net.ErrClosed {
				t.Errorf("the listener of a server that is stopped: %v", err)
			}
		})
	}
	if err := newServer(nil).Shutdown(t.Context()); err != nil {
		t.Errorf("a server that has not served: %v", err)
	}
}

// TestRequestOrStop: a request that comes while the server stops is served and answered, or is not
// served at all.
func TestRequestOrStop(t *testing.T) {
	for range 300 {
		var served int
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s, ended := newServer(func(http.ResponseWriter, *http.Request) { served++ }), make(chan struct{})
		go func() {
			defer close(ended)
			s.Serve(l)
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ask(t, c, get)
		go s.Stop()
		io.WriteString(c, get)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		<-ended
		if answered := err == nil && resp.StatusCode == 200; answered != (served == 2) {
			t.Fatalf("%d requests were served; the second one was answered: %v, %v", served, answered, err)
		}
		c.Close()
	}
}

// A handler sees the end of its context when the server is closed.
func TestClose(t *testing.T) {
	var ended chan struct{}
	h := func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
		close(ended)
	}
	for _, h := range []http.HandlerFunc{h, later(h)} {
		bubble(t, h, func() { ended = make(chan struct{}) }, func(t *testing.T, s *Server, dial func() net.Conn) {
			c := dial()
			io.WriteString(c, get)
			synctest.Wait()
			s.Close()
			next(t, ended, time.Hour)
			endsAfter(t, c, 0)
		})
	}
}

// failing is a listener that fails a few times before it accepts.
type failing struct {
	net.Listener
	times int
	err   error
}

func (f *failing) Accept() (net.Conn, error) {
	if f.times > 0 {
		f.times--
		return nil, f.err
	}
	return f.Listener.Accept()
}

func TestListenerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooMany := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		began, p := time.Now(), pipes{make(chan net.Conn)}
		s, l, ended := newServer(nothing), &failing{p, 4, tooMany}, make(chan error)
		var logs bytes.Buffer
		s.Log = slog.New(slog.NewTextHandler(&logs, nil))
		go func() { ended <- s.Serve(l) }()
		accept := func(after time.Duration) {
			here, there := net.Pipe()
			p.conns <- there
			if d := time.Since(began); d != after {
				t.Errorf("accepted after %v, want %v", d, after)
			}
			ask(t, here, get)
			synctest.Wait()
		}
		accept((5 + 10 + 20 + 40) * time.Millisecond)
		l.times = 2
		began = time.Now()
		accept(0) // and then it fails
		accept((5 + 10) * time.Millisecond)
		if n := strings.Count(logs.String(), "too many open files"); n != 6 {
			t.Errorf("%d failures are logged: %s", n, &logs)
		}
		s.Close()
		if err := <-ended; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	broken := errors.New("broken")
	if err := newServer(nothing).Serve(&failing{pipes{make(chan net.Conn)}, 1, broken}); err != broken {
		t.Error(err)
	}
}

// TestContinue: a client that asks for a 100 Continue gets one when its body is read, and none if
// it is answered without.
func TestContinue(t *testing.T) {
	h := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/read":
			b := make([]byte, 2)
			if n, err := r.Body.Read(b); n != 1 || err != nil {
				t.Errorf("the first read of a body: %d bytes, %v", n, err)
			}
			io.Copy(w, r.Body)
		case "/late":
			http.NewResponseController(w).Flush()
			io.Copy(io.Discard, r.Body)
		}
	}
	bubble(t, h, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		const rest = " HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
		c := dial()
		io.WriteString(c, "POST /read"+rest)
		const interim = "HTTP/1.1 100 Continue\r\n\r\n"
		b := make([]byte, len(interim))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != interim {
			t.Errorf("%q, %v", b, err)
		}
		io.WriteString(c, "h")
		if resp := ask(t, c, "i"); resp.StatusCode != 200 || resp.Close {
			t.Errorf("%v", resp)
		}
		for _, path := range []string{"/leave", "/late"} {
			if resp := ask(t, dial(), "POST "+path+rest+"hi"); resp.StatusCode != 200 || !resp.Close {
				t.Errorf("%s: %v", path, resp)
			}
		}
	})
}

// TestConnect: no request follows a CONNECT, even if that is refused.
func TestConnect(t *testing.T) {
	for _, status := range []int{200, 299, 300, 405} {
		bubble(t, func(w http.ResponseWriter, r *http.Request) {
			r.Method = "GET" // as a handler may
			w.WriteHeader(status)
		}, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
			c := dial()
			go io.WriteString(c, "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"+get)
			all, err := io.ReadAll(c)
			if n := strings.Count(string(all), "HTTP/1.1 "); n != 1 || err != nil || (status < 300) == strings.Contains(string(all), "Content-Length") {
				t.Errorf("%d answers: %q, %v", n, all, err)
			}
		})
	}
}

// TestPanics: an answer whose handler panicked is cut off, and a bug is logged.
func TestPanics(t *testing.T) {
	var logs bytes.Buffer
	h := func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/status":
			w.WriteHeader(199)
		case "/abort":
			io.WriteString(w, "begun")
			panic(http.ErrAbortHandler)
		case "/bug":
			io.WriteString(w, "begun")
			panic("canary")
		}
	}
	for _, h := range []http.HandlerFunc{h, later(h)} {
		bubble(t, h, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
			s.Log = slog.New(slog.NewTextHandler(&logs, nil))
			ask(t, dial(), get)
			if logs.Len() > 0 {
				t.Errorf("a handler that does not panic: logged %q", &logs)
			}
			for target, logged := range map[string]string{"/abort": "", "/bug": "canary", "/status": "status 199"} {
				c := dial()
				io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: a\r\n\r\n")
				endsAfter(t, c, 0)
				if got := logs.String(); !strings.Contains(got, logged) || (got == "") != (logged == "") {
					t.Errorf("%s: logged %q", target, got)
				}
				logs.Reset()
			}
		})
	}
}

// TestTakenOver: another goroutine answers on the connection beside the handler, which writes no
// more, and the server leaves the connection to it.
func TestTakenOver(t *testing.T) {
	var over chan error
	served := 0
	h := func(w http.ResponseWriter, r *http.Request) {
		served++
		var beside sync.WaitGroup
		beside.Go(func() {
			io.WriteString(w, "answered")
			now := http.NewResponseController(w)
			now.Flush()
			c, _, err := now.Hijack()
			over <- err
			if err == nil {
				go func() {
					defer c.Close()
					time.Sleep(time.Hour) // no deadline of the server holds
					io.WriteString(c, "by another")
				}()
			}
		})
		beside.Wait()
		io.WriteString(w, "late")
		over <- http.NewResponseController(w).Flush()
	}
	for _, h := range []http.HandlerFunc{h, later(h)} {
		bubble(t, h, func() { over, served = make(chan error, 2), 0 }, func(t *testing.T, s *Server, dial func() net.Conn) {
			c := dial()
			go io.WriteString(c, get+get)
			if b, err := io.ReadAll(c); !strings.HasSuffix(string(b), "\r\n8\r\nanswered\r\nby another") || err != nil || served != 1 {
				t.Errorf("%q, %v; %d requests were served", b, err, served)
			}
			if first, second := next(t, over, 2*time.Hour), next(t, over, time.Hour); first != nil || !errors.Is(second, http.ErrHijacked) {
				t.Errorf("%v, %v", first, second)
			}
		})
	}
}

// TestRests: a connection rests when it has sent a head, and when it has been answered.
func TestRests(t *testing.T) {
	rests := 0
	atHandler := 0
	bubble(t, func(http.ResponseWriter, *http.Request) { atHandler = rests }, func() {}, func(t *testing.T, s *Server, dial func() net.Conn) {
		s.Rests = func(net.Conn) { rests++ }
		ask(t, dial(), get)
		synctest.Wait()
		if atHandler != 1 || rests != 2 {
			t.Errorf("%d before the handler, %d in all; want 1 and 2", atHandler, rests)
		}
	})
}
