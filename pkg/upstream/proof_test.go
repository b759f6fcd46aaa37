package upstream

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// judged returns the result of a request for which the upstream has one answer.
func judged(t *testing.T, c Config, r *Request, status int, header http.Header, answer string) *Result {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil // net/http guesses otherwise
		for name, values := range header {
			w.Header()[name] = values
		}
		w.WriteHeader(status)
		io.WriteString(w, answer)
	}))
	defer s.Close()
	c.URL = s.URL
	u := newUpstream(t, c)
	defer u.Close()
	res := do(t, u, r)
	if got := body(t, res); status != http.StatusNoContent && got != answer {
		t.Errorf("the client gets %.50q, want %.50q", got, answer)
	}
	return res
}

const page = "<!DOCTYPE html><html><body>Service is being restarted</body></html>"

// TestProof: without the platform's own format, and its member for the state, success is not proven.
func TestProof(t *testing.T) {
	entries := []Proof{
		{When: `path == "/refunds"`, Holds: `body("status") == "succeeded"`},
		{When: `path == "/void"`, Format: "empty"},
		{When: `path == "/gateway"`, Media: []string{"text/html", "Application/JSON"}, Holds: `body("a_response.code") == "10000"`},
		{When: `path == "/xml"`, Format: "xml", Holds: `body("xml.result_code") == "SUCCESS"`},
		{When: `path == "/amount"`, Holds: `body("amount") > 0`},
		{When: `path == "/any"`, Format: "any", Media: []string{"text/csv"}},
		{When: `path == "/header"`, Format: "any", Holds: `header("X-State") == "ok" and body("a") != 1`},
		{When: `path == "/slow"`, After: 3 * time.Second},
		{When: `param("twice") == "x"`},
		{},
	}
	const (
		json   = "application/json"
		lacks  = "status 200, but the answer does not prove success: "
		refund = `proof[0].holds is not true ('body("status") == "succeeded"')`
	)
	for name, tt := range map[string]struct {
		method, target, media string
		status                int
		body                  string
		want                  Outcome
		reason                string // after lacks, of an unknown outcome
		open                  bool
	}{
		"proven":                     {"POST", "/refunds", json, 200, `{"status":"succeeded"}`, Done, "", false},
		"proven, +json":              {"POST", "/refunds", "application/vnd.api+json; charset=utf-8", 201, `{"status":"succeeded"}`, Done, "", false},
		"proven, broken parameters":  {"POST", "/refunds", "application/json;charset", 201, `{"status":"succeeded"}`, Done, "", false},
		"proven, no media type":      {"POST", "/refunds", "", 200, `{"status":"succeeded"}`, Done, "", false},
		"proven, byte order mark":    {"POST", "/refunds", json, 200, "\xef\xbb\xbf {\"status\":\"succeeded\"}", Done, "", false},
		"a page":                     {"POST", "/refunds", "text/html; charset=utf-8", 200, page, Unknown, "its media type is text/html, not application/json", false},
		"a page without a type":      {"POST", "/refunds", "", 200, page, Unknown, "its body is no JSON object", false},
		"a page as JSON":             {"POST", "/refunds", json, 200, page, Unknown, "its body is no JSON object", false},
		"JSON as a page":             {"POST", "/refunds", "text/html", 200, `{"status":"succeeded"}`, Unknown, "its media type is text/html, not application/json", false},
		"a type that is none":        {"POST", "/refunds", "{\"x\"}", 200, `{"status":"succeeded"}`, Unknown, "its media type is none that can be read, not application/json", false},
		"empty":                      {"POST", "/refunds", json, 200, " \r\n", Unknown, "its body is empty", false},
		"cut":                        {"POST", "/refunds", json, 200, `{"status":"succeeded"`, Unknown, string(errCut), false},
		"broken":                     {"POST", "/refunds", json, 200, `{"status":"succeeded",}`, Unknown, "its body is no JSON object", false},
		"an array":                   {"POST", "/refunds", json, 200, `["succeeded"]`, Unknown, "its body is no JSON object", false},
		"a text":                     {"POST", "/refunds", json, 200, `"succeeded"`, Unknown, "its body is no JSON object", false},
		"long":                       {"POST", "/refunds", json, 200, `{"status":"succeeded","more":"` + strings.Repeat("x", 2000) + `"}`, Unknown, string(errUnseen), false},
		"another state":              {"POST", "/refunds", json, 200, `{"status":"pending"}`, Unknown, refund, true},
		"another JSON":               {"POST", "/refunds", json, 200, `{"error":"maintenance"}`, Unknown, refund, true},
		"another type":               {"POST", "/refunds", json, 200, `{"status":1}`, Unknown, refund, true},
		"without content":            {"POST", "/void", "", 204, "", Done, "", false},
		"without a body":             {"POST", "/void", "text/html", 200, "", Done, "", false},
		"a body, and none is proof":  {"POST", "/void", json, 200, "{}", Unknown, "it has a body, and one that proves success has none", false},
		"JSON under the types given": {"POST", "/gateway", "text/html;charset=GBK", 200, `{"a_response":{"code":"10000"}}`, Done, "", false},
		"a page under them":          {"POST", "/gateway", "text/html", 200, page, Unknown, "its body is no JSON object", false},
		"another type than both":     {"POST", "/gateway", "text/plain", 200, "{}", Unknown, "its media type is text/plain, not text/html or Application/JSON", false},
		"XML":                        {"POST", "/xml", "text/xml", 200, `<?xml version="1.0" encoding="GBK"?><xml><result_code><![CDATA[SUCCESS]]></result_code></xml>`, Done, "", false},
		"half of XML":                {"POST", "/xml", "text/xml", 200, `<xml><result_code>SUCCESS</result_code>`, Unknown, "its body is no whole XML document", false},
		"two documents":              {"POST", "/xml", "text/xml", 200, `<xml><result_code>SUCCESS</result_code></xml><xml/>`, Unknown, "its body is no whole XML document", false},
		"a page as XML":              {"POST", "/xml", "application/xml", 200, "<HTML></HTML>", Unknown, "its body is no whole XML document", false},
		"JSON for XML":               {"POST", "/xml", "", 200, "{}", Unknown, "its body is no whole XML document", false},
		"not to be computed":         {"POST", "/amount", json, 200, `{"amount":"7"}`, Unknown, `rule proof[4].holds cannot be computed: a text is compared with a number (in 'body("amount") > 0')`, true},
		"absent":                     {"POST", "/amount", json, 200, `{}`, Unknown, `proof[4].holds is not true ('body("amount") > 0')`, true},
		"any":                        {"POST", "/any", "text/csv", 200, strings.Repeat("a,b\n", 1000), Done, "", false},
		"any, of another type":       {"POST", "/any", "text/html", 200, "a,b", Unknown, "its media type is text/html, not text/csv", false},
		"a header not there":         {"POST", "/header", "", 200, `{"more":"` + strings.Repeat("x", 2000), Unknown, `proof[6].holds is not true ('header("X-State") == "ok" and body("a") != 1')`, true},
		"the default":                {"POST", "/other", "", 200, "{}", Done, "", false},
		"the default, a page":        {"DELETE", "/other", "text/html", 200, page, Unknown, "its media type is text/html, not application/json", false},
		"none is asked":              {"GET", "/other", "text/html", 200, page, Done, "", false},
		"refused":                    {"POST", "/refunds", "text/html", 403, page, Failed, "status 403", false},
		"limited":                    {"POST", "/refunds", "text/html", 429, page, NotExecuted, "status 429", false},
		"the proof is unclear":       {"POST", "/other?twice=1&twice=2", json, 200, "{}", Unknown, `rule proof[8].when cannot be computed: a parameter occurs twice (in 'param("twice") == "x"')`, true},
	} {
		header := http.Header{}
		if tt.media != "" {
			header.Set("Content-Type", tt.media)
		}
		res := judged(t, Config{MaxInspect: 1000, Proof: entries}, &Request{Method: tt.method, Target: tt.target}, tt.status, header, tt.body)
		reason := tt.reason
		switch {
		case tt.want == Unknown:
			reason = lacks + reason
		case tt.want == Done:
			reason = res.Reason
		}
		if res.Outcome != tt.want || res.Reason != reason || res.Open != tt.open || res.Ruled || (res.Uncomputable != nil) != strings.Contains(reason, "cannot be computed") {
			t.Errorf("%s: %s, %q, open: %v; want %s, %q, open: %v", name, res.Outcome, res.Reason, res.Open, tt.want, reason, tt.open)
		}
		if strings.Contains(res.Reason, "restarted") {
			t.Errorf("%s: a reason quotes the body: %s", name, res.Reason)
		}
		if res.Park != (res.Uncomputable != nil) {
			t.Errorf("%s: parked: %v; a repeat gets the true answer", name, res.Park)
		}
	}
	res := judged(t, Config{Proof: entries}, &Request{Method: "POST", Target: "/slow"}, 200, http.Header{"Retry-After": {"2"}}, page)
	if res.Outcome != Unknown || res.RetryAfter != 3*time.Second {
		t.Errorf("%s after %v, want 3s", res.Outcome, res.RetryAfter)
	}
	res = judged(t, Config{Proof: entries}, &Request{Method: "POST", Target: "/slow"}, 200, http.Header{"Retry-After": {"7"}}, page)
	if res.Outcome != Unknown || res.RetryAfter != 7*time.Second {
		t.Errorf("%s after %v, want 7s, as the answer asks", res.Outcome, res.RetryAfter)
	}
}

