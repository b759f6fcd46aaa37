package postgres

import (
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestSweepGoesOn: a step reports rows of any table, so that more of them are not left for a minute.
func TestSweepGoesOn(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
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
