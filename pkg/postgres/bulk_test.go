package postgres

import (
	"bytes"
	"errors"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestChangesOfACallKeepTheirOrder: a transaction with a call, the intent of an attempt, its outcome, and an intent that is too late.
func TestChangesOfACallKeepTheirOrder(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
	e := newEntry(t, d)
	row, request, err := d.clock.NewRow(e, d.codec)
	if err != nil {
		t.Fatal(err)
	}
	call := *e.Call
	call.State = scheduler.Done
	ended, response, err := d.clock.Changed(&call, d.codec)
	if err != nil {
		t.Fatal(err)
	}
	early, late := errors.New("the intent was refused"), errors.New("the call is done")
	for _, c := range []struct {
		refused error
		changes func(x *txn) (refused, err error)
	}{
		{nil, func(x *txn) (refused, err error) {
			x.insert(row, request)
			x.expect(early, row, insertFlight, row.Seq, row.ID, row.Async, x.generation, row.Due, row.Deadline, row.Attempts, row.Spent, row.Sum)
			return x.update(&call, ended, response, true, early)
		}},
		{late, func(x *txn) (refused, err error) {
			x.expect(late, row, insertFlight, row.Seq, row.ID, row.Async, x.generation, row.Due, row.Deadline, row.Attempts, row.Spent, row.Sum)
			return nil, nil
		}},
	} {
		if err := d.writer.do(t.Context(), &change{apply: c.changes}); !errors.Is(err, c.refused) {
			t.Errorf("%v, want %v", err, c.refused)
		}
	}
	if got, err := d.Get(t.Context(), e.Call.ID); err != nil || got.State != scheduler.Done {
		t.Errorf("%+v, %v", got, err)
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
