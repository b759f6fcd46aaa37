package storetest

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// RunDurable tests durable stores. New makes an empty one; open opens it, also
// again after a Close. A second Recover without a Close stands for a crash.
func RunDurable(t *testing.T, new func(t *testing.T) (open func() scheduler.Durable)) {
	for name, test := range map[string]func(t *durable){
		"a crash while sending": crashed,
		"a crash at a retry":    crashedAgain,
		"what waits survives":   survives,
		"what cannot go on":     fragile,
		"holds":                 holds,
		"holds of calls":        ownHolds,
		"order":                 order,
		"what is not due":       notDue,
		"waking":                waking,
		"one call":              fetch,
		"backlog":               backlog,
		"pending webhooks":      pendingWebhooks,
		"pending ends":          pendingEnds,
	} {
		t.Run(name, func(t *testing.T) {
			d := &durable{suite: suite{T: t}, open: new(t)}
			d.begin()
			test(d)
			d.d.Close()
		})
	}
}

type durable struct {
	suite
	open func() scheduler.Durable
	d    scheduler.Durable
	safe string // the call that may be repeated
	seen []*scheduler.Entry
}

// due is until when a call waits that is repeated.
var due = time.Now().Add(time.Minute).Truncate(time.Microsecond)

func (t *durable) repeat(e *scheduler.Entry) (time.Time, bool) {
	t.seen = append(t.seen, e)
	return due, e.Call.ID == t.safe
}

func (t *durable) begin() *scheduler.Recovered {
	t.Helper()
	t.d = t.open()
	t.s = t.d
	return t.recover()
}

func (t *durable) recover() *scheduler.Recovered {
	t.Helper()
	past, err := t.d.Recover(t.Context(), time.Minute, t.repeat)
	if err != nil {
		t.Fatalf("Recover: %v", err)
	}
	return past
}

// lives runs a test after a crash, and after a clean end.
func (t *durable) lives(test func(how string, past *scheduler.Recovered)) {
	t.Helper()
	test("after a crash", t.recover())
	if err := t.d.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	test("after a clean end", t.begin())
}

func crashed(t *durable) {
	e, safe := t.accept(), t.accept()
	t.intend(Sent(e.Call))
	t.intend(Sent(safe.Call))
	t.safe = safe.Call.ID
	if past := t.recover(); past.Interrupted != 2 || past.Backlog["api"].Unknown != 1 || past.Backlog["api"].Waiting != 1 {
		t.Errorf("past %+v", past)
	}
	for i, want := range []*scheduler.Entry{e, safe} {
		if got := t.seen[i]; got.Call.ID != want.Call.ID || got.Call.State != scheduler.Unknown || got.Call.Last().Outcome != upstream.Unknown || !reflect.DeepEqual(got.Request, want.Request) {
			t.Errorf("asked about %+v, want %+v", got, want)
		}
	}
	c := t.get(e.Call.ID)
	if last := c.Last(); c.State != scheduler.Unknown || last.Outcome != upstream.Unknown || last.EndedAt.IsZero() || last.Reason == "" {
		t.Errorf("the call is %+v, want unknown and why", c)
	}
	if c := t.get(safe.Call.ID); c.State != scheduler.Waiting || !c.Due.Equal(due) {
		t.Errorf("what may be repeated is %+v, want waiting until %v", c, due)
	}
	if past := t.recover(); past.Interrupted != 0 || past.Backlog["api"].Unknown != 1 {
		t.Errorf("one life later: %+v", past)
	}
	if err := t.d.Intend(t.Context(), Sent(e.Call), nil); !errors.Is(err, scheduler.ErrNotWaiting) {
		t.Errorf("an intent of an unknown call: %v", err)
	}
}

