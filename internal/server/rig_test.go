package server

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// A rig is a platform, a scheduler in front of it, with a store if calls are durable, and the
// two listeners.
type rig struct {
	s           *scheduler.Scheduler
	metrics     *Metrics
	history     *History
	data, admin site
	logs        *lockedBuffer
}

func newRig(t *testing.T, u scheduler.Upstream, refusal Refusal, platform http.HandlerFunc) *rig {
	t.Helper()
	if platform != nil {
		p := httptest.NewServer(platform)
		t.Cleanup(p.Close)
		u.URL = p.URL
	}
	r := &rig{metrics: NewMetrics("1.0"), history: NewHistory(), logs: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	trace := Trace(log)
	observe := func(e scheduler.Event) {
		r.metrics.Observe(e)
		r.history.Observe(e)
		trace(e)
	}
	c := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}, Observe: observe, Log: log}
	if u.Durable != "" {
		db, err := store.Open(filepath.Join(t.TempDir(), "calls.db"), store.Options{Log: log})
		if err != nil {
			t.Fatal(err)
		}
		c.Store = db
	}
	var err error
	r.s, err = scheduler.New(c)
	if err != nil {
		t.Fatal(err)
	}
	r.metrics.Watch(r.s)
	a := newAdmin(r.s, r.metrics, NewEvents(), log, observe)
	a.History = r.history
	r.admin = serve(t, a, log)
	r.data = serve(t, &Data{Scheduler: r.s, Upstream: "pay", Admin: r.admin.URL, Refusal: refusal, Hosts: []string{"sidecar", "s", "x"}, Log: log, Observe: observe}, log)
	t.Cleanup(func() { r.s.Close() })
	return r
}

// begin asks the data listener for a path, on a connection of its own that the test reads the
// answer from.
func (r *rig) begin(t *testing.T, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.data.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	return c
}

// A site is a server on a free port of the loopback.
type site struct{ addr, URL string }

// serve serves h until the test ends.
func serve(t *testing.T, h http.Handler, log *slog.Logger) site {
	t.Helper()
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, ended := New(h, log), make(chan struct{})
	go func() {
		defer close(ended)
		srv.Serve(socket)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-ended
	})
	return site{socket.Addr().String(), "http://" + socket.Addr().String()}
}

// newAdmin returns an admin API that is ready and open to all, also by pipes; its reloads
// change nothing.
func newAdmin(s *scheduler.Scheduler, metrics *Metrics, events *Events, log *slog.Logger, observe func(scheduler.Event)) *Admin {
	return NewAdmin(AdminConfig{
		Scheduler: s, Metrics: metrics, Events: events, History: NewHistory(), Log: log, Observe: observe,
		Ready:   func() error { return nil },
		Guard:   access.NewGuard(&config.Access{Anyone: "admin"}),
		MaxHeld: 100,
		Reload: func(put func(*api.Reload, func() error) error) (*api.Reload, error) {
			found := &api.Reload{}
			if put == nil {
				return found, nil
			}
			return found, put(found, func() error { return nil })
		},
		Settings: func() []api.Setting { return nil },
		Info:     func() api.Info { return api.Info{Version: "1.0", Store: "memory"} }, Refusals: new(Refusals),
	})
}

// until waits for a condition of the one upstream.
func (r *rig) until(t *testing.T, condition string, ok func(scheduler.UpstreamStatus) bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok(r.upstream(t)) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s; %+v", condition, r.upstream(t))
		}
		time.Sleep(time.Millisecond)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// send makes a request; header lines are "Name: value".
func send(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" && strings.Contains(url, "/v1/") {
		req.Header.Set("Content-Type", "application/json")
	}
	return do(t, req, header...)
}

// do makes a request with more header lines.
func do(t *testing.T, req *http.Request, header ...string) (*http.Response, string) {
	t.Helper()
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// getUpstream returns the status of the rig's only upstream.
func (r *rig) upstream(t *testing.T) scheduler.UpstreamStatus {
	t.Helper()
	all, err := r.s.Upstreams(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// submit submits a call by the admin API.
func (r *rig) submit(t *testing.T, body string, header ...string) (call api.Call) {
	t.Helper()
	resp, got := send(t, "POST", r.admin.URL+"/v1/calls", body, header...)
	if err := json.Unmarshal([]byte(got), &call); err != nil || resp.StatusCode != 202 {
		t.Fatalf("submit %s: %d %s", body, resp.StatusCode, got)
	}
	return call
}

// audit returns the records of a filter, the newest first.
func (r *rig) audit(t *testing.T, query string) []api.AuditRecord {
	t.Helper()
	return read[api.AuditLog](t, r.admin.URL+"/v1/audit"+query).Records
}

// read gets a resource.
func read[T any](t *testing.T, url string, header ...string) (v T) {
	t.Helper()
	resp, body := send(t, "GET", url, "", header...)
	if err := json.Unmarshal([]byte(body), &v); err != nil || resp.StatusCode != 200 {
		t.Fatalf("GET %s: %d %s", url, resp.StatusCode, body)
	}
	return v
}
