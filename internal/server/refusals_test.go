package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// TestRefusedCallsAreExplained: the id of a refused call leads to the reason.
func TestRefusedCallsAreExplained(t *testing.T) {
	r := newRig(t, scheduler.Upstream{}, Refusal{}, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	resp, body := send(t, "POST", r.admin.URL+"/v1/pauses", `{"upstream":"pay","for":"1h"}`)
	if resp.StatusCode != 201 {
		t.Fatal(body)
	}
	resp, body = send(t, "POST", r.admin.URL+"/v1/calls", fmt.Sprintf(`{"upstream":"pay","method":"GET","target":"/","deadline":%q}`, time.Now().Add(time.Second).Format(time.RFC3339Nano)))
	id := resp.Header.Get("Throttler-Call")
	if resp.StatusCode != 503 || id == "" {
		t.Fatalf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	resp, body = send(t, "GET", r.admin.URL+"/v1/calls/"+id, "")
	if resp.StatusCode != 404 || !strings.Contains(body, `"reason":"refused"`) || !strings.Contains(body, "(paused), and nothing was sent") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// TestRefusalsAreBounded: the oldest refusal goes first.
func TestRefusalsAreBounded(t *testing.T) {
	var r Refusals
	refuse := func(n int) {
		r.add(&scheduler.Error{Reason: scheduler.Full, Detail: strings.Repeat("x", 2*maxRefusalDetail), Call: &scheduler.Call{ID: fmt.Sprint(n), State: scheduler.Cancelled}})
	}
	for n := range maxRefusals + 10 {
		refuse(n)
	}
	unknown := &scheduler.Error{Reason: scheduler.NotFound}
	for n, kept := range map[int]bool{0: false, 9: false, 10: true, maxRefusals + 9: true} {
		if e := asError(r.explain(fmt.Sprint(n), unknown)); (e.Reason == refusedCall) != kept || len(e.Detail) > maxRefusalDetail+200 {
			t.Errorf("refusal %d: %v, want kept %v", n, e.Reason, kept)
		}
	}
	if len(r.ring) != maxRefusals || len(r.byID) != maxRefusals {
		t.Errorf("%d refusals, %d ids", len(r.ring), len(r.byID))
	}
}
