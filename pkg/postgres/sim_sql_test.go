package postgres

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// A statement is one that the engine knows. Its parameters and columns have a letter each: i bigint, t text, b boolean,
// y bytea, f float8, a bigint[], T text[], Y bytea[], B boolean[], m bigint[] with NULLs, M text[] with NULLs, z timestamptz, j json.
type statement struct {
	begins       string // as does each text of it
	params, cols string
	run          func(s *session, a []any) (rows [][]any, n int64, err error)

	text, verb string
}

const (
	current   = "SELECT " + columns.OfCall + " FROM current WHERE "
	ofCall    = "ittitibttiiiiiiiittit"
	ofContent = "itybyi" // of a response
)

var statements = []*statement{
	{begins: "BEGIN"}, {begins: "begin"}, {begins: "COMMIT"}, {begins: "commit"}, {begins: "ROLLBACK"}, {begins: "rollback"}, {begins: "-- ping"},
	{begins: "SELECT set_config('enable_seqscan'", cols: "tt", run: func(*session, []any) ([][]any, int64, error) { return [][]any{{"off", "off"}}, 0, nil }},
	{begins: "LISTEN", run: func(s *session, _ []any) ([][]any, int64, error) { s.listens = true; return nil, 0, nil }},
	{begins: "SELECT pg_notify('throttler', $1)", params: "t", cols: "t", run: func(s *session, a []any) ([][]any, int64, error) {
		s.tx.notices = append(s.tx.notices, a[0].(string))
		return one(""), 0, nil
	}},
	{begins: "SELECT set_config('lock_timeout', $1, true)", params: "t", cols: "t", run: func(_ *session, a []any) ([][]any, int64, error) { return one(a[0]), 0, nil }},
	{begins: "SELECT count(pg_terminate_backend(pid))", params: "t", cols: "i", run: sqlTerminate},

	// The registry.
	{begins: "INSERT INTO replicas", params: "tttttt", cols: "b", run: sqlRegister},
	{begins: "DELETE FROM replicas WHERE id = $1", params: "t", run: func(s *session, a []any) ([][]any, int64, error) {
		delete(s.e.registry, a[0].(string))
		return nil, 1, nil
	}},
	{begins: "DELETE FROM replicas WHERE name = $1", params: "tti", run: sqlForget},
	{begins: "WITH changed AS (DELETE FROM replicas WHERE name = $1", params: "tti" + ofRecord, run: recorded(sqlForget)},
	{begins: "DELETE FROM replicas WHERE seen_at", params: "i", run: func(s *session, a []any) ([][]any, int64, error) {
		maps.DeleteFunc(s.e.registry, func(id string, _ *Replica) bool {
			return time.Since(s.e.seen[id]) > time.Duration(a[0].(int64))*time.Millisecond
		})
		return nil, 0, nil
	}},
	{begins: "SELECT id, name, address, pin, version, config, joined_at,", cols: "ttttttzzf", run: sqlReplicas},
	{begins: "SELECT EXISTS (SELECT FROM arrivals WHERE NOT doubtful)", cols: "b", run: func(s *session, _ []any) ([][]any, int64, error) {
		return one(len(s.arrivals()) > 0), 0, nil
	}},

	// The lease and the fence.
	{begins: "SELECT l.epoch, beat, owner, name, lease_ms", cols: "iittibtfii", run: func(s *session, _ []any) ([][]any, int64, error) {
		v := s.view()
		l := v.lease
		return one(l.epoch, l.beat, l.owner, l.name, l.lease.Milliseconds(), l.exited, l.next, time.Since(l.offered).Seconds(), v.tables.epoch, v.tables.number), 0, nil
	}},
	{begins: "UPDATE lease SET epoch = $1 WHERE epoch < $1", params: "i", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.updateLease(func(l *leaseState) bool {
			before := l.epoch
			l.epoch = a[0].(int64)
			return before < l.epoch
		})
	}},
	{begins: "UPDATE fence SET lost = true", params: "ii", run: func(s *session, a []any) ([][]any, int64, error) {
		s.tx.loss = true
		return s.update(func(t *tables) int64 {
			moved := a[1].(int64)
			t.lost, t.epoch, t.number, t.noted = true, max(t.epoch, a[0].(int64)), t.number+moved, t.noted+moved
			return 1
		})
	}},
	{begins: "UPDATE fence SET lost = false", run: func(s *session, _ []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 { t.lost = false; return 1 })
	}},
	{begins: "SELECT set_config('synchronous_commit', 'on', true)", cols: "t", run: func(*session, []any) ([][]any, int64, error) { return one("on"), 0, nil }},
	{begins: "UPDATE lease SET epoch = $1", params: "ittiiitb", cols: "t", run: withTimeline(func(s *session, a []any) ([][]any, int64, error) {
		return s.updateLease(func(l *leaseState) bool {
			if l.epoch != a[4] || l.beat != a[5] || l.owner != a[6] || l.exited != a[7] {
				return false
			}
			l.epoch, l.owner, l.name, l.lease = a[0].(int64), a[1].(string), a[2].(string), time.Duration(a[3].(int64))*time.Millisecond
			l.beat, l.exited, l.next = l.beat+1, false, ""
			return true
		})
	})},
	{begins: "UPDATE lease SET beat = beat + 1", params: "it", cols: "tb", run: func(s *session, a []any) ([][]any, int64, error) {
		rows, n, err := withTimeline(func(s *session, a []any) ([][]any, int64, error) {
			return s.updateLease(func(l *leaseState) bool {
				l.beat++
				return l.epoch == a[0] && l.owner == a[1] && !l.exited
			})
		})(s, a)
		if n > 0 {
			rows[0] = append(rows[0], s.view().tables.lost)
		}
		return rows, n, err
	}},
	{begins: "UPDATE lease SET owner = ''", params: "it", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.updateLease(func(l *leaseState) bool {
			owner := l.owner
			l.owner = ""
			return l.epoch == a[0] && owner == a[1]
		})
	}},
	{begins: "WITH changed AS (UPDATE lease SET next = $1", params: "tit" + ofRecord, run: recorded(func(s *session, a []any) ([][]any, int64, error) {
		return s.updateLease(func(l *leaseState) bool {
			l.next, l.offered = a[0].(string), time.Now()
			return l.epoch == a[1] && l.owner == a[2]
		})
	})},
	{begins: "WITH changed AS (UPDATE lease SET exited = true", params: "tii" + ofRecord, run: recorded(func(s *session, a []any) ([][]any, int64, error) {
		return s.updateLease(func(l *leaseState) bool {
			l.exited = true
			return l.owner == a[0] && l.epoch == a[1] && l.beat == a[2]
		})
	})},
	{begins: "UPDATE fence SET epoch = $1, number = $2", params: "ii", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			t.epoch, t.first, t.number, t.noted = a[0].(int64), a[1].(int64), a[1].(int64), 0
			return 1
		})
	}},
	{begins: "SELECT epoch, number FROM fence FOR UPDATE", cols: "ii", run: func(s *session, _ []any) ([][]any, int64, error) {
		if err := s.lock("fence"); err != nil {
			return nil, 0, err
		}
		t := s.view().tables
		return one(t.epoch, t.number), 0, nil
	}},
	{begins: "UPDATE fence SET number = CASE", params: "ii", cols: "ii", run: func(s *session, a []any) ([][]any, int64, error) {
		if err := s.lock("fence"); err != nil {
			return nil, 0, err
		}
		t := s.view().tables
		if t.epoch == a[0] && t.number == a[1] {
			t, _ = s.change()
			t.number, t.outdated = t.number+2, true
		}
		return one(t.epoch, t.number), 1, nil
	}},
	{begins: "SELECT throttler.advance($1, $2, $3)", params: "iit", cols: "t", run: sqlAdvance},
	{begins: "UPDATE fence SET generation = generation + 1", cols: "iitb", run: func(s *session, _ []any) ([][]any, int64, error) {
		t, err := s.change()
		if err != nil {
			return nil, 0, err
		}
		t.generation++
		return one(t.generation, t.folded, t.mark, t.lost), 1, nil
	}},
	{begins: "UPDATE fence SET folded = generation", cols: "i", run: func(s *session, _ []any) ([][]any, int64, error) {
		t, err := s.change()
		if err != nil {
			return nil, 0, err
		}
		t.folded = t.generation
		t.generation++
		return one(t.generation), 1, nil
	}},

	// Calls.
	{begins: "INSERT INTO calls", params: "ittiibttiiiiiiiit" + "tytyyi" + "t", run: eachRow(sqlInsertCall)},
	{begins: "INSERT INTO flights", params: "itbiiitti", cols: "i", run: eachRow(sqlIntend)},
	{begins: "WITH sent AS (DELETE FROM flights", params: "itibiiittiibiit" + ofContent, cols: "i", run: eachRow(sqlUpdateCall)},
	{begins: "SELECT id FROM arrivals WHERE id = ANY", params: "T", cols: "t", run: func(s *session, a []any) (rows [][]any, n int64, err error) {
		for _, r := range s.view().arrivals {
			if slices.Contains(a[0].([]string), r.id) && !s.tx.taken[r.id] {
				rows = append(rows, []any{r.id})
			}
		}
		return rows, 0, nil
	}},
	{begins: "UPDATE arrivals SET doubtful = true", run: func(s *session, _ []any) ([][]any, int64, error) {
		return s.update(func(t *tables) (n int64) {
			for _, r := range s.view().arrivals {
				if !t.doubtful[r.id] {
					if t.doubtful == nil {
						t.doubtful = make(map[string]bool)
					}
					t.doubtful[r.id] = true
					n++
				}
			}
			return n
		})
	}},
	{begins: "SELECT seq, sum FROM current WHERE seq = ANY", params: "a", cols: "ii", run: func(s *session, a []any) (rows [][]any, n int64, err error) {
		t := s.view().tables
		for _, seq := range a[0].([]int64) {
			if f := t.flights[seq]; f != nil {
				rows = append(rows, []any{seq, f.Sum})
			} else if c := t.calls[seq]; c != nil {
				rows = append(rows, []any{seq, c.Sum})
			}
		}
		return rows, 0, nil
	}},
	{begins: current + "seq IN (SELECT seq FROM calls WHERE state = 'waiting' AND seq > $1", params: "i", cols: ofCall, run: func(s *session, a []any) ([][]any, int64, error) {
		rows, n, err := s.calls(func(t *tables, c *callRow) bool {
			return c.State == "waiting" && t.flights[c.Seq] == nil && c.Seq > a[0].(int64)
		})
		return rows[:min(len(rows), 500)], n, err
	}},
	{begins: "DELETE FROM arrivals WHERE id", params: "t", run: eachRow(func(s *session, a []any) ([][]any, int64, error) {
		if s.tx.taken == nil {
			s.tx.taken = make(map[string]bool)
		}
		s.tx.taken[a[0].(string)] = true
		return nil, 1, nil
	})},
	{begins: "SELECT id, upstream, method, target, headers", params: "Tbii", cols: "tttt" + "jytzzitt", run: func(s *session, a []any) (rows [][]any, n int64, err error) {
		for _, r := range s.arrivals() {
			if slices.Contains(a[0].([]string), r.upstream) != a[1] && len(rows) < int(a[2].(int64)) {
				rows = append(rows, r.columns)
			}
		}
		return rows, 0, nil
	}},
	{begins: "SELECT coalesce((SELECT value FROM meta WHERE name = 'timeouts'", cols: "y", run: func(s *session, _ []any) ([][]any, int64, error) {
		return one([]byte(cmp.Or(s.view().tables.timeouts, "{}"))), 0, nil
	}},
	{begins: "INSERT INTO meta VALUES ('timeouts', $1)", params: "y", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 { t.timeouts = string(bytesOf(a[0])); return 1 })
	}},
	{begins: "SELECT coalesce(max(seq), 0) FROM calls", cols: "i", run: func(s *session, _ []any) ([][]any, int64, error) {
		last := int64(0)
		for seq := range s.view().tables.calls {
			last = max(last, seq)
		}
		return one(last), 0, nil
	}},
	{begins: current + "seq IN (SELECT seq FROM calls WHERE state = 'waiting'", params: "i", cols: ofCall, run: func(s *session, a []any) ([][]any, int64, error) {
		return s.calls(func(t *tables, c *callRow) bool {
			return c.State == "waiting" && t.flights[c.Seq] == nil && c.Wake == a[0]
		})
	}},
	{begins: current + "seq IN (SELECT seq FROM flights)", cols: ofCall, run: func(s *session, _ []any) ([][]any, int64, error) {
		return s.calls(func(t *tables, c *callRow) bool { return t.flights[c.Seq] != nil })
	}},
	{begins: current + "seq IN (SELECT seq FROM calls WHERE ended_at > $1", params: "ii", cols: ofCall, run: func(s *session, a []any) ([][]any, int64, error) {
		return s.calls(func(t *tables, c *callRow) bool {
			return c.Ended > a[0].(int64) && c.Ended > 0 && c.Epoch > a[1].(int64) && c.Spent != ""
		})
	}},
	{begins: current + "id = $1 AND state IN", params: "t", cols: ofCall, run: func(s *session, a []any) ([][]any, int64, error) {
		return s.calls(func(t *tables, c *callRow) bool {
			return c.ID == a[0] && t.flights[c.Seq] == nil && (c.State == "waiting" || c.State == "unknown")
		})
	}},
	{begins: current + "seq = $1 AND state = 'waiting'", params: "i", cols: ofCall, run: func(s *session, a []any) ([][]any, int64, error) {
		return s.calls(func(t *tables, c *callRow) bool {
			return c.Seq == a[0] && t.flights[c.Seq] == nil && c.State == "waiting"
		})
	}},
	{begins: "SELECT count(*) FROM flights f WHERE NOT EXISTS", cols: "i", run: func(s *session, _ []any) ([][]any, int64, error) {
		t, strays := s.view().tables, int64(0)
		for seq := range t.flights {
			if t.calls[seq] == nil {
				strays++
			}
		}
		return one(strays), 0, nil
	}},
	{begins: "SELECT count(*) FROM (SELECT 1 FROM keys", cols: "i", run: func(s *session, _ []any) ([][]any, int64, error) {
		return one(int64(len(s.view().tables.keys))), 0, nil
	}},
	{begins: "SELECT true, upstream, count(*)", cols: "btii", run: sqlBacklog},
	{begins: "SELECT " + columns.OfRequest + " FROM calls", params: "i", cols: "tytyyi", run: func(s *session, a []any) ([][]any, int64, error) {
		c := s.view().tables.calls[a[0].(int64)]
		if c == nil || c.request == nil {
			return nil, 0, nil
		}
		return one(c.request.Method, []byte(c.request.Target), c.request.Headers, c.request.Body, c.request.Encrypted, c.request.Sum), 0, nil
	}},
	{begins: "SELECT " + columns.OfCall + ", coalesce(status, 0)", params: "t", cols: ofCall + ofContent + "b", run: func(s *session, a []any) ([][]any, int64, error) {
		t := s.view().tables
		for _, c := range t.calls {
			if c.ID == a[0] {
				r, row := c.response, t.rowOf(c)
				if r == nil {
					return one(append(row, int64(0), "", nil, false, nil, int64(0), false)...), 0, nil
				}
				return one(append(row, int64(r.Status), r.Headers, r.Body, r.Truncated, r.Encrypted, r.Sum, row[4] != "waiting" && row[4] != "sending")...), 0, nil
			}
		}
		return nil, 0, nil
	}},
	{begins: "SELECT " + ofListed, params: "tt", cols: ofCall, run: func(s *session, a []any) ([][]any, int64, error) { // the unknown ones, the oldest first
		after := ""
		if len(a) > 1 {
			after = a[1].(string)
		}
		rows, _, _ := s.calls(func(_ *tables, c *callRow) bool { return c.State == a[0] && c.ID > after })
		slices.SortFunc(rows, func(a, b []any) int { return strings.Compare(a[1].(string), b[1].(string)) })
		return rows, 0, nil
	}},
	{begins: "SELECT rank, seq, lane, due, bytes FROM calls", params: "tiii", cols: "iiiii", run: sqlScan},
	{begins: "SELECT wake, seq FROM calls", params: "iiii", cols: "ii", run: sqlWaking},

	// Keys, ends and permits.
	{begins: selectOwner, params: "Y", cols: "ytbtti", run: func(s *session, a []any) (rows [][]any, n int64, err error) {
		t := s.view().tables
		for _, key := range a[0].([][]byte) {
			k, ok := t.keys[string(key)]
			if c := t.calls[k.seq]; ok && c != nil {
				rows = append(rows, []any{key, k.fingerprint, k.endedBy != nil, c.ID, c.State, c.Ended})
			}
		}
		return rows, 0, nil
	}},
	{begins: "INSERT INTO keys SELECT", params: "ytiit", run: eachRow(func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			t.keys[string(a[0].([]byte))] = keyRow{a[1].(string), a[2].(int64), a[3].(int64), a[4]}
			return 1
		})
	})},
	{begins: "DELETE FROM keys WHERE key IN", params: "iii", run: func(s *session, a []any) ([][]any, int64, error) { return nil, 0, nil }}, // none is so old
	{begins: "DELETE FROM untold WHERE notice = $1", params: "t", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 { delete(t.untold, a[0].(string)); return 1 })
	}},
	{begins: "DELETE FROM untold WHERE notice > $1", params: "tt", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			maps.DeleteFunc(t.untold, func(notice string, _ untoldRow) bool { return notice > a[0].(string) && notice < a[1].(string) })
			return 1
		})
	}},
	{begins: "DELETE FROM untold WHERE seq = ANY", params: "a", run: sqlNothing},
	{begins: "INSERT INTO untold", params: "tii", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			if _, ok := t.untold[a[0].(string)]; !ok {
				t.untold[a[0].(string)] = untoldRow{seq: a[1].(int64), at: a[2]}
			}
			return 1
		})
	}},
	{begins: "UPDATE untold SET tell_at", params: "it", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			u, ok := t.untold[a[1].(string)]
			if ok {
				t.untold[a[1].(string)] = untoldRow{u.seq, u.failures + 1, a[0]}
			}
			return 1
		})
	}},
	{begins: "SELECT notice, 0::bigint, 0::bigint", params: "t", cols: "tii" + ofCall, run: func(s *session, a []any) ([][]any, int64, error) { return nil, 0, nil }}, // no call has a callback
	{begins: "SELECT notice, tell_at, failures", cols: "tii" + ofCall, run: sqlPendingEnds},
	{begins: "INSERT INTO quota", params: "aTTYBaaBaaYY", run: sqlInsertHolds},
	{begins: "UPDATE quota SET back", params: "iii", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			h := t.quota[a[2].(int64)]
			if h == nil {
				return 0
			}
			settled := *h
			settled.back, settled.sum = a[0].(int64), a[1].(int64)
			t.quota[a[2].(int64)] = &settled
			return 1
		})
	}},
	{begins: "DELETE FROM quota WHERE id IN", params: "iii", run: func(s *session, a []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 {
			maps.DeleteFunc(t.quota, func(_ int64, h *holdRow) bool {
				before := a[1].(int64)
				if h.Paused {
					before = a[0].(int64)
				}
				return h.back > 0 && h.back < before
			})
			return 1
		})
	}},
	{begins: "DELETE FROM quota", run: func(s *session, _ []any) ([][]any, int64, error) {
		return s.update(func(t *tables) int64 { clear(t.quota); return 1 })
	}},
	{begins: "SELECT id, upstream, name, key, every, permits", cols: "ittybiibiiyy", run: sqlHolds},

	// The sweeper: nothing is so old.
	{begins: "SELECT coalesce(array_agg(seq), '{}')", params: "ii", cols: "a", run: func(s *session, a []any) ([][]any, int64, error) { return one([]int64{}), 0, nil }},
	{begins: "DELETE FROM calls WHERE seq = ANY", params: "a", run: sqlNothing},
	{begins: nextRecord, cols: "i", run: func(s *session, a []any) ([][]any, int64, error) { return one(int64(1)), 0, nil }}, // no record is kept
	{begins: "DELETE FROM audit", params: "ii", run: sqlNothing},
}

