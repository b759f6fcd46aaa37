package storetest

import (
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

func pendingWebhooks(t *durable) {
	told := func(e *scheduler.Entry) { e.Call.Callback = "shop" }
	var ended []string
	for range 3 {
		e := t.accept(told)
		t.intend(Sent(e.Call))
		t.record(Ended(Sent(e.Call), scheduler.Done))
		ended = append(ended, e.Call.ID)
	}
	broken, nobody := t.accept(told), t.accept()
	for _, e := range []*scheduler.Entry{broken, nobody} {
		t.intend(Sent(e.Call))
	}
	twice := t.accept(told)
	t.intend(Sent(twice.Call))
	t.record(Ended(Sent(twice.Call), scheduler.Unknown))
	t.record(Ended(Sent(twice.Call), scheduler.Failed))
	t.accept(told) // has not ended
	t.recover()
	want := append(ended, broken.Call.ID, twice.Call.ID)
	for len(want) > 0 {
		var got []string
		for after := ""; ; {
			page, err := t.d.PendingWebhooks(t.Context(), after, 2)
			if err != nil {
				t.Fatalf("PendingWebhooks: %v", err)
			}
			for _, c := range page {
				after, got = c.ID, append(got, c.ID)
				if c.ID == ended[0] && (c.State != scheduler.Done || string(c.Response.Body) != "answer") {
					t.Errorf("pending webhooks: %+v", c)
				}
			}
			if len(page) < 2 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("pending webhooks: %v, want %v", got, want)
		}
		c := t.get(want[0])
		t.accept(func(e *scheduler.Entry) { e.Notice = c.Notice() })
		want = want[1:]
	}
	if page, err := t.d.PendingWebhooks(t.Context(), "", 10); err != nil || len(page) != 0 {
		t.Errorf("when all is told: %v, %v", page, err)
	}
}

// pendingEnds: the store keeps the ends of calls until they are handled, over lives, and only
// the last one of a call.
func pendingEnds(t *durable) {
	handled := func(e *scheduler.Entry) { e.Call.Callback = "/ended" }
	list := func(when string, want ...*scheduler.Call) {
		t.Helper()
		got, err := t.d.PendingEnds(t.Context(), 10)
		same := slices.EqualFunc(got, want, func(a, b *scheduler.Call) bool { return a.Notice() == b.Notice() && a.Response == nil })
		if err != nil || !same {
			t.Errorf("%s: %v, %v; want %d", when, notices(got), err, len(want))
		}
	}
	handle := func(c *scheduler.Call, again time.Time) {
		t.Helper()
		if err := t.d.EndHandled(t.Context(), c.Notice(), again); err != nil {
			t.Fatalf("EndHandled: %v", err)
		}
	}
	send := func(e *scheduler.Entry, end scheduler.State) *scheduler.Call {
		t.intend(Sent(e.Call))
		c := Ended(Sent(e.Call), end)
		t.record(c)
		return c
	}
	first, second := send(t.accept(handled), scheduler.Done), send(t.accept(handled), scheduler.Failed)
	send(t.accept(func(e *scheduler.Entry) { e.Call.Callback = "shop" }), scheduler.Done)
	t.accept(handled) // has not ended
	broken := t.accept(handled)
	t.intend(Sent(broken.Call))
	list("two have ended", first, second)
	t.recover()
	lost := t.get(broken.Call.ID) // unknown since
	list("after a crash", first, second, lost)
	if got, err := t.d.PendingEnds(t.Context(), 1); err != nil || len(got) != 1 {
		t.Errorf("a page of one: %v, %v", notices(got), err)
	}
	again := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	handle(first, again)
	handle(first, again)
	t.lives(func(how string, _ *scheduler.Recovered) {
		list("after failures, "+how, second, lost, first)
		if got, _ := t.d.PendingEnds(t.Context(), 3); len(got) == 3 && (got[2].Failures != 2 || !got[2].HandleAt.Equal(again)) {
			t.Errorf("%s: %d failures, again at %v; want 2, %v", how, got[2].Failures, got[2].HandleAt, again)
		}
	})
	handle(first, time.Time{})
	handle(second, time.Time{})
	decided := With(lost, func(c *scheduler.Call) { c.State = scheduler.Done })
	t.record(decided)
	list("a decision follows", decided)
	handle(lost, time.Time{}) // too late
	handle(lost, again)
	list("an earlier end is handled", decided)
	if got, _ := t.d.PendingEnds(t.Context(), 1); len(got) == 1 && got[0].Failures != 0 {
		t.Error("the failure of an earlier end counts")
	}
	if page, err := t.d.PendingWebhooks(t.Context(), "", 10); err != nil || len(page) != 1 {
		t.Errorf("webhooks: %v, %v; want one", notices(page), err)
	}
	handle(decided, time.Time{})
	list("all are handled")
}

func notices(calls []*scheduler.Call) []string {
	var all []string
	for _, c := range calls {
		all = append(all, c.Notice())
	}
	return all
}
