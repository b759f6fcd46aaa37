package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

var (
	pairCount = flag.Int("pairs", 100, "pairs of each kind of TestPairs")
	pairLate  = flag.Duration("pairs.late", 3*time.Second, "how long after the first answer of a pair the other may come in TestPairs, beside stalls of the machine")
)

const (
	pairsWait   = 12 * time.Second      // max_wait: how long a repeat that is forgotten waits
	pairsAnswer = 10 * time.Millisecond // of the platform
	pairsAtOnce = 4
	pairsFirst  = 5 * pairsAtOnce      // while connections are made: they count as executed, and not for their lateness
	pairsApart  = 3 * time.Millisecond // so long after the first is the other sent, at most
)

// pairUpstreams are upstreams at which two requests under one key are one call.
const pairUpstreams = `
upstreams:
  durable: {listen: 127.0.0.1:0, url: URL, max_wait: WAIT, durable: true}
  replay: {listen: 127.0.0.1:0, url: URL, max_wait: WAIT, replay: true}
  identity: {listen: 127.0.0.1:0, url: URL, max_wait: WAIT, identity: 'header("Idempotency-Key")'}
  kept: {listen: 127.0.0.1:0, url: URL, max_wait: WAIT, durable: true, identity: 'header("Idempotency-Key")'}
`

func pairConfig(text, url, database string) string {
	return strings.NewReplacer("URL", url, "WAIT", pairsWait.String(), "DATABASE", database).Replace(text + pairUpstreams)
}

// A teller is a platform that counts executions by key.
type teller struct {
	mu       sync.Mutex
	executed map[string]int
}

func (p *teller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	p.executed[key]++
	p.mu.Unlock()
	time.Sleep(pairsAnswer)
	io.WriteString(w, "paid "+key)
}

// TestPairs sends two requests under one key in the same moment, many times, to one sidecar, to two replicas, and to embedded
// schedulers. Each pair is executed once, and the second answer is the first, and comes with it.
func TestPairs(t *testing.T) {
	t.Parallel()
	platform := &teller{executed: make(map[string]int)}
	server := httptest.NewServer(platform)
	defer server.Close()
	quiet := slog.New(slog.DiscardHandler)
	kinds, disk := []string{"durable", "replay", "identity", "kept"}, syncs(t)

	p := launch(t, pairConfig("admin: 127.0.0.1:0\nstore: "+filepath.Join(t.TempDir(), "throttler.db"), server.URL, ""))
	for _, kind := range kinds {
		send := clientOf(p.url(t, "upstreams."+kind+".listen"))
		platform.pairs(t, "SQLite, "+kind, []func(){disk, answers(p.admin)}, send, send)
	}
	p.kill9()
	db, err := store.Open(filepath.Join(t.TempDir(), "embedded.db"), store.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	platform.embedded(t, "SQLite, Do", []func(){disk}, db, server.URL)

	database := database(t)
	asked := queries(t, database)
	probes := []func(){disk, asked}
	var replicas []*process
	for i := range 2 {
		replicas = append(replicas, begin(t, pairConfig(fmt.Sprintf("admin: 127.0.0.1:0\nstore: DATABASE\nfleet: {listen: 127.0.0.1:0, name: r%d, lease: 10s}", i), server.URL, database)))
		replicas[i].logs(t, "key=fleet.listen")
		probes = append(probes, answers(replicas[i].url(t, "admin")))
	}
	replicas[0].until(t, "the owner, or another", func() bool {
		return slices.ContainsFunc(replicas, func(r *process) bool { return strings.Contains(r.log.String(), "msg=ready") })
	})
	for _, kind := range kinds {
		listener := "upstreams." + kind + ".listen"
		platform.pairs(t, "PostgreSQL, two replicas, "+kind, probes, clientOf(replicas[0].url(t, listener)), clientOf(replicas[1].url(t, listener)))
	}
	for _, r := range replicas {
		r.kill9()
	}
	pg, err := postgres.Open(t.Context(), database, postgres.Options{Lease: 10 * time.Second, Wait: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	platform.embedded(t, "PostgreSQL, Do", []func(){disk, asked}, pg, server.URL)
}

// embedded plays pairs of Do over a store.
func (p *teller) embedded(t *testing.T, kind string, probes []func(), over scheduler.Durable, url string) {
	u := scheduler.Upstream{Durable: "true", MaxWait: pairsWait}
	u.URL = url
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: over, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do := func(ctx context.Context, key string) (string, error) {
		resp, _, err := s.Do(ctx, scheduler.Request{Upstream: "api", Method: "POST", Target: "/pay", Header: http.Header{"Idempotency-Key": {key}}, IdempotencyKey: key})
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	p.pairs(t, kind, probes, do, do)
}

// clientOf returns a client of a listener that hands a payment over.
func clientOf(url string) func(ctx context.Context, key string) (string, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * pairsAtOnce, DialContext: (&net.Dialer{}).DialContext}}
	return func(ctx context.Context, key string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/pay", strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d: %s", resp.StatusCode, body)
		}
		return string(body), err
	}
}

// A pairEnd is how late the second answer of a pair came after the first, and how much of that the machine stood still.
type pairEnd struct{ late, stalled time.Duration }

