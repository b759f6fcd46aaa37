package scheduler

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A fullAudit takes no records once it is full.
type fullAudit struct {
	Store
	full bool
}

func (f *fullAudit) Audit(ctx context.Context, r AuditRecord) error {
	if f.full {
		return errors.New("no room")
	}
	return f.Store.Audit(ctx, r)
}

// TestAudited: there is a record before the action, none of what could not be recorded is done, and
// a second record tells that it was in vain.
func TestAudited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fullAudit{Store: NewMemory(10, 1000)}
		u := Upstream{}
		u.URL, u.Transport = "http://api.test", &fake{start: time.Now()}
		s, err := New(Config{Upstreams: map[string]Upstream{"api": u}, Store: store, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		logged := func() []AuditRecord {
			t.Helper()
			all, err := s.AuditLog(t.Context(), AuditFilter{})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		record := AuditRecord{Actor: "alice", Action: "pause", Upstream: "api", Reason: "maintenance"}
		pause := func() error {
			if all := logged(); len(all) == 0 || all[0].Actor != "alice" || !all[0].At.Equal(time.Now()) || strings.HasPrefix(all[0].After, "not done") {
				t.Errorf("before the action: %+v", all)
			}
			return s.Pause(t.Context(), Pause{Upstream: "api", Until: time.Now().Add(time.Hour), Who: "alice"})
		}
		if err := s.Audited(t.Context(), record, pause); err != nil || len(logged()) != 1 {
			t.Errorf("%v, %+v", err, logged())
		}
		for i, tt := range []struct {
			err   error
			after string
		}{
			{&Error{Reason: WrongState, Detail: "no"}, "not done: no"},
			{errors.New("the file is gone"), "not done: the file is gone"},
			{context.DeadlineExceeded, "not known whether done: context deadline exceeded"},
		} {
			if err := s.Audited(t.Context(), record, func() error { return tt.err }); err != tt.err {
				t.Errorf("%v, want %v of the action", err, tt.err)
			}
			if all := logged(); len(all) != 3+2*i || all[0].After != tt.after || all[0].Seq <= all[1].Seq {
				t.Errorf("an action in vain, want %q: %+v", tt.after, all)
			}
		}
		store.full = true
		if err := s.Audited(t.Context(), record, func() error { t.Error("done without a record"); return nil }); reason(err) != StoreFailed {
			t.Errorf("%v, want store_failed", err)
		}
	})
}

// TestPausesAreListed: each pause has an ID by which it is ended, and another pause has another one.
func TestPausesAreListed(t *testing.T) {
	u := Upstream{Limits: []Limit{{Name: "app", PerKey: "path", Calls: 10, Window: sec}}}
	bubble(t, u, func(t *testing.T, s *Scheduler, f *fake) {
		pause := func(p Pause) string {
			t.Helper()
			p.Upstream, p.Until, p.Who, p.Reason = "api", time.Now().Add(time.Hour), "alice", "maintenance"
			if err := s.Pause(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			all, err := s.Pauses(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range all {
				if got.Limit == p.Limit && got.Key == p.Key {
					if id := got.ID; id == "" || got.By != "person" || got.Who != "alice" || got.Reason != "maintenance" || !got.Since.Equal(time.Now()) || !got.Until.Equal(p.Until) {
						t.Errorf("%+v, want %+v", got, p)
					}
					return got.ID
				}
			}
			t.Fatalf("not among %+v", all)
			return ""
		}
		whole, app, key := pause(Pause{}), pause(Pause{Limit: "app"}), pause(Pause{Limit: "app", Key: "/a"})
		for _, id := range []string{app, whole} {
			if got, err := s.ResumePause(t.Context(), id); err != nil || got.ID != id {
				t.Errorf("%+v, %v", got, err)
			}
			if _, err := s.ResumePause(t.Context(), id); reason(err) != NotFound {
				t.Errorf("ended twice: %v", err)
			}
		}
		time.Sleep(sec)
		if err := s.Resume(t.Context(), "api", "app", "/a"); err != nil {
			t.Fatal(err)
		}
		if again := pause(Pause{Limit: "app", Key: "/a"}); again == key {
			t.Error("another pause has the same ID")
		}
		if _, err := s.ResumePause(t.Context(), key); reason(err) != NotFound {
			t.Errorf("by the ID of an earlier pause: %v", err)
		}
		if c := submit(t, s, Request{Target: "/a"}); c.WaitingFor == nil || !strings.Contains(c.WaitingFor.Pause, "by alice, since") {
			t.Errorf("waits for %+v", c.WaitingFor)
		}
	})
}
