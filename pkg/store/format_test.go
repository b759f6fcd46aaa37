package store

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/columns"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew; a change of one needs a migration")

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	got = strings.TrimSuffix(got, "\n") + "\n"
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is on disk\n%s\nmust be\n%s", name, got, want)
	}
}

var (
	sampleTime = time.Date(2026, 11, 22, 3, 4, 5, 678_901_234, time.UTC)

	fullAttempts = []scheduler.Attempt{
		{N: 1, SentAt: sampleTime, EndedAt: sampleTime.Add(time.Second), Status: 429, Outcome: upstream.NotExecuted, Reason: `limited: "<slow> & down"`, Resolved: true},
		{N: 2, SentAt: sampleTime.Add(time.Minute)},
	}
	fullHolds = []lease.Hold{
		{Upstream: "api", Limit: "app", Key: `id "1"`, Every: true, Permits: 2, Back: sampleTime.Add(time.Second)},
		{Upstream: "api", Limit: "refund", Permits: 1},
	}
)

// TestFormatOfAttempts holds the bytes of the column attempts. Every field of an
// attempt is stored.
func TestFormatOfAttempts(t *testing.T) {
	for name, attempts := range map[string][]scheduler.Attempt{
		"full":    fullAttempts,
		"minimal": {{N: 1, SentAt: sampleTime.Truncate(time.Second)}},
		"none":    {},
		"left":    {},
		"ended":   {},
		"decided": {{N: 1, SentAt: sampleTime.Truncate(time.Second)}},
	} {
		c := &scheduler.Call{Attempts: attempts}
		c.Reason = map[string]scheduler.Reason{"full": scheduler.PastDeadline, "left": scheduler.Gone}[name]
		if name == "ended" {
			c.EndedBy = "019d0000-0000-7000-8000-000000000000"
		}
		if name == "decided" {
			c.Decisions = []scheduler.Decision{
				{At: sampleTime, By: "alice", Attempt: 1, As: upstream.Unknown, Reason: `no "answer"`, AcceptDuplicate: true},
				{At: sampleTime, As: upstream.Done},
			}
		}
		d := &columns.Codec{}
		text, err := columns.EncodeAttempts(d, c)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "attempts-"+name, text)
		if got := new(scheduler.Call); columns.DecodeAttempts(d, text, got) != nil || !reflect.DeepEqual(got, c) {
			t.Errorf("%s: read as %+v, want %+v", name, got, c)
		}
	}
	for i, v := 0, reflect.ValueOf(fullAttempts[0]); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("the full attempt has no %s: is it part of the format?", v.Type().Field(i).Name)
		}
	}
}

// TestFormatOfHolds holds the bytes of the column spent. Instants are rounded up.
func TestFormatOfHolds(t *testing.T) {
	for name, holds := range map[string][]lease.Hold{
		"full":    fullHolds,
		"minimal": {{Upstream: "api", Limit: "app", Permits: 1}},
		"none":    nil,
	} {
		text, err := columns.EncodeHolds(holds)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "spent-"+name, text)
		want := slices.Clone(holds)
		for i := range want {
			want[i].Back = columns.Ceil(want[i].Back)
		}
		if got, err := columns.DecodeHolds(text, "api"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: read as %+v, %v; want %+v", name, got, err, want)
		}
	}
}

// TestFormatOfBacklog holds the bytes of meta 'backlog'.
func TestFormatOfBacklog(t *testing.T) {
	for name, backlog := range map[string]map[string]scheduler.Backlog{
		"full":    {"api": {Waiting: 3, Unknown: 2, Bytes: 1000}, "pay": {Waiting: 1}},
		"minimal": {"api": {}},
		"none":    {},
	} {
		text, err := encodeBacklog(backlog)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "backlog-"+name, string(text))
		if got, err := decodeBacklog(text); err != nil || !maps.Equal(got, backlog) {
			t.Errorf("%s: read as %+v, %v; want %+v", name, got, err, backlog)
		}
	}
}

