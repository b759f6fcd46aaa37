package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

// A pace is the times of a fleet by which its limits hold.
type pace struct {
	lease, timeout, late, maxWait time.Duration
	calls, ofKey                  int // in a window
}

var (
	fast      = pace{500 * time.Millisecond, time.Second, 500 * time.Millisecond, 20 * time.Second, 20, 7}
	unhurried = pace{5 * time.Second, time.Second, 500 * time.Millisecond, 20 * time.Second, 20, 7} // no slow machine outlasts its lease
	defaults  = pace{2 * time.Second, 30 * time.Second, 5 * time.Second, 30 * time.Second, 20, 7}   // of a configuration that names none
)

// replicaConfig is that of a replica.
const replicaConfig = `admin: 127.0.0.1:0
store: DATABASE
fleet: {listen: 127.0.0.1:0, advertise: LINK, name: NAME, lease: LEASE}
grace: 2s
upstreams:
  alipay:
    listen: 127.0.0.1:0
    url: URL
    timeout: TIMEOUT
    late: LATE
    max_wait: MAX_WAIT
    durable: path startsWith "/durable"
    idempotent: path startsWith "/safe"
    callbacks: {shop: {url: URL/-/hooks, secret: env:SHOP_SECRET, retry: {attempts: 12, min: 50ms, max: 1s}}}
    limits:
      - {name: app, calls: CALLS, window: 200ms}
      - {name: key, per_key: 'query("key")', calls: OF_KEY, window: 200ms}
`

const fleetWindow = 200 * time.Millisecond

// An instance is a sidecar of a fleet, which a supervisor starts anew after each end. It reaches the database by a
// proxy, and the others reach it by one.
type instance struct {
	name, file     string
	database, link *pgtest.Proxy

	mu      sync.Mutex
	program string // of the next start
	p       *process
	stop    bool
}

func (r *instance) process() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.p
}

// run makes a program that of the next start.
func (r *instance) run(program string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.program = program
}

// supervise runs the replica until it is told to stop.
func (r *instance) supervise(t *testing.T) {
	for {
		p := &process{file: r.file, log: &lockedBuffer{}, done: make(chan struct{})}
		r.mu.Lock()
		p.cmd = exec.Command(r.program, "serve", "-c", r.file)
		r.mu.Unlock()
		p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
		p.cmd.Env = append(os.Environ(), "SHOP_SECRET=whsec_"+base64.StdEncoding.EncodeToString(make([]byte, 24)))
		r.mu.Lock()
		if r.stop {
			r.mu.Unlock()
			return
		}
		if err := p.cmd.Start(); err != nil {
			t.Error(err)
		}
		r.p = p
		r.mu.Unlock()
		p.cmd.Wait()
		close(p.done)
		if t.Failed() {
			t.Logf("log of replica %s:\n%s", r.name, p.log)
		}
		time.Sleep(50 * time.Millisecond) // as a supervisor does
	}
}

// A fleet is some replicas over one database.
type fleet struct {
	*testing.T
	replicas []*instance
	client   *http.Client
	running  sync.WaitGroup
	server   atomic.Pointer[string] // address of the database
}

// startFleet starts replicas over a database, in front of an upstream.
func startFleet(t *testing.T, database, upstream string, n int, at pace) *fleet {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{T: t, client: &http.Client{Timeout: at.maxWait + 20*time.Second}}
	for i := range n {
		r, err := f.newInstance(fmt.Sprint("r", i), database, upstream, at)
		if err != nil {
			t.Fatal(err)
		}
		f.replicas = append(f.replicas, r)
		r.program = path
		f.running.Go(func() { r.supervise(t) })
	}
	t.Cleanup(func() {
		for _, r := range f.replicas {
			r.end()
		}
		f.running.Wait()
	})
	return f
}

func (f *fleet) newInstance(name, database, upstream string, at pace) (r *instance, err error) {
	r = &instance{name: name, file: filepath.Join(f.TempDir(), "throttler.yaml")}
	u, err := url.Parse(database)
	if err != nil {
		return nil, err
	}
	f.server.Store(new(u.Host))
	if r.database, err = pgtest.NewProxy(func() string { return *f.server.Load() }); err != nil {
		return nil, err
	}
	u.Host = r.database.Address()
	if r.link, err = pgtest.NewProxy(func() string {
		return strings.TrimPrefix(listening(r.process().log.String(), "fleet.listen"), "http://")
	}); err != nil {
		return nil, err
	}
	text := strings.NewReplacer("DATABASE", u.String(), "LINK", r.link.Address(), "NAME", name, "LEASE", at.lease.String(), "URL", upstream,
		"TIMEOUT", at.timeout.String(), "LATE", at.late.String(), "MAX_WAIT", at.maxWait.String(), "CALLS", strconv.Itoa(at.calls), "OF_KEY", strconv.Itoa(at.ofKey)).Replace(replicaConfig)
	return r, os.WriteFile(r.file, []byte(text), 0o600)
}

