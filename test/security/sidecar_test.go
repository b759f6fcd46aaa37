package security

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// bound is the longest wait for a condition. It is for a busy machine: no case measures it.
const bound = 60 * time.Second

var binary string // path of the real binary

// A tally counts the cases of a family.
type tally struct{ run, failed, least int }

var tallies = struct {
	sync.Mutex
	of map[string]*tally
}{of: make(map[string]*tally)}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "throttler-security")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "throttler")
	build := exec.Command("go", "build", "-o", binary, "./cmd/throttler")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the sidecar: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	cases, failed := 0, 0
	for _, name := range slices.Sorted(maps.Keys(tallies.of)) {
		f := tallies.of[name]
		fmt.Printf("%-12s %4d cases, %d failed\n", name, f.run, f.failed)
		cases, failed = cases+f.run, failed+f.failed
	}
	fmt.Printf("%-12s %4d cases, %d failed\n", "all", cases, failed)
	return code
}

// A family has the cases of a test. It has at least as many as it promises.
type family struct {
	t     *testing.T
	tally *tally
	names map[string]bool
}

// newFamily returns a family with at least so many cases.
func newFamily(t *testing.T, name string, least int) *family {
	tallies.Lock()
	defer tallies.Unlock()
	f := tallies.of[name]
	if f == nil {
		f = &tally{}
		tallies.of[name] = f
	}
	f.least += least
	t.Cleanup(func() {
		if f.run < f.least && !filtered() {
			t.Errorf("%s has %d cases, at least %d are promised", name, f.run, f.least)
		}
	})
	return &family{t, f, make(map[string]bool)}
}

// filtered reports whether go test runs a part of the cases only.
func filtered() bool {
	return slices.ContainsFunc(os.Args, func(a string) bool { return strings.HasPrefix(a, "-test.run=") && strings.Contains(a, "/") })
}

// attack runs one case.
func (f *family) attack(name string, do func(t *testing.T)) {
	f.t.Helper()
	if f.names[name] {
		f.t.Errorf("two cases are named %q", name)
	}
	f.names[name] = true
	ran := false
	ok := f.t.Run(name, func(t *testing.T) { ran = true; do(t) })
	tallies.Lock()
	defer tallies.Unlock()
	if ran {
		f.tally.run++
	}
	if !ok {
		f.tally.failed++
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

// A sidecar is a running process of the binary.
type sidecar struct {
	t     *testing.T
	cmd   *exec.Cmd
	admin string // address of its admin API
	log   *lockedBuffer
	done  chan struct{} // closed when it has ended
}

var listening = regexp.MustCompile(`msg=listening key=(\S+) addr=(\S+)`)

// config writes a configuration to a file with the mode that secrets need.
func config(t *testing.T, yaml string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "throttler.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// start runs the sidecar with the upstreams of a configuration, and calls in memory.
func start(t *testing.T, upstreams string, env ...string) *sidecar {
	t.Helper()
	return startFile(t, config(t, "admin: 127.0.0.1:0\nstore: memory\ngrace: 40s\nupstreams:\n"+upstreams), env...)
}

// startFile runs the sidecar with a configuration file. It is killed at the end of the test.
func startFile(t *testing.T, path string, env ...string) *sidecar {
	t.Helper()
	s := &sidecar{t: t, log: &lockedBuffer{}, done: make(chan struct{})}
	s.cmd = exec.Command(binary, "serve", "-c", path)
	s.cmd.Dir = filepath.Dir(path)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		s.cmd.Wait()
	}()
	t.Cleanup(func() {
		s.alive(t)
		s.kill()
		if text := s.log.String(); strings.Contains(text, "BUG") {
			t.Errorf("the sidecar reports a bug:\n%s", text)
		} else if t.Failed() && len(text) < 10_000 {
			t.Logf("log of the sidecar:\n%s", text)
		}
	})
	until(t, "the sidecar is ready", func() bool {
		if s.ended() {
			t.Fatalf("the sidecar ended before it was ready:\n%s", s.log)
		}
		return strings.Contains(s.log.String(), "msg=ready")
	})
	s.admin = s.address(t, "admin")
	return s
}

// kill ends the process.
func (s *sidecar) kill() {
	s.cmd.Process.Kill()
	<-s.done
}

func (s *sidecar) ended() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// alive fails the case if the process has ended by itself.
func (s *sidecar) alive(t *testing.T) {
	t.Helper()
	if s.ended() && s.cmd.ProcessState.ExitCode() > 0 {
		t.Errorf("the sidecar has ended with code %d:\n%.4000s", s.cmd.ProcessState.ExitCode(), s.log)
	}
}

// address returns the address of a listener by its key.
func (s *sidecar) address(t *testing.T, key string) string {
	t.Helper()
	for _, line := range listening.FindAllStringSubmatch(s.log.String(), -1) {
		if line[1] == key {
			return line[2]
		}
	}
	t.Fatalf("there is no listener of %s", key)
	return ""
}

// data returns the address of an upstream's data listener.
func (s *sidecar) data(t *testing.T, upstream string) string {
	t.Helper()
	return s.address(t, "upstreams."+upstream+".listen")
}

// status returns the value of /proc/PID/status in bytes, such as VmRSS.
func (s *sidecar) status(t *testing.T, name string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("there is no %s in %s", name, text)
	return 0
}

// peak returns the greatest resident memory of the process so far, in MiB.
func (s *sidecar) peak(t *testing.T) int {
	t.Helper()
	return s.status(t, "VmHWM") >> 20
}

// forget begins the greatest resident memory anew.
func (s *sidecar) forget(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.cmd.Process.Pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}

// until waits for a condition.
func until(t *testing.T, state string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", state)
		}
	}
}

// A reply is an answer of the sidecar.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) outcome() string { return r.header.Get("Throttler-Outcome") }

var client = &http.Client{
	Transport:     &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       bound,
}

// ask sends an ordinary request; the lines are fields of its header.
func ask(t *testing.T, method, addr, target, body string, lines ...string) reply {
	t.Helper()
	r, err := tryAsk(method, addr, target, body, lines...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryAsk(method, addr, target, body string, lines ...string) (reply, error) {
	req, err := http.NewRequest(method, "http://"+addr+target, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	if body != "" && strings.HasPrefix(target, "/v1/") && !strings.Contains(strings.Join(lines, "\n"), "Content-Type: ") {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header[name] = append(req.Header[name], value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b)}, err
}

// read decodes the JSON of a reply.
func read[T any](t *testing.T, r reply) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("%v in %d %s", err, r.status, r.body)
	}
	return v
}

// state returns the state of an upstream.
func (s *sidecar) state(t *testing.T, upstream string) string {
	t.Helper()
	type states struct {
		Upstreams []struct{ Name, State string }
	}
	for _, u := range read[states](t, ask(t, "GET", s.admin, "/v1/upstreams", "")).Upstreams {
		if u.Name == upstream {
			return u.State
		}
	}
	t.Fatalf("there is no upstream %s", upstream)
	return ""
}

// quote returns a text in JSON.
func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}