// TestFormatOfRows holds the columns and the checksums of calls, requests, responses
// and quota, and the text that is encrypted.
func TestFormatOfRows(t *testing.T) {
	full := &scheduler.Call{
		ID: "019d0000-0000-7000-8000-000000000001", Upstream: "api", State: scheduler.Unknown, Priority: -7, Async: true, Durable: true,
		Callback: "shop", Resolves: "019d0000-0000-7000-8000-000000000000",
		AcceptedAt: sampleTime, NotBefore: sampleTime.Add(time.Minute), Deadline: sampleTime.Add(time.Hour), FinishedAt: sampleTime.Add(2 * time.Hour),
		Attempts: fullAttempts, Numbers: map[string]string{"refund": `R"1"`, "order": "20150320010101001"},
		Stored: &scheduler.Stored{Seq: 42, Class: 1 << 40, Due: sampleTime.Add(time.Minute), Outstanding: fullHolds},
	}
	known := storetest.With(full, func(c *scheduler.Call) {
		c.Method, c.Path, c.Flow, c.Origin, c.SubmittedBy, c.IdempotencyKey = "POST", "/pay/é", "shop \"7\"", scheduler.OriginAdmin, "till", "k-1"
		c.Permits = []scheduler.Permit{{Limit: "app", Key: "2021", Cost: 1}, {Limit: "day", Cost: 2}}
	})
	minimal := &scheduler.Call{ID: "019d0000-0000-7000-8000-000000000002", Upstream: "api", State: scheduler.Waiting, Stored: &scheduler.Stored{Seq: 43}}
	for name, sample := range map[string]struct {
		call     *scheduler.Call
		request  *upstream.Request
		response *scheduler.Response
		hold     lease.Hold
	}{
		"full": {full,
			&upstream.Request{Method: "POST", Target: "/pay?n=1", Header: http.Header{"X-A": {"1", `"<2>"`}}, Body: []byte("body \x00\xff")},
			&scheduler.Response{Status: 200, Headers: http.Header{"X-B": {"3"}}, Body: []byte("answer"), Truncated: true},
			lease.Hold{ID: 7, Upstream: "api", Limit: "app", Key: "k", Every: true, Permits: 2, Back: sampleTime, Paused: true, Since: sampleTime, Who: "alice", Reason: "maintenance"}},
		"facts":   {known, &upstream.Request{Method: "GET", Target: "/"}, &scheduler.Response{Status: 204}, lease.Hold{ID: 8, Upstream: "api", Limit: "app", Permits: 1}},
		"minimal": {minimal, &upstream.Request{Method: "GET", Target: "/"}, &scheduler.Response{Status: 204}, lease.Hold{ID: 8, Upstream: "api", Limit: "app", Permits: 1}},
	} {
		var text strings.Builder
		line := func(column string, value reflect.Value) { fmt.Fprintf(&text, "%s: %#v\n", column, value) }
		r, err := columns.Clock{Start: time.Now()}.Row(sample.call, &columns.Codec{})
		if err != nil {
			t.Fatal(err)
		}
		if r.Facts, err = columns.EncodeFacts(sample.call); err != nil { // as Accept does
			t.Fatal(err)
		}
		for i, column := range strings.Split(columns.OfCall, ", ") {
			line(column, reflect.ValueOf(r.Fields()[i]).Elem())
		}
		clear := &columns.Codec{}
		request, err := clear.EncodeRequest(r.ID, sample.request)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s: %q %q %s %q %v %d\n", columns.OfRequest, request.Method, request.Target, request.Headers, request.Body, request.Encrypted, request.Sum)
		response, err := clear.EncodeResponse(r.ID, sample.response)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s: %d %s %q %v %v %d\n", columns.OfResponse, response.Status, response.Headers, response.Body, response.Truncated, response.Encrypted, response.Sum)
		plain, err := json.Marshal(columns.StoredContent{Method: request.Method, Target: request.Target, Headers: request.Headers, Body: request.Body})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "sealed, before encryption: %s\nsum of quota: %d\n", plain, clear.HoldSum(sample.hold))
		golden(t, "row-"+name, text.String())
	}
}

// TestFormatOfWords holds the words for states and outcomes, which the columns, the
// indexes and the statements have too.
func TestFormatOfWords(t *testing.T) {
	states := fmt.Sprint(scheduler.States)
	if want := "[waiting sending done failed unknown expired exhausted cancelled]"; states != want {
		t.Errorf("states are %s, on disk %s", states, want)
	}
	outcomes := fmt.Sprint([]upstream.Outcome{upstream.Done, upstream.Failed, upstream.NotExecuted, upstream.Unknown})
	if want := "[done failed not_executed unknown]"; outcomes != want {
		t.Errorf("outcomes are %s, on disk %s", outcomes, want)
	}
}

// TestDamagedJSON: a column that is no JSON is an error, not an empty value.
func TestDamagedJSON(t *testing.T) {
	for _, text := range []string{"", "[", "{}", "[1]"} {
		if got := new(scheduler.Call); columns.DecodeAttempts(&columns.Codec{}, text, got) == nil {
			t.Errorf("attempts %q are read as %+v", text, got)
		}
		if got, err := columns.DecodeHolds(text, "api"); err == nil && text != "" {
			t.Errorf("holds %q are read as %+v", text, got)
		}
		if got, err := decodeBacklog([]byte(text)); err == nil && text != "{}" {
			t.Errorf("a backlog %q is read as %+v", text, got)
		}
	}
}
