package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// facts: what people know a call by is kept until the call is forgotten.
func facts(t *suite) {
	odd := "\"\\\x00<é>&"
	e := t.accept(func(e *scheduler.Entry) {
		c := e.Call
		c.Method, c.Path, c.Flow, c.Origin, c.SubmittedBy, c.IdempotencyKey = "POST", "/pay/"+odd, "shop "+odd, scheduler.OriginAdmin, "till "+odd, "key "+odd
		c.Permits = []scheduler.Permit{{Limit: "app", Key: odd, Cost: 2}, {Limit: "day", Cost: 1}}
		c.Numbers = map[string]string{"order": odd, "refund": "2"}
	})
	sent := Sent(e.Call)
	t.intend(sent)
	for _, end := range []scheduler.State{scheduler.Sending, scheduler.Unknown, scheduler.Done} {
		if end != scheduler.Sending {
			t.record(Ended(sent, end))
		}
		page := t.list(scheduler.Filter{Q: odd})
		if len(page.Calls) != 1 {
			t.Fatalf("%s: %d calls are found", end, len(page.Calls))
		}
		for _, c := range []*scheduler.Call{t.get(e.Call.ID), page.Calls[0]} {
			want := With(e.Call, func(w *scheduler.Call) {
				w.State, w.Attempts, w.FinishedAt, w.Response, w.Stored = c.State, c.Attempts, c.FinishedAt, c.Response, c.Stored
				w.AcceptedAt, w.Deadline = c.AcceptedAt, c.Deadline
			})
			if c.State != end || !reflect.DeepEqual(c, want) {
				t.Errorf("%s: %+v, want %+v", end, c, want)
			}
		}
	}
}

func (t *suite) list(f scheduler.Filter) *scheduler.ListPage {
	t.Helper()
	page, err := t.s.List(t.Context(), f)
	if err != nil {
		t.Fatalf("List: %v", err)
	}
	return page
}

// A Crowd is random calls that a Store has, and the filters by which they are told apart.
type Crowd struct {
	*rand.Rand
	Calls []*scheduler.Call // as the Store has them
	began time.Time
}

// NewCrowd returns a crowd without calls.
func NewCrowd(seed uint64) *Crowd {
	return &Crowd{Rand: rand.New(rand.NewPCG(seed, 17)), began: time.Now().Truncate(time.Millisecond)}
}

func (c *Crowd) one(texts ...string) string { return texts[c.IntN(len(texts))] }

// Entry returns another call of the crowd, a millisecond after the one before.
func (c *Crowd) Entry() *scheduler.Entry {
	n := len(c.Calls)
	e := NewEntry(int64(n + 1))
	call := e.Call
	at := c.began.Add(time.Duration(n) * time.Millisecond)
	call.ID = fmt.Sprintf("%08x-%04x-7%03x-8000-%012x", at.UnixMilli()>>16, at.UnixMilli()&0xffff, c.IntN(0x1000), c.Uint64N(1<<48))
	call.AcceptedAt = at
	call.Upstream = c.one("api", "api", "pay")
	if c.IntN(10) == 0 { // as of an earlier schema
		return e
	}
	call.Method, call.Path, call.Origin = "POST", c.one("/a", "/a/b", "/c"), scheduler.Origin(c.one("data", "admin", "webhook"))
	call.Flow, call.SubmittedBy, call.IdempotencyKey = c.one("", "x", "y"), c.one("", "till", "x"), c.one("", "k1", "k2")
	call.Permits = []scheduler.Permit{{Limit: c.one("app", "day"), Key: c.one("", "k1", "x"), Cost: 1}, {Limit: "order", Key: c.one("1", "2", "3"), Cost: 2}}
	call.Numbers = map[string]string{"order": c.one("1", "2", "3"), "refund": c.one("3", "4", "k1")}
	return e
}

// Filter returns a random filter of some members.
func (c *Crowd) Filter() scheduler.Filter {
	f := scheduler.Filter{Oldest: c.IntN(2) == 0, Max: c.IntN(8)}
	at := func() time.Time {
		return c.began.Add(time.Duration(c.IntN(len(c.Calls)+2))*time.Millisecond - time.Microsecond*time.Duration(c.IntN(2)))
	}
	members := []func(){
		func() { f.Upstream = c.one("api", "pay", "none") },
		func() { f.States = []scheduler.State{scheduler.States[c.IntN(len(scheduler.States))]} },
		func() {
			f.States = append(f.States, scheduler.States[c.IntN(len(scheduler.States))], scheduler.States[c.IntN(len(scheduler.States))])
		},
		func() {
			f.Outcome = []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown}[c.IntN(4)]
		},
		func() { f.NeedsPerson = true },
		func() { f.Limit = c.one("app", "day", "order") },
		func() { f.Key = c.one("k1", "x", "1", "2") },
		func() { f.Flow = c.one("x", "y") },
		func() { f.Number = c.one("1", "3", "4", "k1", "none") },
		func() { f.Number, f.NumberName = c.one("1", "3"), c.one("order", "refund") },
		func() { f.IdempotencyKey = c.one("k1", "k2", "k3") },
		func() { f.SubmittedBy = c.one("till", "x") },
		func() { f.Origin = scheduler.Origin(c.one("data", "admin", "query")) },
		func() { f.PathPrefix = c.one("/a", "/a/", "/") },
		func() { f.Q = c.one("k1", "3", "x", c.Calls[c.IntN(len(c.Calls))].ID) },
		func() { f.AcceptedAfter = at() },
		func() { f.AcceptedBefore = at() },
		func() { f.FinishedAfter = at() },
		func() { f.FinishedBefore = at() },
	}
	for range c.IntN(4) {
		members[c.IntN(len(members))]()
	}
	return f
}

