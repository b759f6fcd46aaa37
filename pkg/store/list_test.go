package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// A watching is a querier that notes the queries which it runs.
type watching struct {
	querier
	queries map[string][]any
}

func (w *watching) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	w.queries[query] = args
	return w.querier.QueryRowContext(ctx, query, args...)
}

func (w *watching) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	w.queries[query] = args
	return w.querier.QueryContext(ctx, query, args...)
}

// TestListScansNothing: whichever members a filter has, its queries read no calls but by an index, and
// sort no calls but those in flight, and the few that ended in a short period.
func TestListScansNothing(t *testing.T) {
	d := open(t, file(t), Options{raw: "_pragma=synchronous(OFF)"})
	c := fill(t, d, 3, blockCalls+200)
	w := &watching{d.reader.db, make(map[string][]any)}
	filters := 300
	if testing.Short() {
		filters = 60
	}
	for range filters {
		f := c.Filter()
		f.Max = 20
		l := newListing(t.Context(), w, d.codec, f)
		if err := l.plan(d.index.look()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.page(); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.queries) < 15 {
		t.Errorf("only %d queries were seen:\n%s", len(w.queries), strings.Join(slices.Sorted(maps.Keys(w.queries)), "\n"))
	}
	for query, args := range w.queries {
		plan := queryPlan(t, d.reader.db, query, args...)
		for step := range strings.Lines(plan) {
			few := strings.Contains(query, "FROM flights") || strings.Contains(query, inPeriod)
			switch step = strings.TrimSpace(step); {
			case strings.HasPrefix(step, "SCAN calls USING INDEX sqlite_autoindex_calls_1"), step == "SCAN flights", strings.HasPrefix(step, "SCAN (subquery"): // the first in the order of the list, and to an end
			case strings.HasPrefix(step, "SCAN"), strings.Contains(step, "TEMP B-TREE") && !few:
				t.Errorf("%s\n%s", query, plan)
			}
		}
	}
}

// TestShortPeriod: a list of the calls that ended in a short period begins there.
func TestShortPeriod(t *testing.T) {
	d := open(t, file(t), Options{})
	rows, err := d.reader.db.Query("EXPLAIN "+countPeriod, 1, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var seek string
	for rows.Next() {
		var rest [6]any
		var code string
		if err := rows.Scan(&rest[0], &code, &rest[1], &rest[2], &rest[3], &rest[4], &rest[5], new(any)); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(code, "Seek") {
			seek = code
		}
	}
	if seek != "SeekGE" { // SeekGT is that of ended_at > 0
		t.Errorf("the index is entered by %q", seek)
	}
}

// fill hands random calls over to a store, of which many go on.
func fill(t testing.TB, d *DB, seed uint64, calls int) *storetest.Crowd {
	t.Helper()
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	c := storetest.NewCrowd(seed)
	for range calls {
		e := c.Entry()
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		c.Calls = append(c.Calls, e.Call)
	}
	c.Change(t, d)
	return c
}

// TestListsOfBlocks compares lists of calls in blocks in the file and in memory with the calls, and
// again after a clean close, and after a crash.
func TestListsOfBlocks(t *testing.T) {
	filters := 25
	if testing.Short() {
		filters = 4
	}
	for name, o := range map[string]Options{"clear": {}, "sealed": {SealKey: key}} {
		if o.SealKey != nil && testing.Short() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			path := file(t)
			o.raw = "_pragma=synchronous(OFF)"
			d := open(t, path, o)
			c := fill(t, d, 4, blockCalls+300)
			if n := len(d.index.look().blocks); n != 1 {
				t.Fatalf("%d blocks", n)
			}
			check := func(d *DB) {
				t.Helper()
				for range filters {
					f := c.Filter()
					f.Max = 1000
					c.Check(t, d, f)
				}
			}
			check(d)
			crash := copyOf(t, d, filepath.Join(t.TempDir(), "crash.db"))
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			check(open(t, path, o))
			check(open(t, crash, o))
		})
	}
}

// TestIndexOfOlderFile: the calls of a file of an earlier schema are found after it is opened, by
// their numbers.
func TestIndexOfOlderFile(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{raw: "_pragma=synchronous(OFF)"})
	const calls = blockCalls + 10
	for n := range int64(calls) {
		e := storetest.NewEntry(n + 1)
		e.Call.Numbers = map[string]string{"order": strconv.FormatInt(n, 10)}
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	d.Close()
	older, err := ourObjects(6)
	if err != nil {
		t.Fatal(err)
	}
	alter(t, path, "DROP TABLE audit; DROP VIEW audit_log; DROP VIEW out_now; ALTER TABLE quota DROP COLUMN who; DROP VIEW readable; DROP VIEW current; ALTER TABLE calls RENAME COLUMN facts TO numbers; DROP TABLE blocks; DROP TABLE terms; DROP TABLE strays; "+
		"DROP INDEX queued; DROP INDEX settled; DROP INDEX unsettled; DELETE FROM meta WHERE name = 'indexed'; DELETE FROM goose_db_version WHERE version_id > 6; "+
		older[`index "unsettled"`].sql+"; "+older[`index "settled"`].sql+"; "+older[`view "current"`].sql+"; "+older[`view "readable"`].sql+"; "+older[`view "out_now"`].sql)
	d = open(t, path, Options{})
	if n := len(d.index.look().blocks); n != 1 {
		t.Errorf("%d blocks were made", n)
	}
	for n := range calls {
		if n%50 > 0 && n != calls-1 {
			continue
		}
		page, err := d.List(t.Context(), scheduler.Filter{Number: strconv.Itoa(n)})
		if err != nil || len(page.Calls) != 1 || page.Calls[0].Numbers["order"] != strconv.Itoa(n) {
			t.Fatalf("order %d: %+v, %v", n, page, err)
		}
	}
}

