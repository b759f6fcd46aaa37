package gateway

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"strconv"
	"time"
)

// A Fault is the fault of one admitted call. The zero Fault is none.
type Fault struct {
	Answer Answer

	// Executed makes the gateway execute the call although its answer is lost or wrong.
	// With Right, Slow and Truncated it is always executed.
	Executed bool

	Status int           // HTTP status of the answer; 0 is 200
	Delay  time.Duration // before the answer; of a slow one, between its halves
}

// An Answer replaces the right answer.
type Answer int

const (
	Right         Answer = iota
	Hang                 // nothing, until the client leaves
	Cut                  // nothing: the connection is closed
	Reset                // nothing: the connection is reset
	Truncated            // half of the right answer, then the connection is closed
	Slow                 // the right answer in two halves, Delay apart
	HTML                 // a page, like that of a proxy in front of the gateway; mostly with a Status
	UnknownError         // 20000 isp.unknow-error
	SlowUnknown          // the same in two halves, Delay apart
	SystemError          // 40004 ACQ.SYSTEM_ERROR
	AppLimited           // 40005 isv.app-call-limited, without regard to the limit; not in Tally.Limited
	MethodLimited        // 40005 isv.method-call-limited, likewise
)

// wrongAnswers are the wrong answers in the platform's own shape.
var wrongAnswers = map[Answer]answer{
	UnknownError:  unknownError,
	SlowUnknown:   unknownError,
	SystemError:   systemError,
	AppLimited:    appLimited,
	MethodLimited: methodLimited,
}

const page = "<html><head><title>error</title></head><body><h1>Sorry</h1></body></html>\n"

func (f Fault) executes() bool {
	return f.Executed || f.Answer == Right || f.Answer == Slow || f.Answer == Truncated
}

// respond sends a status and a body, with the fault.
func respond(w http.ResponseWriter, r *http.Request, status int, body []byte, f Fault, latency time.Duration) {
	delay, slow := latency, f.Answer == Slow || f.Answer == SlowUnknown
	if !slow {
		delay += f.Delay
	}
	if !wait(r.Context(), delay) {
		return
	}
	switch f.Answer {
	case Hang:
		<-r.Context().Done()
		return
	case Cut:
		panic(http.ErrAbortHandler)
	case Reset:
		reset(w)
		return
	case HTML:
		body = []byte(page)
		w.Header().Set("Content-Type", "text/html;charset=utf-8")
	}

	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(cmp.Or(f.Status, status))
	if slow || f.Answer == Truncated {
		half := len(body) / 2
		w.Write(body[:half])
		http.NewResponseController(w).Flush()
		body = body[half:]
	}
	if f.Answer == Truncated || slow && !wait(r.Context(), f.Delay) {
		panic(http.ErrAbortHandler)
	}
	w.Write(body)
}

// reset closes the connection with an RST.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: the stream is reset
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

// wait waits for d, and reports false if the client left before.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