func crashedAgain(t *durable) {
	e := t.accept()
	t.intend(Sent(e.Call))
	limited := With(Ended(Sent(e.Call), scheduler.Waiting), func(c *scheduler.Call) { c.Last().Outcome, c.Response = upstream.NotExecuted, nil })
	t.record(limited)
	t.intend(Sent(limited))
	if past := t.recover(); past.Interrupted != 1 || past.Backlog["api"].Unknown != 1 {
		t.Errorf("past %+v", past)
	}
	if c := t.get(e.Call.ID); c.State != scheduler.Unknown || len(c.Attempts) != 2 || c.Attempts[0].Outcome != upstream.NotExecuted || c.Last().Outcome != upstream.Unknown {
		t.Errorf("the call is %+v, want unknown after its second attempt", c)
	}
}

func survives(t *durable) {
	e := t.accept(withKey("k", "f"))
	keyed := t.accept(withKey("sync", "f"), func(e *scheduler.Entry) { e.Call.Async = false })
	big := t.accept(func(e *scheduler.Entry) { e.Request.Body = bytes.Repeat([]byte("big\x00"), 50_000) })
	epoch := int64(0)
	t.lives(func(how string, past *scheduler.Recovered) {
		if past.Seq != 3 || past.Epoch <= epoch || past.Step.Abs() > time.Minute {
			t.Errorf("%s: %+v", how, past)
		}
		epoch = past.Epoch
		for _, want := range []*scheduler.Entry{e, keyed, big} {
			got, err := t.d.Fetch(t.Context(), want.Call.ID)
			if err != nil || got.Call.State != scheduler.Waiting || got.Call.Seq != want.Call.Seq || got.Call.Class != want.Call.Class || got.Bytes != want.Bytes || !reflect.DeepEqual(got.Request, want.Request) {
				t.Errorf("%s: %+v, %v; want %+v", how, got, err, want)
			}
		}
		if c, err := t.again("k", "f"); err != nil || c == nil || c.ID != e.Call.ID {
			t.Errorf("%s the key names %v, %v", how, c, err)
		}
		if _, err := t.again("k", "g"); !errors.Is(err, scheduler.ErrKeyReused) {
			t.Errorf("%s the key with other content: %v", how, err)
		}
	})
}

func fragile(t *durable) {
	waiter := t.accept(func(e *scheduler.Entry) { e.Call.Async = false })
	card := t.accept(withKey("k", "f"), func(e *scheduler.Entry) { e.NoBody = true })
	stays := t.accept()
	if e, err := t.d.Fetch(t.Context(), card.Call.ID); err != nil || e.Request != nil || !e.NoBody {
		t.Errorf("a request that must not be stored: %+v, %v", e, err)
	}
	t.recover()
	for id, want := range map[string]scheduler.State{waiter.Call.ID: scheduler.Cancelled, card.Call.ID: scheduler.Cancelled, stays.Call.ID: scheduler.Waiting} {
		if c := t.get(id); c.State != want || c.State.Finished() == c.FinishedAt.IsZero() {
			t.Errorf("%+v, want %s", c, want)
		}
	}
	if c, err := t.again("k", "f"); err != nil || c != nil {
		t.Errorf("the key of a call that could not go on: %v, %v; want it free", c, err)
	}
	t.accept(func(e *scheduler.Entry) { e.NoBody = true })
	if err := t.d.Close(); err != nil {
		t.Fatal(err)
	}
	if past := t.begin(); past.Backlog["api"].Waiting != 2 {
		t.Errorf("after a clean end: %+v, want the two that stay", past.Backlog)
	}
}

func hold(id int64, key string, permits int) lease.Hold {
	return lease.Hold{ID: id, Upstream: "api", Limit: "app", Key: key, Permits: permits}
}

// sameHolds compares holds but for their ids. They may come back a little later than they
// were stored: a life of the store begins by reading several clocks.
func (t *durable) sameHolds(when string, got []lease.Hold, want ...lease.Hold) {
	t.Helper()
	got = slices.Clone(got)
	slices.SortFunc(got, func(a, b lease.Hold) int { return int(a.Permits - b.Permits) })
	ok := slices.EqualFunc(got, want, func(a, b lease.Hold) bool {
		late := a.Back.Sub(b.Back)
		a.ID, b.ID, a.Back, b.Back = 0, 0, time.Time{}, time.Time{}
		return a == b && late >= 0 && late < time.Second // never sooner
	})
	if !ok {
		t.Errorf("%s: holds %+v, want %+v", when, got, want)
	}
}

