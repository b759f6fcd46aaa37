package store

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestListAll: a filter without Max lists all calls.
func TestListAll(t *testing.T) {
	d := open(t, file(t), Options{})
	mixed(t, d, 3)
	if page, err := d.List(t.Context(), scheduler.Filter{}); err != nil || len(page.Calls) != 5 || page.Next != "" {
		t.Errorf("%+v, %v; want 5 calls", page, err)
	}
}

// A countdown is a context that is cancelled when it is looked at for the n-th time.
type countdown struct {
	context.Context
	cancel context.CancelFunc
	left   atomic.Int64
}

func newCountdown(n int64) *countdown {
	c := &countdown{}
	c.Context, c.cancel = context.WithCancel(context.Background())
	c.left.Store(n)
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) == 0 {
		c.cancel()
	}
}

func (c *countdown) Done() <-chan struct{} { c.look(); return c.Context.Done() }

func (c *countdown) Err() error { c.look(); return c.Context.Err() }

// reads are all methods that read, each over many of the calls of mixed.
func reads(d *DB, of map[scheduler.State]string) map[string]func(context.Context) error {
	const page = 5
	first := scheduler.Position{Priority: scheduler.MaxPriority + 1}
	all := func(scheduler.Position, int64) bool { return true }
	return map[string]func(context.Context) error{
		"Get": func(ctx context.Context) error {
			c, err := d.Get(ctx, of[scheduler.Done])
			return errors.Join(err, missing(err == nil && c.Response == nil))
		},
		"Find": func(ctx context.Context) error {
			c, err := d.Find(ctx, &scheduler.Entry{Key: "key", Fingerprint: "f"})
			return errors.Join(err, missing(err == nil && c == nil))
		},
		"Fetch": func(ctx context.Context) error {
			e, err := d.Fetch(ctx, of[scheduler.Unknown])
			return errors.Join(err, missing(err == nil && e.Request == nil))
		},
		"List": func(ctx context.Context) error {
			got, err := d.List(ctx, scheduler.Filter{Max: page})
			return errors.Join(err, missing(err == nil && len(got.Calls) != page))
		},
		"List by a number": func(ctx context.Context) error {
			got, err := d.List(ctx, scheduler.Filter{Number: "7", Max: page})
			return errors.Join(err, missing(err == nil && len(got.Calls) != page))
		},
		"List of a state without calls": func(ctx context.Context) error {
			_, err := d.List(ctx, scheduler.Filter{States: []scheduler.State{scheduler.Expired}, Max: page})
			return err
		},
		"Scan": func(ctx context.Context) error {
			got, err := d.Scan(ctx, "api", first, time.Now(), page, all)
			return errors.Join(err, missing(err == nil && len(got.Entries) != page))
		},
		"Scan to the end": func(ctx context.Context) error {
			got, err := d.Scan(ctx, "api", first, time.Now(), page, func(scheduler.Position, int64) bool { return false })
			return errors.Join(err, missing(err == nil && !got.End))
		},
		"Waking": func(ctx context.Context) error {
			got, err := d.Waking(ctx, time.Now().Add(time.Hour), scheduler.Position{}, page)
			return errors.Join(err, missing(err == nil && len(got.Entries) != page))
		},
		"PendingWebhooks": func(ctx context.Context) error {
			calls, err := d.PendingWebhooks(ctx, "", page)
			return errors.Join(err, missing(err == nil && len(calls) != 2))
		},
	}
}

var errMissing = errors.New("a read without an error has not found everything")

func missing(is bool) error {
	if is {
		return errMissing
	}
	return nil
}

// mixed fills a store with waiting calls, of which some were put off, and with one
// that is done and one that is unknown. It returns the ids of these by state.
func mixed(t *testing.T, d *DB, waiting int64) map[scheduler.State]string {
	t.Helper()
	of := make(map[scheduler.State]string)
	var wg sync.WaitGroup
	for n := range waiting {
		e := storetest.NewEntry(n + 1)
		e.Call.Numbers = map[string]string{"order": "7"}
		if n < 100 {
			e.Call.Due = time.Now().Add(-time.Minute)
		}
		wg.Go(func() {
			if _, err := d.Accept(t.Context(), e); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for n, state := range []scheduler.State{scheduler.Done, scheduler.Unknown} {
		e := storetest.NewEntry(waiting + int64(n) + 1)
		e.Call.Callback = "shop"
		if state == scheduler.Done {
			e.Key, e.Fingerprint = "key", "f"
		}
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		sent := storetest.Sent(e.Call)
		err := d.Intend(t.Context(), sent, nil)
		if err == nil {
			err = d.Record(t.Context(), storetest.Ended(sent, state))
		}
		if err != nil {
			t.Fatal(err)
		}
		of[state] = e.Call.ID
	}
	return of
}

// TestCancelledRead cancels the context of each read: before it, at every place
// where the read looks at it, and at any time while SQLite works. The read returns
// the context's error, and the store goes on: for its other readers, and for writers.
func TestCancelledRead(t *testing.T) {
	d := openTest(t, filepath.Join(scratch(t), "throttler.db"))
	defer d.Close()
	of := mixed(t, d, 500)
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := d.Get(t.Context(), of[scheduler.Done]); err != nil {
				t.Errorf("a read with a context of its own: %v", err)
				return
			}
		}
	})
	for name, read := range reads(d, of) {
		before, cancel := context.WithCancel(t.Context())
		cancel()
		if err := read(before); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled before: %v", name, err)
		}
		looks := int64(1)
		for ; ; looks++ {
			ctx := newCountdown(looks)
			if err := read(ctx); err != nil && !errors.Is(err, context.Canceled) {
				t.Fatalf("%s, cancelled at look %d: %v", name, looks, err)
			}
			if ctx.left.Load() > 0 { // it looks less often
				break
			}
		}
		cut := 0
		for _, part := range shares(read, 30) {
			ctx, cancel := context.WithTimeout(t.Context(), part)
			if err := read(ctx); err != nil {
				if cut++; !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, cut short after %v: %v", name, part, err)
				}
			}
			cancel()
		}
		t.Logf("%s: cancelled at %d looks, and %d of 30 times by a deadline", name, looks-1, cut)
	}
	close(stop)
	others.Wait()
	if _, err := d.Accept(t.Context(), storetest.NewEntry(10_000)); err != nil {
		t.Errorf("after all: %v", err)
	}
}

// shares returns durations up to the one that a read takes.
func shares(read func(context.Context) error, n int) []time.Duration {
	var took []time.Duration
	for range 5 {
		begin := time.Now()
		read(context.Background())
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	all := make([]time.Duration, n)
	for i := range all {
		all[i] = took[len(took)/2] * time.Duration(i) / time.Duration(n)
	}
	return all
}

// queryPlan returns the steps of a query, a line each.
func queryPlan(t *testing.T, db *sql.DB, query string, args ...any) string {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var plan strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		plan.WriteString(step + "\n")
	}
	return plan.String()
}
