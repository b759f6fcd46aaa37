package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// TestSeries: in a longer step counts add up, and of other values the greatest stays. A step without a
// sample is left out, and the oldest ones go.
func TestSeries(t *testing.T) {
	s := newSeries([]bool{true, false})
	const seconds = 90_000 // a day and 3,600
	for i := range seconds {
		if i%100 != 50 {
			s.add(noon.Add(time.Duration(i)*time.Second), []uint32{2, uint32(60 - i%60)})
		}
	}
	end := noon.Add(seconds * time.Second)
	for i, want := range []struct {
		kept  int
		first moment
	}{
		{300 - 1 - 3, moment{end.Add(-299 * time.Second), []uint32{2, 59}}}, // the step of to has not begun
		{360 - 1, moment{end.Add(-3590 * time.Second), []uint32{20, 50}}},
		{1440 - 1, moment{end.Add(-1439 * time.Minute), []uint32{120, 60}}},
	} {
		got := s.read(i, time.Time{}, end)
		if len(got) != want.kept || !got[0].at.Equal(want.first.at) || !slices.Equal(got[0].values, want.first.values) {
			t.Errorf("%s: %d steps, the first is %+v; want %d and %+v", resolutions[i].name, len(got), got[0], want.kept, want.first)
		}
		part := s.read(i, got[5].at, got[8].at)
		if len(part) != 3 || !part[0].at.Equal(got[5].at) {
			t.Errorf("%s: from the sixth step, before the ninth: %+v", resolutions[i].name, part)
		}
		if none := s.read(i, end.Add(-10*24*time.Hour), end.Add(-9*24*time.Hour)); len(none) > 0 {
			t.Errorf("%s: %d steps of last week", resolutions[i].name, len(none))
		}
	}
	bytes := 0
	for _, r := range s.rings {
		bytes += 4 * (len(r.numbers) + len(r.values))
	}
	if bytes != 3*8400 {
		t.Errorf("a series of two values has %d bytes", bytes)
	}
}

// TestSeriesAtItsBounds: a count stays at the greatest one.
func TestSeriesAtItsBounds(t *testing.T) {
	s := newSeries([]bool{true})
	for range 2 {
		s.add(noon, []uint32{clamp(1 << 40)})
	}
	if got := s.read(2, time.Time{}, noon.Add(time.Second)); len(got) != 1 || got[0].values[0] != 1<<32-1 {
		t.Errorf("%+v", got)
	}
	if clamp(-1) != 0 {
		t.Error("a number below 0")
	}
}

// TestLately: attempts count for ten minutes, and flows are forgotten with them. Of too many flows some
// have no count of their own.
func TestLately(t *testing.T) {
	var l lately
	check := func(after time.Duration, total, a, flows int) {
		t.Helper()
		got, by := l.sums(noon.Add(after))
		if got != total || by["a"] != a || len(by) != flows {
			t.Errorf("after %v: %d attempts, %d of a, %d flows; want %d, %d, %d", after, got, by["a"], len(by), total, a, flows)
		}
	}
	check(0, 0, 0, 0)
	for i := range 30 { // every 30 s
		l.add(noon.Add(time.Duration(i)*30*time.Second), "ab"[i%2:i%2+1])
	}
	check(14*time.Minute+30*time.Second, 20, 10, 2)
	l.add(noon.Add(time.Minute), "a") // by a clock that was put back
	check(14*time.Minute+30*time.Second, 21, 11, 2)
	check(20*time.Minute, 9, 5, 2)
	check(24*time.Minute, 0, 0, 0)
	for i := range 2 * maxLately {
		l.add(noon.Add(time.Hour), fmt.Sprint(i))
	}
	check(time.Hour, 2*maxLately, 0, maxLately)
	check(90*time.Minute, 0, 0, 0)
}

