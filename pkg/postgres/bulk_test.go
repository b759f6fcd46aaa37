package postgres

import (
	"bytes"
	"errors"
	"testing"

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

// TestLargeContents: the contents of a transaction do not all go into one statement, which has a limit of a gibibyte.
func TestLargeContents(t *testing.T) {
	x, s := &txn{}, newRowStatement("INSERT INTO bodies SELECT * FROM {rows}", "iy", "n, body")
	for n := range int64(10) {
		x.put(n, s, n, bytes.Repeat([]byte{'x'}, bulkBytes))
	}
	for n := range int64(2 * bulkRows) {
		x.put(10+n, s, 10+n, []byte{})
	}
	x.run()
	if n := x.queue.Len(); n != 12 {
		t.Errorf("%d statements, want one for each large content and two for %d small ones", n, 2*bulkRows)
	}
}
