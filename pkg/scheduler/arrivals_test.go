package scheduler_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// An inbox is a store in which calls arrive. Each commit takes another time.
type inbox struct {
	*store.DB
	came chan struct{}

	mu      sync.Mutex
	lies    []arrived
	refused map[string]string // reasons by target
	read    []int             // calls of each page
	page    func()            // runs once, after a page was read
}

type arrived struct {
	id string
	r  scheduler.Request
}

func (i *inbox) Arrived(ctx context.Context) bool {
	select {
	case <-i.came:
		return true
	case <-ctx.Done():
		return false
	}
}

func (i *inbox) Arrivals(_ context.Context, upstreams []string, others bool, most int, each func(id string, r scheduler.Request, fault error)) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	n := 0
	for _, a := range i.lies {
		if slices.Contains(upstreams, a.r.Upstream) != others && n < most {
			each(a.id, a.r, nil)
			n++
		}
	}
	i.read = append(i.read, n)
	if i.page != nil {
		i.page()
		i.page = nil
	}
	return nil
}

func (i *inbox) Accept(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	time.Sleep(rand.N(10 * time.Millisecond))
	known, err := i.DB.Accept(ctx, e)
	if err == nil && known == nil && e.Arrived {
		i.take(e.Call.ID)
	}
	return known, err
}

func (i *inbox) RefuseArrival(_ context.Context, e *scheduler.Entry) error {
	i.take(e.Call.ID)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.refused[e.Request.Target] = e.Call.Last().Reason
	return nil
}

func (i *inbox) take(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lies = slices.DeleteFunc(i.lies, func(a arrived) bool { return a.id == id })
}

// add puts calls where they arrive, behind those that lie there.
func (i *inbox) add(requests ...scheduler.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, r := range requests {
		i.lies = append(i.lies, arrived{fmt.Sprintf("00000000-0000-7000-8000-%012x", rand.Int64N(1<<48)), r})
	}
}

// pass lets the scheduler look at them, and returns how many calls each page had.
func (i *inbox) pass() (read []int) {
	i.mu.Lock()
	i.read = nil
	i.mu.Unlock()
	i.came <- struct{}{}
	time.Sleep(time.Minute)
	synctest.Wait()
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.read
}