// TestHistoryIsSampled each second, in virtual time, until its owner ends it.
func TestHistoryIsSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHistory()
		event := func(k scheduler.EventKind, outcome upstream.Outcome, status int) {
			a := scheduler.Attempt{SentAt: time.Now(), Outcome: outcome, Status: status}
			h.Observe(scheduler.Event{Kind: k, Call: &scheduler.Call{Upstream: "pay", Flow: "gold", Attempts: []scheduler.Attempt{a}}, Attempt: &a})
		}
		var waiting, taken atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			h.Run(ctx, func(context.Context) ([]scheduler.Totals, error) {
				w := int(waiting.Load())
				all := []scheduler.Totals{{Upstream: "pay", Limit: "app", Waiting: 2 * w, Out: 3, InFlight: 1, Most: 4}, {Upstream: "pay", Waiting: w}}
				if taken.Add(1) > 3 {
					all = append(all, scheduler.Totals{Upstream: "other"}, scheduler.Totals{Upstream: "pay", Limit: "day"})
				}
				return all, nil
			})
		})
		begin := time.Now()
		for i := range 5 {
			time.Sleep(100 * time.Millisecond)
			waiting.Store(int32(i))
			event(scheduler.EventAccepted, "", 0)
			event(scheduler.EventSending, "", 0)
			event(scheduler.EventAttempt, upstream.NotExecuted, 429)
			event(scheduler.EventAttempt, upstream.Done, 200)
			event(scheduler.EventEnded, "", 0)
			a := scheduler.Attempt{Outcome: upstream.Failed, Status: 404} // a query is no payment
			h.Observe(scheduler.Event{Kind: scheduler.EventAttempt, Call: &scheduler.Call{Upstream: "pay", Origin: scheduler.OriginQuery}, Attempt: &a})
			time.Sleep(900*time.Millisecond - time.Nanosecond)
			synctest.Wait()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
		}
		h.Observe(scheduler.Event{Kind: scheduler.EventRefused, Call: &scheduler.Call{}}) // of no upstream
		got := convert(h.read("pay", "", 0, time.Time{}, time.Now()), apiCalls)
		if len(got) != 5 || taken.Load() != 5 {
			t.Fatalf("%d samples, %d points: %+v", taken.Load(), len(got), got)
		}
		for i, p := range got {
			want := api.HistoryCalls{At: api.At(begin.Add(time.Duration(i) * time.Second)), Accepted: 1, Sent: 1, Done: 1, NotExecuted: 1, Limited: 1, Waiting: i}
			if !p.At.Equal(want.At.Time) {
				t.Errorf("point %d is of %v", i, p.At)
			}
			if p.At = want.At; p != want {
				t.Errorf("point %d: %+v, want %+v", i, p, want)
			}
		}
		if p := convert(h.read("pay", "app", 1, time.Time{}, time.Now()), apiPermits); len(p) != 1 || p[0].Out != 3 || p[0].InFlight != 1 || p[0].WaitingPermits != 8 || p[0].Most != 4 {
			t.Errorf("the limit: %+v", p)
		}
		if n := len(h.read("pay", "day", 0, time.Time{}, time.Now())) + len(h.read("other", "", 0, time.Time{}, time.Now())) + len(h.read("none", "", 0, time.Time{}, time.Now())); n != 4 {
			t.Errorf("of a new limit, a new upstream and none: %d points", n)
		}
		if since, total, flows := h.lately("pay", time.Now()); !since.Equal(begin) || total != 5 || flows["gold"] != 5 {
			t.Errorf("since %v: %d, %v", since, total, flows)
		}
		taken.Store(-10)
		time.Sleep(time.Second)
		synctest.Wait()
		if len(h.upstreams) != 1 || len(h.upstreams["pay"].limits) != 1 {
			t.Error("what is not configured any more is kept")
		}
		cancel()
		running.Wait()

		running.Go(func() {
			h.Run(t.Context(), func(context.Context) ([]scheduler.Totals, error) { return nil, errors.New("stopped") })
		})
		running.Wait()
	})
}

// TestHistoryOperation: the steps that are asked for, or the shortest that are kept since from.
func TestHistoryOperation(t *testing.T) {
	r := newRig(t, scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 2, Window: time.Hour}}}, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	totals, err := r.s.Totals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for i := range 3000 {
		r.history.sample(now.Add(time.Duration(i-2999)*time.Second), totals)
	}
	get := func(query string) api.History { return read[api.History](t, r.admin.URL+"/v1/history?"+query) }
	before := func(d time.Duration) string { return now.Add(-d).UTC().Format(time.RFC3339) }
	for query, step := range map[string]int64{
		"upstream=pay":                                   1000,
		"upstream=pay&step=1s":                           1000,
		"upstream=pay&step=10s":                          10_000,
		"upstream=pay&step=1m":                           60_000,
		"upstream=pay&from=" + before(time.Minute):       1000,
		"upstream=pay&from=" + before(10*time.Minute):    10_000,
		"upstream=pay&from=" + before(2*time.Hour):       60_000,
		"upstream=pay&from=" + before(30*24*time.Hour):   60_000,
		"upstream=pay&limit=app&to=2999-01-01T00:00:00Z": 1000,
	} {
		h := get(query)
		if h.StepMs != step || len(h.Calls)+len(h.Permits) < 40 || (h.Limit == "") != (h.Permits == nil) || (h.Limit == "") == (h.Calls == nil) {
			t.Errorf("%s: a step is %d ms, want %d; %d points of calls, %d of permits", query, h.StepMs, step, len(h.Calls), len(h.Permits))
		}
	}
	if h := get("upstream=pay&to=2001-01-01T00:00:00Z"); h.Calls == nil || len(h.Calls) > 0 {
		t.Errorf("long ago: %+v", h)
	}
	for query, status := range map[string]int{"": 400, "upstream=": 400, "limit=app": 400, "upstream=none": 404, "upstream=pay&limit=none": 404, "upstream=pay&step=2s": 400, "upstream=pay&from=yesterday": 400} {
		if resp, body := send(t, "GET", r.admin.URL+"/v1/history?"+query, ""); resp.StatusCode != status {
			t.Errorf("%s: %d %s, want %d", query, resp.StatusCode, body, status)
		}
	}
}

