package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// planRig is an admin API that notes the requests of previews. Its upstream has two limits.
func planRig(t *testing.T) (admin *Admin, s *scheduler.Scheduler, asked *[]api.PlanRequest) {
	t.Helper()
	var u scheduler.Upstream
	u.URL, u.ShareBy = "http://127.0.0.1:1", `query("shop")`
	u.Limits = []scheduler.Limit{{Name: "app", Calls: 10, Window: time.Second}, {Name: "refund", When: `query("m") == "refund"`, PerKey: `query("key")`, Cost: "2", Calls: 10, Window: time.Second}}
	log, events := slog.New(slog.DiscardHandler), NewEvents()
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}, Observe: events.Observe, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	asked = new([]api.PlanRequest)
	admin = newAdmin(s, NewMetrics("1.0"), events, log, func(scheduler.Event) {})
	admin.Plan = func(_ context.Context, in api.PlanRequest, running map[string]scheduler.Upstream) (*api.Plan, error) {
		if running["pay"].Limits[0].Calls != 10 || running["pay"].MaxAge == 0 {
			t.Errorf("the running configuration: %+v", running)
		}
		*asked = append(*asked, in)
		return &api.Plan{Variants: []api.PlanReport{}, Findings: []api.PlanFinding{}, Conditions: []api.PlanCondition{}}, nil
	}
	return admin, s, asked
}

// TestPlanOfWhatCameIn: the traffic that came in is the load, without its keys and flows.
func TestPlanOfWhatCameIn(t *testing.T) {
	admin, s, asked := planRig(t)
	base := serve(t, admin, slog.New(slog.DiscardHandler)).URL
	if resp, body := send(t, "POST", base+"/v1/plan", `{}`); resp.StatusCode != 400 || !strings.Contains(body, `"pointer":"/last"`) || !strings.Contains(body, "no call has come in within the last 10m") {
		t.Errorf("without traffic: %d %s", resp.StatusCode, body)
	}
	for i := range 3 {
		if _, err := s.Submit(t.Context(), scheduler.Request{Upstream: "pay", Method: "GET", Target: fmt.Sprintf("/?m=refund&key=canary%d&shop=canary-shop", i)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, body := range []string{`{}`, `{"last":"1h"}`} {
		if resp, body := send(t, "POST", base+"/v1/plan", body); resp.StatusCode != 200 {
			t.Fatalf("%d %s", resp.StatusCode, body)
		}
	}
	for _, in := range *asked {
		if strings.Count(in.Rows, "\n") != 3 || strings.Count(in.Rows, `"key.refund":"h`) != 3 || strings.Count(in.Rows, `"key.app":"*"`) != 3 || strings.Count(in.Rows, `"cost.refund":2`) != 3 || strings.Contains(in.Rows, "canary") {
			t.Errorf("the load:\n%s", in.Rows)
		}
	}
}

// TestPlanIsChecked: requests that are no preview reach no planner.
func TestPlanIsChecked(t *testing.T) {
	admin, _, asked := planRig(t)
	base := serve(t, admin, slog.New(slog.DiscardHandler)).URL
	many := func(n int, text string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(text+",", n), ",") + "]"
	}
	for body, want := range map[string]string{
		`{"last":"1h","rows":"at"}`:                             "/last",
		`{"last":"25h"}`:                                        "/last",
		`{"rtt_ms":-1}`:                                         "/rtt_ms",
		`{"rtt_spread_ms":3600001}`:                             "/rtt_spread_ms",
		`{"seed":-1}`:                                           "/seed",
		`{"settings":` + many(21, `"rate=1/s"`) + `}`:           "/settings",
		`{"variants":` + many(9, `{"changes":[]}`) + `}`:        "/variants",
		`{"changes":` + many(101, `{}`) + `}`:                   "/changes",
		`{"fail_if":` + many(21, `"x"`) + `}`:                   "/fail_if",
		`{"config":"` + strings.Repeat("x", 1<<20+1) + `"}`:     "/config",
		`{"rows":"` + strings.Repeat("x", MaxPlanRows+1) + `"}`: "/rows",
		`{"what":1}`: "/what",
	} {
		resp, text := send(t, "POST", base+"/v1/plan", body)
		var p api.Problem
		if err := json.Unmarshal([]byte(text), &p); err != nil || resp.StatusCode != 400 || len(p.Errors) == 0 || p.Errors[0].Pointer != want {
			t.Errorf("%.60s: %d %.300s", body, resp.StatusCode, text)
		}
	}
	if resp, _ := send(t, "POST", base+"/v1/plan", `{"rows":"`+strings.Repeat("x", maxPlanBytes)+`"}`); resp.StatusCode != 413 {
		t.Errorf("a body that is too large: %d", resp.StatusCode)
	}
	if len(*asked) > 0 {
		t.Errorf("the planner was asked: %+v", *asked)
	}
	admin.Plan = nil
	if resp, body := send(t, "POST", base+"/v1/plan", `{}`); resp.StatusCode != 404 || !strings.Contains(body, "use throttler plan") {
		t.Errorf("without a planner: %d %s", resp.StatusCode, body)
	}
}

// TestPageAsksOnce: the request of a page takes no room beside that of its form.
func TestPageAsksOnce(t *testing.T) {
	admin, _, asked := planRig(t)
	admin.Mount("/ui/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		form, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		body, err := json.Marshal(api.PlanRequest{Rows: string(form)})
		if err != nil {
			t.Error(err)
		}
		own := r.Clone(r.Context())
		own.URL.Path, own.Pattern = "/v1/plan", ""
		own.Body, own.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		own.Header.Set("Content-Type", "application/json")
		admin.ServeHTTP(w, own)
	}))
	base := serve(t, admin, slog.New(slog.DiscardHandler)).URL
	for range 3 {
		if resp, body := send(t, "POST", base+"/ui/plan", strings.Repeat("x", MaxPlanRows)); resp.StatusCode != 200 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
	if resp, _ := send(t, "POST", base+"/ui/other", strings.Repeat("x", maxForm+1)); resp.StatusCode != 413 {
		t.Errorf("the form of another page: %d", resp.StatusCode)
	}
	if len(*asked) != 3 || len((*asked)[0].Rows) != MaxPlanRows {
		t.Errorf("the planner was asked %d times", len(*asked))
	}
}
