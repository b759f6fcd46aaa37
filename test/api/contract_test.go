package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"go.yaml.in/yaml/v4"
)

// A contract validates requests and answers by the document. Its schemas take no members
// that they do not name.
type contract struct {
	validator.Validator
	asked []*http.Request
}

func readContract(t *testing.T, text []byte) *contract {
	t.Helper()
	var root map[string]any
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	for _, s := range root["components"].(map[string]any)["schemas"].(map[string]any) {
		if s := s.(map[string]any); s["properties"] != nil {
			s["additionalProperties"] = false
		}
	}
	closed, err := yaml.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	document, err := libopenapi.NewDocument(closed)
	if err != nil {
		t.Fatal(err)
	}
	v, errs := validator.NewValidator(document)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return &contract{Validator: v}
}

// ask sends a request, validates it and its answer, and returns the answer.
func (c *contract) ask(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	resp, text, faults := c.exchange(t, method, url, body, header...)
	for _, f := range faults {
		t.Errorf("%s %s answers %d %s: %s", method, url, resp.StatusCode, text, f)
	}
	return resp, text
}

// exchange sends a request, and returns the faults of it and of its answer. A request that is
// refused may have faults of its own.
func (c *contract) exchange(t *testing.T, method, url, body string, header ...string) (resp *http.Response, text string, faults []string) {
	t.Helper()
	request := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		for _, h := range header {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		return r
	}
	resp, err := http.DefaultClient.Do(request())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(content))
	r := request()
	c.asked = append(c.asked, request())
	if resp.StatusCode < 400 {
		_, errs := c.ValidateHttpRequest(r)
		for _, e := range errs {
			faults = append(faults, fmt.Sprint("the request: ", e.Message, ": ", e.Reason, reasons(e.SchemaValidationErrors)))
		}
	}
	_, errs := c.ValidateHttpResponse(request(), resp)
	for _, e := range errs {
		faults = append(faults, fmt.Sprint("the answer: ", e.Message, ": ", e.Reason, reasons(e.SchemaValidationErrors)))
	}
	return resp, string(content), faults
}

func reasons[E interface{ Error() string }](all []E) (text string) {
	for _, e := range all {
		text += "; " + e.Error()
	}
	return text
}

