// Package browser tests the dashboard in a browser: the real binary with a store in a file or in PostgreSQL, a platform
// that can hang, drop, refuse and answer, and chromium. It needs no network.
package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

// patience is how long a test waits for a condition. None should take a tenth of it.
const patience = 15 * time.Second

// A platform stands for that of an upstream. Its answer depends on the path.
func platform(t *testing.T) string {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case strings.HasPrefix(r.URL.Path, "/hang"), strings.HasPrefix(r.URL.Path, "/single"):
			select {
			case <-done:
			case <-r.Context().Done():
			}
			panic(http.ErrAbortHandler)
		case strings.HasPrefix(r.URL.Path, "/lost"), r.URL.Path == "/safe", r.URL.Path == "/asked", r.URL.Path == "/orders":
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/refused":
			w.WriteHeader(http.StatusBadRequest)
		}
		w.Write(body) // with all that is hostile in it
	}))
	t.Cleanup(func() { close(done); s.Close() })
	return s.URL
}

const config = `admin: %s
store: %s
upstreams:
  alipay:
    url: %s
    numbers: {order: 'json("order")', refund: 'json("refund")'}
    share_by: 'json("flow") ?? "none"'
    late: 100ms
    max_waiting: 100000
    retry: {attempts: 1}
    breaker: {unknown: 0}
    idempotent: 'path == "/safe"'
    resolve:
      - {when: 'path == "/asked"', method: GET, target: '"/orders"', body: '"{}"', after: 100ms, every: 1h, outcomes: [{when: 'status == 200', is: done}]}
    limits:
      - {name: app, per_key: 'json("key") ?? "2021001"', calls: 10000, window: 1s}
      - {name: refund, when: 'path == "/refunds"', per_key: 'json("key")', calls: 1, window: 1h}
      - {name: parallel, when: 'path startsWith "/single"', concurrency: 1}
      - {name: day, calls: 5000000, window: day, time_zone: Asia/Shanghai}
  wechat:
    url: %s
    numbers: {order: 'json("order")'}
    max_waiting: 10
    breaker: {unknown: 0}
    limits:
      - {name: mch, calls: 20, window: 1s}
`

// A sidecar is a running binary.
type sidecar struct {
	admin string // URL
	file  string // configuration
	token string // of requests; empty for none
	cmd   *exec.Cmd
	ended chan struct{}
}

// launch runs a sidecar with a new store in a file. Of the configuration, the pairs replace texts.
func launch(t *testing.T, pairs ...string) *sidecar {
	t.Helper()
	return launchOver(t, inFile(t), pairs...)
}

// stores make new stores, by their kind.
var stores = map[string]func(*testing.T) string{"SQLite": inFile, "PostgreSQL": inDatabase}

func inFile(t *testing.T) string { return filepath.Join(t.TempDir(), "throttler.db") }

// server starts the PostgreSQL server of all tests, which is running then.
var (
	running *pgtest.Server
	server  = sync.OnceValues(func() (*pgtest.Server, error) {
		s, err := pgtest.Start()
		running = s
		return s, err
	})
)

func inDatabase(t *testing.T) string {
	t.Helper()
	s, err := server()
	if err != nil {
		t.Fatal(err)
	}
	url, err := s.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	return url
}

// launchOver runs a sidecar over a store.
func launchOver(t *testing.T, store string, pairs ...string) *sidecar {
	t.Helper()
	url := platform(t)
	s := &sidecar{file: filepath.Join(t.TempDir(), "throttler.yaml")}
	s.configure(t, strings.NewReplacer(pairs...).Replace(fmt.Sprintf(config, "127.0.0.1:0", store, url, url)))
	s.start(t)
	t.Cleanup(func() { s.stop(syscall.SIGKILL) }) // calls hang, for which it would wait
	return s
}

