package server

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// finWait1 is the state of a connection whose end the peer's kernel has not acknowledged yet:
// TCP_FIN_WAIT1 of include/net/tcp_states.h.
const finWait1 = 4

// acknowledged waits until the peer's kernel knows that a connection has been closed for writing.
// On a busy machine that takes a moment, also over loopback.
func acknowledged(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Microsecond) {
		var info *unix.TCPInfo
		if cause := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); cause != nil || err != nil {
			t.Error(cause, err)
			return
		}
		if info.State != finWait1 {
			return
		}
		if time.Now().After(deadline) {
			t.Error("the end of the connection is not acknowledged")
			return
		}
	}
}

// TestClientThatLeftIsNotSent: the call of a client that has closed its connection is not sent when
// its slot comes, however soon after that.
func TestClientThatLeftIsNotSent(t *testing.T) {
	release, arrived := make(chan struct{}), make(chan string, 100)
	r := newRig(t, scheduler.Upstream{Concurrency: 1}, Refusal{}, func(_ http.ResponseWriter, r *http.Request) {
		if arrived <- r.URL.Path; r.URL.Path == "/first" {
			<-release
		}
	})
	for range 20 {
		first := r.begin(t, "/first")
		<-arrived
		leaves := r.begin(t, "/leaves")
		r.until(t, "a call waits", func(st scheduler.UpstreamStatus) bool { return st.Waiting == 1 })
		leaves.(*net.TCPConn).CloseWrite()
		acknowledged(t, leaves.(*net.TCPConn))
		release <- struct{}{}
		io.Copy(io.Discard, first)
		answer, err := io.ReadAll(leaves)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 503 ") || !strings.Contains(string(answer), "Throttler-Outcome: not_executed") || !strings.Contains(string(answer), `"gone"`) || err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
		_, call := send(t, "GET", r.admin.URL+"/v1/calls/"+field(answer, "Throttler-Call"), "")
		if !strings.Contains(call, `"state":"cancelled"`) || !strings.Contains(call, `"reason":"gone"`) {
			t.Fatal(call)
		}
	}
	if n := len(arrived); n > 0 {
		t.Errorf("%d calls of clients that had left were sent", n)
	}
}
