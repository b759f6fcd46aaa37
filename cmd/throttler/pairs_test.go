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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/postgres"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

var pairCount = flag.Int("pairs", 100, "pairs of each kind of TestPairs")

const (
	pairsWait   = 12 * time.Second      // max_wait: how long a repeat that is forgotten waits
	pairsAnswer = 10 * time.Millisecond // of the platform
	pairsLate   = 50 * time.Millisecond // so long after the first answer comes the second, at most, unless the machine stands still
	pairsNever  = 3 * time.Second       // and never so long
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
	kinds := []string{"durable", "replay", "identity", "kept"}

	p := launch(t, pairConfig("admin: 127.0.0.1:0\nstore: "+filepath.Join(t.TempDir(), "throttler.db"), server.URL, ""))
	for _, kind := range kinds {
		send := clientOf(p.url(t, "upstreams."+kind+".listen"))
		platform.pairs(t, "SQLite, "+kind, send, send)
	}
	p.kill9()
	db, err := store.Open(filepath.Join(t.TempDir(), "embedded.db"), store.Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	platform.embedded(t, "SQLite, Do", db, server.URL)

	database := database(t)
	var replicas []*process
	for i := range 2 {
		replicas = append(replicas, begin(t, pairConfig(fmt.Sprintf("admin: 127.0.0.1:0\nstore: DATABASE\nfleet: {listen: 127.0.0.1:0, name: r%d, lease: 10s}", i), server.URL, database)))
		replicas[i].logs(t, "key=fleet.listen")
	}
	replicas[0].until(t, "the owner, or another", func() bool {
		return slices.ContainsFunc(replicas, func(r *process) bool { return strings.Contains(r.log.String(), "msg=ready") })
	})
	for _, kind := range kinds {
		listener := "upstreams." + kind + ".listen"
		platform.pairs(t, "PostgreSQL, two replicas, "+kind, clientOf(replicas[0].url(t, listener)), clientOf(replicas[1].url(t, listener)))
	}
	for _, r := range replicas {
		r.kill9()
	}
	pg, err := postgres.Open(t.Context(), database, postgres.Options{Lease: 10 * time.Second, Wait: true, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	platform.embedded(t, "PostgreSQL, Do", pg, server.URL)
}

// embedded plays pairs of Do over a store.
func (p *teller) embedded(t *testing.T, kind string, over scheduler.Durable, url string) {
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
	p.pairs(t, kind, do, do)
}

// clientOf returns a client of a listener that hands a payment over.
func clientOf(url string) payer {
	over := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * pairsAtOnce, DialContext: (&net.Dialer{}).DialContext}}
	return func(ctx context.Context, key string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/pay", strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		r.Header.Set("Idempotency-Key", key)
		resp, err := over.Do(r)
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

// A payer hands a payment over under a key, and returns the answer.
type payer func(ctx context.Context, key string) (string, error)

// pairs plays pairs of one kind by two clients, and tells what came of them. After each pair a request of its own goes the same way:
// so many of these as take longer than others show how often the machine stands still.
func (p *teller) pairs(t *testing.T, kind string, one, other payer) {
	t.Helper()
	var mu sync.Mutex
	var late, alone []time.Duration
	pairs := make(chan int)
	var clients sync.WaitGroup
	for range pairsAtOnce {
		clients.Go(func() {
			for n := range pairs {
				after, err := pair(t.Context(), fmt.Sprintf("%s %d", kind, n), one, other)
				if err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				began := time.Now()
				if _, err := other(t.Context(), fmt.Sprintf("%s %d alone", kind, n)); err != nil {
					t.Errorf("%s, alone: %v", kind, err)
				}
				if n >= pairsFirst {
					mu.Lock()
					late, alone = append(late, after), append(alone, time.Since(began))
					mu.Unlock()
				}
			}
		})
	}
	began, all := time.Now(), *pairCount+pairsFirst
	for n := range all {
		pairs <- n
	}
	close(pairs)
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
	slices.Sort(late)
	slices.Sort(alone)
	usual := alone[len(alone)/2]
	beyond, slow := above(late, pairsLate), above(alone, usual+pairsLate)
	if most := late[len(late)-1]; most > pairsNever || beyond > 3+2*slow+len(late)/500 { // a few more, as a stall meets either
		t.Errorf("%s: %d second answers came more than %v after the first, the last of them %v, and %d requests alone took so much longer than usual", kind, beyond, pairsLate, most, slow)
	}
	at := func(share float64) time.Duration {
		return late[int(share*float64(len(late)-1))].Round(10 * time.Microsecond)
	}
	t.Logf("%s: %d pairs in %v, executed twice %d; the second answer after the first: median %v, p99 %v, p99.9 %v, at most %v; %d more than %v; of the requests alone, which took %v, %d so much longer",
		kind, len(late), took.Round(time.Millisecond), twice, at(0.5), at(0.99), at(0.999), at(1), beyond, pairsLate, usual.Round(time.Millisecond), slow)
}

// above returns how many of some times, which are sorted, are above a bound.
func above(sorted []time.Duration, bound time.Duration) int {
	n, _ := slices.BinarySearch(sorted, bound+1)
	return len(sorted) - n
}

// pair sends two requests under one key, and returns how long after one answer the other came.
func pair(ctx context.Context, key string, payers ...payer) (late time.Duration, err error) {
	type answered struct {
		at   time.Time
		body string
		err  error
	}
	answers := make(chan answered, len(payers))
	apart := rand.N(pairsApart)
	for i, pay := range payers {
		go func() {
			time.Sleep(time.Duration(i) * apart)
			body, err := pay(ctx, key)
			answers <- answered{time.Now(), body, err}
		}()
	}
	first, second := <-answers, <-answers
	for _, a := range []answered{first, second} {
		if a.err != nil || a.body != "paid "+key {
			err = fmt.Errorf("pair %q: answers %q, %v, and %q, %v", key, first.body, first.err, second.body, second.err)
		}
	}
	return second.at.Sub(first.at).Abs(), err
}
