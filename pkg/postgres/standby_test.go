package postgres

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
)

var standbyRounds = flag.Int("standby.rounds", 1, "how often TestStandby lets a standby take its server's place")

// A pair is a server and its standby, which follows by way of a proxy.
type pair struct {
	primary, standby *pgtest.Server
	way              *pgtest.Proxy
	url              string // of a database, with the addresses of both
}

func newPair(t *testing.T, synchronous bool) *pair {
	t.Helper()
	p := &pair{}
	var err error
	fatal := func() {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p.primary, err = pgtest.Start()
	fatal()
	t.Cleanup(func() { p.primary.Close() })
	p.way, err = pgtest.NewProxy(p.primary.Address)
	fatal()
	t.Cleanup(p.way.Close)
	p.standby, err = p.primary.Standby(p.way.Address())
	fatal()
	t.Cleanup(func() { p.standby.Close() })
	database, err := p.primary.NewDatabase()
	fatal()
	if synchronous {
		err = p.primary.Synchronous()
		fatal()
	}
	u, err := url.Parse(database)
	fatal()
	u.Host += "," + p.standby.Address()
	u.RawQuery += "&target_session_attrs=read-write"
	p.url = u.String()
	return p
}

// failOver kills the primary, and lets the standby take its place.
func (p *pair) failOver(t *testing.T) {
	t.Helper()
	p.primary.Kill()
	if err := p.standby.Promote(); err != nil {
		t.Fatal(err)
	}
}

// fill accepts calls from some callers at once until stop, again while the server is away. It returns those that were
// acknowledged.
func fill(d *DB, stop <-chan struct{}) (acknowledged []string, err error) {
	var mu sync.Mutex
	var callers sync.WaitGroup
	for n := range int64(8) {
		callers.Go(func() {
			for seq := n + 1; ; seq += 8 {
				select {
				case <-stop:
					return
				default:
				}
				e := storetest.NewEntry(seq)
				failed := again(func() error { _, err := d.Accept(context.Background(), e); return err })
				mu.Lock()
				if failed == nil {
					acknowledged = append(acknowledged, e.Call.ID)
				} else {
					err = failed
				}
				mu.Unlock()
				if failed != nil {
					return
				}
			}
		})
	}
	callers.Wait()
	return acknowledged, err
}

// TestStandby: a synchronous standby takes the place of its server. The term goes on, and no call is lost.
func TestStandby(t *testing.T) {
	for round := range *standbyRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			p := newPair(t, true)
			d := open(t, p.url, Options{Lease: short})
			recover0(t, d)
			stop := make(chan struct{})
			var ids []string
			var err error
			var filling sync.WaitGroup
			filling.Go(func() { ids, err = fill(d, stop) })
			time.Sleep(300 * time.Millisecond)
			p.failOver(t)
			time.Sleep(300 * time.Millisecond)
			close(stop)
			filling.Wait()
			if err != nil {
				t.Fatalf("after the fail-over: %v", err)
			}
			lost := 0
			for _, id := range ids {
				if _, err := d.Get(t.Context(), id); errors.Is(err, scheduler.ErrNotFound) {
					lost++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if lost > 0 {
				t.Errorf("of %d acknowledged calls %d are lost", len(ids), lost)
			}
			t.Logf("%d calls acknowledged, lost %d", len(ids), lost)
		})
	}
}

// TestStandbyWithoutCommits: an asynchronous standby takes the place of its server, and lacks its last commits. The term
// ends and says so; to the next owner the calls that wait are unknown.
func TestStandbyWithoutCommits(t *testing.T) {
	p := newPair(t, false)
	d := open(t, p.url, Options{Lease: short})
	recover0(t, d)
	kept := accepted(t, d).Call
	d.db.Reset()
	if _, err := d.db.Exec(t.Context(), "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn) FROM pg_stat_replication"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the standby has the call", func() bool {
		behind := false
		err := d.db.QueryRow(t.Context(), "SELECT replay_lsn < pg_current_wal_lsn() FROM pg_stat_replication").Scan(&behind)
		return err == nil && !behind
	})
	p.way.Hold(false, true)
	lost := accepted(t, d).Call
	p.failOver(t)
	eventually(t, "the term is over", func() bool {
		err := d.Settle(t.Context(), nil)
		return errors.Is(err, errRegressed) && errors.Is(err, ErrTermOver) || errors.Is(err, ErrTermOver) && strings.Contains(err.Error(), "term")
	})
	d.Close()
	next := open(t, p.url, Options{Lease: short, Wait: true})
	if state := recover0(t, next); !state.Restored || state.Interrupted != 1 {
		t.Errorf("%+v, want the loss, and one unknown call", state)
	}
	if unknown, lost := next.Lost(); !lost || unknown != 1 {
		t.Errorf("the next term tells of %d unknown calls, %v", unknown, lost)
	}
	if left := next.Lease(); left <= 0 || left > short {
		t.Errorf("%v is left of a lease of %v", left, short)
	}
	if left := d.Lease(); left != 0 {
		t.Errorf("%v is left of a term that is over", left)
	}
	if c, err := next.Get(t.Context(), kept.ID); err != nil || c.State != scheduler.Unknown {
		t.Errorf("the call that waited: %+v, %v", c, err)
	}
	if _, err := next.Get(t.Context(), lost.ID); !errors.Is(err, scheduler.ErrNotFound) {
		t.Errorf("the call whose commit was lost: %v", err)
	}
}

// TestWaitCutShort: a commit whose wait for the standby is cut short, which the server says by a warning, is no commit yet: it
// is acknowledged when the standby has it.
func TestWaitCutShort(t *testing.T) {
	p := newPair(t, true)
	d := open(t, p.url, Options{Lease: MaxLease})
	recover0(t, d)
	e := newEntry(t, d)
	p.way.Hold(true, true)
	stored := make(chan error, 1)
	go func() { _, err := d.Accept(context.Background(), e); stored <- err }()
	eventually(t, "the wait is cut short, and made again", func() bool {
		n := 0
		err := d.db.QueryRow(t.Context(), "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'throttler writer%' AND wait_event = 'SyncRep' AND datname = current_database()").Scan(&n)
		return err == nil && n == 1
	})
	select {
	case err := <-stored:
		t.Fatalf("acknowledged though the standby does not have it: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	p.way.Hold(false, false)
	if err := <-stored; err != nil {
		t.Fatal(err)
	}
}