// arriving runs a test in a bubble, with a scheduler of some upstreams. Its calls are sent to a fake upstream, which keeps
// their targets.
func arriving(t *testing.T, ups map[string]scheduler.Upstream, test func(t *testing.T, s *scheduler.Scheduler, i *inbox, sent func() string)) {
	path := filepath.Join(t.TempDir(), "calls.db")
	synctest.Test(t, func(t *testing.T) {
		db, err := store.Open(path, store.Options{Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		i := &inbox{DB: db, came: make(chan struct{}, 1), refused: make(map[string]string)}
		var mu sync.Mutex
		var targets []string
		for name, u := range ups {
			u.URL, u.Transport = "http://"+name+".test", roundTrip(func(r *http.Request) *http.Response {
				mu.Lock()
				defer mu.Unlock()
				targets = append(targets, r.URL.Path)
				return ok(r)
			})
			ups[name] = u
		}
		s, err := scheduler.New(scheduler.Config{Upstreams: ups, Store: i, Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		test(t, s, i, func() string {
			mu.Lock()
			defer mu.Unlock()
			return strings.Join(targets, " ")
		})
	})
}

// numbered returns requests to an upstream, and their targets in one text.
func numbered(upstream string, n int, change func(n int, r *scheduler.Request)) (all []scheduler.Request, targets string) {
	var names []string
	for n := range n {
		r := scheduler.Request{Upstream: upstream, Method: "POST", Target: fmt.Sprint("/", n)}
		change(n, &r)
		all, names = append(all, r), append(names, r.Target)
	}
	return all, strings.Join(names, " ")
}

// TestArrivalsInOrder: calls are sent in the order in which they arrived, whichever was stored first, also on several
// pages, and also those that have a key or an identity; the first of two with one key counts.
func TestArrivalsInOrder(t *testing.T) {
	u := scheduler.Upstream{Concurrency: 1, Identity: `header("Order")`, Durable: "true"}
	arriving(t, map[string]scheduler.Upstream{"api": u}, func(t *testing.T, s *scheduler.Scheduler, i *inbox, sent func() string) {
		all, want := numbered("api", 600, func(n int, r *scheduler.Request) {
			r.Header = http.Header{"Order": {fmt.Sprint(n)}}
			if n%3 == 0 {
				r.IdempotencyKey = fmt.Sprint(n)
			}
		})
		key, identity := all[9], all[10]
		key.Target, identity.Target = "/key", "/identity"
		i.add(slices.Insert(all, 20, key, identity)...)
		i.pass()
		if got := sent(); got != want {
			t.Errorf("sent: %s", got)
		}
		for _, target := range []string{"/key", "/identity"} {
			if i.refused[target] == "" {
				t.Errorf("%s was not refused: %v", target, i.refused)
			}
		}
	})
}

// TestArrivalOfALateTransaction: a call that becomes visible while a pass goes on, ahead of those that were read, is taken in
// before those that come after it.
func TestArrivalOfALateTransaction(t *testing.T) {
	arriving(t, map[string]scheduler.Upstream{"api": {Concurrency: 1}}, func(t *testing.T, s *scheduler.Scheduler, i *inbox, sent func() string) {
		all, want := numbered("api", 258, func(int, *scheduler.Request) {})
		late := all[0]
		i.add(all[1:257]...)
		i.page = func() {
			i.lies = slices.Insert(i.lies, 0, arrived{"00000000-0000-7000-8000-000000000000", late})
			i.lies = append(i.lies, arrived{"00000000-0000-7000-8000-000000000001", all[257]})
		}
		i.pass()
		if want = strings.TrimPrefix(strings.Replace(want, "/257", "/0 /257", 1), "/0 "); sent() != want {
			t.Errorf("sent: %s", sent())
		}
	})
}

// TestArrivalsWithoutRoom: calls for which there is no room stay where they are, in their order; those of other upstreams are
// taken in, and those that stay are not read over and over.
func TestArrivalsWithoutRoom(t *testing.T) {
	for name, full := range map[string]scheduler.Upstream{"max_waiting": {MaxWaiting: 8}, "max_waiting_bytes": {MaxWaitingBytes: 8_500, Durable: "true"}} {
		t.Run(name, func(t *testing.T) {
			arriving(t, map[string]scheduler.Upstream{"api": {}, "full": full}, func(t *testing.T, s *scheduler.Scheduler, i *inbox, sent func() string) {
				all, _ := numbered("full", 700, func(n int, r *scheduler.Request) {
					r.Body, r.NotBefore = make([]byte, 1000), time.Now().Add(12*time.Hour)
					if n == 9 { // there is room for it, but not for the one before it
						r.Body = nil
					}
				})
				i.add(all...)
				i.add(scheduler.Request{Upstream: "api", Target: "/other"})
				i.pass()
				if sent() != "/other" {
					t.Errorf("sent: %q", sent())
				}
				for pass := range 3 {
					read := 0
					for _, n := range i.pass() {
						read += n
					}
					if most := map[string]int{"max_waiting": 0, "max_waiting_bytes": 4}[name]; read > most {
						t.Errorf("pass %d without room read %d calls, want %d at most", pass, read, most)
					}
				}
				waiting := func() (ids, targets []string) {
					page, err := s.List(t.Context(), scheduler.Filter{States: []scheduler.State{scheduler.Waiting}, Oldest: true})
					if err != nil {
						t.Fatal(err)
					}
					slices.SortFunc(page.Calls, func(a, b *scheduler.Call) int { return int(a.Seq - b.Seq) })
					for _, c := range page.Calls {
						ids, targets = append(ids, c.ID), append(targets, c.Path)
					}
					return ids, targets
				}
				ids, got := waiting()
				if want := strings.Fields("/0 /1 /2 /3 /4 /5 /6 /7"); !slices.Equal(got, want) {
					t.Errorf("taken in: %v, want %v", got, want)
				}
				for _, id := range ids[:6] {
					if _, err := s.Cancel(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				if read := i.pass(); slices.Max(read) > 8 {
					t.Errorf("with room for 6 the pages had %v calls", read)
				}
				want := map[string]string{"max_waiting": "/6 /7 /8 /9 /10 /11 /12 /13", "max_waiting_bytes": "/6 /7 /8 /9 /10 /11 /12 /13 /14"}[name]
				if _, got := waiting(); !slices.Equal(got, strings.Fields(want)) {
					t.Errorf("with room for 6 more: %v", got)
				}
			})
		})
	}
}

// TestArrivalThatNeverFits: a call for which there cannot be room ends, and those behind it are taken in.
func TestArrivalThatNeverFits(t *testing.T) {
	arriving(t, map[string]scheduler.Upstream{"api": {MaxWaitingBytes: 1000}}, func(t *testing.T, s *scheduler.Scheduler, i *inbox, sent func() string) {
		i.add(scheduler.Request{Upstream: "api", Method: "POST", Target: "/large", Body: make([]byte, 1000)}, scheduler.Request{Upstream: "api", Target: "/small"})
		i.pass()
		if !strings.Contains(i.refused["/large"], "max_waiting_bytes") || sent() != "/small" {
			t.Errorf("refused: %v, sent: %s", i.refused, sent())
		}
	})
}
