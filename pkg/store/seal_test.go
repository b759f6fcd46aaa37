package store

import (
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

const canary = "sk-live-CANARY"

// furnish fills a store with a call that waits, one in flight and one that is done, and with
// a hold. Each has the canary wherever a caller can put it.
func furnish(t *testing.T, d *DB) (waits, sending, done *scheduler.Entry) {
	t.Helper()
	var all []*scheduler.Entry
	for n := range int64(3) {
		e := storetest.NewEntry(n + 1)
		e.Request.Body, e.Request.Target = []byte(strings.Repeat(canary, 1+int(n)*400)), "/"+canary // one is in bodies
		e.Key, e.Identity, e.Fingerprint = canary+e.Call.ID, "order "+canary+e.Call.ID, "f"
		e.Call.Numbers = map[string]string{"order": canary}
		if _, err := d.Accept(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	hold := lease.Hold{Upstream: "api", Limit: "app", Key: canary, Permits: 1, Who: canary, Reason: canary, Back: time.Now().Add(time.Hour).Truncate(time.Microsecond)}
	over := storetest.Sent(all[2].Call, hold)
	ended := storetest.Ended(over, scheduler.Done)
	ended.Response.Body = []byte(canary)
	sent := storetest.Sent(all[1].Call, hold)
	sent.Decisions = []scheduler.Decision{{At: time.Now(), By: canary, Attempt: 1, As: upstream.NotExecuted, Reason: canary}}
	record := scheduler.AuditRecord{At: time.Now(), Actor: "alice", Action: "pause", Key: canary, Before: canary, After: canary, Reason: canary}
	own := hold
	own.ID = 7
	if err := errors.Join(d.Audit(t.Context(), record), d.Intend(t.Context(), sent, nil), d.Intend(t.Context(), over, []lease.Hold{own}), d.Record(t.Context(), ended)); err != nil {
		t.Fatal(err)
	}
	return all[0], all[1], all[2]
}

func change1(t *testing.T, path, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	r, err := db.Exec(statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := r.RowsAffected(); n != 1 {
		t.Fatalf("%s: %d rows were changed", statement, n)
	}
}

// TestForgedRows: a program that can write a sealed file, but has no key, can have no row
// sent, moved or counted otherwise: a row with a fresh checksum is refused before anything is sent.
func TestForgedRows(t *testing.T) {
	forger := &columns.Codec{} // makes checksums without a key
	dir := t.TempDir()
	path := filepath.Join(dir, "throttler.db")
	d := open(t, path, Options{SealKey: key})
	waits, sending, done := furnish(t, d)
	d.Close()
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	row := func(table string, seq int64) *columns.Row {
		db, err := sql.Open("sqlite", path)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		rows, err := db.Query("SELECT "+columns.OfCall+" FROM "+table+" WHERE seq = ?", seq)
		if err != nil {
			t.Fatal(err)
		}
		all, err := scan(rows)
		if err != nil {
			t.Fatal(err)
		}
		if all[0].Summed, err = columns.Summed(waits.Call); err != nil { // the forger knows them
			t.Fatal(err)
		}
		return all[0]
	}
	for name, forge := range map[string]func(){
		"a request in the clear": func() {
			b := &columns.Content{Method: "POST", Target: "/forged", Headers: "{}", Body: []byte("x")}
			if err := forger.Encode(b, waits.Call.ID, columns.RequestKind); err != nil {
				t.Fatal(err)
			}
			change1(t, path, "UPDATE calls SET method = ?, target = ?, headers = ?, body = ?, sealed = NULL, request_sum = ? WHERE seq = 1", b.Method, b.Target, b.Headers, b.Body, b.Sum)
		},
		"another upstream": func() {
			r := row("calls", 1)
			r.Upstream = "other"
			change1(t, path, "UPDATE calls SET upstream = ?, sum = ? WHERE seq = 1", r.Upstream, r.Checksum(forger))
		},
		"an ended call waits": func() {
			r := row("calls", done.Call.Seq)
			r.State, r.Ended = "waiting", 0
			change1(t, path, "UPDATE calls SET state = ?, ended_at = 0, sum = ? WHERE seq = ?", r.State, r.Checksum(forger), r.Seq)
		},
		"an attempt in flight has used nothing": func() {
			r := row("current", sending.Call.Seq)
			r.Spent = ""
			change1(t, path, "UPDATE flights SET spent = '', sum = ? WHERE seq = ?", r.Checksum(forger), r.Seq)
		},
		"no number": func() { change1(t, path, "UPDATE calls SET facts = '' WHERE seq = 1") },
		"another actor": func() {
			r := scheduler.AuditRecord{Seq: 1, At: columns.Instant(1), Actor: "bob"}
			change1(t, path, "UPDATE audit SET at = 1, actor = 'bob', action = '', key = '', before = '', after = '', reason = '', sum = ? WHERE seq = 1", columns.AuditSum(forger, r))
		},
		"another instant of permits": func() {
			h := lease.Hold{ID: 7, Upstream: "api", Limit: "app", Permits: 1, Back: columns.Instant(1)}
			change1(t, path, "UPDATE quota SET key = '', reason = '', who = '', back = 1, sum = ? WHERE id = 7", forger.HoldSum(h))
		},
		"another response": func() {
			a := &columns.Content{Status: 200, Headers: "{}", Body: []byte("forged")}
			if err := forger.Encode(a, done.Call.ID, columns.ResponseKind); err != nil {
				t.Fatal(err)
			}
			change1(t, path, "UPDATE calls SET answer_headers = ?, answer = ?, answer_sealed = NULL, answer_sum = ? WHERE seq = ?", a.Headers, a.Body, a.Sum, done.Call.Seq)
		},
		"no seal": func() { change1(t, path, "DELETE FROM meta WHERE name = 'seal'") },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(path, image, 0o600), os.Truncate(path+"-lock", 0)); err != nil {
				t.Fatal(err)
			}
			forge()
			d, err := Open(path, Options{Log: quiet, boot: steadyBoot, fileID: sameFile, reserve: 4096, SealKey: key})
			if err == nil {
				_, err = d.Recover(t.Context(), time.Hour, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false })
				for _, e := range []*scheduler.Entry{waits, sending, done} {
					_, fetched := d.Fetch(t.Context(), e.Call.ID)
					_, got := d.Get(t.Context(), e.Call.ID)
					if errors.Is(fetched, scheduler.ErrNotFound) {
						fetched = nil
					}
					err = errors.Join(err, fetched, got)
				}
				_, logged := d.AuditLog(t.Context(), scheduler.AuditFilter{})
				err = errors.Join(err, logged)
				d.Close()
			}
			if want := map[bool]string{false: columns.ErrChecksum.Error(), true: "throttler store seal"}[name == "no seal"]; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("the forged row: %v, want %q", err, want)
			}
		})
	}
}