// pairs plays pairs of one kind by two clients, and tells what came of them.
func (p *teller) pairs(t *testing.T, kind string, probes []func(), one, other func(ctx context.Context, key string) (string, error)) {
	t.Helper()
	machine := watchMachine(probes)
	defer machine.stop()
	var mu sync.Mutex
	var ends []pairEnd
	keys := make(chan int)
	var clients sync.WaitGroup
	for range pairsAtOnce {
		clients.Go(func() {
			for n := range keys {
				end, err := pair(t.Context(), fmt.Sprintf("%s %d", kind, n), machine, one, other)
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				if n >= pairsFirst {
					mu.Lock()
					ends = append(ends, end)
					mu.Unlock()
				}
			}
		})
	}
	began := time.Now()
	all := *pairCount + pairsFirst
	for n := range all {
		keys <- n
	}
	close(keys)
	clients.Wait()
	took := time.Since(began)

	twice, never := 0, 0
	p.mu.Lock()
	for n := range all {
		switch p.executed[fmt.Sprintf("%s %d", kind, n)] {
		case 0:
			never++
		case 1:
		default:
			twice++
		}
	}
	p.mu.Unlock()
	if twice > 0 || never > 0 {
		t.Errorf("%s: %d pairs were executed more than once, and %d never", kind, twice, never)
	}
	beyond := 0
	for _, e := range ends {
		if e.late > *pairLate {
			beyond++
		}
		if e.late-e.stalled > *pairLate {
			t.Errorf("%s: a second answer came %v after the first, in which the machine stood still for %v", kind, e.late, e.stalled)
		}
	}
	slices.SortFunc(ends, func(a, b pairEnd) int { return int(a.late - b.late) })
	at := func(share float64) time.Duration {
		return ends[int(share*float64(len(ends)-1))].late.Round(10 * time.Microsecond)
	}
	t.Logf("%s: %d pairs in %v, executed twice %d; the second answer after the first: median %v, p99 %v, p99.9 %v, at most %v; %d after more than %v; the longest stall of the machine was %v",
		kind, len(ends), took.Round(time.Millisecond), twice, at(0.5), at(0.99), at(0.999), at(1), beyond, *pairLate, machine.longest().Round(time.Millisecond))
}

// pair sends two requests under one key, and returns how long after one answer the other came.
func pair(ctx context.Context, key string, machine *machine, clients ...func(ctx context.Context, key string) (string, error)) (pairEnd, error) {
	type answered struct {
		at   time.Time
		body string
		err  error
	}
	answers := make(chan answered, len(clients))
	apart := rand.N(pairsApart)
	for i, client := range clients {
		go func() {
			time.Sleep(time.Duration(i) * apart)
			body, err := client(ctx, key)
			answers <- answered{time.Now(), body, err}
		}()
	}
	first, second := <-answers, <-answers
	end := pairEnd{second.at.Sub(first.at).Abs(), machine.stalled(first.at, second.at)}
	for _, a := range []answered{first, second} {
		if a.err != nil || a.body != "paid "+key {
			return end, fmt.Errorf("pair %q: answers %q, %v, and %q, %v", key, first.body, first.err, second.body, second.err)
		}
	}
	return end, nil
}

// A machine is watched for stalls: by probes, each of which takes a moment unless a process does not get a processor, or the disk
// does not answer. On a busy machine the sidecar, and the server of its store, stand still at such times too.
type machine struct {
	mu     sync.Mutex
	stalls []standstill
	ended  chan struct{}
	over   sync.WaitGroup
}

type standstill struct{ from, to time.Time }

const (
	probeEvery = time.Millisecond
	probeUsual = 5 * time.Millisecond // and not longer
)

func watchMachine(probes []func()) *machine {
	m := &machine{ended: make(chan struct{})}
	for _, probe := range append(probes, func() {}) {
		m.over.Go(func() {
			for last := time.Now(); ; {
				select {
				case <-m.ended:
					return
				case <-time.After(probeEvery):
				}
				probe()
				now := time.Now()
				if now.Sub(last) > probeEvery+probeUsual {
					m.mu.Lock()
					m.stalls = append(m.stalls, standstill{last.Add(probeEvery), now})
					m.mu.Unlock()
				}
				last = now
			}
		})
	}
	return m
}

func (m *machine) stop() { close(m.ended); m.over.Wait() }

// stalled returns how much of the time between two instants the machine stood still.
func (m *machine) stalled(from, to time.Time) (all time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortFunc(m.stalls, func(a, b standstill) int { return a.from.Compare(b.from) })
	for _, s := range m.stalls {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		if s.to.After(s.from) {
			all += s.to.Sub(s.from)
			from = s.to // what two probes have seen counts once
		}
	}
	return all
}

func (m *machine) longest() (most time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stalls {
		most = max(most, s.to.Sub(s.from))
	}
	return most
}

// answers is a probe: a sidecar answers, which has nothing to do for it.
func answers(url string) func() {
	client := &http.Client{Transport: &http.Transport{}}
	return func() {
		if resp, err := client.Get(url + "/healthz"); err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
	}
}

// syncs is a probe: the disk takes a page.
func syncs(t *testing.T) func() {
	f, err := os.Create(filepath.Join(t.TempDir(), "page"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return func() {
		f.WriteAt(make([]byte, 4096), 0)
		f.Sync()
	}
}

// queries is a probe: the server of a database answers.
func queries(t *testing.T, database string) func() {
	db, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close(context.Background()) })
	return func() { db.Exec(context.Background(), "SELECT 1") }
}
