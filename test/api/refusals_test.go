package api

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
)

var variable = regexp.MustCompile(`\{\w+\}`)

// exampleBody returns the example of an operation's body and its media type, empty if it takes none.
func exampleBody(t *testing.T, op *v3.Operation) (body, kind string) {
	t.Helper()
	if op.RequestBody == nil {
		return "", ""
	}
	first := op.RequestBody.Content.First()
	var example any
	if err := first.Value().Example.Decode(&example); err != nil {
		t.Fatal(err)
	}
	if text, ok := example.(string); ok {
		return text, first.Key()
	}
	text, err := json.Marshal(example)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), first.Key()
}

// testRefusals sends each operation the requests that it must refuse, made from the document:
// names that are not known, an unknown parameter, and bodies that are none of it.
func (s *session) testRefusals(t *testing.T) {
	for operation, op := range s.operations {
		method, path, _ := strings.Cut(operation, " ")
		if path == "/metrics" {
			continue // its handler is one of Prometheus
		}
		named := variable.ReplaceAllString(path, "none")
		body, kind := exampleBody(t, op)
		media := "Content-Type: " + kind
		if named != path {
			s.want(t, 404, method, named, body, media)
		}
		if text := s.want(t, 400, method, named+"?planted=1", body, media); !strings.Contains(text, `"parameter":"planted"`) {
			t.Errorf("%s: no fault of the parameter: %s", operation, text)
		}
		if body == "" {
			continue
		}
		s.want(t, 415, method, named, body, "Content-Type: text/plain")
		s.want(t, 400, method, named, `{`, media)
		if media != lines { // there it is the fault of a line
			s.pointed(t, method, named, `{"planted":1}`, `"pointer":"/planted"`)
		}
	}
	s.pointed(t, "POST", "/v1/calls", `{"upstrem":"pay","priority":"high","body":"a","body_base64":"YQ=="}`,
		`"pointer":"/upstrem"`, `"pointer":"/priority"`, `"pointer":"/upstream"`, `"pointer":"/method"`, `"pointer":"/target"`, `"pointer":"/body"`)
	s.pointed(t, "POST", "/v1/calls/none/resolve", `{"outcome":"unknown"}`, `"pointer":"/outcome"`, `"pointer":"/attempt"`, `"pointer":"/reason"`)
	s.pointed(t, "POST", "/v1/calls/none/retry", `{"accept_duplicate":true}`, `"pointer":"/attempt"`, `"pointer":"/reason"`)
	s.pointed(t, "POST", "/v1/calls/bulk", `{"action":"resolve","filter":{"upstream":"pay"}}`, `"pointer":"/action"`)
	s.pointed(t, "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{"upstream":"pay","number":""}}`, `"pointer":"/filter/number"`)
	s.pointed(t, "POST", "/v1/calls/bulk", `{"action":"cancel","filter":{"upstream":"pay","calls":["a"]}}`, `"pointer":"/filter/calls"`)
	s.pointed(t, "POST", "/v1/calls/bulk", `{"action":"retry","filter":{}}`, `"pointer":"/action"`, `"pointer":"/filter"`)
	s.want(t, 400, "PATCH", "/v1/calls/none", `{"reason":"the customer waits"}`)
	s.want(t, 400, "POST", "/v1/calls", `{"upstream":"pay","method":"POST","target":"/pay"}`) // the key of app is missing
	s.want(t, 404, "POST", "/v1/calls", `{"upstream":"none","method":"POST","target":"/pay"}`)
}

// pointed sends a request that is to be refused with the faults.
func (s *session) pointed(t *testing.T, method, path, body string, faults ...string) {
	t.Helper()
	text := s.want(t, 400, method, path, body)
	for _, fault := range faults {
		if !strings.Contains(text, fault) {
			t.Errorf("%s %s %s: no %s in %s", method, path, body, fault, text)
		}
	}
}

// testConflicts sends requests that are well-formed, and come at the wrong time.
func (s *session) testConflicts(t *testing.T) {
	refused := func(status int, reason, method, path, body string, header ...string) {
		t.Helper()
		text := s.want(t, status, method, path, body, header...)
		if got := read[struct{ Reason string }](t, text).Reason; got != reason {
			t.Errorf("%s %s %s: reason %q, want %q: %s", method, path, body, got, reason, text)
		}
	}
	const (
		resolve = `{"outcome":"done","attempt":1,"reason":"seen in the statement"}`
		retry   = `{"attempt":1,"accept_duplicate":true,"reason":"a duplicate is harmless"}`
	)
	waiting := "/v1/calls/" + s.submit(t, "/pay", later)
	refused(409, "wrong_state", "POST", waiting+"/resolve", resolve)
	refused(409, "wrong_state", "POST", waiting+"/retry", retry)
	refused(409, "wrong_state", "POST", waiting+"/ask", "")
	refused(404, "not_found", "GET", waiting+"/response", "")
	refused(404, "not_found", "GET", "/v1/calls/none/request", "")
	s.want(t, 200, "POST", waiting+"/cancel", "")
	refused(409, "wrong_state", "POST", waiting+"/cancel", `{"reason":"twice"}`)
	refused(409, "wrong_state", "PATCH", waiting, `{"priority":1}`)

	lost := s.submit(t, "/lost", "")
	s.wait(t, lost, "unknown")
	lost = "/v1/calls/" + lost
	refused(409, "wrong_state", "POST", lost+"/ask", "") // there is no query about it
	refused(412, "changed_since", "POST", lost+"/resolve", strings.Replace(resolve, `"attempt":1`, `"attempt":7`, 1))
	refused(412, "changed_since", "POST", lost+"/retry", strings.Replace(retry, `"attempt":1`, `"attempt":7`, 1))
	refused(422, "may_execute_twice", "POST", lost+"/retry", `{"attempt":1,"reason":"the platform does not answer"}`)
	s.want(t, 200, "POST", lost+"/resolve", resolve)

	body := `{"upstream":"pay","method":"POST","target":"/pay","headers":{"app":"a"}`
	s.want(t, 202, "POST", "/v1/calls", body+`}`, "Idempotency-Key: k2")
	refused(400, "bad_request", "POST", "/v1/calls", body+`,"idempotency_key":"k3"}`, "Idempotency-Key: k2")
	refused(422, "key_reused", "POST", "/v1/calls", strings.Replace(body, "/pay", "/other", 1)+`}`, "Idempotency-Key: k2")
	refused(422, "cost_too_high", "POST", "/v1/calls", `{"upstream":"pay","method":"POST","target":"/heavy","headers":{"app":"a","cost":"3"}}`)
	refused(429, "past_deadline", "POST", "/v1/calls", strings.Replace(body, "/pay", "/daily", 1)+`,"deadline":"`+time.Now().Add(time.Minute).UTC().Format(time.RFC3339)+`"}`)

	text, err := os.ReadFile(s.file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.file, append(text, "  bank: {url: 'http://127.0.0.1:1', timeot: 1s}\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, request := range []string{"POST /v1/config/reload", "POST /v1/config/reload?dry_run=true", "GET /v1/config/diff"} {
		method, path, _ := strings.Cut(request, " ")
		refused(422, "bad_config", method, path, "")
	}
}
