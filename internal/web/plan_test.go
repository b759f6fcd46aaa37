package web_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/preview"
	"github.com/seed-30fe103d/throttler/internal/web"
)

// planAPI is an API with two limits, which notes the requests of previews. Each N of refunds has
// its own wait.
func planAPI(t *testing.T, scopes string, asked *[]api.PlanRequest) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/info", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"caller":{"name":"ops","role":"admin","scopes":[%s]}}`, scopes)
	})
	mux.HandleFunc("GET /v1/limits", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"limits":[{"upstream":"pay","limit":"concurrency","kind":"concurrency","builtin":true,"permits":100},{"upstream":"pay","limit":"refund","kind":"sliding","permits":20,"window_ms":60000},{"upstream":"pay","limit":"day","kind":"calendar","window":"day","permits":1000}]}`)
	})
	mux.HandleFunc("GET /v1/upstreams/pay/limits/refund", func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"upstream":"pay","limit":"refund","kind":"sliding","permits":20,"window_ms":60000}`)
	})
	mux.HandleFunc("GET /v1/pauses", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, `{}`) })
	mux.HandleFunc("POST /v1/plan", func(w http.ResponseWriter, r *http.Request) {
		var in api.PlanRequest
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		*asked = append(*asked, in)
		if strings.Contains(in.Config, "fault") {
			w.WriteHeader(422)
			io.WriteString(w, `{"status":422,"title":"no","reason":"bad_config","errors":[{"pointer":"upstreams.pay.url","detail":"line 3: <is missing>"}]}`)
			return
		}
		out := preview.Comparison{}
		add := func(name string, n int) {
			report := &preview.Report{Config: name, Calls: 4, Wait: preview.Waits{P99: preview.Millis(400_000 / n)}, Limits: []preview.Limit{{Upstream: "pay", Limit: "refund", Permits: n, Window: "1m0s", Keys: 1, Share: 0.5}}}
			report.Series = preview.Series{Step: 10, Arrivals: []int{4}, Sends: []int{4}, Waiting: []int{0}, Limits: []*preview.LimitSeries{{Upstream: "pay", Limit: "refund", Queued: []int{1}, Most: []int{1}}}}
			out.Reports = append(out.Reports, report)
			kind := preview.Waiting
			if name != "running" {
				kind = preview.Falls
			}
			out.Findings = append(out.Findings, preview.Finding{Kind: kind, Config: name, Upstream: "pay", Limit: "refund", Permits: n, Window: "1m0s", Before: 20_000, Wait: report.Wait.P99})
		}
		add("running", 20)
		for _, v := range in.Variants {
			n := 20
			if p := v.Changes[0].Permits; p != nil {
				n = *p
			}
			add(v.Name, n)
		}
		out.Verdicts = []preview.Verdict{{Condition: "wait.p99 > 5s", Config: "running", Holds: true}}
		json.NewEncoder(w).Encode(out)
	})
	mux.HandleFunc("GET /v1/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "{}") })
	return mux
}

