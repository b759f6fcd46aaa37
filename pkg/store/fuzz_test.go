package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

// Bounds of what one file may cost.
const (
	fuzzTime   = 30 * time.Second // far above that of any file that was seen, on a busy machine
	fuzzAllocs = 1 << 30          // bytes in all; a valid file costs up to 300 MiB with the race detector
	fuzzRSS    = 1 << 30          // bytes, of the whole test
)

// An image is a valid store, with or without a log.
type image struct {
	main, log []byte
	options   Options
}

// images returns stores with calls of all states, holds, a pause, keys and webhooks that
// are due: closed, and as a crash leaves them; in the clear, and sealed.
func images(f *testing.F) []image {
	var all []image
	for _, o := range []Options{{}, {SealKey: key}} {
		o.Log, o.boot, o.fileID, o.reserve = quiet, steadyBoot, sameFile, 4096
		path := filepath.Join(f.TempDir(), "image.db")
		d, err := Open(path, o)
		if err != nil {
			f.Fatal(err)
		}
		ctx := context.Background()
		if _, err := d.Recover(ctx, 0, nil); err != nil {
			f.Fatal(err)
		}
		for n, state := range append(scheduler.States, scheduler.Waiting, scheduler.Done) {
			e := storetest.NewEntry(int64(n + 1))
			e.Key, e.Fingerprint, e.Call.Callback = fmt.Sprint("key ", n), "f", "shop"
			e.Request.Body = make([]byte, n*500)
			_, err := d.Accept(ctx, e)
			sent := storetest.Sent(e.Call, lease.Hold{Upstream: "api", Limit: "app", Key: "k", Permits: 1, Back: time.Now().Add(time.Hour)})
			if state != scheduler.Waiting {
				err = errors.Join(err, d.Intend(ctx, sent, []lease.Hold{{ID: int64(n + 1), Upstream: "api", Limit: "app", Key: "k", Permits: 1, Paused: n == 4, Back: time.Now().Add(time.Hour)}}))
			}
			if state != scheduler.Waiting && state != scheduler.Sending {
				err = errors.Join(err, d.Record(ctx, storetest.Ended(sent, state)))
			}
			if err != nil {
				f.Fatal(err)
			}
		}
		crashed := image{read(f, path), read(f, path+"-wal"), o}
		d.Close()
		all = append(all, crashed, image{read(f, path), nil, o})
	}
	return all
}

func read(f *testing.F, path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return text
}