// TestProofOfRules: a done by a preset's rule needs the proof, one by a rule of the config itself
// does not.
func TestProofOfRules(t *testing.T) {
	for preset, want := range map[string]Outcome{"": Done, "stripe": Unknown} {
		c := Config{Outcomes: []Rule{{When: `status == 200`, Is: Done, Preset: preset}}, Proof: []Proof{{}}}
		res := judged(t, c, &Request{Method: "POST", Target: "/"}, 200, http.Header{"Content-Type": {"text/html"}}, page)
		if res.Outcome != want || res.Ruled != (want == Done) {
			t.Errorf("rule of preset %q: %s (%s), want %s", preset, res.Outcome, res.Reason, want)
		}
	}
}

// TestProofOfSlowAnswers: a waiting client gets a success when it is proven; an answer that needs no
// proof is not held for its whole body.
func TestProofOfSlowAnswers(t *testing.T) {
	rest := make(chan struct{}, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/refused" {
			w.WriteHeader(400)
		}
		io.WriteString(w, `{"status":`)
		w.(http.Flusher).Flush()
		if r.URL.Path == "/pay" { // as soon as the delay is over
			time.AfterFunc(50*time.Millisecond, func() { rest <- struct{}{} })
		}
		<-rest
		io.WriteString(w, `"succeeded"}`)
	}))
	defer s.Close()
	u := newUpstream(t, Config{URL: s.URL, InspectDelay: time.Millisecond, Proof: []Proof{{When: `path != "/file"`, Holds: `body("status") == "succeeded"`}}})
	defer u.Close()
	for target, held := range map[string]bool{"/pay": true, "/file": false, "/refused": false} {
		res := u.Stream(t.Context(), &Request{Method: "POST", Target: target})
		if want := map[bool]Outcome{true: Done, false: Failed}[target != "/refused"]; res.Outcome != want || res.Truncated == held {
			t.Errorf("%s: %s (%s), goes on: %v", target, res.Outcome, res.Reason, res.Truncated)
		}
		if !held {
			rest <- struct{}{}
		}
		if got := body(t, res); got != `{"status":"succeeded"}` {
			t.Errorf("%s: the client gets %q", target, got)
		}
	}
}

