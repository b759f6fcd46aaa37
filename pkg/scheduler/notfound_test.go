package scheduler

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/retry"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// shop is a platform whose query by number finds nothing.
func shop(attempts int) Upstream {
	return Upstream{
		Retry: retry.Policy{Attempts: attempts},
		Resolve: []Resolve{{
			Target: `"/query"`, After: 5 * sec, Every: 10 * sec, Queries: 4,
			Outcomes: []upstream.Rule{{When: "status == 404", Is: upstream.NotExecuted}, {When: "status == 200", Is: upstream.Done}},
		}},
	}
}

// TestRepeatAfterQuery: a query that finds nothing lets a call go again as a repeat: it has
// its attempts, its retry budget and its doubt.
func TestRepeatAfterQuery(t *testing.T) {
	for _, tt := range []struct {
		name    string
		change  func(*Upstream)
		pay     []int // statuses of the payment's attempts; the last one repeats
		query   []int // likewise
		want    State
		targets string // within an hour
	}{
		{"attempts", nil, []int{500}, []int{404}, Unknown,
			"pay query pay query pay query query query query"},
		{"done at last", nil, []int{500}, []int{404, 404, 404, 200}, Done,
			"pay query pay query pay query query"},
		{"refused in doubt", nil, []int{500, 400}, []int{404}, Unknown,
			"pay query pay query pay query query query query"},
		{"executed by the repeat", nil, []int{500, 200}, []int{404}, Done,
			"pay query pay"},
		{"max_age", func(u *Upstream) { u.MaxAge = 8 * sec }, []int{500}, []int{404}, Unknown,
			"pay query pay query query query query"},
		{"retention", func(u *Upstream) { u.Idempotency.Retention = 8 * sec }, []int{500}, []int{404}, Unknown,
			"pay query pay query query query query"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := shop(3)
			if tt.change != nil {
				tt.change(&u)
			}
			bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
				sent := make(map[string]int)
				f.serve = func(_ int, r *http.Request) answer {
					statuses := map[string][]int{"/pay": tt.pay, "/query": tt.query}[r.URL.Path]
					n := sent[r.URL.Path]
					sent[r.URL.Path]++
					return answer{after: 10 * ms, status: statuses[min(n, len(statuses)-1)]}
				}
				c := submit(t, s, Request{Method: "POST", Target: "/pay"})
				time.Sleep(time.Hour)
				got := s.mustGet(t, c.ID)
				if got.State != tt.want || f.targets() != tt.targets {
					t.Errorf("%s after %q (%+v), want %s after %q", got.State, f.targets(), got.Attempts, tt.want, tt.targets)
				}
				if next := flightOf(time.Now(), got); got.State == Unknown && (!next.maybe || next.counted != sent["/pay"]) {
					t.Errorf("the next process knows %d attempts, doubt %v; want %d and doubt", next.counted, next.maybe, sent["/pay"])
				}
			})
		})
	}
}

// TestRepeatAfterQueryByAPerson: a person's decision begins anew, whichever attempts are used.
func TestRepeatAfterQueryByAPerson(t *testing.T) {
	bubble(t, shop(2), func(t *testing.T, s *Scheduler, f *fake) {
		f.serve = func(_ int, r *http.Request) answer {
			return answer{after: 10 * ms, status: map[string]int{"/pay": 500, "/query": 404}[r.URL.Path]}
		}
		c := submit(t, s, Request{Method: "POST", Target: "/pay"})
		time.Sleep(time.Hour)
		if _, err := s.Resolve(t.Context(), c.ID, Decision{As: upstream.NotExecuted, Reason: "the platform has nothing"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		got := s.mustGet(t, c.ID)
		if n := strings.Count(f.targets(), "pay"); n != 4 || got.State != Unknown {
			t.Errorf("%s after %d payments, want unknown after 2 + 2", got.State, n)
		}
		if again := flightOf(time.Now(), got); again.counted != 2 || !again.maybe {
			t.Errorf("the next process knows %d attempts, doubt %v; want 2 and doubt", again.counted, again.maybe)
		}
	})
}

// TestRepeatAfterQueryWaitsForBudget: of 40 repeats 10 are saved, and each 100 ms earns one.
func TestRepeatAfterQueryWaitsForBudget(t *testing.T) {
	u := shop(2)
	u.Retry.Share, u.Breaker.Unknown = 0.001, -1
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		var paid atomic.Int64
		f.serve = func(_ int, r *http.Request) answer {
			if r.URL.Path == "/query" {
				return answer{status: 404}
			}
			if paid.Add(1) <= 40 {
				return answer{status: 500}
			}
			return answer{}
		}
		for range 40 {
			submit(t, s, Request{Method: "POST", Target: "/pay"})
		}
		time.Sleep(6050 * ms) // a second after the queries
		if n := strings.Count(f.targets(), "pay"); n != 40+20 {
			t.Errorf("%d repeats a second after the queries, want the 10 that were saved and 10 more", n-40)
		}
		time.Sleep(time.Minute)
		if n := strings.Count(f.targets(), "pay"); n != 80 {
			t.Errorf("%d payments, want 40 and a repeat of each", n)
		}
	})
}