// FuzzStoreFile changes valid stores: bytes and pages of the file and of its log, and single
// values of rows, with fresh checksums. Each is served, or refused by an error that names the
// file, within a time and a memory; nothing panics. So with check, stats and export.
func FuzzStoreFile(f *testing.F) {
	all := images(f)
	for n := range byte(4) {
		f.Add(n, []byte{})
		f.Add(n, []byte{0, 0, 0, 0, 18, 9, 1, 0, 0, 16, 40, 1})
		f.Add(n, []byte{2, 0, 0, 16, 0, 0, 3, 0, 0, 0, 77, 0})
		for column := n; column < 24; column += 4 {
			f.Add(n, []byte{4 + column%4, 0, 0, column, column, column / 2})
		}
	}
	dir := scratch(f)
	f.Fuzz(func(t *testing.T, which byte, changes []byte) {
		if len(changes) > 600 {
			return
		}
		i := all[int(which)%len(all)]
		path := filepath.Join(dir, fmt.Sprint(os.Getpid()), "fuzz.db")
		if err := errors.Join(os.RemoveAll(filepath.Dir(path)), os.Mkdir(filepath.Dir(path), 0o700)); err != nil {
			t.Fatal(err)
		}
		i.write(t, path, changes)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		done := make(chan struct{})
		go func() {
			defer close(done)
			use(t, path, i.options)
		}()
		select {
		case <-done:
		case <-time.After(2 * fuzzTime):
			panic("no end: the file is kept in " + path)
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > fuzzAllocs {
			t.Errorf("%d MiB were allocated", n>>20)
		}
		if n := rss(); n > fuzzRSS {
			t.Errorf("%d MiB are in use", n>>20)
		}
	})
}

// write writes an image with changes, of six bytes each: of the file and its log first, and
// then of rows.
func (i image) write(t *testing.T, path string, changes []byte) {
	parts := [][]byte{append([]byte(nil), i.main...), append([]byte(nil), i.log...)}
	var rows [][]byte
	for ; len(changes) >= 6; changes = changes[6:] {
		c := changes[:6]
		part := &parts[c[0]&1]
		at := int(binary.BigEndian.Uint32(c[1:5]))
		switch {
		case c[0]&4 != 0:
			rows = append(rows, c)
		case len(*part) == 0:
		case c[0]&2 == 0:
			(*part)[at%len(*part)] = c[5]
		case c[0]&8 == 0: // one page over another
			pages := max(1, len(*part)/4096)
			from, to := at>>8%pages, int(c[4])%pages
			copy((*part)[to*4096:], (*part)[from*4096:min(len(*part), (from+1)*4096)])
		default:
			*part = (*part)[:at%len(*part)]
		}
	}
	for n, name := range []string{path, path + "-wal"} {
		if len(parts[n]) == 0 {
			continue
		}
		if err := os.WriteFile(name, parts[n], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if len(rows) > 0 {
		changeRows(path, i.options, rows)
	}
}

// fuzzColumns are the columns whose values are changed.
var fuzzColumns = func() (all [][2]string) {
	for _, t := range [][2]string{
		{"calls", columns.OfCall + ", " + columns.OfRequest + ", " + columns.OfResponse}, {"flights", "seq, async, epoch, due, deadline, attempts, spent, sum"},
		{"quota", "id, upstream, name, key, every, permits, back, paused, sum, since, reason"}, {"keys", "key, fingerprint, seq, until, ended_by"},
		{"untold", "notice, seq"}, {"bodies", "seq, body, sealed"}, {"meta", "name, value"}, {"blocks", "block, first, last, low, high, calls, sum"}, {"terms", "place, chunk, sum"}, {"strays", "seq"}, {"goose_db_version", "version_id, is_applied"},
	} {
		for _, name := range strings.Split(t[1], ", ") {
			all = append(all, [2]string{t[0], name})
		}
	}
	return all
}()

var fuzzValues = []any{
	nil, "", "x", int64(0), int64(1), int64(-1), int64(math.MaxInt64), int64(math.MinInt64), int64(1) << 33, math.Inf(1), 1.5, []byte{0xff, 0}, []byte{},
	"[]", "{}", "null", "[null]", strings.Repeat("[", 20_000), strings.Repeat("x", 1<<18), make([]byte, 1<<18), "waiting", "sending", "done", "unknown", "other",
	`[{"n":-1,"sent_at":"0001-01-01T00:00:00Z"}]`, `[{"n":9223372036854775807,"sent_at":"9999-12-31T23:59:59Z","ended_at":"9999-12-31T23:59:59Z"}]`,
	`[{"limit":"app","permits":-9223372036854775808,"back":"9999-12-31T23:59:59Z"}]`, `[{"limit":"app","permits":9223372036854775807,"every":true}]`,
	`[{"limit":"app","permits":1000000000,"back":"0001-01-01T00:00:00Z"},{"limit":"nope","permits":1}]`, "1 1", "9223372036854775807 9223372036854775807 9223372036854775807 x",
	`{"api":{"waiting":-5,"unknown":9223372036854775807,"bytes":-1}}`, `{"X":["1"]}`, "GET", "/x", "\x00", "é\xff",
}

// changeRows changes values of rows, and gives the rows sums that fit. What cannot be changed
// stays.
func changeRows(path string, o Options, rows [][]byte) {
	db, err := sql.Open("sqlite", dsn(path, "", "_pragma=synchronous(OFF)"))
	if err != nil {
		return
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(context.Background(), fuzzTime)
	defer cancel()
	codec, err := columns.NewCodec(o.SealKey)
	if err != nil || checkSchema(db) != nil {
		return
	}
	sealOf(db, codec)
	for _, c := range rows {
		column := fuzzColumns[int(binary.BigEndian.Uint16(c[1:3]))%len(fuzzColumns)]
		db.ExecContext(ctx, fmt.Sprintf("UPDATE %[1]s SET %[2]s = ? WHERE rowid IN (SELECT rowid FROM %[1]s LIMIT 1 OFFSET ?)", column[0], column[1]),
			fuzzValues[int(c[5])%len(fuzzValues)], int(c[4])%12)
		if column[0] == "meta" || column[0] == "keys" || column[0] == "untold" { // they have no rowid
			db.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET %s = ? WHERE %[3]s IN (SELECT %[3]s FROM %[1]s LIMIT 1 OFFSET ?)", column[0], column[1],
				map[string]string{"meta": "name", "keys": "key", "untold": "notice"}[column[0]]), fuzzValues[int(c[5])%len(fuzzValues)], int(c[4])%12)
		}
	}
	for _, table := range []string{"calls", "current"} {
		found, err := db.QueryContext(ctx, "SELECT "+columns.OfCall+" FROM "+table+" LIMIT 100")
		if err != nil {
			return
		}
		all, _ := scan(found)
		for _, r := range all {
			text, _ := codec.DecryptText(r.Facts, r.ID, columns.FactsKind)
			r.Summed, _ = columns.DecodeFacts(text, &scheduler.Call{ID: r.ID})
			db.ExecContext(ctx, "UPDATE "+map[string]string{"calls": "calls", "current": "flights"}[table]+" SET sum = ? WHERE seq = ?", r.Checksum(codec), r.Seq)
			if b, err := requestOf(ctx, db, r); b != nil && err == nil {
				db.ExecContext(ctx, "UPDATE calls SET request_sum = ? WHERE seq = ?", b.Checksum(codec, r.ID, columns.RequestKind), r.Seq)
			}
			if a, err := responseOf(ctx, db, r); a != nil && err == nil {
				db.ExecContext(ctx, "UPDATE calls SET answer_sum = ? WHERE seq = ?", a.Checksum(codec, r.ID, columns.ResponseKind), r.Seq)
			}
		}
	}
	holds, err := db.QueryContext(ctx, selectHolds)
	if err != nil {
		return
	}
	sums := make(map[int64]int64)
	for holds.Next() {
		var h lease.Hold
		var back, sum, since int64
		if holds.Scan(&h.ID, &h.Upstream, &h.Limit, &h.Key, &h.Every, &h.Permits, &back, &h.Paused, &sum, &since, &h.Reason, &h.Who) == nil {
			codec.DecryptHold(&h)
			h.Back, h.Since = columns.Instant(back), columns.Instant(since)
			sums[h.ID] = codec.HoldSum(h)
		}
	}
	holds.Close()
	for id, sum := range sums {
		db.ExecContext(ctx, "UPDATE quota SET sum = ? WHERE id = ?", sum, id)
	}
}

// use reads a file, and runs a scheduler over it.
func use(t *testing.T, path string, o Options) {
	ctx, cancel := context.WithTimeout(context.Background(), fuzzTime)
	defer cancel()
	said := func(method string, err error) {
		if errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s has no end", method)
		}
		if err != nil && !strings.Contains(err.Error(), path) && !errors.Is(err, scheduler.Stopping) { // the store has failed since
			t.Errorf("%s: the error does not name the file: %v", method, err)
		}
	}
	said("a reader", everyReader(ctx, path, o))
	d, err := Open(path, o)
	said("Open", err)
	if err != nil {
		return
	}
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 5, Window: time.Second, PerKey: `header("X-Key")`}, {Name: "day", Calls: 9, Window: 24 * time.Hour}}}
	u.URL, u.Transport, u.Idempotent = "http://api.test", &log{}, "true"
	hook := scheduler.Callback{}
	hook.URL, hook.Transport, hook.Signer = "http://shop.test", &log{}, unsigned{}
	u.Callbacks = map[string]scheduler.Callback{"shop": hook}
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	said("New", err)
	if err != nil {
		said("Close", d.Close())
		return
	}
	calls, err := s.List(ctx, scheduler.Filter{Max: 50})
	if said("List", err); err != nil {
		calls = &scheduler.ListPage{}
	}
	_, err = s.List(ctx, scheduler.Filter{Q: "1", Oldest: true})
	said("List", err)
	for _, c := range calls.Calls {
		s.Get(ctx, c.ID) // both may refuse a call for its state
		s.Cancel(ctx, c.ID)
	}
	_, err = s.Limits(ctx)
	said("Limits", err)
	said("Close", s.Close())
}

// rss returns how much memory of the machine the process has, 0 where that is not known.
func rss() int64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident int64
	fmt.Sscan(string(text), &size, &resident)
	return resident * int64(os.Getpagesize())
}