// TestStrays: a call is found that was accepted after a block with higher seqs was written, also
// after a crash.
func TestStrays(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{raw: "_pragma=synchronous(OFF)"})
	accept := func(seq int64) {
		e := storetest.NewEntry(seq)
		e.Call.Numbers = map[string]string{"order": fmt.Sprint(seq)}
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	find := func(d *DB, seq int64) {
		t.Helper()
		page, err := d.List(t.Context(), scheduler.Filter{Number: fmt.Sprint(seq)})
		if err != nil || len(page.Calls) != 1 || page.Calls[0].Seq != seq {
			t.Errorf("%d: %+v, %v", seq, page, err)
		}
	}
	for n := range int64(blockCalls) {
		accept(2*n + 2)
	}
	accept(101)
	find(d, 101)
	crash := open(t, copyOf(t, d, filepath.Join(t.TempDir(), "crash.db")), Options{})
	for _, seq := range []int64{2, 101, 2 * blockCalls} {
		find(crash, seq)
	}
}

// TestBlocksSwept: a block goes with its last call, and no call gets a seq that a block has.
func TestBlocksSwept(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{raw: "_pragma=synchronous(OFF)"})
	c := fill(t, d, 5, blockCalls+100)
	count := func() (blocks, terms int) {
		t.Helper()
		if err := d.reader.db.QueryRow("SELECT (SELECT count(*) FROM blocks), (SELECT count(*) FROM terms)").Scan(&blocks, &terms); err != nil {
			t.Fatal(err)
		}
		return blocks, terms
	}
	if blocks, terms := count(); blocks != 1 || terms == 0 {
		t.Fatalf("%d blocks with %d chunks", blocks, terms)
	}
	for _, call := range c.Calls {
		if call.State == scheduler.Unknown || call.State == scheduler.Waiting || call.State == scheduler.Sending {
			call = storetest.With(call, func(c *scheduler.Call) { c.State, c.FinishedAt = scheduler.Cancelled, time.Now() })
			if err := d.Record(t.Context(), call); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := &sweeper{writer: d.writer, keepCalls: time.Hour, keepKeys: time.Hour}
	for n := int64(1); n > 0; {
		var err error
		if n, err = s.step(time.Now().Add(2 * time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	if blocks, terms := count(); blocks != 0 || terms != 0 || len(d.index.look().blocks) != 0 {
		t.Errorf("%d blocks with %d chunks are left", blocks, terms)
	}
	if page, err := d.List(t.Context(), scheduler.Filter{Number: "3"}); err != nil || len(page.Calls) != 0 {
		t.Errorf("swept calls are found: %+v, %v", page, err)
	}
	d.Close()
	d = open(t, path, Options{})
	state, err := d.Recover(t.Context(), 0, nil)
	if err != nil || state.Seq < blockCalls {
		t.Errorf("the highest seq is %+v, %v", state, err)
	}
}

// TestDamagedIndex: a damaged block is noticed when it is read, and by a check.
func TestDamagedIndex(t *testing.T) {
	for name, change := range map[string]string{
		"a chunk":         "UPDATE terms SET chunk = zeroblob(6)",
		"calls of blocks": "UPDATE blocks SET calls = x'02'",
		"bounds":          "UPDATE blocks SET high = '0'",
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t)
			d := open(t, path, Options{raw: "_pragma=synchronous(OFF)"})
			fill(t, d, 6, blockCalls)
			d.Close()
			alter(t, path, change)
			if err := check(path, Options{}); err == nil || !strings.Contains(err.Error(), "block 1") {
				t.Errorf("a check: %v", err)
			}
			d, err := Open(path, Options{Log: quiet, fileID: sameFile, boot: steadyBoot})
			if err == nil {
				_, err = d.List(t.Context(), scheduler.Filter{Number: "3"})
				d.Close()
			}
			if !errors.Is(err, columns.ErrChecksum) && !errors.Is(err, scheduler.ErrBroken) {
				t.Errorf("%v", err)
			}
		})
	}
}
