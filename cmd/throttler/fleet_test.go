package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

var fleetRounds = flag.Int("fleet.rounds", 4, "how many faults TestReplicas makes")

// replicaConfig is that of a replica: short times, so that a take-over is short, too.
const replicaConfig = `admin: 127.0.0.1:0
store: %s
fleet: {listen: 127.0.0.1:0, name: %s, lease: %v}
grace: 2s
upstreams:
  alipay:
    listen: 127.0.0.1:0
    url: %s
    timeout: 1s
    late: 200ms
    max_wait: 20s
    limits:
      - {name: app, calls: 20, window: 200ms}
      - {name: key, per_key: 'query("key")', calls: 7, window: 200ms}
`

// An instance is a sidecar of a fleet, which a supervisor starts anew after each end.
type instance struct {
	name, file string

	mu   sync.Mutex
	p    *process
	stop bool
}

func (r *instance) process() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.p
}

// supervise runs the replica until it is told to stop.
func (r *instance) supervise(t *testing.T, path string) {
	for {
		p := &process{file: r.file, log: &lockedBuffer{}, done: make(chan struct{})}
		p.cmd = exec.Command(path, "serve", "-c", r.file)
		p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
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

// A fleet is some replicas over one database, and a load.
type fleet struct {
	*testing.T
	replicas []*instance
	client   *http.Client
	running  sync.WaitGroup

	mu    sync.Mutex
	acked map[string]string // ids by the paths of calls that were acknowledged
	done  int               // answers of the upstream to callers that waited
	late  int               // callers that were told that nothing was sent, or that the outcome is unknown
}

func startFleet(t *testing.T, database, url string, n int, lease time.Duration) *fleet {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{T: t, client: &http.Client{Timeout: 30 * time.Second}, acked: make(map[string]string)}
	for i := range n {
		r := &instance{name: fmt.Sprint("r", i), file: filepath.Join(t.TempDir(), "throttler.yaml")}
		if err := os.WriteFile(r.file, fmt.Appendf(nil, replicaConfig, database, r.name, lease, url), 0o600); err != nil {
			t.Fatal(err)
		}
		f.replicas = append(f.replicas, r)
		f.running.Go(func() { r.supervise(t, path) })
	}
	t.Cleanup(func() {
		for _, r := range f.replicas {
			r.mu.Lock()
			r.stop = true
			if r.p != nil {
				r.p.cmd.Process.Signal(syscall.SIGCONT)
				r.p.cmd.Process.Kill()
			}
			r.mu.Unlock()
		}
		f.running.Wait()
	})
	return f
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

// post posts to a listener of any replica, until one does not refuse it for another that has the calls.
func (f *fleet) post(stop <-chan struct{}, listener, path, body string, header http.Header) (status int, answer []byte) {
	for {
		for _, i := range rand.Perm(len(f.replicas)) {
			p := f.replicas[i].process()
			if p == nil {
				continue
			}
			url := listening(p.log.String(), listener)
			if url == "" {
				continue
			}
			req, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader(body))
			if err != nil {
				f.Error(err)
				return 0, nil
			}
			req.Header = header.Clone()
			resp, err := f.client.Do(req)
			if err != nil {
				if strings.Contains(err.Error(), "refused") {
					continue
				}
				return 0, nil // it may have been taken
			}
			answer, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if bytes.Contains(answer, []byte(`"no_owner"`)) {
				continue
			}
			if err != nil {
				return 0, nil
			}
			return resp.StatusCode, answer
		}
		select {
		case <-stop:
			return 0, nil
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// load makes calls of callers that wait, and submits others, some of them twice, until stop.
func (f *fleet) load(n int, stop <-chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		if i%2 == 0 {
			path := fmt.Sprintf("/sync/%d/%d", n, i)
			status, _ := f.post(stop, "upstreams.alipay.listen", path+"?key="+fmt.Sprint(i%3), "{}", http.Header{})
			f.mu.Lock()
			if status == http.StatusOK {
				f.done++
			} else {
				f.late++
			}
			f.mu.Unlock()
			continue
		}
		path := fmt.Sprintf("/async/%d/%d", n, i)
		body, _ := json.Marshal(map[string]string{"upstream": "alipay", "method": "POST", "target": path + "?key=" + fmt.Sprint(i%3)})
		header := http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {path}}
		for range 3 { // whose answer is lost, it is submitted once more, by whichever replica
			status, answer := f.post(stop, "admin", "/v1/calls", string(body), header)
			if status != http.StatusAccepted && status != http.StatusOK {
				continue
			}
			var call api.Call
			if err := json.Unmarshal(answer, &call); err != nil {
				f.Errorf("%s: %v: %s", path, err, answer)
				return
			}
			f.mu.Lock()
			if before := f.acked[path]; before != "" && before != call.ID {
				f.Errorf("%s is call %s, and was %s before", path, call.ID, before)
			}
			f.acked[path] = call.ID
			f.mu.Unlock()
			if rand.N(4) > 0 {
				break
			}
		}
	}
}

// fault makes a fault of a random kind.
func (f *fleet) fault(server *pgtest.Server) string {
	owner := f.waitOwner()
	p := owner.process()
	switch rand.N(6) {
	case 0:
		p.cmd.Process.Signal(syscall.SIGTERM)
		return "a stop of the owner"
	case 1:
		pause := 100*time.Millisecond + rand.N(2*time.Second)
		p.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(pause)
		p.cmd.Process.Signal(syscall.SIGCONT)
		return fmt.Sprint("SIGSTOP of the owner for ", pause)
	case 2:
		server.Kill()
		time.Sleep(rand.N(time.Second))
		if err := server.Run(); err != nil {
			f.Fatal(err)
		}
		return "kill -9 of PostgreSQL"
	case 3:
		for _, r := range f.replicas {
			if r != owner {
				r.process().cmd.Process.Kill()
				break
			}
		}
		return "kill -9 of another replica"
	default:
		p.cmd.Process.Kill()
		<-p.done
		return "kill -9 of the owner"
	}
}

// TestReplicas: three replicas serve from one database, one at a time, through faults of them and of the server. No
// limit is broken, no call is executed twice, and no acknowledged one is lost.
func TestReplicas(t *testing.T) {
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	database, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	b := &bank{keys: make(map[string][]time.Time), executed: make(map[string]int)}
	platform := httptest.NewServer(b)
	defer platform.Close()
	f := startFleet(t, database, platform.URL, 3, 500*time.Millisecond)
	f.waitOwner()
	f.standBy()
	stop := make(chan struct{})
	var loading sync.WaitGroup
	for n := range 8 {
		loading.Go(func() { f.load(n, stop) })
	}
	for n := range *fleetRounds {
		time.Sleep(500*time.Millisecond + rand.N(time.Second))
		begun := time.Now()
		kind := f.fault(server)
		f.waitOwner()
		t.Logf("round %d: %s; %v to the next owner", n, kind, time.Since(begun).Round(10*time.Millisecond))
	}
	close(stop)
	loading.Wait()
	f.judge(b)
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
	answer, _ = io.ReadAll(resp.Body)
	return resp.StatusCode, answer
}

// judge compares the acknowledged calls with those that the platform has executed.
func (f *fleet) judge(b *bank) {
	admin := listening(f.waitOwner().process().log.String(), "admin")
	states := make(map[string]int)
	for path, id := range f.acked {
		var call api.Call
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			resp, err := f.client.Get(admin + "/v1/calls/" + id)
			if (err != nil || resp.StatusCode == http.StatusServiceUnavailable) && time.Since(begun) < time.Minute { // it was followed by another one
				admin = listening(f.waitOwner().process().log.String(), "admin")
				continue
			}
			if err != nil {
				f.Fatal(err)
			}
			err = json.NewDecoder(resp.Body).Decode(&call)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || err != nil {
				f.Errorf("%s was acknowledged as %s, and is lost: %d, %v", path, id, resp.StatusCode, err)
				break
			}
			if call.State != "waiting" && call.State != "sending" {
				break
			}
			if time.Since(begun) > time.Minute {
				f.Errorf("%s is still %s", path, call.State)
				break
			}
		}
		states[string(call.State)]++
		b.mu.Lock()
		executed := b.executed[path]
		b.mu.Unlock()
		if call.State == "done" && executed != 1 || call.State != "done" && call.State != "unknown" || executed > 1 {
			f.Errorf("%s is %s, and was executed %d times", path, call.State, executed)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for path, n := range b.executed {
		if n > 1 {
			f.Errorf("%s was executed %d times", path, n)
		}
	}
	most := mostIn(b.arrivals, 200*time.Millisecond)
	if most > 20 {
		f.Errorf("%d calls in a window, at most 20", most)
	}
	for key, arrivals := range b.keys {
		if n := mostIn(arrivals, 200*time.Millisecond); n > 7 {
			f.Errorf("key %s: %d calls in a window, at most 7", key, n)
		}
	}
	f.Logf("%d arrivals, %d in a window at most; %d submitted, by state %v; of callers that waited %d got answers, %d none", len(b.arrivals), most, len(f.acked), states, f.done, f.late)
	if f.done == 0 || states["done"] == 0 {
		f.Error("nothing was done")
	}
}