// arrivals returns those that an owner may take in.
func (s *session) arrivals() []arrival {
	v := s.view()
	return slices.DeleteFunc(slices.Clone(v.arrivals), func(r arrival) bool { return v.tables.doubtful[r.id] })
}

// arrays returns the letters of arrays of columns.
func arrays(kinds string) string {
	return strings.NewReplacer("i", "m", "t", "M", "y", "Y", "b", "B").Replace(kinds)
}

// eachRow runs a statement about one row for each row of its parameters, which are arrays if there are many. It returns the first
// columns of those that it has changed, unless they are no numbers. PostgreSQL refuses, or drops, a second row of one key.
func eachRow(run func(*session, []any) ([][]any, int64, error)) func(*session, []any) ([][]any, int64, error) {
	return func(s *session, a []any) (rows [][]any, n int64, err error) {
		seen := make(map[string]bool)
		for _, row := range rowsOf(a) {
			key := fmt.Sprint(row[0])
			if seen[key] {
				panic("a statement has two rows of one key")
			}
			seen[key] = true
			_, changed, err := run(s, row)
			if err != nil {
				return nil, 0, err
			}
			if _, ok := row[0].(int64); ok && changed > 0 {
				rows = append(rows, row[:1])
			}
			n += changed
		}
		return rows, n, nil
	}
}