func ask(t *testing.T, pages http.Handler, method, path, contentType, language, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Accept-Language", language)
	w := httptest.NewRecorder()
	pages.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const urlencoded = "application/x-www-form-urlencoded"

// inline matches markup that the policy of the pages forbids.
var inline = regexp.MustCompile(`<style| style=|<script>| on[a-z]+="`)

// TestWhatIf: the form of a limit asks for several N around the present one.
func TestWhatIf(t *testing.T) {
	var asked []api.PlanRequest
	pages := web.New(web.Config{API: planAPI(t, `"read","configure"`, &asked)})
	defer pages.Close()
	_, page := ask(t, pages, "GET", "/ui/upstreams/pay/limits/refund", "", "en", "")
	for _, want := range []string{`action="/ui/plan"`, `name="permits" min="1" required value="20"`, `name="window" required pattern="[0-9a-zµ.]+" value="1m"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page of the limit has no %s", want)
		}
	}
	form := url.Values{"upstream": {"pay"}, "limit": {"refund"}, "permits": {"80"}, "window": {"1m"}, "last": {"1h"}}
	status, page := ask(t, pages, "POST", "/ui/plan", urlencoded, "en", form.Encode())
	if status != 200 || len(asked) != 1 || asked[0].Last != "1h" {
		t.Fatalf("%d, %+v\n%s", status, asked, page)
	}
	var names []string
	for _, v := range asked[0].Variants {
		names = append(names, fmt.Sprint(v.Name, ": ", *v.Changes[0].Permits, v.Changes[0].Window))
	}
	if want := []string{"10 per 1 min: 10", "16 per 1 min: 16", "30 per 1 min: 30", "40 per 1 min: 40", "80 per 1 min: 80"}; !reflect.DeepEqual(names, want) {
		t.Errorf("variants %q, want %q", names, want)
	}
	if heads := regexp.MustCompile(`<th scope="col" class="n">([^<]*)</th>`).FindAllStringSubmatch(page, 6); heads[0][1] != "10 per 1 min" || heads[2][1] != "now" || heads[5][1] != "80 per 1 min" {
		t.Errorf("columns: %q", heads)
	}
	for _, want := range []string{`<p class="lead">With 80 per 1 min the wait would fall from 20 s to 5 s; refund (80/1m0s) binds.</p>`, `<svg`, "upstreams:\n  pay:\n    limits:\n      - name: refund\n        calls: 80\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if m := inline.FindString(page); m != "" {
		t.Errorf("inline markup: %s", m)
	}
	file := regexp.MustCompile(`download="report.html" href="data:text/html;charset=utf-8;base64,([^"]*)"`).FindStringSubmatch(page)
	if file == nil {
		t.Fatal("no report to download")
	}
	report, err := base64.StdEncoding.DecodeString(html.UnescapeString(file[1]))
	if err != nil || !bytes.HasPrefix(report, []byte("<!doctype html>")) || !bytes.Contains(report, []byte("throttler plan -c throttler.yaml --compare wanted.yaml --load load.jsonl --rtt 50ms")) {
		t.Errorf("the report: %v", err)
	}
	form.Set("permits", "20") // the present one: twice as many are asked about
	form.Set("window", "day")
	if _, page = ask(t, pages, "POST", "/ui/plan", urlencoded, "zh", form.Encode()); !strings.Contains(page, `<p class="lead">若为 20 次/天，等待将从 20`) {
		t.Errorf("in Chinese: %s", page)
	}
	if last := asked[len(asked)-1].Variants; len(last) != 5 || last[0].Changes[0].Window != "day" {
		t.Errorf("another window: %+v", last)
	}
}

