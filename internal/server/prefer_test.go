package server

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// preferences are fields Prefer of a client, and those that the platform gets.
var preferences = []struct {
	name    string
	sent    []string
	submits bool
	wait    string
	further []string // of a request that is submitted; another one goes on with sent
}{
	{"none", nil, false, "", nil},
	{"respond-async", []string{"respond-async"}, true, "", nil},
	{"in another case", []string{"Respond-Async"}, true, "", nil},
	{"as a value", []string{"respond-async=yes"}, false, "", nil},
	{"with a parameter", []string{"respond-async; x=1"}, true, "", nil},
	{"with wait", []string{"respond-async, wait=5"}, true, "5", nil},
	{"wait alone", []string{"wait=5"}, false, "5", nil},
	{"before another", []string{"respond-async, return=representation"}, true, "", []string{"return=representation"}},
	{"behind another", []string{"return=representation, respond-async"}, true, "", []string{"return=representation"}},
	{"in two fields", []string{"return=representation", "respond-async"}, true, "", []string{"return=representation"}},
	{"between two", []string{"handling=lenient ,respond-async,return=minimal; a=\"b,c\""}, true, "", []string{`handling=lenient, return=minimal; a="b,c"`}},
	{"twice", []string{"respond-async, a", "respond-async, b"}, true, "", []string{"a", "b"}},
	{"in quotes of another", []string{`x="respond-async, wait=3"`, `y="\"", respond-async`}, true, "", []string{`x="respond-async, wait=3"`, `y="\""`}},
	{"in quotes alone", []string{`x="1, respond-async"`}, false, "", nil},
	{"a part of a name", []string{"respond-async-later"}, false, "", nil},
	{"wait among others", []string{"return=minimal", `handling=strict, wait="7", wait=9`}, false, "7", nil},
	{"empty elements", []string{", respond-async,,"}, true, "", nil},
	{"a field of others stays as it is", []string{"a ;  b=1,c,", "respond-async"}, true, "", []string{"a ;  b=1,c,"}},
}

func TestPreferences(t *testing.T) {
	for _, tt := range preferences {
		h := http.Header{"Prefer": tt.sent}
		if got := submits(h); got != tt.submits {
			t.Errorf("%s: submits is %v", tt.name, got)
		}
		if got, _ := preference(h, "wait"); got != tt.wait {
			t.Errorf("%s: wait is %q, want %q", tt.name, got, tt.wait)
		}
		if got := withoutAsync(tt.sent); tt.submits && !slices.Equal(got, tt.further) {
			t.Errorf("%s: %q goes further, want %q", tt.name, got, tt.further)
		}
	}
}

// TestOtherPreferences: each preference that is not Throttler's comes to the platform, of calls that are submitted and of
// others, and the platform's own Preference-Applied comes back.
func TestOtherPreferences(t *testing.T) {
	arrived := make(chan []string, 1)
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header["Prefer"]
		w.Header().Set("Preference-Applied", "return=representation")
		io.WriteString(w, "{}")
	})
	for _, tt := range preferences {
		var header []string
		for _, p := range tt.sent {
			header = append(header, "Prefer: "+p)
		}
		resp, text := send(t, "POST", r.data.URL+"/", "x", header...)
		want := tt.sent
		if tt.submits {
			want = tt.further
		}
		if got := <-arrived; !slices.Equal(got, want) {
			t.Errorf("%s: %q arrived, want %q", tt.name, got, want)
		}
		applied := "return=representation"
		if tt.submits {
			applied = "respond-async"
		}
		if (resp.StatusCode == 202) != tt.submits || resp.Header.Get("Preference-Applied") != applied {
			t.Errorf("%s: %d %v", tt.name, resp.StatusCode, resp.Header)
		}
		if !tt.submits {
			continue
		}
		var call api.Call
		if err := json.Unmarshal([]byte(text), &call); err != nil {
			t.Fatal(err)
		}
		ended, text := send(t, "GET", r.admin.URL+"/v1/calls/"+call.ID+"?include=response", "", "Prefer: return=minimal, wait=10", "Prefer: wait=0")
		if err := json.Unmarshal([]byte(text), &call); err != nil {
			t.Fatal(err)
		}
		if ended.Header.Get("Preference-Applied") != "wait=10" || call.State != api.Done || call.Response.Headers["Preference-Applied"][0] != "return=representation" {
			t.Errorf("%s: %v %s", tt.name, ended.Header, text)
		}
	}
}

// TestRepeatWithOtherPreferences: a repeat under its key is the same request, and a replica passes all preferences on.
func TestRepeatWithOtherPreferences(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	first, _ := send(t, "POST", r.data.URL+"/", "x", "Idempotency-Key: k", "Prefer: return=minimal, respond-async")
	again, text := send(t, "POST", r.data.URL+"/", "x", "Idempotency-Key: k", "Prefer: respond-async", "Prefer: handling=strict")
	if id := first.Header.Get("Throttler-Call"); id == "" || again.Header.Get("Throttler-Call") != id {
		t.Errorf("%d %v: %s", again.StatusCode, again.Header, text)
	}
	s := &Standby{Upstream: "pay"}
	passed, _ := http.NewRequest("POST", "/", nil)
	passed.Header["Prefer"] = []string{"return=minimal, respond-async", "handling=strict"}
	if got := s.header(passed, time.Now()); !slices.Equal(got["Prefer"], passed.Header["Prefer"]) || got["Throttler-Max-Wait"] != nil || !s.lasts(passed) {
		t.Errorf("%v goes on", got)
	}
}
