package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/preview"
	"github.com/seed-30fe103d/throttler/internal/server"
	"github.com/seed-30fe103d/throttler/internal/workload"
	"github.com/seed-30fe103d/throttler/pkg/quota"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// askPlan asks the API for a preview.
func (p *process) askPlan(t *testing.T, in api.PlanRequest) *api.Plan {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var plan api.Plan
	if err := json.Unmarshal([]byte(p.post(t, "/v1/plan", string(body), http.StatusOK)), &plan); err != nil {
		t.Fatal(err)
	}
	return &plan
}

// TestPlanOfTheTraffic: the API and throttler plan say the same of one recording, and of the
// traffic that was recorded.
func TestPlanOfTheTraffic(t *testing.T) {
	url := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	p := start(t, url, `share_by: 'query("tenant")'`, "weights: {gold: 2}", "limits:",
		`  - {name: app, calls: 30, window: 1s}`, `  - {name: refund, when: 'query("m") == "refund"', per_key: 'query("app")', cost: '2', calls: 10, window: 1s}`)
	file := filepath.Join(t.TempDir(), "load.jsonl")
	cmd := p.throttler(t, "record", file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	recorded := func(what string) int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), what)
	}
	p.until(t, "recorded", func() bool {
		p.submit(t, "/?tenant=first")
		return recorded("\n") > 0
	})
	gap := time.Now()
	p.until(t, "a second without calls", func() bool { return time.Since(gap) > time.Second })
	for i := range 90 {
		p.submit(t, []string{"/?tenant=gold", "/?tenant=silver&m=refund&app=a", "/?tenant=bronze&m=refund&app=b"}[i%3])
	}
	p.until(t, "recorded", func() bool { return recorded(`"key.refund":"h`) == 60 })
	cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	rows := strings.Join(lines[len(lines)-91:], "") // without those before the gap
	if err := os.WriteFile(file, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := filepath.Join(t.TempDir(), "wanted.yaml")
	yaml, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(wanted, []byte(strings.Replace(string(yaml), "calls: 10", "calls: 40", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(p.cmd.Path, "plan", "-c", p.file, "--compare", wanted, "--load", file, "--rtt", "80ms", "--rtt-spread", "20ms", "-o", "json").Output()
	var said struct {
		Reports []api.PlanReport `json:"reports"`
	}
	if err != nil || json.Unmarshal(out, &said) != nil {
		t.Fatalf("plan: %v, %s", err, out)
	}
	in := api.PlanRequest{Changes: []api.PlanChange{{Upstream: "alipay", Limit: "refund", Permits: new(40)}}, Rows: rows, RTTMs: new(80.0), RTTSpreadMs: 20}
	plan := p.askPlan(t, in)
	if len(plan.Variants) != 2 || plan.Variants[0].Config != "running" || plan.Variants[1].Config != "refund 40" || plan.Variants[0].Wait.P99 <= plan.Variants[1].Wait.P99 {
		t.Fatalf("variants: %+v", plan.Variants)
	}
	if last := plan.Findings[len(plan.Findings)-1]; last.Kind != preview.Falls || last.Limit != "app" {
		t.Errorf("the last finding is %+v", last)
	}
	for i := range said.Reports {
		said.Reports[i].Config = plan.Variants[i].Config
		if flows := plan.Variants[i].Flows; len(flows) != len(said.Reports[i].Flows) {
			t.Errorf("%d flows, want %d", len(flows), len(said.Reports[i].Flows))
		}
		for _, of := range []*api.PlanReport{&said.Reports[i], &plan.Variants[i]} {
			of.Flows = nil // they are in another order
		}
		if !reflect.DeepEqual(said.Reports[i], plan.Variants[i]) {
			t.Errorf("throttler plan says\n%+v\nand the API\n%+v", said.Reports[i], plan.Variants[i])
		}
	}
	in.Rows, in.Last = "", (time.Since(gap) - time.Second/2).String()
	came := p.askPlan(t, in)
	if text := fmt.Sprint(came); strings.Contains(text, "silver") || strings.Contains(text, "bronze") || !strings.Contains(text, "gold") {
		t.Errorf("the flows are no hashes: %s", text)
	}
	for i := range came.Variants {
		if came.Variants[i].Flows = nil; !reflect.DeepEqual(came.Variants[i], plan.Variants[i]) {
			t.Errorf("of the traffic that came in:\n%+v\nof the recording:\n%+v", came.Variants[i], plan.Variants[i])
		}
	}
}

// TestPlanFaults: all faults of a configuration come at once, with their paths.
func TestPlanFaults(t *testing.T) {
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 10, window: 1s}]")
	for _, test := range []struct {
		body   string
		status int
		want   []string // pointers
	}{
		{`{"settings":["rate=10/s for=1s"],"config":"upstreams: {a: {url: 'http://a', signer: {kind: alipay, key: secret}, limits: [{name: app, calls: 0, window: 1}]}}"}`, 422,
			[]string{"upstreams.a.limits[0].calls", "upstreams.a.limits[0].window", "upstreams.a.signer.key"}},
		{`{"config":"a: {` + strings.Repeat("a,", 300_000) + `}","settings":["rate=10/s for=1s"]}`, 422, []string{"a"}},
		{`{"config":"a: [","settings":["rate=10/s for=1s"]}`, 422, []string{"config"}},
		{`{"changes":[{"upstream":"x","limit":"y"},{"upstream":"alipay","limit":"y"},{"upstream":"alipay","limit":"app","permits":0},{"upstream":"alipay","limit":"app","window":"1"},{"upstream":"alipay","limit":"concurrency","window":"1s"}],"settings":["rate=10/s for=1s"],"fail_if":["wait > 1"]}`, 400,
			[]string{"/changes/0/upstream", "/changes/1", "/changes/2", "/changes/3", "/changes/4", "/fail_if/0"}},
		{`{"settings":["rate=10"]}`, 400, []string{"/settings"}},
		{`{"rows":"at,flow\n2,a\n1,b\n"}`, 400, []string{"/rows"}},
		{`{"last":"10m"}`, 400, []string{"/last"}},
		{`{"last":"10 minutes","settings":["rate=1/s"],"rtt_ms":-1,"rtt_spread_ms":1e99,"seed":-1}`, 400, []string{"/last", "/rtt_ms", "/rtt_spread_ms", "/seed"}},
		{`{"settings":["rate=1000000/s for=100h"],"alone":true,"config":"upstreams: {a: {url: 'http://a', max_waiting: 1000000000, limits: [{name: app, calls: 1, window: 1s}]}}"}`, 400, []string{"/settings"}},
	} {
		var problem api.Problem
		if err := json.Unmarshal([]byte(p.post(t, "/v1/plan", test.body, test.status)), &problem); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range problem.Errors {
			got = append(got, f.Pointer)
			if strings.Contains(f.Detail, "secret,") {
				t.Errorf("%s shows the configuration", f.Detail)
			}
		}
		if !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: faults of %q, want %q: %+v", test.body, got, test.want, problem)
		}
	}
}

