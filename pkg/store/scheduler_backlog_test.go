package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestBacklogOnDisk submits far more calls of one key than are kept in memory. They
// go in their order, over a restart as well. They delay neither another key nor an
// urgent call, and one of them can be cancelled.
func TestBacklogOnDisk(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		const calls = 3_000
		path, up := filepath.Join(dir, "backlog.db"), &log{}
		limit := scheduler.Limit{Name: "key", PerKey: `query("key")`, Calls: 100, Window: time.Second}
		s := startProcess(t, path, up, limit)
		s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Minute)})
		var last *scheduler.Call
		for n := range calls {
			last = hand(t, s, scheduler.Request{Target: fmt.Sprintf("/a%05d?key=a", n)})
		}
		gone := hand(t, s, scheduler.Request{Target: "/gone?key=a"})
		if c, err := s.Cancel(t.Context(), gone.ID); err != nil || c.State != scheduler.Cancelled {
			t.Errorf("cancel of a call on disk: %+v, %v", c, err)
		}
		for _, c := range []*scheduler.Call{last, must(s.Get(t.Context(), last.ID))} {
			if wait := c.ETA.Sub(c.AcceptedAt); wait < time.Minute || wait > 2*time.Minute {
				t.Errorf("the last call is expected in %v, want 1 to 2 minutes", wait)
			}
		}
		time.Sleep(65 * time.Second)
		hand(t, s, scheduler.Request{Target: "/b?key=b"})
		urgent := hand(t, s, scheduler.Request{Target: "/urgent?key=a", Priority: 5})
		time.Sleep(2 * time.Second)
		if c := must(s.Get(t.Context(), urgent.ID)); c.State != scheduler.Done {
			t.Errorf("the urgent call is %s", c.State)
		}
		if sent := fmt.Sprint(up.sent()); !strings.Contains(sent, "/b ") {
			t.Error("the call of another key waits behind the backlog")
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = startProcess(t, path, up, limit)
		defer s.Close()
		hand(t, s, scheduler.Request{Target: "/late?key=a"})
		if st := first(t, s); st.Waiting < calls/2 || st.Waiting > calls {
			t.Errorf("%d calls wait after the restart", st.Waiting)
		}
		if c, err := s.Wait(t.Context(), last.ID); err != nil || c.State != scheduler.Done {
			t.Errorf("the last call: %+v, %v", c, err)
		}
		time.Sleep(time.Minute)
		if st := first(t, s); st.Waiting != 0 || st.Bytes != 0 {
			t.Errorf("in the end %d calls wait, %d bytes", st.Waiting, st.Bytes)
		}
		n, latest := 0, 0
		for _, path := range up.sent() {
			var number int
			if path == "/late" && n < calls-limit.Calls {
				t.Errorf("the call that came last went after %d of %d", n, calls)
			}
			if _, err := fmt.Sscanf(path, "/a%d", &number); err != nil {
				continue
			}
			n++
			if latest = max(latest, number); number <= latest-limit.Calls { // those of one window go in any order
				t.Fatalf("%s went after /a%05d", path, latest)
			}
		}
		if n != calls || len(up.sent()) != calls+3 {
			t.Errorf("%d of %d calls were sent, %d in all", n, calls, len(up.sent()))
		}
	})
}

// TestNotBefore: a call for later waits on disk, and goes at its time.
func TestNotBefore(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up := filepath.Join(dir, "off.db"), &log{}
		s := startProcess(t, path, up)
		at := time.Now().Add(3 * time.Hour)
		c := hand(t, s, scheduler.Request{Target: "/later", NotBefore: at})
		time.Sleep(time.Hour)
		s.Close()
		s = startProcess(t, path, up)
		defer s.Close()
		time.Sleep(3 * time.Hour)
		if got := must(s.Get(t.Context(), c.ID)); got.State != scheduler.Done || len(up.at) != 1 || up.at[0].Sub(at).Abs() > time.Millisecond {
			t.Errorf("%s, sent at %v, want %v", got.State, up.at, at)
		}
	})
}

