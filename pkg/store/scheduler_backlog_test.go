package store

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
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
		s.Pause(t.Context(), "api", "", "", time.Now().Add(time.Minute))
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