// end kills the replica for good.
func (r *instance) end() {
	r.mu.Lock()
	r.stop = true
	if r.p != nil {
		r.p.cmd.Process.Signal(syscall.SIGCONT)
		r.p.cmd.Process.Kill()
	}
	r.mu.Unlock()
	r.database.Close()
	r.link.Close()
}

// owner returns the replica that has the calls and serves them, or nil.
func (f *fleet) owner() *instance {
	for _, r := range f.replicas {
		p := r.process()
		if p == nil || !strings.Contains(p.log.String(), "msg=ready") {
			continue
		}
		var view api.Fleet
		if f.get(p, "/v1/fleet", &view) && slices.ContainsFunc(view.Replicas, func(r api.Replica) bool { return r.Self && r.Owner }) {
			return r
		}
	}
	return nil
}

// get reads a page of a replica's own admin API; false if it does not answer.
func (f *fleet) get(p *process, path string, to any) bool {
	url := listening(p.log.String(), "admin")
	if url == "" {
		return false
	}
	client := &http.Client{Timeout: 200 * time.Millisecond}
	resp, err := client.Get(url + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK && json.NewDecoder(resp.Body).Decode(to) == nil
}

// status returns the status of a page of a listener, 0 if it does not answer.
func (f *fleet) status(p *process, listener, path string) int {
	url := listening(p.log.String(), listener)
	if url == "" {
		return 0
	}
	client := &http.Client{Timeout: 200 * time.Millisecond}
	resp, err := client.Get(url + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// waitOwner waits until a replica has the calls.
func (f *fleet) waitOwner() *instance {
	f.Helper()
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if r := f.owner(); r != nil {
			return r
		}
		if time.Since(begun) > time.Minute {
			for _, r := range f.replicas {
				f.Logf("log of replica %s:\n%s", r.name, r.process().log)
			}
			f.Fatal("no replica has the calls within a minute")
		}
	}
}

// standBy looks at the replicas that wait: they are healthy and ready, and pass on the requests of clients and
// of the admin API. It looks again if another one has taken over meanwhile, as on a machine that stands still for a
// lease.
func (f *fleet) standBy() {
	f.Helper()
	for {
		owner := f.waitOwner()
		faults := f.standingBy(owner)
		if f.waitOwner() != owner {
			continue
		}
		for _, fault := range faults {
			f.Error(fault)
		}
		return
	}
}

func (f *fleet) standingBy(owner *instance) (faults []string) {
	f.Helper()
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, r := range f.replicas {
		if r == owner {
			continue
		}
		p := r.process()
		for begun := time.Now(); f.status(p, "admin", "/readyz") != http.StatusOK; time.Sleep(5 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				f.Fatalf("replica %s is not ready within a minute:\n%s", r.name, p.log)
			}
		}
		if got := f.status(p, "admin", "/healthz"); got != http.StatusOK {
			fault("/healthz of a replica that waits: %d", got)
		}
		status, answer := f.postTo(p, "upstreams.alipay.listen", "/standby/"+r.name+"?key=0", "{}", http.Header{})
		if status != http.StatusOK {
			fault("a call at a replica that waits: %d %s", status, answer)
		}
		resp, err := f.client.Get(listening(p.log.String(), "admin") + "/v1/calls")
		if err != nil {
			f.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || !bytes.Contains(text, []byte(`"calls":`)) {
			fault("/v1/calls of a replica that waits: %d %s", resp.StatusCode, text)
		}
	}
	return faults
}

// postTo posts to a listener of a replica.
func (f *fleet) postTo(p *process, listener, path, body string, header http.Header) (status int, answer []byte) {
	req, err := http.NewRequest(http.MethodPost, listening(p.log.String(), listener)+path, strings.NewReader(body))
	if err != nil {
		f.Error(err)
		return 0, nil
	}
	req.Header = header.Clone()
	resp, err := f.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil { // the connection broke within the answer
		return 0, nil
	}
	return resp.StatusCode, answer
}
