package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/api/client"
)

// TestWriteFlows: a name of a flow comes from requests, and is written as a plain text.
func TestWriteFlows(t *testing.T) {
	now := time.Date(2026, 11, 21, 9, 0, 0, 0, time.Local)
	var out strings.Builder
	err := writeFlows(&out, &client.Flows{Sent: 1200, Since: now.Add(-9 * time.Minute), Flows: []client.Flow{
		{Flow: "shop7", Weight: 2, Waiting: 480, OldestAcceptedAt: now.Add(-8 * time.Second), Sent: 792, Share: 0.66},
		{Flow: "shop1\x1b[2J", Weight: 0.5, Sent: 408, Share: 0.34},
	}}, now)
	const want = `FLOW           WEIGHT  WAITING  OLDEST  SENT  SHARE
shop7          2       480      8s      792   66%
"shop1\x1b[2J"  0.5     0                408   34%
1200 attempts since 08:51:00.000 (9m0s ago)
`
	if err != nil || strings.Join(strings.Fields(out.String()), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%v\n%s\nwant\n%s", err, &out, want)
	}
}

// TestFlows asks a sidecar for the flows of an upstream.
func TestFlows(t *testing.T) {
	p := start(t, serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), `share_by: 'header("Shop")'`, "limits: [{name: app, calls: 1, window: 1h}]")
	t.Setenv(addrVariable, p.admin)
	for _, shop := range []string{"a", "b", "b"} {
		p.accepted(t, `{"upstream":"alipay","method":"GET","target":"/","headers":{"Shop":"`+shop+`"},"deadline":"`+time.Now().Add(23*time.Hour).Format(time.RFC3339)+`"}`)
	}
	for form, want := range map[string]string{"name": "b\na\n", "table": "FLOW  WEIGHT  WAITING", "json": `{"flow":"b","weight":1,"waiting":2,`, "ndjson": `{"flow":"a","weight":1,"waiting":0,`, "yaml": `- flow: "b"`} {
		out, messages, code := command(t, "flows", "alipay", "-o", form)
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("-o %s: exit code %d: %s%s, want %s", form, code, out, messages, want)
		}
	}
	out, _, _ := command(t, "calls", "list", "--state", "waiting", "-o", "name")
	if got, messages, code := command(t, "calls", "get", strings.Fields(out)[0]); code != 0 || !strings.Contains(got, "app, cost 1, 0 free") {
		t.Errorf("exit code %d: %s%s", code, got, messages)
	}
}