// TestFlowsAndKeys: flows that wait come first, then those that had something sent.
func TestFlowsAndKeys(t *testing.T) {
	u := scheduler.Upstream{
		Limits:  []scheduler.Limit{{Name: "app", PerKey: `query("k")`, Calls: 3, Window: time.Hour}},
		ShareBy: `query("shop")`, Weights: map[string]float64{"shop1": 2},
	}
	r := newRig(t, u, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	submit := func(shop, key string) api.Call {
		return r.submit(t, fmt.Sprintf(`{"upstream":"pay","method":"GET","target":"/?shop=%s&k=%s"}`, shop, key))
	}
	for _, shop := range []string{"shop1", "shop1", "shop2"} {
		submit(shop, "a")
	}
	r.until(t, "all are sent", func(u scheduler.UpstreamStatus) bool { return u.Waiting+u.Sending == 0 })
	first := submit("shop3", "a")
	submit("shop3", "a")
	flows := read[api.Flows](t, r.admin.URL+"/v1/upstreams/pay/flows")
	for i := range flows.Flows {
		if f := &flows.Flows[i]; f.Waiting > 0 && f.OldestAcceptedAt.Equal(first.AcceptedAt.Time) {
			f.OldestAcceptedAt = api.Instant{}
		}
	}
	want := []api.Flow{{Flow: "shop3", Weight: 1, Waiting: 2}, {Flow: "shop1", Weight: 2, Sent: 2, Share: 2. / 3}, {Flow: "shop2", Weight: 1, Sent: 1, Share: 1. / 3}}
	if !slices.Equal(flows.Flows, want) || flows.Sent != 3 || time.Since(flows.Since.Time) > 10*time.Minute {
		t.Errorf("flows are %+v, want %+v", flows, want)
	}
	if f := read[api.Flows](t, r.admin.URL+"/v1/upstreams/pay/flows?page_size=2").Flows; len(f) != 2 {
		t.Errorf("two flows: %+v", f)
	}

	submit("shop1", "b")
	keys := func(query string) []api.Key {
		return read[api.Keys](t, r.admin.URL+"/v1/upstreams/pay/limits/app/keys"+query).Keys
	}
	if k := keys(""); len(k) != 2 || k[0].Key != "a" || k[0].WaitingPermits != 2 || k[1].Key != "b" {
		t.Errorf("keys are %+v", k)
	}
	if k := keys("?sort=waiting&page_size=1"); len(k) != 1 || k[0].Key != "a" {
		t.Errorf("the first key is %+v", k)
	}
	if k := keys("?key=a"); len(k) != 1 || k[0].Free != 0 || k[0].Out != 3 || k[0].WaitingPermits != 2 {
		t.Errorf("one key: %+v", k)
	}
	if k := keys("?key=%2Fother"); len(k) != 1 || k[0] != (api.Key{Key: "/other", Free: 3}) {
		t.Errorf("a key that is not in use: %+v", k)
	}
	call := read[api.Call](t, r.admin.URL+"/v1/calls/"+first.ID)
	if len(call.Permits) != 1 || call.Permits[0].Free == nil || *call.Permits[0].Free != 0 {
		t.Errorf("the permits of a call that waits: %+v", call.Permits)
	}
	for path, status := range map[string]int{
		"/v1/upstreams/pay/limits/none/keys":              404,
		"/v1/upstreams/none/limits/app/keys":              404,
		"/v1/upstreams/pay/limits/concurrency/keys?key=a": 400,
		"/v1/upstreams/pay/limits/app/keys?page_size=101": 400,
		"/v1/upstreams/pay/limits/app/keys?sort=name":     400,
		"/v1/upstreams/none/flows":                        404,
		"/v1/upstreams/pay/flows?page_size=0":             400,
	} {
		if resp, body := send(t, "GET", r.admin.URL+path, ""); resp.StatusCode != status {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, body, status)
		}
	}
}

// TestSignatureUntil: a call that has not finished says until when it may be sent.
func TestSignatureUntil(t *testing.T) {
	u := scheduler.Upstream{Signature: scheduler.Signature{Life: 10 * time.Minute}, Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Hour}}}
	u.MaxAge = 24 * time.Hour
	r := newRig(t, u, Refusal{}, func(http.ResponseWriter, *http.Request) {})
	body := `{"upstream":"pay","method":"GET","target":"/","not_before":` + fmt.Sprintf("%q}", time.Now().Add(time.Minute).Format(time.RFC3339))
	call := read[api.Call](t, r.admin.URL+"/v1/calls/"+r.submit(t, body).ID)
	if !call.SignatureUntil.Equal(call.AcceptedAt.Add(10 * time.Minute)) {
		t.Errorf("accepted at %v, good until %v", call.AcceptedAt, call.SignatureUntil)
	}
	done := r.submit(t, `{"upstream":"pay","method":"GET","target":"/"}`)
	if c := read[api.Call](t, r.admin.URL+"/v1/calls/"+done.ID, "Prefer: wait=10"); c.State != api.Done || !c.SignatureUntil.IsZero() {
		t.Errorf("a finished call: %+v", c)
	}
}