// Change lets calls of the crowd in a store go on, each as far as it may.
func (c *Crowd) Change(t interface{ Fatal(...any) }, s scheduler.Store) {
	for i, call := range c.Calls {
		end := scheduler.States[c.IntN(len(scheduler.States))]
		if end == scheduler.Waiting || call.State != scheduler.Waiting {
			continue
		}
		sent := Sent(call)
		if err := s.Intend(context.Background(), sent, nil); err != nil {
			t.Fatal("Intend: ", err)
		}
		if c.Calls[i] = sent; end == scheduler.Sending {
			continue
		}
		next := Ended(sent, end)
		next.Last().Outcome = []upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown}[c.IntN(4)]
		if end.Finished() {
			next.FinishedAt = call.AcceptedAt.Add(time.Duration(c.IntN(len(c.Calls))) * time.Millisecond)
		}
		if err := s.Record(context.Background(), next); err != nil {
			t.Fatal("Record: ", err)
		}
		c.Calls[i] = next
	}
}

// Check compares a list of a store with the calls of the crowd, page by page.
func (c *Crowd) Check(t interface{ Errorf(string, ...any) }, s scheduler.Store, f scheduler.Filter) {
	var want, got []string
	for _, call := range c.Calls {
		if f.Matches(call) {
			want = append(want, call.ID)
		}
	}
	slices.SortFunc(want, f.Compare)
	for page, first := f, true; first || page.After != ""; first = false {
		p, err := s.List(context.Background(), page)
		if err != nil || f.Max > 0 && len(p.Calls) > f.Max {
			t.Errorf("%+v: %+v, %v", page, p, err)
			return
		}
		for _, call := range p.Calls {
			got = append(got, call.ID)
			if call.Response != nil {
				t.Errorf("%+v: call %s comes with its response", f, call.ID)
			}
		}
		if page.After = p.Next; len(got) > len(want) {
			break
		}
	}
	if !slices.Equal(got, want) {
		i := 0
		for i < min(len(got), len(want)) && got[i] == want[i] {
			i++
		}
		t.Errorf("%+v: %d calls, want %d; they differ from number %d on: %q, want %q", f, len(got), len(want), i, got[i:min(i+1, len(got))], want[i:min(i+1, len(want))])
	}
}

// fill hands calls of a crowd over to a store.
func (t *suite) fill(c *Crowd, calls int) {
	t.Helper()
	for range calls {
		e := c.Entry()
		t.accept(func(into *scheduler.Entry) { *into = *e })
		c.Calls = append(c.Calls, e.Call)
	}
}

// lists compares lists by random filters with the calls themselves.
func lists(t *suite) {
	c := NewCrowd(1)
	t.fill(c, 120)
	c.Change(t, t.s)
	filters := 1000
	if testing.Short() {
		filters = 300
	}
	for range filters {
		c.Check(t, t.s, c.Filter())
	}
	for _, a := range scheduler.States {
		for _, b := range scheduler.States {
			c.Check(t, t.s, scheduler.Filter{States: []scheduler.State{a, b}, Max: 5})
		}
	}
}

// listsMeanwhile: while other calls come and go on, each call that matches throughout is
// listed once.
func listsMeanwhile(t *suite) {
	c := NewCrowd(2)
	t.fill(c, 60)
	for _, f := range []scheduler.Filter{{}, {Oldest: true}, {Number: "3"}, {Number: "3", Oldest: true}, {Flow: "x"}, {Upstream: "pay", Oldest: true}} {
		before := slices.Clone(c.Calls)
		listed := make(map[string]int)
		for f.Max = 3; ; {
			page := t.list(f)
			for _, call := range page.Calls {
				listed[call.ID]++
			}
			if f.After = page.Next; f.After == "" || len(listed) > 2*len(c.Calls) {
				break
			}
			if len(c.Calls) < 300 {
				t.fill(c, 1)
			}
			c.Change(t, t.s)
		}
		for _, call := range before {
			if want := f.Matches(call); listed[call.ID] > 1 || want != (listed[call.ID] == 1) {
				t.Errorf("%+v: call %s is listed %d times, and matches: %v", f, call.ID, listed[call.ID], want)
			}
		}
	}
}
