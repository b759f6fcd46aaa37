package store

import (
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// TestSweep: finished calls, keys, permits and records of the audit go when their time is over, and
// unknown calls never.
func TestSweep(t *testing.T) {
	d := open(t, file(t), Options{KeepCalls: time.Hour})
	s := &sweeper{writer: d.writer, keepCalls: time.Hour, keepKeys: time.Hour, keepAudit: time.Hour}
	for range 3 {
		if err := d.Audit(t.Context(), scheduler.AuditRecord{At: time.Now(), Action: "pause"}); err != nil {
			t.Fatal(err)
		}
	}
	known := storetest.NewEntry(1)
	known.Key, known.Fingerprint = "k", "f"
	known.Call.AcceptedAt = time.Now().Add(-5 * time.Hour) // the time of its key begins at its end
	unknown := storetest.NewEntry(2)
	for _, e := range []*scheduler.Entry{known, unknown} {
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		sent := storetest.Sent(e.Call)
		if err := d.Intend(t.Context(), sent, []lease.Hold{{ID: 1 << 40, Upstream: "api", Limit: "app", Permits: 1, Back: time.Now()}}); err != nil {
			t.Fatal(err)
		}
		end := scheduler.Done
		if e == unknown {
			end = scheduler.Unknown
		}
		if err := d.Record(t.Context(), storetest.Ended(sent, end)); err != nil {
			t.Fatal(err)
		}
	}
	count := func(table string) (n int) {
		if err := d.db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		after                                time.Duration
		calls, results, bodies, keys, quotas int
		records                              int // the last one gives the next its number
	}{{59 * time.Minute, 2, 2, 1, 1, 0, 3}, {2 * time.Hour, 1, 1, 1, 0, 0, 1}, {1000 * time.Hour, 1, 1, 1, 0, 0, 1}} {
		if _, err := s.step(time.Now().Add(step.after)); err != nil {
			t.Fatal(err)
		}
		got := []int{count("calls"), count("calls WHERE answer IS NOT NULL"), count("calls WHERE body IS NOT NULL"), count("keys"), count("quota"), count("audit")}
		if want := []int{step.calls, step.results, step.bodies, step.keys, step.quotas, step.records}; !slices.Equal(got, want) {
			t.Errorf("after %v: calls, results, bodies, keys, quota, audit %v; want %v", step.after, got, want)
		}
	}
}

// TestSweepKeepsUnhandledEnds: a finished call stays until its end is handled, and no
// longer: an end that it had before counts no more.
func TestSweepKeepsUnhandledEnds(t *testing.T) {
	d := open(t, file(t), Options{KeepCalls: time.Hour})
	s := &sweeper{writer: d.writer, keepCalls: time.Hour, keepKeys: time.Hour, keepAudit: time.Hour}
	e := storetest.NewEntry(1)
	e.Call.Callback = "/ended"
	if _, err := d.Accept(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	sent := storetest.Sent(e.Call)
	if err := d.Intend(t.Context(), sent, nil); err != nil {
		t.Fatal(err)
	}
	end := storetest.Ended(sent, scheduler.Done)
	for _, c := range []*scheduler.Call{storetest.Ended(sent, scheduler.Unknown), end} {
		if err := d.Record(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(want int64) {
		t.Helper()
		if n, err := s.step(time.Now().Add(1000 * time.Hour)); n != want || err != nil {
			t.Errorf("swept %d calls, %v; want %d", n, err, want)
		}
	}
	sweep(0)
	if untold, err := d.PendingEnds(t.Context(), 9); len(untold) != 1 || err != nil {
		t.Errorf("untold: %v, %v; want one", untold, err)
	}
	if err := d.EndHandled(t.Context(), end.Notice(), time.Time{}); err != nil {
		t.Fatal(err)
	}
	sweep(1)
}

// TestSweepGoesOn: a step reports rows of any table, so that more of them are not left for a minute.
func TestSweepGoesOn(t *testing.T) {
	d := open(t, file(t), Options{KeepCalls: time.Hour})
	s := &sweeper{writer: d.writer, keepCalls: time.Hour, keepKeys: time.Hour, keepAudit: time.Hour}
	for range 2*sweepStep + 1 { // the last one stays
		if err := d.Audit(t.Context(), scheduler.AuditRecord{At: time.Now(), Action: "pause"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int64{sweepStep, sweepStep, 0} {
		if n, err := s.step(time.Now().Add(1000 * time.Hour)); n != want || err != nil {
			t.Errorf("swept %d records, %v; want %d", n, err, want)
		}
	}
}
