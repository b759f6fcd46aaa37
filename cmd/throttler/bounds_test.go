//go:build linux

package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// open opens connections to a base URL and sends a text on each, until the test ends.
func open(t *testing.T, url string, n int, text string) []net.Conn {
	t.Helper()
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		io.WriteString(c, text)
		all = append(all, c)
	}
	return all
}

var crowds = flag.Bool("crowds", false, "TestIdleSocketsLeaveFiles with all kinds of sockets; make security has it")

// TestIdleSocketsLeaveFiles: clients that only hold connections leave files to dial with,
// and shut out neither other clients nor a health check.
func TestIdleSocketsLeaveFiles(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "answer") }))
	kinds := map[string]string{
		"idle": "", "half heads": "GET / HTTP/1.1\r\nHost: local", "answered once": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"half bodies": "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nhalf",
	}
	for name, text := range kinds {
		if !*crowds && name != "half heads" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := launch(t, fmt.Sprintf("admin: 127.0.0.1:0\nstore: memory\nupstreams: {alipay: {listen: '127.0.0.1:0', url: '%s'}}\n", url),
				"sh", "-c", `ulimit -n 256; exec "$0" "$@"`)
			open(t, p.data, 400, text)
			open(t, p.admin, 400, text)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var clients []chan got
			for range 50 {
				clients = append(clients, get(ctx, p.data+"/honest"))
			}
			for _, c := range clients {
				if g := <-c; g.status != 200 || g.body != "answer" {
					t.Fatalf("an honest client got %+v", g)
				}
			}
			if g := <-get(ctx, p.admin+"/healthz"); g.status != 200 {
				t.Errorf("/healthz: %+v", g)
			}
			if g := <-get(ctx, p.admin+"/v1/upstreams"); g.status != 200 || !strings.Contains(g.body, `"state":"up"`) {
				t.Errorf("the upstream: %+v, want it up", g)
			}
			if log := p.log.String(); strings.Contains(log, "too many open files") || !strings.Contains(log, "connections=112") {
				t.Error("files were lacking, or the log does not tell the bound")
			}
		})
	}
}

// TestShares: all connections together are at most half of the files, and those of the
// admin listener are its own.
func TestShares(t *testing.T) {
	for _, tt := range []struct{ files, listeners, admins, admin, data int }{
		{256, 1, 1, 16, 112}, {256, 3, 1, 16, 37}, {1024, 2, 1, 64, 224}, {1 << 20, 4, 1, 1024, 130816}, {1 << 20, 4, 3, 341, 130816}, {4, 0, 0, 1, 1}, {4, 9, 2, 1, 1},
	} {
		if got, want := shareOf(tt.files, tt.listeners, tt.admins), (share{tt.files, tt.admin, tt.data}); got != want {
			t.Errorf("%d files, %d listeners, %d admin listeners: %+v, want %+v", tt.files, tt.listeners, tt.admins, got, want)
		}
	}
}
