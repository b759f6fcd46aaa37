package storetest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// decisions are kept with the call, while it waits again and after its end.
func decisions(t *suite) {
	now := time.Now().Truncate(time.Microsecond).UTC()
	sent := Sent(t.accept().Call)
	t.intend(sent)
	unknown := Ended(sent, scheduler.Unknown)
	t.record(unknown)
	first := scheduler.Decision{At: now, By: "alice", Attempt: 1, As: upstream.Unknown, Reason: `no "answer"`, AcceptDuplicate: true}
	again := With(unknown, func(c *scheduler.Call) {
		c.State, c.Deadline, c.Decisions = scheduler.Waiting, now.Add(time.Hour), []scheduler.Decision{first}
	})
	t.record(again)
	second := Sent(again)
	t.intend(second)
	same := func(when string, want ...scheduler.Decision) {
		t.Helper()
		got := t.get(sent.ID).Decisions
		for i := range got {
			got[i].At = got[i].At.UTC()
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	same("sent again", first)
	last := scheduler.Decision{At: now, By: "bob", Attempt: 2, As: upstream.Done}
	t.record(Ended(second, scheduler.Unknown))
	t.record(With(Ended(second, scheduler.Done), func(c *scheduler.Call) { c.Decisions = []scheduler.Decision{first, last} }))
	same("done", first, last)
	if c := t.get(sent.ID); len(c.Attempts) != 2 || c.Reason != "" || c.EndedBy != "" {
		t.Errorf("with decisions: %+v", c)
	}
}

// edits of a waiting call are kept, and it is sent by them.
func edits(t *suite) {
	now := time.Now().Truncate(time.Microsecond)
	e := t.accept()
	t.record(With(e.Call, func(c *scheduler.Call) {
		c.Priority, c.NotBefore, c.Due, c.Deadline = 7, now.Add(time.Minute), now.Add(time.Minute), now.Add(2*time.Hour)
	}))
	check := func(when string) {
		t.Helper()
		if c := t.get(e.Call.ID); c.Priority != 7 || !c.NotBefore.Equal(now.Add(time.Minute)) || !c.Deadline.Equal(now.Add(2*time.Hour)) {
			t.Errorf("%s: %+v", when, c)
		}
	}
	check("waiting")
	sent := Sent(t.get(e.Call.ID))
	t.intend(sent)
	check("sent")
	t.record(Ended(sent, scheduler.Done))
	check("done")
}

// audit compares pages of records with a plain list.
func audit(t *suite) {
	r := rand.New(rand.NewPCG(1, 2))
	begin := time.Now().Truncate(time.Microsecond)
	var all []scheduler.AuditRecord // the latest first
	pick := func(kind string) string { return fmt.Sprint(kind, r.IntN(3)) }
	for i := range 60 {
		rec := scheduler.AuditRecord{
			At: begin.Add(time.Duration(i) * time.Second), Actor: pick("actor"), Role: "operator", Via: "127.0.0.1:1", Action: pick("action"), Upstream: "api",
			Call: []string{"", "c1", "c2"}[r.IntN(3)], Limit: "app", Key: "k", Before: "unknown", After: "done", Reason: fmt.Sprint("reason ", i),
		}
		if err := t.s.Audit(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		all = slices.Insert(all, 0, rec)
	}
	for i := range 200 {
		var f scheduler.AuditFilter
		for bit, set := range []func(){
			func() { f.Actor = pick("actor") }, func() { f.Action = pick("action") }, func() { f.Call = "c1" },
			func() { f.From = begin.Add(time.Duration(r.IntN(60)) * time.Second) }, func() { f.To = begin.Add(time.Duration(r.IntN(60)) * time.Second) },
		} {
			if i&(1<<bit) != 0 {
				set()
			}
		}
		var want, got []scheduler.AuditRecord
		for _, rec := range all {
			if f.Matches(rec) {
				want = append(want, rec)
			}
		}
		for f.Max = 1 + r.IntN(20); ; f.Before = got[len(got)-1].Seq {
			page, err := t.s.AuditLog(t.Context(), f)
			if err != nil || len(page) > f.Max {
				t.Fatalf("%+v: %d records, %v", f, len(page), err)
			}
			got = append(got, page...)
			if len(page) < f.Max {
				break
			}
		}
		if !slices.EqualFunc(got, want, func(a, b scheduler.AuditRecord) bool {
			same := a.At.Equal(b.At)
			a.Seq, a.At, b.At = 0, time.Time{}, time.Time{}
			return same && a == b
		}) {
			t.Fatalf("%+v: %d records, want %d", f, len(got), len(want))
		}
	}
}