func (s *sidecar) configure(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(s.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start runs the binary, and returns when it is ready.
func (s *sidecar) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(binary, "serve", "-c", s.file)
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	found, last, ended := make(chan string, 1), "", s.ended
	go func() { // until the process ends
		defer close(ended)
		ready := regexp.MustCompile(`msg=ready .*admin=(\S+)`)
		lines := bufio.NewScanner(logs)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			last = lines.Text()
			if m := ready.FindStringSubmatch(last); m != nil {
				found <- m[1]
			}
		}
		io.Copy(io.Discard, logs)
	}()
	select {
	case addr := <-found:
		s.admin = "http://" + addr
	case <-ended:
		t.Fatalf("the sidecar has ended: %s", last)
	case <-time.After(patience):
		t.Fatal("the sidecar does not get ready")
	}
}

// stop ends the process by a signal, and waits for its end.
func (s *sidecar) stop(signal os.Signal) {
	s.cmd.Process.Signal(signal)
	<-s.ended
	s.cmd.Wait()
}

// ask sends a request to the admin API, and returns the status and the body of its answer.
func (s *sidecar) ask(t *testing.T, method, path string, in any, header ...string) (int, []byte) {
	t.Helper()
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, s.admin+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if s.token != "" {
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text
}

// A call has the members of a call that tests read.
type call struct {
	ID       string
	State    string
	Attempts []struct{ Outcome string }
	Unknown  *struct {
		Next    string
		Queries struct{ Made int }
	}
	Decisions []struct{ By, As, Reason string }
}

// A body is that of a call: the platform, the limits and the numbers read its members.
type body map[string]string

// submit submits a call to a path of the platform, and returns its id. Members are more members
// of the submission, as pairs.
func (s *sidecar) submit(t *testing.T, path string, b body, members ...any) string {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]any{"upstream": "alipay", "method": "POST", "target": path, "body": string(text), "headers": map[string]string{"Content-Type": "application/json"}}
	for i := 0; i < len(members); i += 2 {
		in[members[i].(string)] = members[i+1]
	}
	status, answer := s.ask(t, "POST", "/v1/calls", in)
	var c call
	if json.Unmarshal(answer, &c); status != http.StatusAccepted || c.ID == "" {
		t.Fatalf("a call to %s: %d %s", path, status, answer)
	}
	return c.ID
}

// get reads a call.
func (s *sidecar) get(t *testing.T, id string, header ...string) call {
	t.Helper()
	var c call
	if status, answer := s.ask(t, "GET", "/v1/calls/"+id, nil, header...); status != http.StatusOK || json.Unmarshal(answer, &c) != nil {
		t.Fatalf("call %s: %d %s", id, status, answer)
	}
	return c
}

// reaches waits until a call is in a state.
func (s *sidecar) reaches(t *testing.T, id, state string) {
	t.Helper()
	s.until(t, id, state, func(c call) bool { return c.State == state })
}

// until waits until a call is as it should be.
func (s *sidecar) until(t *testing.T, id, what string, as func(call) bool) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c := s.get(t, id)
		if as(c) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("call %s is not %s: %+v", id, what, c)
		}
	}
}

// A scene has calls in each state.
type scene struct {
	*sidecar
	calls map[string]string // ids by state; safe and asked are unknown ones too
}

// newScene runs a sidecar with calls in each state, over a store in a file.
func newScene(t *testing.T, pairs ...string) *scene {
	t.Helper()
	return newSceneOver(t, inFile(t), pairs...)
}