// TestProofFaults: each fault has its field.
func TestProofFaults(t *testing.T) {
	_, err := New(Config{URL: "https://api.test", Proof: []Proof{
		{},
		{When: "nope", Format: "jsn", Media: []string{"application/json", "json"}, Holds: `body("a")`, After: -1},
		{When: `status == 200`, Format: "empty", Media: []string{"text/html"}, Holds: `body("a") = 1`},
		{Media: []string{"text/html; charset=utf-8", "+xml", "a b/c"}},
	}})
	got := make(map[string]string)
	for _, err := range parts(err) {
		var f *FieldError
		if errors.As(err, &f) {
			got[f.Field] = f.Err.Error()
		}
	}
	for field, text := range map[string]string{
		"proof[1].when": "unknown name nope", "proof[1].format": `"jsn" is unknown, must be one of: json, xml, empty, any; did you mean json?`,
		"proof[1].media[1]": `"json" is no media type`, "proof[1].after": "must not be negative",
		"proof[2].when": "status is known in outcomes only", "proof[2].media": "an empty body has no media type", "proof[2].holds": "write ==",
		"proof[3].media[0]": "without parameters", "proof[3].media[2]": "is no media type",
	} {
		if !strings.Contains(got[field], text) {
			t.Errorf("%s: %q, want %q", field, got[field], text)
		}
		delete(got, field)
	}
	if len(got) > 0 {
		t.Errorf("faults of right fields: %v", got)
	}
}