func holds(t *durable) {
	soon := time.Now().Add(time.Minute + 123*time.Nanosecond)
	every := lease.Hold{ID: 1<<40 + 3, Upstream: "api", Limit: "day", Every: true, Permits: 3}
	t.intend(nil, hold(1<<40+1, "a", 1), hold(1<<40+2, "b", 2), every)
	t.intend(nil, hold(1<<40+1, "a", 1)) // each call that needs it stores it
	back := hold(1<<40+2, "b", 2)
	back.Back = soon
	if err := t.d.Settle(t.Context(), []lease.Hold{back}); err != nil {
		t.Fatal(err)
	}
	t.intend(nil, hold(1<<40+2, "b", 2)) // another process comes late
	t.lives(func(how string, past *scheduler.Recovered) {
		t.sameHolds(how, past.Holds, hold(0, "a", 1), back, every)
	})
	if err := t.d.Restate(t.Context(), []lease.Hold{back}); err != nil {
		t.Fatal(err)
	}
	t.lives(func(how string, past *scheduler.Recovered) { t.sameHolds("restated, "+how, past.Holds, back) })
}

func ownHolds(t *durable) {
	soon := time.Now().Add(time.Minute)
	sending, ended, retried := t.accept(), t.accept(), t.accept()
	t.intend(Sent(sending.Call, hold(0, "s", 1)))
	back := hold(0, "e", 2)
	back.Back = soon
	sent := Sent(ended.Call, hold(0, "e", 2))
	t.intend(sent)
	t.record(With(Ended(sent, scheduler.Done), func(c *scheduler.Call) { c.Outstanding = []lease.Hold{back} }))
	again := hold(0, "r", 3)
	again.Back = soon
	sent = Sent(retried.Call, hold(0, "r", 3))
	t.intend(sent)
	t.record(With(Ended(sent, scheduler.Waiting), func(c *scheduler.Call) { c.Outstanding = []lease.Hold{again} }))
	want := []lease.Hold{hold(0, "s", 1), back, again}
	t.sameHolds("after a crash", t.recover().Holds, want...)
	t.sameHolds("after another one", t.recover().Holds, want...)
	if err := t.d.Restate(t.Context(), want[:1]); err != nil {
		t.Fatal(err)
	}
	t.sameHolds("after Restate, which knows all", t.recover().Holds, want[:1]...)
	next := t.accept()
	sent = Sent(next.Call, hold(0, "n", 2))
	t.intend(sent)
	back.Key = "n"
	t.record(With(Ended(sent, scheduler.Done), func(c *scheduler.Call) { c.Outstanding = []lease.Hold{back} }))
	t.sameHolds("spent after Restate", t.recover().Holds, want[0], back)
}

func seqs(entries []scheduler.Entry) []int64 {
	var all []int64
	for _, e := range entries {
		all = append(all, e.Call.Seq)
	}
	return all
}

func order(t *durable) {
	for _, priority := range []int{0, 5, 0, -5, 5} { // seq 1 to 5
		t.accept(func(e *scheduler.Entry) { e.Call.Priority, e.Call.Class = int16(priority), int64(priority) })
	}
	t.accept(func(e *scheduler.Entry) { e.Call.Upstream = "other" })
	every := func(scheduler.Position, int64) bool { return true }
	start := scheduler.Position{Priority: 101}
	var all []int64
	for at, end := start, false; !end; {
		page, err := t.d.Scan(t.Context(), "api", at, time.Now(), 2, every)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, seqs(page.Entries)...)
		at, end = page.Last, page.End
	}
	if want := []int64{2, 5, 1, 3, 4}; !slices.Equal(all, want) {
		t.Errorf("order %v, want %v", all, want)
	}
	page, err := t.d.Scan(t.Context(), "api", scheduler.Position{Priority: 5, Seq: 2}, time.Now(), 9, func(p scheduler.Position, class int64) bool { return class == 5 || p.Seq == 4 })
	if err != nil || !page.End || !slices.Equal(seqs(page.Entries), []int64{5, 4}) {
		t.Errorf("chosen: %+v, %v", page, err)
	}
}