// TestNothingInTheClear: a sealed file, and its log, have nothing of what callers sent, of
// values of keys among it.
func TestNothingInTheClear(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{SealKey: key})
	furnish(t, d)
	noCanary(t, path)
	d.Close()
	noCanary(t, path)
	again := open(t, path, Options{SealKey: key})
	past, err := again.Recover(t.Context(), time.Hour, func(*scheduler.Entry) (time.Time, bool) { return time.Time{}, false })
	if err != nil || len(past.Holds) != 2 {
		t.Fatalf("%+v, %v; want 2 holds", past, err)
	}
	for _, h := range past.Holds {
		if h.Key != canary || h.ID == 7 && h.Reason != canary { // the other one is of an attempt, and has no reason
			t.Errorf("the hold %+v has lost its key, or its reason", h)
		}
	}
	noCanary(t, path)
}

func noCanary(t *testing.T, path string) {
	t.Helper()
	for _, part := range []string{"", "-wal"} {
		if text, err := os.ReadFile(path + part); err == nil && strings.Contains(string(text), canary) {
			t.Errorf("%s has a secret in the clear", "throttler.db"+part)
		}
	}
}

// TestSealLater: a file that was written in the clear, or by an older program, is refused by
// its key until it is sealed. Then it has the same calls, and nothing is in the clear.
func TestSealLater(t *testing.T) {
	for _, how := range []string{"in the clear", "by an older program"} {
		t.Run(how, func(t *testing.T) {
			path, o := file(t), Options{}
			d := open(t, path, o)
			if how == "by an older program" {
				older, err := columns.NewCodec(key)
				if err != nil {
					t.Fatal(err)
				}
				*d.codec, o.SealKey = *older, key // encrypts, and makes checksums
				if err := d.writer.do(t.Context(), &change{apply: func(c *conn) (refused, err error) {
					p := &columns.Content{}
					return nil, errors.Join(older.Encode(p, "store", columns.ProofKind), c.set("seal", p.Encrypted))
				}}); err != nil {
					t.Fatal(err)
				}
			}
			waits, sending, done := furnish(t, d)
			d.Close()
			before := exported(t, path, o)
			if _, err := Open(path, Options{Log: quiet, SealKey: key, fileID: sameFile}); err == nil || !strings.Contains(err.Error(), "throttler store seal") {
				t.Fatalf("a file whose rows are not bound: %v", err)
			}
			open(t, path, Options{SealKey: key, Seal: true}).Close()
			noCanary(t, path)
			if after := exported(t, path, Options{SealKey: key}); !reflect.DeepEqual(after, before) {
				t.Errorf("it has %+v, had %+v", after, before)
			}
			if err := check(path, Options{SealKey: key}); err != nil {
				t.Error(err)
			}
			again := open(t, path, Options{SealKey: key})
			for _, e := range []*scheduler.Entry{waits, sending, done} {
				for _, by := range []*scheduler.Entry{{Key: e.Key, Fingerprint: "f"}, {Identity: e.Identity, Fingerprint: "f"}} {
					if c, err := again.Find(t.Context(), by); err != nil || c == nil || c.ID != e.Call.ID || c.Numbers["order"] != canary {
						t.Errorf("%+v finds %+v, %v; want call %s with its number", by, c, err, e.Call.ID)
					}
				}
			}
			for _, e := range []*scheduler.Entry{waits} {
				if got, err := again.Fetch(t.Context(), e.Call.ID); err != nil || !reflect.DeepEqual(got.Request.Body, e.Request.Body) {
					t.Errorf("%+v, %v", got, err)
				}
			}
			past, err := again.Recover(t.Context(), time.Hour, func(e *scheduler.Entry) (time.Time, bool) {
				return time.Time{}, e.Call.ID == sending.Call.ID && reflect.DeepEqual(e.Request.Body, sending.Request.Body)
			})
			if err != nil || len(past.Holds) != 2 || past.Interrupted != 1 {
				t.Errorf("%+v, %v", past, err)
			}
			if c, err := again.Get(t.Context(), sending.Call.ID); err != nil || c.State != scheduler.Waiting {
				t.Errorf("the call in flight, with its body, is %+v, %v", c, err)
			}
			if c, err := again.Get(t.Context(), done.Call.ID); err != nil || string(c.Response.Body) != canary {
				t.Errorf("%+v, %v", c, err)
			}
		})
	}
}

func exported(t *testing.T, path string, o Options) (calls []*scheduler.Call) {
	t.Helper()
	f, err := Read(path, o)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Calls(t.Context(), func(c *scheduler.Call) error { calls = append(calls, c); return nil }); err != nil {
		t.Fatal(err)
	}
	return calls
}
