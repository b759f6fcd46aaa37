package postgres

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/columns"
)

// TestPlansOfAnEmptyTable: the server plans the statements about one call while the table is empty, and keeps the plan. It must
// find the call by its number or id: an index of calls in a state is as good then, and slow when many calls are in it.
func TestPlansOfAnEmptyTable(t *testing.T) {
	d := open(t, newDatabase(t), Options{Lease: MaxLease})
	recover0(t, d)
	seqscan := ""
	if err := d.writer.do(t.Context(), &change{apply: func(x *txn) (refused, err error) {
		return nil, x.one("SELECT current_setting('enable_seqscan')", nil, &seqscan)
	}}); err != nil || seqscan != "off" {
		t.Errorf("the writer may plan to read a whole table: %q, %v", seqscan, err)
	}
	conn, err := d.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for _, setting := range []string{"SET plan_cache_mode = force_generic_plan", indexesOnly} {
		if _, err := conn.Exec(t.Context(), setting); err != nil {
			t.Fatal(err)
		}
	}
	parameter := regexp.MustCompile(`\$\d+`)
	for name, statement := range map[string]string{
		"intent":          insertFlight.single,
		"intents":         insertFlight.many,
		"outcome":         updateCall[0].single,
		"outcomes":        updateCall[0].many,
		"end":             endCall[1].single,
		"ends":            endCall[1].many,
		"request":         "SELECT " + columns.OfRequest + " FROM calls WHERE seq = $1",
		"call that waits": "SELECT " + columns.OfCall + " FROM current WHERE seq = $1 AND state = 'waiting'",
		"open call":       "SELECT " + columns.OfCall + " FROM current WHERE id = $1 AND state IN ('waiting', 'unknown')",
	} {
		used := make(map[string]bool)
		for _, p := range parameter.FindAllString(statement, -1) {
			used[p] = true
		}
		if _, err := conn.Exec(t.Context(), "PREPARE p AS "+statement); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		rows, err := conn.Query(t.Context(), fmt.Sprintf("EXPLAIN EXECUTE p(%s)", strings.TrimSuffix(strings.Repeat("NULL, ", len(used)), ", ")))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var plan []string
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, line)
		}
		if err := rows.Err(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		text := strings.Join(plan, "\n")
		if writes := strings.Contains(statement, "UPDATE calls"); writes && !strings.Contains(text, "Tid Scan on calls") || strings.Contains(text, "Seq Scan on calls") {
			t.Errorf("%s reads all calls:\n%s", name, text)
		}
		if !strings.Contains(text, "calls_pkey") && !strings.Contains(text, "calls_id_key") || regexp.MustCompile(`calls_(waiting|waking|unsettled|settled|ended)`).MatchString(text) {
			t.Errorf("%s:\n%s", name, text)
		}
		if _, err := conn.Exec(t.Context(), "DEALLOCATE p"); err != nil {
			t.Fatal(err)
		}
	}
}