func rowsOf(a []any) (rows [][]any) {
	switch a[0].(type) {
	case int64, string, []byte:
		return [][]any{a}
	}
	for i := range reflect.ValueOf(a[0]).Len() {
		row := make([]any, len(a))
		for j := range a {
			switch v := reflect.ValueOf(a[j]).Index(i); {
			case v.Kind() == reflect.Bool:
				row[j] = v.Bool()
			case v.IsNil():
			case v.Kind() == reflect.Pointer:
				row[j] = v.Elem().Interface()
			default:
				row[j] = v.Interface()
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func sqlNothing(*session, []any) ([][]any, int64, error) { return nil, 0, nil }

func one(values ...any) [][]any { return [][]any{values} }

// update changes tables under the fence.
func (s *session) update(change func(t *tables) int64) ([][]any, int64, error) {
	t, err := s.change()
	if err != nil {
		return nil, 0, err
	}
	return nil, change(t), nil
}

// updateLease changes the row of lease, if change finds it as it is to be.
func (s *session) updateLease(change func(l *leaseState) bool) ([][]any, int64, error) {
	l, err := s.changeLease()
	if err != nil {
		return nil, 0, err
	}
	before := *l
	if !change(l) {
		if *l = before; s.tx.lease != nil && *s.tx.lease == s.e.state.lease {
			s.tx.lease = nil
		}
		return nil, 0, nil
	}
	return nil, 1, nil
}

// withTimeline is a change that returns the timeline of the server.
func withTimeline(change func(*session, []any) ([][]any, int64, error)) func(*session, []any) ([][]any, int64, error) {
	return func(s *session, a []any) (rows [][]any, n int64, err error) {
		_, n, err = change(s, a)
		if n > 0 {
			timeline := ""
			if s.e.asynchronous {
				timeline = fmt.Sprint(s.e.restores)
			}
			rows = one(timeline)
		}
		return rows, n, err
	}
}

func sqlTerminate(s *session, a []any) ([][]any, int64, error) {
	n := int64(0)
	for _, other := range s.e.all() {
		if !s.e.pooled && other.app == a[0] && other != s && (s.app == a[0] || !s.e.powerless) {
			other.kill()
			n++
		}
	}
	return one(n), 0, nil
}

func sqlRegister(s *session, a []any) ([][]any, int64, error) {
	id := a[0].(string)
	r := s.e.registry[id]
	joined := r == nil
	if joined {
		r = &Replica{ID: id, Name: a[1].(string), Address: a[2].(string), Pin: a[3].(string), Version: a[4].(string), Joined: time.Now()}
		s.e.registry[id] = r
	}
	r.Config, s.e.seen[id] = a[5].(string), time.Now()
	return one(joined), 1, nil
}

func sqlReplicas(s *session, _ []any) (rows [][]any, n int64, err error) {
	all := slices.SortedFunc(maps.Values(s.e.registry), func(a, b *Replica) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Joined.Compare(b.Joined), strings.Compare(a.ID, b.ID))
	})
	for _, r := range all {
		rows = append(rows, []any{r.ID, r.Name, r.Address, r.Pin, r.Version, r.Config, r.Joined, s.e.seen[r.ID], time.Since(s.e.seen[r.ID]).Seconds()})
	}
	return rows, 0, nil
}

// sqlAdvance is the fence.
func sqlAdvance(s *session, a []any) ([][]any, int64, error) {
	t, err := s.change()
	if err != nil {
		return nil, 0, err
	}
	if t.epoch != a[0] || t.number != a[1] {
		return nil, 0, &sqlError{heldBack, "the fence of the term is another one"}
	}
	t.number, t.outdated = t.number+1, false
	if mark, ok := a[2].(string); ok {
		t.mark = mark
	}
	return one(""), 0, nil
}

// rowOf returns a row of the view current.
func (t *tables) rowOf(c *callRow) []any {
	r := c.Row
	if f := t.flights[c.Seq]; f != nil {
		r.State, r.Async, r.Epoch, r.Due, r.Deadline, r.Attempts, r.Spent, r.Sum = "sending", f.Async, f.Epoch, f.Due, f.Deadline, f.Attempts, f.Spent, f.Sum
	}
	return []any{r.Seq, r.ID, r.Upstream, r.Lane, r.State, r.Rank, r.Async, r.Callback, r.Resolves, r.Epoch, r.Bytes, r.Accepted, r.NotBefore, r.Due,
		r.Deadline, r.Wake, r.Ended, r.Attempts, r.Spent, r.Sum, r.Facts}
}

// calls returns rows of the view current by seq.
func (s *session) calls(where func(t *tables, c *callRow) bool) (rows [][]any, n int64, err error) {
	t := s.view().tables
	for _, seq := range slices.Sorted(maps.Keys(t.calls)) {
		if c := t.calls[seq]; where(t, c) {
			rows = append(rows, t.rowOf(c))
		}
	}
	return rows, 0, nil
}

func sqlInsertCall(s *session, a []any) ([][]any, int64, error) {
	t, err := s.change()
	if err != nil {
		return nil, 0, err
	}
	c := &callRow{Row: columns.Row{Seq: a[0].(int64), ID: a[1].(string), Upstream: a[2].(string), Lane: a[3].(int64), Rank: a[4].(int64), Async: a[5].(bool),
		Callback: a[6].(string), Resolves: a[7].(string), Epoch: a[8].(int64), Bytes: a[9].(int64), Accepted: a[10].(int64), NotBefore: a[11].(int64),
		Due: a[12].(int64), Deadline: a[13].(int64), Wake: a[14].(int64), Sum: a[15].(int64), Facts: a[16].(string), State: "waiting", Attempts: "[]"}}
	if t.calls[c.Seq] != nil {
		return nil, 0, &sqlError{"23505", fmt.Sprintf("duplicate key: seq %d", c.Seq)}
	}
	if a[17] != nil {
		c.request = &columns.Content{Method: a[17].(string), Target: string(a[18].([]byte)), Headers: a[19].(string), Body: bytesOf(a[20]), Encrypted: bytesOf(a[21]), Sum: a[22].(int64)}
		target, _, _ := strings.Cut(c.request.Target, "?")
		s.e.targets[c.Seq] = target
	}
	t.calls[c.Seq] = c
	return nil, 1, nil
}

func bytesOf(v any) []byte {
	b, _ := v.([]byte)
	return b
}

func sqlIntend(s *session, a []any) ([][]any, int64, error) {
	return s.update(func(t *tables) int64 {
		seq := a[0].(int64)
		c := t.calls[seq]
		if c == nil || c.ID != a[1] || c.State != "waiting" || t.flights[seq] != nil {
			return 0
		}
		t.flights[seq] = &columns.Row{Async: a[2].(bool), Epoch: a[3].(int64), Due: a[4].(int64), Deadline: a[5].(int64), Attempts: a[6].(string), Spent: a[7].(string), Sum: a[8].(int64)}
		return 1
	})
}

func sqlUpdateCall(s *session, a []any) ([][]any, int64, error) {
	return s.update(func(t *tables) int64 {
		seq := a[0].(int64)
		sent := t.flights[seq] != nil
		delete(t.flights, seq)
		before := t.calls[seq]
		if before == nil || before.ID != a[14] || before.State != "waiting" && before.State != "unknown" {
			return 0
		}
		c := *before
		c.State, c.Rank, c.Async, c.NotBefore, c.Ended, c.Attempts, c.Spent = a[1].(string), a[2].(int64), a[3].(bool), a[5].(int64), a[6].(int64), a[7].(string), a[8].(string)
		c.Due, c.Deadline, c.Sum = a[9].(int64), a[10].(int64), a[13].(int64)
		if sent {
			c.Epoch = a[4].(int64)
		}
		if !(c.Wake < 0 && a[11].(bool)) {
			c.Wake = a[12].(int64)
		}
		if c.State != "waiting" && c.State != "unknown" {
			c.request = nil
		}
		if len(a) > 15 {
			c.response = &columns.Content{Status: int(a[15].(int64)), Headers: a[16].(string), Body: bytesOf(a[17]), Truncated: a[18].(bool), Encrypted: bytesOf(a[19]), Sum: a[20].(int64)}
		}
		t.calls[seq] = &c
		return 1
	})
}

func sqlBacklog(s *session, _ []any) (rows [][]any, n int64, err error) {
	counts := map[bool][]any{}
	for _, c := range s.view().tables.calls {
		if waits := c.State == "waiting"; waits || c.State == "unknown" && c.Async {
			row := counts[waits]
			if row == nil {
				row = []any{waits, c.Upstream, int64(0), int64(0)}
				counts[waits] = row
			}
			row[2], row[3] = row[2].(int64)+1, row[3].(int64)+c.Bytes
		}
	}
	for _, waits := range []bool{true, false} {
		if counts[waits] != nil {
			rows = append(rows, counts[waits])
		}
	}
	return rows, 0, nil
}

func sqlScan(s *session, a []any) (rows [][]any, n int64, err error) {
	for _, c := range s.view().tables.calls {
		if c.State == "waiting" && c.Upstream == a[0] && (c.Rank > a[1].(int64) || c.Rank == a[1].(int64) && c.Seq > a[2].(int64)) {
			rows = append(rows, []any{c.Rank, c.Seq, c.Lane, c.Due, c.Bytes})
		}
	}
	sortRows(rows)
	return rows[:min(len(rows), int(a[3].(int64)))], 0, nil
}

func sqlWaking(s *session, a []any) (rows [][]any, n int64, err error) {
	for _, c := range s.view().tables.calls {
		if c.State == "waiting" && c.Wake > 0 && c.Wake < a[0].(int64) && (c.Wake > a[1].(int64) || c.Wake == a[1].(int64) && c.Seq > a[2].(int64)) {
			rows = append(rows, []any{c.Wake, c.Seq})
		}
	}
	sortRows(rows)
	return rows[:min(len(rows), int(a[3].(int64)))], 0, nil
}

// sortRows sorts rows by their first two columns.
func sortRows(rows [][]any) {
	slices.SortFunc(rows, func(a, b []any) int {
		return cmp.Or(cmp.Compare(a[0].(int64), b[0].(int64)), cmp.Compare(a[1].(int64), b[1].(int64)))
	})
}

func sqlPendingEnds(s *session, _ []any) (rows [][]any, n int64, err error) {
	t := s.view().tables
	for notice, u := range t.untold {
		if at, ok := u.at.(int64); ok {
			if c := t.calls[u.seq]; c != nil {
				rows = append(rows, append([]any{notice, at, u.failures}, t.rowOf(c)...))
			}
		}
	}
	slices.SortFunc(rows, func(a, b []any) int {
		return cmp.Or(cmp.Compare(a[1].(int64), b[1].(int64)), strings.Compare(a[0].(string), b[0].(string)))
	})
	return rows, 0, nil
}

func sqlInsertHolds(s *session, a []any) ([][]any, int64, error) {
	ids, upstreams, limits, keys, every := a[0].([]int64), a[1].([]string), a[2].([]string), a[3].([][]byte), a[4].([]bool)
	permits, backs, paused, sums, sinces, reasons, who := a[5].([]int64), a[6].([]int64), a[7].([]bool), a[8].([]int64), a[9].([]int64), a[10].([][]byte), a[11].([][]byte)
	return s.update(func(t *tables) (n int64) {
		for i, id := range ids {
			if t.quota[id] != nil {
				continue
			}
			t.quota[id] = &holdRow{Hold: lease.Hold{ID: id, Upstream: upstreams[i], Limit: limits[i], Every: every[i], Permits: int(permits[i]), Paused: paused[i]},
				key: keys[i], back: backs[i], sum: sums[i], since: sinces[i], why: reasons[i], who: who[i]}
			n++
		}
		return n
	})
}

func sqlHolds(s *session, _ []any) (rows [][]any, n int64, err error) {
	t := s.view().tables
	for _, id := range slices.Sorted(maps.Keys(t.quota)) {
		h := t.quota[id]
		rows = append(rows, []any{h.ID, h.Upstream, h.Limit, h.key, h.Every, int64(h.Permits), h.back, h.Paused, h.sum, h.since, h.why, h.who})
	}
	return rows, 0, nil
}

var (
	known     sync.Map // statements by text
	parameter = regexp.MustCompile(`\$(\d+)`)
)

// statementOf returns the statement with a text.
func statementOf(text string) (*statement, error) {
	if st, ok := known.Load(text); ok {
		return st.(*statement), nil
	}
	var best *statement
	for _, st := range statements {
		if strings.HasPrefix(text, st.begins) && (best == nil || len(st.begins) > len(best.begins)) {
			best = st
		}
	}
	if best == nil {
		return nil, fmt.Errorf("the engine does not know the statement %.100q", text)
	}
	st, last := *best, 0
	for _, m := range parameter.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		last = max(last, n)
	}
	if last > len(st.params) {
		return nil, fmt.Errorf("the engine knows %d parameters of the statement %.100q, which has %d", len(st.params), text, last)
	}
	if st.text, st.params = text, st.params[:last]; strings.Contains(text, "generate_subscripts") || text == deleteArrival.many {
		st.params = arrays(st.params)
	}
	if st.verb, _, _ = strings.Cut(strings.ToUpper(st.begins), " "); st.verb == "WITH" {
		st.verb = "UPDATE"
	}
	if strings.HasPrefix(text, "--") {
		st.begins = ""
	}
	known.Store(text, &st)
	return &st, nil
}

var oidOf = map[byte]uint32{'i': pgtype.Int8OID, 't': pgtype.TextOID, 'b': pgtype.BoolOID, 'y': pgtype.ByteaOID, 'f': pgtype.Float8OID, 'a': pgtype.Int8ArrayOID, 'T': pgtype.TextArrayOID, 'Y': pgtype.ByteaArrayOID, 'B': pgtype.BoolArrayOID, 'm': pgtype.Int8ArrayOID, 'M': pgtype.TextArrayOID, 'z': pgtype.TimestamptzOID, 'j': pgtype.JSONOID}

func oids(kinds string) []uint32 {
	all := make([]uint32, len(kinds))
	for i := range kinds {
		all[i] = oidOf[kinds[i]]
	}
	return all
}

func formatOf(formats []int16, i int) int16 {
	switch len(formats) {
	case 0:
		return 0
	case 1:
		return formats[0]
	}
	return formats[i]
}

// decodeArgs decodes the parameters of a statement.
func decodeArgs(kinds string, formats []int16, values [][]byte) []any {
	args := make([]any, len(values))
	for i, v := range values {
		if v == nil {
			continue
		}
		binaryForm := formatOf(formats, i) == 1
		switch kinds[i] {
		case 'i':
			if binaryForm {
				args[i] = int64(binary.BigEndian.Uint64(v))
			} else {
				args[i], _ = strconv.ParseInt(string(v), 10, 64)
			}
		case 'b':
			args[i] = binaryForm && v[0] == 1 || !binaryForm && v[0] == 't'
		case 'y':
			args[i] = append([]byte{}, v...)
		case 'a':
			args[i] = arrayOf[int64](kinds[i], formatOf(formats, i), v)
		case 'T':
			args[i] = arrayOf[string](kinds[i], formatOf(formats, i), v)
		case 'Y':
			args[i] = arrayOf[[]byte](kinds[i], formatOf(formats, i), v)
		case 'm':
			args[i] = arrayOf[*int64](kinds[i], formatOf(formats, i), v)
		case 'M':
			args[i] = arrayOf[*string](kinds[i], formatOf(formats, i), v)
		case 'B':
			args[i] = arrayOf[bool](kinds[i], formatOf(formats, i), v)
		default:
			args[i] = string(v)
		}
	}
	return args
}

// arrayOf decodes an array.
func arrayOf[T any](kind byte, format int16, v []byte) (all []T) {
	if err := pgtype.NewMap().Scan(oidOf[kind], format, v, &all); err != nil {
		panic(err)
	}
	return all
}

// encodeRow encodes a row of results.
func encodeRow(kinds string, formats []int16, row []any) [][]byte {
	values := make([][]byte, len(row))
	for i, v := range row {
		values[i] = encodeValue(formatOf(formats, i) == 1, v)
	}
	return values
}

func encodeValue(binaryForm bool, v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case int64:
		if binaryForm {
			return binary.BigEndian.AppendUint64(nil, uint64(v))
		}
		return strconv.AppendInt(nil, v, 10)
	case string:
		return []byte(v)
	case []byte:
		if v == nil || binaryForm || len(v) > 0 && v[0] == '{' {
			return v
		}
		return fmt.Appendf(nil, "\\x%x", v)
	case bool:
		if binaryForm {
			return map[bool][]byte{true: {1}, false: {0}}[v]
		}
		return strconv.AppendBool(nil, v)[:1]
	case float64:
		return binary.BigEndian.AppendUint64(nil, math.Float64bits(v))
	case time.Time:
		return binary.BigEndian.AppendUint64(nil, uint64(v.UnixMicro()-time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()))
	case []int64: // empty
		return []byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, pgtype.Int8OID}
	}
	panic(fmt.Sprintf("a value of type %T", v))
}

// ofRecord are the types of the columns of a record of the audit.
const ofRecord = "iiytttyyyyyyyi"

// recorded is a change with a record in the audit, which is not kept: it takes the fence if there was something to change.
func recorded(change func(*session, []any) ([][]any, int64, error)) func(*session, []any) ([][]any, int64, error) {
	return func(s *session, a []any) ([][]any, int64, error) {
		_, n, err := change(s, a)
		if err == nil && n > 0 {
			err = s.lock("fence")
		}
		return nil, min(n, 1), err
	}
}

func sqlForget(s *session, a []any) ([][]any, int64, error) {
	before := len(s.e.registry)
	maps.DeleteFunc(s.e.registry, func(id string, r *Replica) bool {
		return r.Name == a[0] && id != a[1] && time.Since(s.e.seen[id]) > time.Duration(a[2].(int64))*time.Millisecond
	})
	return nil, int64(before - len(s.e.registry)), nil
}