// TestPlanPage: the form as it is sent, with a file, with faults, and by callers that may not.
func TestPlanPage(t *testing.T) {
	var asked []api.PlanRequest
	handler := planAPI(t, `"read","configure"`, &asked)
	pages := web.New(web.Config{API: handler})
	defer pages.Close()
	for _, language := range []string{"en", "zh"} {
		status, page := ask(t, pages, "GET", "/ui/plan", "", language, "")
		if status != 200 || !strings.Contains(page, `name="permits/pay/day" min="1" value="1000"`) || inline.MatchString(page) || strings.Contains(page, "<body data-live") {
			t.Errorf("%s: %d\n%s", language, status, page)
		}
	}
	send := func(fields map[string]string, file string) (int, string) {
		var body bytes.Buffer
		form := multipart.NewWriter(&body)
		for name, value := range fields {
			form.WriteField(name, value)
		}
		part, err := form.CreateFormFile("rows", "load.csv")
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(part, file)
		form.Close()
		return ask(t, pages, "POST", "/ui/plan", form.FormDataContentType(), "en", body.String())
	}
	status, page := send(map[string]string{"load": "rows", "permits/pay/refund": "40", "window/pay/day": "24h", "permits/pay/concurrency": "7", "rtt": "80.5", "spread": "20", "fail_if": "wait.p99 > 5s\n\nrefused > 0\n"}, "at\n0\n")
	want := api.PlanRequest{
		Rows: "at\n0\n", RTTMs: new(80.5), RTTSpreadMs: 20, FailIf: []string{"wait.p99 > 5s", "refused > 0"},
		Changes: []api.PlanChange{{Upstream: "pay", Limit: "concurrency", Permits: new(7)}, {Upstream: "pay", Limit: "refund", Permits: new(40)}, {Upstream: "pay", Limit: "day", Window: "24h"}},
	}
	if status != 200 || len(asked) != 1 || !reflect.DeepEqual(asked[0], want) {
		t.Fatalf("%d, asked %+v, want %+v\n%s", status, asked, want, page)
	}
	for _, want := range []string{"upstreams:\n  pay:\n    concurrency: 7\n    limits:\n      - name: refund\n        calls: 40\n      - name: day\n        window: 24h\n", `<li class="bad">now: <code>wait.p99 &gt; 5s</code> holds</li>`, "--load load.csv --rtt 80.5ms --rtt-spread 20ms"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	status, page = send(map[string]string{"of": "pasted", "config": "fault: <b>", "load": "settings", "settings": "rate=1/s", "alone": "1"}, "")
	if last := asked[len(asked)-1]; status != 422 || last.Config != "fault: <b>" || !last.Alone || len(last.Changes) > 0 || !strings.Contains(page, "fault: &lt;b&gt;</textarea>") || !strings.Contains(page, "line 3: &lt;is missing&gt;") {
		t.Errorf("a configuration with a fault: %d, %+v\n%s", status, last, page)
	}
	n := len(asked)
	for _, fields := range []map[string]string{{"load": "rows"}, {"load": "settings"}, {"rtt": "x"}, {"of": "pasted"}, {"permits/pay/day": "x"}, {"limit": "refund", "upstream": "pay", "permits": "x"}} {
		if status, _ := send(fields, ""); status != 400 {
			t.Errorf("%v: %d", fields, status)
		}
	}
	if status, _ := ask(t, pages, "GET", "/ui/plan?upstream=pay&limit=none", "", "en", ""); status != 404 || len(asked) != n {
		t.Errorf("of a limit that is not there: %d", status)
	}
	viewers := web.New(web.Config{API: planAPI(t, `"read"`, &asked)})
	defer viewers.Close()
	for method, path := range map[string]string{"GET": "/ui/plan", "POST": "/ui/plan"} {
		if status, page := ask(t, viewers, method, path, urlencoded, "en", ""); status != 403 || strings.Contains(page, `href="/ui/plan"`) || len(asked) != n {
			t.Errorf("%s by a viewer: %d", method, status)
		}
	}
	if _, page := ask(t, viewers, "GET", "/ui/upstreams/pay/limits/refund", "", "en", ""); strings.Contains(page, "/ui/plan") {
		t.Error("a viewer has the form")
	}
}

// TestChartWords: the page in Chinese has no English in its charts.
func TestChartWords(t *testing.T) {
	var asked []api.PlanRequest
	pages := web.New(web.Config{API: planAPI(t, `"read","configure"`, &asked)})
	defer pages.Close()
	_, page := ask(t, pages, "POST", "/ui/plan", urlencoded, "zh", "load=settings&settings=rate%3D1/s")
	texts := regexp.MustCompile(`<text [^>]*>([^<]*)</text>`).FindAllStringSubmatch(page, -1)
	if len(texts) < 10 {
		t.Fatalf("%d texts", len(texts))
	}
	for _, text := range texts {
		if strings.Contains(strings.ReplaceAll(text[1], "refund", ""), " ") && regexp.MustCompile(`[a-z]{4}`).MatchString(strings.ReplaceAll(text[1], "refund", "")) {
			t.Errorf("%q is English", text[1])
		}
	}
	if !strings.Contains(page, "当前：到来与发出的调用") {
		t.Error("the title of the first panel is missing")
	}
}