func notDue(t *durable) {
	later := time.Now().Add(time.Hour)
	t.accept(func(e *scheduler.Entry) { e.Call.Due, e.Call.Deadline = later, later.Add(time.Hour) })
	every := func(scheduler.Position, int64) bool { return true }
	start := scheduler.Position{Priority: 101}
	if page, err := t.d.Scan(t.Context(), "api", start, time.Now(), 9, every); err != nil || len(page.Entries) != 0 || !page.End {
		t.Errorf("before its time: %+v, %v", page, err)
	}
	if page, err := t.d.Scan(t.Context(), "api", start, later.Add(time.Second), 9, every); err != nil || len(page.Entries) != 1 {
		t.Errorf("after its time: %+v, %v", page, err)
	}
}

func waking(t *durable) {
	now := time.Now()
	for _, minutes := range []int{30, 10, 20, 70} { // seq 1 to 4
		t.accept(func(e *scheduler.Entry) {
			e.Call.Due, e.Call.Deadline = now.Add(2*time.Hour), now.Add(time.Duration(minutes)*time.Minute)
		})
	}
	t.accept(func(e *scheduler.Entry) { e.Call.Due = now.Add(15 * time.Minute) })
	var all []int64
	var after scheduler.Position
	for {
		page, err := t.d.Waking(t.Context(), now.Add(time.Hour), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		all, after = append(all, seqs(page.Entries)...), page.Last
		if page.End {
			break
		}
	}
	if want := []int64{2, 5, 3, 1}; !slices.Equal(all, want) {
		t.Errorf("woke %v, want %v", all, want)
	}
}

func fetch(t *durable) {
	e := t.accept()
	if got, err := t.d.Fetch(t.Context(), e.Call.ID); err != nil || got.Call.Seq != e.Call.Seq {
		t.Errorf("waiting: %+v, %v", got, err)
	}
	sent := Sent(e.Call)
	t.intend(sent)
	if _, err := t.d.Fetch(t.Context(), e.Call.ID); !errors.Is(err, scheduler.ErrNotFound) {
		t.Errorf("being sent: %v, want ErrNotFound", err)
	}
	t.record(Ended(sent, scheduler.Unknown))
	if got, err := t.d.Fetch(t.Context(), e.Call.ID); err != nil || got.Call.State != scheduler.Unknown || got.Request == nil {
		t.Errorf("unknown: %+v, %v", got, err)
	}
	t.record(Ended(sent, scheduler.Done))
	if _, err := t.d.Fetch(t.Context(), e.Call.ID); !errors.Is(err, scheduler.ErrNotFound) {
		t.Errorf("done: %v, want ErrNotFound", err)
	}
}

func backlog(t *durable) {
	for range 3 {
		t.accept()
	}
	t.accept(func(e *scheduler.Entry) { e.Call.Upstream = "other" })
	e := t.accept()
	sent := Sent(e.Call)
	t.intend(sent)
	t.record(Ended(sent, scheduler.Unknown))
	t.lives(func(how string, past *scheduler.Recovered) {
		want := map[string]scheduler.Backlog{"api": {Waiting: 3, Unknown: 1, Bytes: 400}, "other": {Waiting: 1, Bytes: 100}}
		if !reflect.DeepEqual(past.Backlog, want) {
			t.Errorf("%s: %+v, want %+v", how, past.Backlog, want)
		}
	})
}