func readDocument(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestContract sends each operation of the document, most of them in several ways, and
// validates the requests and the answers.
func TestContract(t *testing.T) {
	c := readContract(t, readDocument(t))
	admin, _ := launch(t)
	id := func(text string) string {
		var call struct{ ID string }
		if err := json.Unmarshal([]byte(text), &call); err != nil || call.ID == "" {
			t.Fatalf("no call: %s", text)
		}
		return call.ID
	}
	want := func(status int, method, path, body string, header ...string) string {
		t.Helper()
		resp, text := c.ask(t, method, admin+path, body, header...)
		if resp.StatusCode != status {
			t.Errorf("%s %s %s: %d, want %d: %s", method, path, body, resp.StatusCode, status, text)
		}
		return text
	}
	submit := func(target string) string {
		t.Helper()
		return id(want(202, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","target":"`+target+`","headers":{"app":"a","X":["1","2"]},"body":"{\"order\":\"O1\"}","deadline":"2100-01-01T00:00:00Z"}`))
	}
	wait := func(id string) string { return want(200, "GET", "/v1/calls/"+id, "", "Prefer: wait=30") }

	done := submit("/pay?x=1")
	wait(done)
	want(200, "GET", "/v1/calls/"+done+"?include=response", "")
	if got := want(200, "GET", "/v1/calls/"+done+"/response", ""); got != `{"paid":true}` {
		t.Errorf("the response as it came: %s", got)
	}
	want(404, "GET", "/v1/calls/none", "")
	want(409, "POST", "/v1/calls/"+done+"/cancel", `{"reason":"x"}`)

	first := want(202, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","path":"/pay","headers":{"app":"a"}}`, "Idempotency-Key: k1")
	resp, again := c.ask(t, "POST", admin+"/v1/calls", `{"upstream":"pay","method":"POST","path":"/pay","headers":{"app":"a"},"idempotency_key":"k1"}`)
	if resp.Header.Get("Idempotent-Replayed") != "true" || id(again) != id(first) {
		t.Errorf("a repeat: %v, %s", resp.Header, again)
	}
	want(400, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","path":"/pay","headers":{"app":"a"},"idempotency_key":"k2"}`, "Idempotency-Key: k1")
	faults := want(400, "POST", "/v1/calls", `{"upstrem":"pay","priority":"high","body":"a","body_base64":"YQ=="}`)
	for _, pointer := range []string{"/upstrem", "/priority", "/upstream", "/method", "/target", "/body"} {
		if !strings.Contains(faults, `"pointer":"`+pointer+`"`) {
			t.Errorf("no fault of %s in %s", pointer, faults)
		}
	}
	want(415, "POST", "/v1/calls", `{"upstream":"pay"}`, "Content-Type: text/plain")

	later := id(want(202, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","target":"/pay","headers":{"app":"a"},"not_before":"2099-01-01T00:00:00Z","deadline":"2100-01-01T00:00:00Z"}`))
	want(200, "GET", "/v1/calls/"+later, "")
	want(200, "POST", "/v1/calls/"+later+"/cancel", "")

	for i, decision := range []string{
		`/resolve {"outcome":"done","attempt":1,"reason":"seen in the statement"}`,
		`/resolve {"outcome":"not_executed","attempt":1}`,
		`/retry {"attempt":1,"accept_duplicate":true}`,
	} {
		lost := submit(fmt.Sprint("/lost", i))
		wait(lost)
		path, body, _ := strings.Cut(decision, " ")
		want(412, "POST", "/v1/calls/"+lost+path, strings.Replace(body, `"attempt":1`, `"attempt":7`, 1))
		if path == "/retry" {
			want(422, "POST", "/v1/calls/"+lost+path, `{"attempt":1}`)
		}
		want(200, "POST", "/v1/calls/"+lost+path, body)
		wait(lost)
	}
	want(200, "POST", "/v1/calls/bulk", `{"action":"resolve","outcome":"failed","filter":{"upstream":"pay"},"dry_run":true}`)
	want(200, "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{"calls":["`+done+`","none"]},"reason":"x"}`)
	want(400, "POST", "/v1/calls/bulk", `{"action":"retry","filter":{}}`)

	page := want(200, "GET", "/v1/calls?upstream=pay&page_size=2", "")
	var next struct{ Next string }
	json.Unmarshal([]byte(page), &next)
	want(200, "GET", "/v1/calls?upstream=pay&page_size=2&cursor="+next.Next, "")
	want(400, "GET", "/v1/calls?page_size=2&cursor="+next.Next, "")
	want(200, "GET", "/v1/calls?state=unknown", "")

	want(200, "POST", "/v1/upstreams/pay/pause", `{"for":"1h","limit":"app","key":"a","reason":"maintenance"}`)
	want(200, "POST", "/v1/upstreams/pay/pause", `{"for":"1h"}`)
	submit("/daily")
	want(200, "GET", "/v1/calls?state=waiting", "")
	upstream, _ := c.ask(t, "GET", admin+"/v1/upstreams/pay", "")
	want(200, "GET", "/v1/upstreams", "")
	want(200, "GET", "/v1/limits?upstream=pay", "")
	want(200, "GET", "/v1/upstreams/pay/limits/day", "")
	want(404, "GET", "/v1/upstreams/pay/limits/none", "")
	want(200, "POST", "/v1/upstreams/pay/resume", "")
	want(200, "POST", "/v1/upstreams/pay/resume", `{"limit":"app","key":"a"}`)
	if upstream.Header.Get("ETag") == "" || upstream.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("the header of a single resource: %v", upstream.Header)
	}
	tag, _ := c.ask(t, "GET", admin+"/v1/calls/"+done, "")
	want(304, "GET", "/v1/calls/"+done, "", "If-None-Match: "+tag.Header.Get("ETag"))

	want(200, "POST", "/v1/config/reload?dry_run=true", "")
	want(200, "POST", "/v1/config/reload", "")
	want(200, "GET", "/v1/info", "")
	for _, path := range []string{"/healthz", "/readyz?verbose=true", "/metrics", "/problems/changed_since"} {
		want(200, "GET", path, "")
	}
	c.complete(t)
}

// complete reports the operations of the document that were not asked for. The stream of
// events has tests of its own.
func (c *contract) complete(t *testing.T) {
	var root struct {
		Paths map[string]map[string]any
	}
	if err := yaml.Unmarshal(readDocument(t), &root); err != nil {
		t.Fatal(err)
	}
	mux, operations := http.NewServeMux(), make(map[string]bool)
	for path, methods := range root.Paths {
		for method := range methods {
			pattern := strings.ToUpper(method) + " " + path
			operations[pattern] = true
			mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		}
	}
	delete(operations, "GET /v1/events")
	for _, r := range c.asked {
		_, pattern := mux.Handler(r)
		delete(operations, pattern)
	}
	if len(operations) > 0 {
		t.Errorf("not asked for: %v", operations)
	}
}

// TestContractFindsFaults plants an undocumented member and an undocumented route, and a
// member that is missing.
func TestContractFindsFaults(t *testing.T) {
	answers := map[string]string{
		"/v1/upstreams":     `{"at":"2026-11-21T09:00:00.000000Z","upstreams":[{"name":"pay","state":"up","waiting":0,"sending":0,"unknown":0,"max_waiting":1,"bytes":0}]}`,
		"/v1/upstreams/pay": `{"name":"pay","state":"up","waiting":0,"sending":0,"unknown":0,"max_waiting":1,"bytes":0,"secret":"x"}`,
		"/v1/info":          `{"version":"1"}`,
		"/v1/nothing":       `{}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answers[r.URL.Path])
	}))
	defer s.Close()
	c := readContract(t, readDocument(t))
	for path, want := range map[string]string{"/v1/upstreams": "", "/v1/upstreams/pay": "secret", "/v1/info": "missing", "/v1/nothing": "/v1/nothing"} {
		_, _, faults := c.exchange(t, "GET", s.URL+path, "")
		if text := strings.Join(faults, "\n"); (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("%s: %q, want %q", path, text, want)
		}
	}
	if _, _, faults := c.exchange(t, "POST", s.URL+"/v1/upstreams/pay/pause", `{"because":"x"}`); len(faults) == 0 {
		t.Error("an undocumented member of a request is not found")
	}
}
