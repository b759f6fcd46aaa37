package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/api/client"
)

func TestInstantText(t *testing.T) {
	now := time.Date(2026, 11, 21, 23, 30, 0, 0, time.Local)
	for want, d := range map[string]time.Duration{
		"23:30:01.000 (in 1s)":              time.Second,
		"00:30:00.000 (23h0m0s ago)":        -23 * time.Hour,
		"2026-11-20 23:29:59 (24h0m0s ago)": -24*time.Hour - time.Second,
		"2026-11-22 00:00:00 (in 30m0s)":    30 * time.Minute,
		"2026-11-22 23:30:00 (in 24h0m0s)":  24 * time.Hour,
	} {
		if got := instantText(now.Add(d), now); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

func TestWaitingForText(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.Local)
	until := now.Add(1500 * time.Millisecond)
	for want, f := range map[string]client.WaitingFor{
		`limit app, until 09:00:01.500 (in 1.5s)`:                                                                    {Limit: "app"},
		`limit app, key "a", until 09:00:01.500 (in 1.5s)`:                                                           {Limit: "app", Key: "a"},
		`a place in limit app, key "a" (max_keys other keys have permits out), until 09:00:01.500 (in 1.5s)`:         {Limit: "app", Key: "a", KeysFull: true},
		`a pause of limit app, key "a", until 09:00:01.500 (in 1.5s)`:                                                {Limit: "app", Key: "a", Paused: true},
		`the upstream, whose circuit breaker is open (status 503); the next probe is due 09:00:01.500 (in 1.5s)`:     {Limit: client.ConcurrencyLimit, Paused: true, Breaker: "status 503"},
		`a pause of the upstream, until 09:00:01.500 (in 1.5s)`:                                                      {Limit: client.ConcurrencyLimit, Paused: true},
		`a pause of the upstream (by an operator: maintenance), until 09:00:01.500 (in 1.5s)`:                        {Limit: client.ConcurrencyLimit, Paused: true, Pause: "by an operator: maintenance"},
		`its own time: not before 09:00:01.500 (in 1.5s)`:                                                            {},
		`its upstream, which was taken out of the configuration`:                                                     {Removed: true},
		`limit parallel, whose permits attempts in flight hold`:                                                      {Limit: "parallel", InFlight: 3},
		`a place in limit app, key "a", whose max_keys other keys have attempts in flight`:                           {Limit: "app", Key: "a", InFlight: 3, KeysFull: true},
		`the upstream, where attempts in flight must end first`:                                                      {Limit: client.ConcurrencyLimit, InFlight: 3},
		`limit parallel, until 09:00:01.500 (in 1.5s); 3 of its permits had no answer, and stay out for late longer`: {Limit: "parallel", Late: 3},
	} {
		if !f.Removed && f.InFlight == 0 {
			f.Until = until
		}
		if got := waitingForText(&f, now); got != want {
			t.Errorf("%+v: %s, want %s", f, got, want)
		}
	}
	ended := client.Event{At: now, Event: client.EventEnded, Call: "c", Upstream: "pay", State: client.StateCancelled, Reason: "gone"}
	if got := eventText(&ended); !strings.HasSuffix(got, "  c  pay  ended     cancelled (gone)") {
		t.Errorf("ended: %s", got)
	}
	took := client.Event{At: now, Event: client.EventTookOver, Reason: "crash"}
	if got := eventText(&took); !strings.HasSuffix(got, "took_over  the replica has the calls now (the term before: crash)") {
		t.Errorf("a take-over: %s", got)
	}
	var out bytes.Buffer
	paused := client.CallSummary{Id: "c", State: client.StateWaiting, Eta: until, WaitingFor: &client.WaitingFor{Limit: client.ConcurrencyLimit, Paused: true}}
	if err := writePage(&out, &client.Calls{Calls: []client.CallSummary{paused}}, now); err != nil || !strings.HasSuffix(out.String(), "in 1.5s  the upstream\n") {
		t.Errorf("list: %v, %s", err, &out)
	}
}

// TestStatusTellsWhatExpires: only where no deadline comes first is none of the waiting calls said to be lost.
func TestStatusTellsWhatExpires(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.Local)
	for want, u := range map[string]client.Upstream{
		"pay is paused until 10:00:00.000 (in 1h0m0s) (answer); 1 call waits, none is lost": {State: "paused", Cause: "answer", Waiting: 1, PausedUntil: now.Add(time.Hour)},
		"pay is paused until 10:00:00.000 (in 1h0m0s) (answer); 2 calls wait; any whose deadline comes first ends as expired and is not sent": {
			State: "paused", Cause: "answer", Waiting: 2, PausedUntil: now.Add(time.Hour), MayExpire: true},
		"pay is paused until 10:00:00.000 (in 1h0m0s) (answer); nothing waits": {State: "paused", Cause: "answer", PausedUntil: now.Add(time.Hour)},
	} {
		u.Name = "pay"
		if got, _ := (&status{upstreams: []client.Upstream{u}}).findings(now); len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := &client.CallSummary{Id: "7", Upstream: "pay", State: client.StateWaiting, Deadline: now.Add(time.Minute)}
	if got, want := sentence("", c, now), "Call 7 waits to be sent to pay; when it goes is not known yet. If its deadline at 09:01:00 comes first, it ends then and is not sent."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStatusNamesTheSlowedKey: where a key is slowed down, the finding names it.
func TestStatusNamesTheSlowedKey(t *testing.T) {
	u := client.Upstream{Name: "pay", State: "up", Slowed: []client.Slowed{{Limit: "shop", Key: "a b", CallsPerSecond: 5, Limited: 9, Passed: 1}}}
	got, _ := (&status{upstreams: []client.Upstream{u}}).findings(time.Now())
	if want := `pay, limit shop, key "a b" is slowed to 5 calls/s `; len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("%q, want %s…", got, want)
	}
}
