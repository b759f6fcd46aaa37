package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// announce sends the head of a request with a body, and so many bytes of the body. It
// returns the connection.
func announce(t *testing.T, addr, length string, bytes int) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(c, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", length)
	if length == chunked && bytes > 0 {
		fmt.Fprintf(c, "%x\r\n", 1<<20)
	}
	c.Write(make([]byte, bytes))
	return c
}

const chunked = "Transfer-Encoding: chunked"

// answered returns the answer to an announced request, nil if its connection was closed.
func answered(c net.Conn) *http.Response {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil
	}
	io.Copy(io.Discard, resp.Body)
	return resp
}

// TestBodiesBeingReadAreBounded: a body takes room as it comes and not when it is
// announced, and one that does not fit beside others is refused, so that those go on.
func TestBodiesBeingReadAreBounded(t *testing.T) {
	r := newRig(t, scheduler.Upstream{MaxBody: 60_000, MaxWaitingBytes: 100_000}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	addr := r.data.Listener.Addr().String()
	holds := func(want int64) {
		t.Helper()
		r.until(t, fmt.Sprintf("%d bytes in memory", want), func(u scheduler.UpstreamStatus) bool { return u.Bytes == want })
	}
	refused := func(c net.Conn) {
		t.Helper()
		resp := answered(c)
		if resp == nil {
			t.Fatal("the connection was closed without an answer")
		}
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("Throttler-Outcome") != "not_executed" || !resp.Close {
			t.Errorf("%s %v, want 503", resp.Status, resp.Header)
		}
	}
	passes := func(bytes int) {
		t.Helper()
		if resp, body := send(t, "POST", r.data.URL, strings.Repeat("x", bytes)); resp.StatusCode != 200 {
			t.Errorf("a body of %d bytes beside them: %s %s", bytes, resp.Status, body)
		}
	}
	for range 50 { // three million bytes by their heads
		announce(t, addr, "Content-Length: 60000", 0)
		announce(t, addr, chunked, 0)
		announce(t, addr, "Content-Length: 60000", 4095)
	}
	passes(60_000)
	holds(0)
	if resp := answered(announce(t, addr, "Content-Length: 60001", 0)); resp == nil || resp.StatusCode != 413 {
		t.Errorf("a body above max_body: %v, want 413", resp)
	}
	first := announce(t, addr, "Content-Length: 60000", 4097)
	holds(8192)
	first.Write(make([]byte, 40_000))
	holds(60_000)
	refused(announce(t, addr, "Content-Length: 60000", 40_000))
	refused(announce(t, addr, chunked, 40_000))
	holds(60_000)
	passes(20_000)
	second := announce(t, addr, chunked, 20_000)
	holds(60_000 + 32_768)
	passes(4096) // a sixteenth of the room is for such
	refused(announce(t, addr, "Content-Length: 8000", 8000))
	first.Close()
	second.Close()
	holds(0)
	last := announce(t, addr, chunked, 60_000)
	holds(60_000)
	last.Write(make([]byte, 1))
	if resp := answered(last); resp == nil || resp.StatusCode != 413 {
		t.Errorf("a chunked body above max_body: %v, want 413", resp)
	}
	holds(0)
	r.s.Close()
	refused(announce(t, addr, "Content-Length: 50000", 5000))
}

// TestAdminBodiesAreBounded does the same at the admin API.
func TestAdminBodiesAreBounded(t *testing.T) {
	r := newRig(t, scheduler.Upstream{MaxBody: 10 << 20}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	addr := r.admin.Listener.Addr().String()
	const most = 21 << 20 // for an upstream's 10 MiB
	if resp := answered(announce(t, addr, fmt.Sprintf("Content-Length: %d", most+1), 0)); resp == nil || resp.StatusCode != 413 {
		t.Errorf("a body above max_body: %v, want 413", resp)
	}
	length := fmt.Sprintf("Content-Length: %d", most)
	for range 20 {
		announce(t, addr, length, 0)
	}
	statuses := make(chan int)
	for range bodiesAtOnce + 1 {
		go func() {
			c := announce(t, addr, length, most-1)
			if resp := answered(c); resp != nil {
				statuses <- resp.StatusCode
				return
			}
			statuses <- 0
		}()
	}
	if got := <-statuses; got != 503 {
		t.Errorf("the one too many got %d, want 503", got)
	}
	if resp, body := send(t, "POST", r.admin.URL+"/v1/calls", `{"upstream":"pay","path":"/"}`); resp.StatusCode != 202 {
		t.Errorf("a small submission beside them: %s %s", resp.Status, body)
	}
	r.admin.CloseClientConnections()
	for range bodiesAtOnce {
		if got := <-statuses; got != 0 {
			t.Errorf("one that fits got %d before it was sent", got)
		}
	}
}
