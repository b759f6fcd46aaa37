package server

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/http1"
	"github.com/seed-30fe103d/throttler/internal/link"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestNamesAreKept: fields come to the platform under the names that the caller has given them, whichever way the call comes.
func TestNamesAreKept(t *testing.T) {
	const answer = "HTTP/1.1 204 No Content\r\n\r\n"
	for name, hand := range map[string]func(t *testing.T, r *rig){
		"submitted": func(t *testing.T, r *rig) {
			if got := talk(t, r.data.addr, "POST / HTTP/1.1\r\nHost: sidecar\r\nprefer: respond-async\r\nConnection: close\r\nSOAPAction: pay\r\nx-a: 1\r\nContent-Length: 0\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 202 ") {
				t.Fatalf("%s", got)
			}
		},
		"by the admin API": func(t *testing.T, r *rig) {
			body := `{"upstream":"pay","method":"POST","target":"/","headers":{"SOAPAction":"pay","x-a":["1"]}}`
			if resp, text := send(t, "POST", r.admin.URL+"/v1/calls", body, "Content-Type: application/json"); resp.StatusCode != 202 {
				t.Fatalf("%d %s", resp.StatusCode, text)
			}
			body = `{"upstream":"pay","method":"POST","target":"/","headers":{"connection":"x-a","x-a":"1"}}`
			if resp, text := send(t, "POST", r.admin.URL+"/v1/calls", body, "Content-Type: application/json"); resp.StatusCode != 400 || !strings.Contains(text, "Connection cannot be given") {
				t.Fatalf("%d %s", resp.StatusCode, text)
			}
		},
		"embedded": func(t *testing.T, r *rig) {
			_, _, err := r.s.Do(t.Context(), scheduler.Request{Upstream: "pay", Method: "POST", Target: "/", Header: http.Header{"SOAPAction": {"pay"}, "x-a": {"1"}}})
			if err != nil {
				t.Error(err)
			}
		},
		"by a client in Go": func(t *testing.T, r *rig) {
			req, _ := http.NewRequest("POST", "http://pay.test/", nil)
			req.Header["SOAPAction"], req.Header["x-a"] = []string{"pay"}, []string{"1"}
			resp, err := (&http.Client{Transport: r.s.Transport("pay")}).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, requests := rawUpstream(t, answer)
			r := newRig(t, scheduler.Upstream{Config: upstream.Config{URL: "http://" + host}}, Refusal{}, nil)
			hand(t, r)
			if got := <-requests; !strings.Contains(got, "\r\nSOAPAction: pay\r\n") || !strings.Contains(got, "\r\nx-a: 1\r\n") || strings.Contains(got, "refer") {
				t.Errorf("the platform got %q", got)
			}
		})
	}
}

// TestNamesGoOn: the names of a request that a replica passes on go with it.
func TestNamesGoOn(t *testing.T) {
	names := []string{"SOAPAction", "x-a"}
	r, err := http.NewRequestWithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{})), "POST", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := fieldNames(r); got != nil {
		t.Errorf("a request of no server has the names %q", got)
	}
	p := newPassing(t)
	got := make(chan []string, 1)
	peer, _ := p.owner(func(_ http.ResponseWriter, r *http.Request) { got <- link.From(r.Context()).Names })
	p.owners.set(peer)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	front, ended := &http1.Server{Handler: p.door, HeaderTimeout: time.Minute, IdleTimeout: time.Minute, WriteTimeout: time.Minute, MaxHeader: 16 << 10, Log: slog.New(slog.DiscardHandler)}, make(chan error, 1)
	go func() { ended <- front.Serve(l) }()
	defer func() { front.Stop(); <-ended }()
	talk(t, l.Addr().String(), "POST / HTTP/1.1\r\nHost: sidecar\r\nConnection: close\r\nSOAPAction: pay\r\nx-a: 1\r\nContent-Length: 0\r\n\r\n")
	if passed := <-got; strings.Join(passed, " ") != strings.Join(names, " ") {
		t.Errorf("the names %q went on", passed)
	}
}
