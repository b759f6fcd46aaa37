package server

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
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

// TestRefusalsAreListed: the newest first, in pages, by upstream and reason. What comes between two
// pages is in neither.
func TestRefusalsAreListed(t *testing.T) {
	r := newRig(t, scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", PerKey: `header("App")`, Calls: 1, Window: time.Hour}}}, Refusal{}, func(http.ResponseWriter, *http.Request) { t.Error("something was sent") })
	refuse := func(body string) string {
		t.Helper()
		resp, answer := send(t, "POST", r.admin.URL+"/v1/calls", body)
		if resp.StatusCode < 400 {
			t.Fatalf("%s: %d %s", body, resp.StatusCode, answer)
		}
		return read[api.Refusals](t, r.admin.URL+"/v1/refusals?page_size=1").Refusals[0].ID
	}
	list := func(query string) (ids []string, next string) {
		t.Helper()
		page := read[api.Refusals](t, r.admin.URL+"/v1/refusals"+query)
		for _, c := range page.Refusals {
			ids = append(ids, c.ID)
		}
		return ids, page.Next
	}
	if ids, next := list(""); len(ids) > 0 || next != "" {
		t.Errorf("before the first: %q, next %q", ids, next)
	}
	keyless := refuse(`{"upstream":"pay","method":"POST","target":"/","body":"canary"}`)
	unknown := refuse(`{"upstream":"canary","method":"GET","target":"/"}`)
	again := refuse(`{"upstream":"pay","method":"GET","target":"/"}`)
	for query, want := range map[string][]string{
		"": {again, unknown, keyless}, "?upstream=pay": {again, keyless}, "?reason=not_found": {unknown}, "?reason=bad_key&upstream=pay": {again, keyless}, "?reason=full": nil,
	} {
		if got, next := list(query); !slices.Equal(got, want) || next != "" {
			t.Errorf("list%s: %q, next %q; want %q", query, got, next, want)
		}
	}
	first, next := list("?upstream=pay&page_size=1")
	refuse(`{"upstream":"pay","method":"GET","target":"/"}`)
	second, end := list("?upstream=pay&page_size=1&cursor=" + next)
	if !slices.Equal(append(first, second...), []string{again, keyless}) || end != "" {
		t.Errorf("in pages: %q, then %q and next %q", first, second, end)
	}
	for query, want := range map[string]int{
		"?cursor=" + next: 400, "?upstream=pay&cursor=x": 400, "?upstream=none": 404, "?upstream=": 400, "?reason=": 400, "?reason=none": 400, "?page_size=1001": 400, "?order=oldest": 400,
	} {
		if resp, body := send(t, "GET", r.admin.URL+"/v1/refusals"+query, ""); resp.StatusCode != want {
			t.Errorf("list%s: %d %s, want %d", query, resp.StatusCode, body, want)
		}
	}
	page := read[api.Refusals](t, r.admin.URL+"/v1/refusals?reason=bad_key")
	if c := page.Refusals[0]; c.Upstream != "pay" || c.Reason != "bad_key" || !strings.Contains(c.Detail, "app") || time.Since(c.At.Time) > time.Minute {
		t.Errorf("a refusal: %+v", c)
	}
	if _, body := send(t, "GET", r.admin.URL+"/v1/refusals", ""); strings.Contains(body, `"upstream":"canary"`) || strings.Count(body, "canary") != 1 { // the detail names what is not configured
		t.Errorf("bodies, or upstreams that are none: %s", body)
	}
}

// TestRefusalsArePagedThroughTheRing: pages go on through the end of the ring, and end where the
// oldest has gone.
func TestRefusalsArePagedThroughTheRing(t *testing.T) {
	var r Refusals
	refuse := func(from, to int) {
		for n := from; n < to; n++ {
			r.add(&scheduler.Error{Reason: scheduler.Full, Call: &scheduler.Call{ID: fmt.Sprint(n), State: scheduler.Cancelled}})
		}
	}
	for _, all := range []int{1, 10, maxRefusals - 1, maxRefusals, maxRefusals + 7} {
		r = Refusals{}
		refuse(0, all)
		want, last := all, ""
		for more := true; more; {
			var page []refusal
			page, more = r.list(refusalFilter{}, last, 777)
			for _, kept := range page {
				if want--; kept.id != fmt.Sprint(want) {
					t.Fatalf("of %d, %s comes, want %d", all, kept.id, want)
				}
				last = kept.id
			}
		}
		if oldest := max(all-maxRefusals, 0); want != oldest {
			t.Errorf("of %d, the last is %d, want %d", all, want, oldest)
		}
	}
	page, _ := r.list(refusalFilter{}, "", 2)
	refuse(maxRefusals+7, 3*maxRefusals)
	if rest, more := r.list(refusalFilter{}, page[1].id, 10); len(rest) > 0 || more {
		t.Errorf("behind one that has gone: %d, more %v", len(rest), more)
	}
	if none, more := (*Refusals)(nil).list(refusalFilter{}, "", 10); len(none) > 0 || more {
		t.Error("a nil Refusals lists some")
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
