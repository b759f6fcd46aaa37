package server

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// announce sends the head of a request with a body, and nothing of the body. It
// returns the connection.
func announce(t *testing.T, addr, length string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(c, "POST /v1/calls HTTP/1.1\r\nHost: localhost\r\n%s\r\n\r\n", length)
	return c
}

// TestBodiesBeingReadAreBounded announces bodies that are never sent: a body that does
// not fit beside them is refused before any of it is read.
func TestBodiesBeingReadAreBounded(t *testing.T) {
	r := newRig(t, scheduler.Upstream{MaxBody: 60_000, MaxWaitingBytes: 100_000}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	addr := r.data.Listener.Addr().String()
	bytes := func(want int64) {
		t.Helper()
		deadline := time.Now().Add(10 * time.Second)
		for r.upstream(t).Bytes != want {
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are in memory, want %d", r.upstream(t).Bytes, want)
			}
			time.Sleep(time.Millisecond)
		}
	}
	refused := func(c net.Conn) {
		t.Helper()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") != "1" || resp.Header.Get("Throttler-Outcome") != "not_executed" {
			t.Errorf("%s %v, want 503", resp.Status, resp.Header)
		}
	}
	first := announce(t, addr, "Content-Length: 50000")
	bytes(50_000)
	refused(announce(t, addr, "Content-Length: 50001"))
	refused(announce(t, addr, "Transfer-Encoding: chunked")) // counts as max_body
	announce(t, addr, "Content-Length: 4096").Close()        // needs no reservation
	first.Close()
	bytes(0)
	chunked := announce(t, addr, "Transfer-Encoding: chunked")
	bytes(60_000)
	chunked.Close()
	bytes(0)
	r.s.Close()
	refused(announce(t, addr, "Content-Length: 50000"))
}

// TestAdminBodiesAreBounded does the same at the admin API.
func TestAdminBodiesAreBounded(t *testing.T) {
	r := newRig(t, scheduler.Upstream{MaxBody: 10 << 20}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	addr := r.admin.Listener.Addr().String()
	const most = 21 << 20 // for an upstream's 10 MiB
	status := func(c net.Conn) int {
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0
		}
		return resp.StatusCode
	}
	if got := status(announce(t, addr, fmt.Sprintf("Content-Length: %d", most+1))); got != 413 {
		t.Errorf("a body above max_body: %d, want 413", got)
	}
	statuses := make(chan int)
	for range bodiesAtOnce + 1 {
		c := announce(t, addr, fmt.Sprintf("Content-Length: %d", most))
		go func() { statuses <- status(c) }()
	}
	if got := <-statuses; got != 503 {
		t.Errorf("the one too many got %d, want 503", got)
	}
	r.admin.CloseClientConnections()
	for range bodiesAtOnce {
		if got := <-statuses; got != 0 {
			t.Errorf("one that fits got %d before it was sent", got)
		}
	}
}
