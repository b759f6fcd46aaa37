package postgres

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestArrivalsBehindAFullUpstream: calls for an upstream that has no room, also if they are large and many, keep those for
// others from nothing; they are taken in, in their order, when there is room, also while those for others come without a pause.
func TestArrivalsBehindAFullUpstream(t *testing.T) {
	url, p := newDatabase(t), newPlatform(t)
	d := open(t, url, Options{Lease: short})
	s := serve(t, d, p, map[string]scheduler.Upstream{"api": {}, "full": {MaxWaiting: 1}})
	first, err := s.Submit(t.Context(), scheduler.Request{Upstream: "full", Target: "/first", NotBefore: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var requests []scheduler.Request
	for n := range 40 {
		requests = append(requests, scheduler.Request{Upstream: "full", Method: "POST", Target: fmt.Sprint("/large/", n), Body: make([]byte, 1<<20)})
	}
	conn := connect(t, url)
	large := handOver(t, conn, requests...)
	if c := ends(t, s, handOver(t, conn, scheduler.Request{Upstream: "api", Target: "/other"})[0]); c.State != scheduler.Done {
		t.Errorf("the call for another upstream: %+v", c)
	}
	counted(t, d, "SELECT count(*) FROM throttler.arrivals", len(large))
	stop := arriveAlways(t, url, scheduler.Request{Upstream: "api", Target: "/always"})
	defer stop()
	if _, err := s.Cancel(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	for n, id := range large {
		if c := ends(t, s, id); c.State != scheduler.Done {
			t.Errorf("a call that had no room: %+v", c)
		}
		if n == 5 {
			stop()
		}
	}
	if order := taken(t, conn, large); !slices.Equal(order, large) {
		t.Errorf("they were taken in in the order %v", order)
	}
}

// arriveAlways hands a call over again and again, so that the next one is there before the last one is taken in.
func arriveAlways(t *testing.T, url string, r scheduler.Request) (stop func()) {
	t.Helper()
	var arriving sync.WaitGroup
	stopped := make(chan struct{})
	for range 4 {
		conn := connect(t, url)
		arriving.Go(func() {
			for {
				select {
				case <-stopped:
					return
				default:
					handOver(t, conn, r, r)
				}
			}
		})
	}
	return sync.OnceFunc(func() {
		close(stopped)
		arriving.Wait()
	})
}

// TestArrivalsOfOthers: the calls of an upstream that is left out, however many, are not read for those of others.
func TestArrivalsOfOthers(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
	conn, err := d.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, statement := range []string{
		`INSERT INTO arrivals (id, upstream, method, target, headers, idempotency_key, priority, callback, submitted_by)
			SELECT n::text, CASE WHEN n % 5000 = 0 THEN 'other' ELSE 'full' END, 'POST', '/', '{}', '', 0, '', 'clerk' FROM generate_series(1, 20000) n`,
		"ANALYZE arrivals",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING off) "+selectArrivals, []string{"full"}, true, 256, pageBytes)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range plan {
		for _, figure := range []string{"actual rows=", "Rows Removed by Filter: "} {
			var n float64
			if _, after, found := strings.Cut(line, figure); found {
				fmt.Sscan(strings.Fields(after)[0], &n)
			}
			if n > 300 {
				t.Errorf("a step has %v rows:\n%s", n, strings.Join(plan, "\n"))
			}
		}
	}
	var others []string
	inbox := &inbox{reader: d.reader}
	if err := inbox.Arrivals(t.Context(), []string{"full"}, true, 256, func(id string, r scheduler.Request, _ error) { others = append(others, id+" "+r.Upstream) }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"5000 other", "10000 other", "15000 other", "20000 other"}; !slices.Equal(others, want) {
		t.Errorf("the calls of others: %v, want %v", others, want)
	}
}

// taken returns ids in the order in which their calls were taken in.
func taken(t *testing.T, conn *pgx.Conn, ids []string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT id FROM throttler.calls WHERE id = ANY($1) ORDER BY seq", ids)
	if err != nil {
		t.Fatal(err)
	}
	order, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return order
}

// TestArrivalsInOrder: calls for an upstream are taken in, and sent, in the order in which they were handed over, also
// those whose keys are looked up beside those that have none.
func TestArrivalsInOrder(t *testing.T) {
	url, p := newDatabase(t), newPlatform(t)
	if err := Migrate(t.Context(), url, Options{}); err != nil {
		t.Fatal(err)
	}
	var requests []scheduler.Request
	for n := range 600 {
		r := scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprintf("/%03d", n)}
		if n%3 == 0 {
			r.IdempotencyKey = r.Target
		}
		requests = append(requests, r)
	}
	conn := connect(t, url)
	ids := handOver(t, conn, requests...)
	// A lease that a busy machine does not let lapse: meanwhile a call would not be sent, and be tried again a second later.
	s := serve(t, open(t, url, Options{Lease: MaxLease}), p, map[string]scheduler.Upstream{"api": {Concurrency: 1}})
	for _, id := range ids {
		ends(t, s, id)
	}
	if order := taken(t, conn, ids); !slices.Equal(order, ids) {
		t.Errorf("%d calls were not taken in in order", len(ids))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.IsSorted(p.order) || len(p.order) != len(ids) {
		t.Errorf("%d calls were sent in the order %v", len(p.order), p.order)
	}
}
