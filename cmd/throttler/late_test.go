package main

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/api/client"
)

// TestSlotBehindTheDeadline: no text promises that a call goes whose slot is behind its deadline.
func TestSlotBehindTheDeadline(t *testing.T) {
	now := time.Date(2026, 11, 29, 11, 0, 0, 0, time.Local)
	why := &client.WaitingFor{Limit: client.ConcurrencyLimit, Paused: true, Until: now.Add(4 * time.Hour)}
	c := client.CallSummary{Id: "c1", Upstream: "bank", State: client.StateWaiting, AcceptedAt: now.Add(-time.Hour), Deadline: now.Add(3 * time.Hour), Eta: now.Add(4 * time.Hour), WaitingFor: why}
	var table strings.Builder
	if err := writePage(&table, &client.Calls{Calls: []client.CallSummary{c}}, now); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{
		"find": sentence("R-1", &c, now), "list": table.String(),
		"get": etaText(&client.Call{Deadline: c.Deadline, Eta: c.Eta, WaitingFor: why}, now),
	}
	for name, want := range map[string]string{"find": "has no slot before its deadline", "list": "beyond its deadline", "get": "beyond its deadline"} {
		if !strings.Contains(got[name], want) || strings.Contains(got[name], "goes to") {
			t.Errorf("%s: %s, want %q", name, got[name], want)
		}
	}
	c.Deadline = now.Add(5 * time.Hour)
	if got := sentence("R-1", &c, now); !strings.Contains(got, "goes to bank about") {
		t.Errorf("before its deadline: %s", got)
	}
}
