package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// startTill starts a process whose calls have identities.
func startTill(t *testing.T, path string, up *log, o Options) *scheduler.Scheduler {
	t.Helper()
	o.Log, o.boot, o.fileID, o.raw, o.reserve = quiet, steadyBoot, sameFile, "_pragma=synchronous(OFF)", 4096
	d, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	return startTillWith(t, d, up)
}

func startTillWith(t *testing.T, d scheduler.Durable, up *log) *scheduler.Scheduler {
	t.Helper()
	u := scheduler.Upstream{Identity: `path startsWith "/query" ? nil : path`, Numbers: map[string]string{"order": "path"}, Durable: `path startsWith "/durable"`, NoBody: `path == "/card"`}
	u.Ends, u.Idempotent = `param("ends") == "" ? nil : param("ends")`, "true"
	u.Asks = `path startsWith "/query" ? param("about") : nil`
	u.Resolve = []scheduler.Resolve{{Signed: true, Target: `"/query"`, Outcomes: []upstream.Rule{{When: `method == "POST" and status == 200`, Is: upstream.Done}}}}
	u.URL, u.Transport = "http://api.test", up
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"api": u}, Store: d, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// inTills runs a test in virtual time, with a clear file and with a sealed one.
func inTills(t *testing.T, f func(t *testing.T, path string, o Options)) {
	for name, o := range map[string]Options{"clear": {}, "sealed": {SealKey: key}} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(scratch(t), "till.db")
			synctest.Test(t, func(t *testing.T) { f(t, path, o) })
		})
	}
}

// do returns the answer to a call, or the reason of the error.
func do(t *testing.T, s *scheduler.Scheduler, target string) (string, *scheduler.Call) {
	t.Helper()
	resp, c, err := s.Do(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: target})
	var e *scheduler.Error
	if errors.As(err, &e) {
		return string(e.Reason), e.Call
	}
	if err != nil {
		t.Error(err)
		return "", nil
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text), c
}

// TestIdentityOfStoredCalls: a repeat joins the first call, if either of the two is stored. In
// the next process it joins a stored first call, for KeepKeys from its end on.
func TestIdentityOfStoredCalls(t *testing.T) {
	inTills(t, func(t *testing.T, path string, o Options) {
		up := &log{}
		s := startTill(t, path, up, o)
		submitted := hand(t, s, scheduler.Request{Target: "/a"})
		if text, c := do(t, s, "/a"); text != "answer to /a" || c.ID != submitted.ID {
			t.Errorf("a client after a submission: %s, %+v", text, c)
		}
		_, waited := do(t, s, "/b")
		if c := hand(t, s, scheduler.Request{Target: "/b"}); c.ID != waited.ID || !c.Repeated {
			t.Errorf("a submission after a client: %+v, want call %s", c, waited.ID)
		}
		up.lose(true)
		_, unknown := do(t, s, "/durable/c")
		up.lose(false)
		s.Close()

		s = startTill(t, path, up, o)
		if text, c := do(t, s, "/a"); text != "answer to /a" || c.ID != submitted.ID || c.Numbers["order"] != "/a" {
			t.Errorf("the next process: %s, %+v", text, c)
		}
		if text, c := do(t, s, "/durable/c"); text != "no_answer" || c.ID != unknown.ID {
			t.Errorf("a repeat of an unknown call: %s, %+v; want call %s", text, c, unknown.ID)
		}
		time.Sleep(DefaultKeepKeys + 2*time.Minute)
		if text, c := do(t, s, "/durable/c"); text != "no_answer" || c.ID != unknown.ID {
			t.Errorf("a repeat of an unknown call a day later: %s, %+v", text, c)
		}
		if text, c := do(t, s, "/a"); text != "answer to /a" || c.ID == submitted.ID {
			t.Errorf("a repeat of a done call a day later: %s, %+v; want a new call", text, c)
		}
		s.Close()
		if sent := up.sent(); !slices.Equal(sent, []string{"/a", "/b", "/durable/c", "/a"}) {
			t.Errorf("sent %v", sent)
		}
	})
}

// TestQuerySettlesStoredCalls: a caller's query settles an unknown call of an earlier process,
// waited for or submitted; a call whose request was not kept stays unknown.
func TestQuerySettlesStoredCalls(t *testing.T) {
	inTills(t, func(t *testing.T, path string, o Options) {
		up := &log{}
		s := startTill(t, path, up, o)
		up.lose(true)
		_, waited := do(t, s, "/durable/a")
		calls := map[string]*scheduler.Call{"/durable/a": waited, "/b": hand(t, s, scheduler.Request{Target: "/b"}), "/card": hand(t, s, scheduler.Request{Target: "/card"})}
		time.Sleep(time.Minute)
		up.lose(false)
		s.Close()

		s = startTill(t, path, up, o)
		defer s.Close()
		for about, c := range calls {
			want := scheduler.Done
			if about == "/card" {
				want = scheduler.Unknown
			}
			_, query := do(t, s, "/query?about="+about)
			got, err := s.Get(t.Context(), c.ID)
			if err != nil || got.State != want || want == scheduler.Done && (len(got.Decisions) != 1 || !strings.Contains(got.Decisions[0].By, query.ID)) {
				t.Errorf("%s: %+v, %v; want %s by query %s", about, got, err, want, query.ID)
			}
		}
	})
}