func newSceneOver(t *testing.T, store string, pairs ...string) *scene {
	t.Helper()
	s := &scene{launchOver(t, store, pairs...), make(map[string]string)}
	later := []any{"not_before", time.Now().Add(5 * time.Hour).UTC().Format(time.RFC3339)}
	put := func(name, path string, b body, members ...any) {
		s.calls[name] = s.submit(t, path, b, members...)
	}
	put("done", "/pay", body{"order": "20261122000", "key": "2021001"})
	put("failed", "/refused", body{"order": "20261122002", "refund": "R-88124", "key": "2021001"})
	put("unknown", "/lost/refunds", body{"order": "20261122001", "refund": "R-88123", "key": "2021001", "flow": "shop7"})
	put("safe", "/safe", body{"order": "20261122003", "key": "2021002", "flow": "shop7"})
	put("asked", "/asked", body{"order": "20261122004", "key": "2021002", "flow": "shop1"})
	put("sending", "/hang", body{"order": "20261122005", "key": "2021002", "flow": "shop1"})
	put("single", "/single", body{"order": "20261122006", "key": "2021002"})
	put("refunded", "/refunds", body{"order": "20261122007", "refund": "R-88139", "key": "2021001", "flow": "shop7"})
	for name, state := range map[string]string{"done": "done", "failed": "failed", "unknown": "unknown", "safe": "unknown", "sending": "sending", "single": "sending", "refunded": "done"} {
		s.reaches(t, s.calls[name], state)
	}
	s.until(t, s.calls["asked"], "asked about", func(c call) bool { return c.Unknown != nil && c.Unknown.Queries.Made == 1 })
	put("waiting", "/refunds", body{"order": "20261122077", "refund": "R-88140", "key": "2021001", "flow": "shop7"})
	put("later", "/pay", body{"order": "20261122078", "key": "2021001", "flow": "shop1"}, later...)
	put("cancelled", "/pay", body{"order": "20261122079", "key": "2021001"}, later...)
	if status, answer := s.ask(t, "POST", "/v1/calls/"+s.calls["cancelled"]+"/cancel", map[string]string{"reason": "ordered twice"}); status != http.StatusOK {
		t.Fatalf("cancel: %d %s", status, answer)
	}
	past := map[string]string{"upstream": "alipay", "method": "POST", "target": "/pay", "deadline": "2026-01-01T00:00:00Z"}
	if status, answer := s.ask(t, "POST", "/v1/calls", past); status < 400 {
		t.Fatalf("a call past its deadline: %d %s", status, answer)
	}
	put("expired", "/single/2", body{"order": "20261122080", "key": "2021002"}, "deadline", time.Now().Add(700*time.Millisecond).UTC().Format(time.RFC3339Nano))
	s.reaches(t, s.calls["expired"], "expired")
	if status, answer := s.ask(t, "POST", "/v1/pauses", map[string]string{"upstream": "wechat", "for": "2h", "reason": "maintenance of the platform until noon"}); status >= 300 {
		t.Fatalf("pause: %d %s", status, answer)
	}
	if status, answer := s.ask(t, "POST", "/v1/pauses", map[string]string{"upstream": "alipay", "limit": "app", "key": "2021003", "for": "2h"}); status >= 300 {
		t.Fatalf("pause: %d %s", status, answer)
	}
	var list struct{ Calls []call }
	if _, answer := s.ask(t, "GET", "/v1/calls?state=exhausted", nil); json.Unmarshal(answer, &list) != nil || len(list.Calls) != 1 {
		t.Fatalf("the query should be exhausted: %s", answer)
	}
	s.calls["exhausted"] = list.Calls[0].ID
	return s
}

// pages returns the paths of all pages of the scene.
func (s *scene) pages() []string {
	all := []string{"/ui/", "/ui/decide", "/ui/calls", "/ui/calls?state=waiting&state=unknown&upstream=alipay", "/ui/calls?q=R-0",
		"/ui/limits", "/ui/upstreams/alipay/limits/app", "/ui/upstreams/alipay/limits/day", "/ui/pause?upstream=alipay&limit=app&key=2021001",
		"/ui/events", "/ui/events?kind=refused&upstream=alipay", "/ui/refusals", "/ui/refusals?reason=full", "/ui/config", "/ui/plan", "/ui/plan?upstream=alipay&limit=app",
		"/ui/audit", "/ui/audit?action=none", "/ui/system", "/ui/login", "/ui/none"}
	for _, state := range []string{"waiting", "later", "sending", "done", "failed", "unknown", "safe", "asked", "expired", "exhausted", "cancelled"} {
		all = append(all, "/ui/calls/"+s.calls[state])
	}
	for _, action := range []string{"resolve", "retry"} {
		all = append(all, "/ui/calls/"+s.calls["unknown"]+"/"+action)
	}
	all = append(all, "/ui/calls/"+s.calls["asked"]+"/ask", "/ui/calls/"+s.calls["unknown"]+"?did=edit",
		"/ui/bulk?action=cancel&upstream=alipay", "/ui/calls?state=waiting&upstream=alipay&order=oldest")
	for _, action := range []string{"cancel", "edit"} {
		all = append(all, "/ui/calls/"+s.calls["later"]+"/"+action)
	}
	return all
}