// TestNoBody: a request with no_body is in no file, and its call ends with the
// process: it is cancelled.
func TestNoBody(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		path, up := filepath.Join(dir, "card.db"), &log{}
		s := startProcess(t, path, up)
		if c := hand(t, s, scheduler.Request{Target: "/card", Body: []byte("cvv 123")}); must(s.Wait(t.Context(), c.ID)).State != scheduler.Done {
			t.Error("it was not sent")
		}
		c := hand(t, s, scheduler.Request{Target: "/card", Body: []byte("cvv 123"), NotBefore: time.Now().Add(time.Hour)})
		s.Close()
		f, err := Read(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		bodies := -1
		if err := f.db.QueryRow("SELECT count(*) FROM calls WHERE request_sum IS NOT NULL").Scan(&bodies); err != nil || bodies != 0 {
			t.Errorf("%d requests are stored, %v", bodies, err)
		}
		f.Close()
		s = startProcess(t, path, up)
		defer s.Close()
		if got := must(s.Get(t.Context(), c.ID)); got.State != scheduler.Cancelled {
			t.Errorf("after the restart the call is %s", got.State)
		}
	})
}

// slowPages is a store that reads a page in a second.
type slowPages struct{ *DB }

func (d slowPages) Scan(ctx context.Context, upstream string, after scheduler.Position, due time.Time, most int, want func(scheduler.Position, int64) bool) (*scheduler.Page, error) {
	time.Sleep(time.Second)
	return d.DB.Scan(ctx, upstream, after, due, most, want)
}

// TestAskedAtTheStart: right after a start, before a page has been read, calls of the end
// of the line are cancelled and waited for. None of them is sent for that, and the others
// go in their order.
func TestAskedAtTheStart(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		const calls, asked = 3_000, 200
		path, up := filepath.Join(dir, "asked.db"), &log{}
		limit := scheduler.Limit{Name: "app", Calls: 100, Window: time.Second}
		s := startProcess(t, path, up, limit)
		s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Hour)})
		var ids []string
		for n := range calls {
			ids = append(ids, hand(t, s, scheduler.Request{Target: fmt.Sprintf("/a%05d", n)}).ID)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = startOn(t, slowPages{openTest(t, path)}, up, limit)
		defer s.Close()
		s.Resume(t.Context(), "api", "", "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for i, id := range ids[calls-asked:] {
			switch i % 4 {
			case 0:
				go s.Wait(ctx, id)
				continue
			case 2:
				if _, err := s.Resolve(t.Context(), id, scheduler.Decision{As: upstream.Done}); !errors.Is(err, scheduler.WrongState) {
					t.Errorf("resolve of a waiting call: %v", err)
				}
				continue
			}
			if c, err := s.Cancel(t.Context(), id); err != nil || c.State != scheduler.Cancelled {
				t.Errorf("cancel: %+v, %v", c, err)
			}
		}
		time.Sleep(3 * time.Second)
		for _, path := range up.sent() {
			number := 0
			if fmt.Sscanf(path, "/a%d", &number); number >= calls/2 {
				t.Fatalf("%s was sent, and %d calls wait before it", path, calls/2)
			}
		}
		time.Sleep(time.Minute)
		if n := len(up.sent()); n != calls-asked/2 {
			t.Errorf("%d calls were sent, want %d", n, calls-asked/2)
		}
		if st := first(t, s); st.Waiting != 0 || st.Bytes != 0 {
			t.Errorf("in the end %d calls wait, %d bytes", st.Waiting, st.Bytes)
		}
	})
}