// slowFind is a store that answers a lookup a second late.
type slowFind struct{ *DB }

func (d slowFind) Find(ctx context.Context, e *scheduler.Entry) (*scheduler.Call, error) {
	c, err := d.DB.Find(ctx, e)
	time.Sleep(time.Second)
	return c, err
}

// TestIdentityOfASlowStore: a client whose call is looked up while a submission of the same
// identity is stored waits for that, and gets its answer.
func TestIdentityOfASlowStore(t *testing.T) {
	inTills(t, func(t *testing.T, path string, o Options) {
		up := &log{}
		o.Log, o.boot, o.fileID, o.raw, o.reserve = quiet, steadyBoot, sameFile, "_pragma=synchronous(OFF)", 4096
		d, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		s := startTillWith(t, slowFind{d}, up)
		defer s.Close()
		var submitted *scheduler.Call
		var submission sync.WaitGroup
		submission.Go(func() { submitted = hand(t, s, scheduler.Request{Target: "/a"}) })
		time.Sleep(500 * time.Millisecond)
		text, c := do(t, s, "/a")
		submission.Wait()
		if text != "answer to /a" || c.ID != submitted.ID || len(up.sent()) != 1 {
			t.Errorf("%s, call %s, want %s; sent %v", text, c.ID, submitted.ID, up.sent())
		}
	})
}

// TestIdentityOfManyCallers: of clients and submissions of one identity at once, one makes the
// call, in whichever store.
func TestIdentityOfManyCallers(t *testing.T) {
	up := &log{}
	s := startTill(t, filepath.Join(scratch(t), "till.db"), up, Options{})
	defer s.Close()
	var callers sync.WaitGroup
	for i := range 8 {
		for range 4 {
			callers.Go(func() { do(t, s, fmt.Sprint("/", i)) })
			callers.Go(func() {
				if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "api", Method: "POST", Target: fmt.Sprint("/", i)}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	callers.Wait()
	for _, path := range up.sent() {
		if n := len(slices.DeleteFunc(up.sent(), func(other string) bool { return other != path })); n != 1 {
			t.Errorf("%s was sent %d times", path, n)
		}
	}
}

// TestEndsOverRestart: a payment that a cancel has ended is not sent by the next process,
// wherever the last one has ended: with the payment on disk, in flight, or cancelled.
func TestEndsOverRestart(t *testing.T) {
	inTills(t, func(t *testing.T, path string, o Options) {
		up := &log{}
		s := startTill(t, path, up, o)
		late := func(target string) *scheduler.Call {
			return hand(t, s, scheduler.Request{Target: target, NotBefore: time.Now().Add(time.Hour)})
		}
		waits, ended, other := late("/waits"), late("/ended"), late("/other")
		if text, _ := do(t, s, "/cancel?ends=/ended"); text != "answer to /cancel" {
			t.Fatal(text)
		}
		s.Close()

		o.Log, o.boot, o.fileID, o.reserve = quiet, steadyBoot, sameFile, 4096
		d, err := Open(path, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Recover(t.Context(), 0, nil); err != nil {
			t.Fatal(err)
		}
		e := storetest.NewEntry(1000)
		e.Request.Target, e.Identity = "/flight", "api\x00/flight"
		e.Call.Deadline = time.Now().Add(24 * time.Hour)
		_, err = d.Accept(t.Context(), e)
		err = errors.Join(err, d.Intend(t.Context(), storetest.Sent(e.Call), nil),
			d.End(t.Context(), "api\x00/flight", "c1"), d.End(t.Context(), "api\x00/waits", "c2"), d.Close())
		if err != nil {
			t.Fatal(err)
		}

		s = startTill(t, path, up, o)
		defer s.Close()
		time.Sleep(2 * time.Hour)
		if sent := up.sent(); !slices.Equal(sent, []string{"/cancel", "/other"}) {
			t.Errorf("sent %v, want the cancel and the payment of the other order", sent)
		}
		for id, want := range map[string]string{waits.ID: "cancelled c2", ended.ID: "cancelled", e.Call.ID: "unknown c1", other.ID: "done "} {
			if c := must(s.Get(t.Context(), id)); !strings.HasPrefix(string(c.State)+" "+c.EndedBy, want) || c.State == scheduler.Cancelled && c.EndedBy == "" {
				t.Errorf("%s, ended by %q; want %s", c.State, c.EndedBy, want)
			}
		}
		if text, _ := do(t, s, "/ended"); text != string(scheduler.KeyReused) {
			t.Errorf("a new payment two hours later: %s", text)
		}
		time.Sleep(DefaultKeepKeys)
		if text, _ := do(t, s, "/ended"); text != "answer to /ended" {
			t.Errorf("a new payment a day later: %s", text)
		}
	})
}