// playBundle runs the process of a preview with a bundle.
func playBundle(t *testing.T, cmd *exec.Cmd, bundle []byte) ([]byte, error) {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Write(bundle)
	err = cmd.Wait()
	return out.Bytes(), err
}

// TestPlanEndsByItself: the process of a preview ends at its bounds, also while it reads a
// configuration or makes a load, and its result says so.
func TestPlanEndsByItself(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	slow := "upstreams:\n"
	for i := range 2000 {
		slow += fmt.Sprintf("  k%d: {url: 'http://a', preset: alipay, limits: [{name: app, calls: 1, window: 1s}]}\n", i)
	}
	short := "upstreams: {a: {url: 'http://a', limits: [{name: app, calls: 1, window: 1s}]}}"
	for name, test := range map[string]struct {
		in    api.PlanRequest
		flags []string
		want  bundleResult
	}{
		"a time, in the configuration": {api.PlanRequest{Config: slow, Alone: true, Settings: []string{"rate=1/s for=1s"}}, []string{"--time", "200ms"},
			bundleResult{Faults: []api.Fault{{Pointer: "/config", Detail: "the preview takes longer than 200ms; give it a smaller configuration, or use throttler plan"}}}},
		"memory, in the configuration": {api.PlanRequest{Config: slow, Alone: true, Settings: []string{"rate=1/s for=1s"}}, []string{"--memory", "1048576"},
			bundleResult{Faults: []api.Fault{{Pointer: "/config", Detail: "the preview needs more than 1 MiB; give it a smaller configuration, or use throttler plan"}}}},
		"a time, in the load": {api.PlanRequest{Config: short, Alone: true, Settings: []string{"rate=100/s for=10000h"}}, []string{"--time", "200ms"},
			bundleResult{Faults: []api.Fault{{Pointer: "/settings", Detail: "the preview takes longer than 200ms; give it a shorter load, or fewer variants, or use throttler plan"}}}},
	} {
		text, err := json.Marshal(bundle{Request: test.in})
		if err != nil {
			t.Fatal(err)
		}
		out, err := playBundle(t, exec.CommandContext(t.Context(), path, append([]string{bundleCommand}, test.flags...)...), text)
		var got bundleResult
		if err != nil || json.Unmarshal(out, &got) != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %.500s, %v", name, out, err)
		}
	}
}

