package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestChangesOfACallKeepTheirOrder: a transaction with the intent of one call, and another call, its intent, its outcome, and an
// intent that is too late.
func TestChangesOfACallKeepTheirOrder(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
	first := newEntry(t, d)
	if _, err := d.Accept(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	before, err := d.clock.Row(storetest.Sent(first.Call), d.codec)
	if err != nil {
		t.Fatal(err)
	}
	e := newEntry(t, d)
	row, request, err := d.clock.NewRow(e, d.codec)
	if err != nil {
		t.Fatal(err)
	}
	sent := storetest.Sent(e.Call)
	intent, err := d.clock.Row(sent, d.codec)
	if err != nil {
		t.Fatal(err)
	}
	done := storetest.Ended(sent, scheduler.Done)
	ended, response, err := d.clock.Changed(done, d.codec)
	if err != nil {
		t.Fatal(err)
	}
	intend := func(x *txn, r *columns.Row, refused error) {
		x.expect(refused, r, insertFlight, r.Seq, r.ID, r.Async, x.generation, r.Due, r.Deadline, r.Attempts, r.Spent, r.Sum)
	}
	refused, late := errors.New("a change was refused"), errors.New("the call is done")
	if err := d.writer.do(t.Context(), &change{apply: func(x *txn) (error, error) {
		intend(x, before, refused)
		x.insert(row, request)
		intend(x, intent, refused)
		return x.update(done, ended, response, true, refused)
	}}); err != nil {
		t.Error(err)
	}
	if err := d.writer.do(t.Context(), &change{apply: func(x *txn) (error, error) {
		intend(x, intent, late)
		return nil, nil
	}}); err != late {
		t.Errorf("%v, want %v", err, late)
	}
	for id, want := range map[string]scheduler.State{first.Call.ID: scheduler.Sending, e.Call.ID: scheduler.Done} {
		if got, err := d.Get(t.Context(), id); err != nil || got.State != want {
			t.Errorf("%+v, %v, want %s", got, err, want)
		}
	}
}

// together makes changes in one transaction, in their order, and returns their errors.
func together(t *testing.T, d *DB, changes ...func() error) []error {
	t.Helper()
	errs, begun, release := make([]error, len(changes)), make(chan struct{}), make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		d.writer.do(t.Context(), &change{apply: func(*txn) (refused, err error) {
			close(begun)
			<-release
			return nil, nil
		}})
	})
	<-begun
	for i, change := range changes {
		all.Go(func() { errs[i] = change() })
		for len(d.writer.changes) <= i {
			runtime.Gosched()
		}
	}
	close(release)
	all.Wait()
	return errs
}

// TestChangesInOneTransaction: calls with and without a request, key and identity are stored, sent and ended by statements for
// many rows, as by those for one row. Those of them that are refused are these alone.
func TestChangesInOneTransaction(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease, SealKey: sealKey})
	recover0(t, d)
	bare, keyed, named, empty := storetest.NewEntry(1), storetest.NewEntry(2), storetest.NewEntry(3), storetest.NewEntry(4)
	entries := []*scheduler.Entry{bare, keyed, named, empty}
	bare.Call.Async, bare.NoBody = false, true
	keyed.Key, keyed.Fingerprint = "key", "f"
	named.Identity = "refund 1"
	empty.Request.Method, empty.Request.Body = "GET", nil
	each := func(change func(*scheduler.Entry) error) (changes []func() error) {
		for _, e := range entries {
			changes = append(changes, func() error { return change(e) })
		}
		return changes
	}
	accept := func(e *scheduler.Entry) error {
		existing, err := d.Accept(t.Context(), e)
		if existing != nil {
			err = fmt.Errorf("it is taken for call %s", existing.ID)
		}
		return err
	}
	ends := func() error { return d.End(t.Context(), "refund 1", "call 0") }
	if errs := together(t, d, slices.Insert(each(accept), 3, ends)...); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	others := 0
	if err := d.db.QueryRow(t.Context(), "SELECT count(*) FROM calls, fence WHERE calls.xmin <> fence.xmin").Scan(&others); err != nil || others > 0 {
		t.Errorf("%d calls are stored outside of the transaction with the fence, %v", others, err)
	}
	var by string
	if err := d.db.QueryRow(t.Context(), "SELECT ended_by FROM keys WHERE ended_by IS NOT NULL").Scan(&by); err != nil || by != "call 0" {
		t.Errorf("the identity was ended by %q, %v", by, err)
	}
	for _, e := range entries {
		got, err := d.Fetch(t.Context(), e.Call.ID)
		want := e.Request
		if e.NoBody {
			want = nil
		}
		if err != nil || !reflect.DeepEqual(got.Request, want) {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}

	cancelled := storetest.With(keyed.Call, func(c *scheduler.Call) { c.State, c.FinishedAt = scheduler.Cancelled, time.Now() })
	if err := d.Record(t.Context(), cancelled); err != nil {
		t.Fatal(err)
	}
	send := func(e *scheduler.Entry) error { return d.Intend(t.Context(), storetest.Sent(e.Call), nil) }
	end := func(e *scheduler.Entry) error {
		call := storetest.Ended(storetest.Sent(e.Call), scheduler.Done)
		if e == empty {
			call.Response.Body, call.Response.Truncated = nil, true
		}
		return d.Record(t.Context(), call)
	}
	for _, step := range []struct {
		change  func(*scheduler.Entry) error
		refused error
		state   scheduler.State
	}{{send, scheduler.ErrNotWaiting, scheduler.Sending}, {end, scheduler.ErrNotFound, scheduler.Done}} {
		errs := together(t, d, each(step.change)...)
		for i, e := range entries {
			want := step.state
			if e == keyed {
				want = scheduler.Cancelled
			}
			if refused := errors.Is(errs[i], step.refused); refused != (e == keyed) || !refused && errs[i] != nil {
				t.Errorf("call %d: %v", i, errs[i])
			}
			got, err := d.Get(t.Context(), e.Call.ID)
			if err != nil || got.State != want {
				t.Errorf("call %d: %+v, %v, want %s", i, got, err, want)
			} else if want == scheduler.Done && (got.Response == nil || got.Response.Truncated != (e == empty) || (len(got.Response.Body) == 0) != (e == empty)) {
				t.Errorf("call %d has the answer %+v", i, got.Response)
			}
		}
	}
}

// TestLargeContents: the contents of a transaction do not all go into one statement, which has a limit of a gibibyte.
func TestLargeContents(t *testing.T) {
	x, s := &txn{}, newRowStatement("INSERT INTO bodies SELECT * FROM {rows}", "n bigint, body bytea")
	for n := range int64(10) {
		x.addRow(n, s, n, bytes.Repeat([]byte{'x'}, bulkBytes))
	}
	for n := range int64(2 * bulkRows) {
		x.addRow(10+n, s, 10+n, []byte{})
	}
	x.queueRows()
	if n := x.queue.Len(); n != 12 {
		t.Errorf("%d statements, want one for each large content and two for %d small ones", n, 2*bulkRows)
	}
}