// TestWaitForACallOnDisk: Wait returns the end of a call that is on disk only, whether the
// call is sent, is cancelled or expires.
func TestWaitForACallOnDisk(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		const calls = 3_000
		s := startProcess(t, filepath.Join(dir, "wait.db"), &log{}, scheduler.Limit{Name: "app", Calls: 100, Window: time.Second})
		defer s.Close()
		for n := range calls {
			hand(t, s, scheduler.Request{Target: fmt.Sprintf("/a%05d", n)})
		}
		begin := time.Now()
		var waits sync.WaitGroup
		wait := func(r scheduler.Request, want scheduler.State, most time.Duration) *scheduler.Call {
			c := hand(t, s, r)
			for range 2 {
				waits.Go(func() {
					got, err := s.Wait(t.Context(), c.ID)
					if took := time.Since(begin); err != nil || got.State != want || took > most {
						t.Errorf("%s: %+v, %v after %v; want %s within %v", r.Target, got, err, took, want, most)
					}
				})
			}
			return c
		}
		wait(scheduler.Request{Target: "/sent"}, scheduler.Done, 2*time.Minute)
		wait(scheduler.Request{Target: "/late", Deadline: begin.Add(40 * time.Second)}, scheduler.Expired, 42*time.Second)
		gone := wait(scheduler.Request{Target: "/gone"}, scheduler.Cancelled, 6*time.Second)
		s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: begin.Add(time.Minute)})
		time.Sleep(5 * time.Second)
		if _, err := s.Cancel(t.Context(), gone.ID); err != nil {
			t.Error(err)
		}
		waits.Wait()
	})
}

// slowFetches is a store that returns the row of a call up to a second after it was read.
type slowFetches struct {
	*DB
	r *rand.Rand
	m *sync.Mutex
}

func (d slowFetches) Fetch(ctx context.Context, id string) (*scheduler.Entry, error) {
	e, err := d.DB.Fetch(ctx, id)
	d.m.Lock()
	late := time.Duration(d.r.Int64N(int64(time.Second)))
	d.m.Unlock()
	time.Sleep(late)
	return e, err
}

// TestRowsGrowOld: a call on disk ends while its row is read for another caller. The old
// row does not bring it back: one cancel succeeds, and the counts are right.
func TestRowsGrowOld(t *testing.T) {
	dir := scratch(t)
	synctest.Test(t, func(t *testing.T) {
		const calls, cancelled = 3_000, 100
		up, d := &log{}, slowFetches{openTest(t, filepath.Join(dir, "old.db")), rand.New(rand.NewPCG(1, 1)), &sync.Mutex{}}
		s := startOn(t, d, up, scheduler.Limit{Name: "app", Calls: 100, Window: time.Second})
		defer s.Close()
		s.Pause(t.Context(), scheduler.Pause{Upstream: "api", Until: time.Now().Add(time.Hour)})
		var ids []string
		for n := range calls {
			ids = append(ids, hand(t, s, scheduler.Request{Target: fmt.Sprintf("/a%05d", n)}).ID)
		}
		var callers sync.WaitGroup
		for _, id := range ids[calls-cancelled:] {
			var ok atomic.Int32
			for range 3 {
				callers.Go(func() {
					if c, err := s.Cancel(t.Context(), id); err == nil {
						if ok.Add(1); c.State != scheduler.Cancelled {
							t.Errorf("a cancel returned a call that is %s", c.State)
						}
					}
				})
			}
			callers.Wait()
			if n := ok.Load(); n != 1 {
				t.Errorf("%d of 3 cancels of a call succeeded", n)
			}
		}
		if st := first(t, s); st.Waiting != calls-cancelled {
			t.Errorf("%d calls wait, want %d", st.Waiting, calls-cancelled)
		}
		s.Resume(t.Context(), "api", "", "")
		time.Sleep(3 * time.Minute)
		if st := first(t, s); st.Waiting != 0 || st.Bytes != 0 || len(up.sent()) != calls-cancelled {
			t.Errorf("in the end %d calls wait, %d bytes, and %d were sent", st.Waiting, st.Bytes, len(up.sent()))
		}
	})
}