// TestPlannedIsExact: a preview of the parts that a bundle has is that of the whole configuration.
func TestPlannedIsExact(t *testing.T) {
	shanghai, err := time.LoadLocation("Asia/Shanghai")
	if err != nil {
		t.Fatal(err)
	}
	u := scheduler.Upstream{
		Concurrency: 7, Late: 2 * time.Second, Burst: 3, ShareBy: `query("tenant")`, Weights: map[string]float64{"t1": 3}, MaxAge: time.Minute, MaxWaiting: 900,
		Limits: []scheduler.Limit{
			{Name: "app", Calls: 20, Window: time.Second, Guard: 10 * time.Millisecond},
			{Name: "m", PerKey: `query("m")`, When: `query("tenant") != "t0"`, Cost: `2`, ActualCost: `1`, Calls: 9, Window: 700 * time.Millisecond, MaxKeys: 2, Counts: []upstream.Outcome{upstream.Done}},
			{Name: "minute", Calls: 500, Calendar: &quota.Calendar{Unit: quota.Minute, Zone: shanghai, Skew: time.Second}},
			{Name: "parallel", Concurrency: 5},
		},
	}
	u.URL = "https://api.example.com"
	whole := scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}}
	s, err := scheduler.New(whole)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	text, err := json.Marshal(bundle{Running: plannedOf(s.Config())})
	if err != nil {
		t.Fatal(err)
	}
	var b bundle
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	variants, faults, _ := b.variants()
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	source := func(c scheduler.Config, _ ...scheduler.Config) (*workload.Load, error) {
		return workload.Generate([]string{"rate=60/s for=20s bursts=300/10s tenants=3 keys=5 query.tenant=t{tenant} query.m=m{key}"}, 1, c)
	}
	o := preview.Options{RoundTrip: 30 * time.Millisecond, Spread: 10 * time.Millisecond, Seed: 1}
	c, err := preview.Compare(t.Context(), source, o, nil, variants[0], preview.Variant{Name: "running", Config: whole})
	if err != nil || !reflect.DeepEqual(c.Reports[0], c.Reports[1]) || c.Reports[0].AllRefused() == 0 || c.Reports[0].Wait.Max == 0 {
		t.Errorf("%v: of the bundle:\n%+v\nof the whole:\n%+v", err, c.Reports[0], c.Reports[1])
	}
}

// TestPlanUpload: the page of previews takes a load of 10 MB, of callers that may ask for one.
func TestPlanUpload(t *testing.T) {
	var rows bytes.Buffer
	rows.WriteString("at,query.pad\n")
	for i := 0; rows.Len() < server.MaxPlanRows-200; i++ {
		fmt.Fprintf(&rows, "%.3f,%s\n", float64(i)/300, strings.Repeat("x", 120))
	}
	upload := func(p *process, load []byte) (int, string) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		form.WriteField("load", "rows")
		part, err := form.CreateFormFile("rows", "load.csv")
		if err != nil {
			t.Fatal(err)
		}
		part.Write(load)
		form.Close()
		resp, err := http.Post(p.admin+"/ui/plan", form.FormDataContentType(), &body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	p := start(t, "http://127.0.0.1:1", "limits: [{name: app, calls: 1000, window: 1s}]")
	for range 2 { // nothing of the first one stays reserved
		if status, page := upload(p, rows.Bytes()); status != 200 || !strings.Contains(page, "<svg") {
			t.Errorf("%d bytes: %d", rows.Len(), status)
		}
	}
	if status, _ := upload(p, bytes.Repeat([]byte("x"), server.MaxPlanRows+1<<20)); status != 413 {
		t.Errorf("more than that: %d", status)
	}
	viewers := launch(t, "access: {anyone: viewer}\n"+oneUpstream("memory", "alipay", "http://127.0.0.1:1", "    limits: [{name: app, calls: 10, window: 1s}]\n"))
	if status, _ := upload(viewers, rows.Bytes()[:2<<20]); status != 413 {
		t.Errorf("by a viewer: %d", status)
	}
}
