package api

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/content"
	"github.com/pb33f/libopenapi-validator/errors"
	"github.com/pb33f/libopenapi-validator/schema_validation"
	"github.com/pb33f/libopenapi/datamodel/high/base"
	v3 "github.com/pb33f/libopenapi/datamodel/high/v3"
	"github.com/pb33f/libopenapi/orderedmap"
	"go.yaml.in/yaml/v4"
)

// A contract validates requests and answers by the document. Its schemas take no members
// that they do not name.
type contract struct {
	validator.Validator
	schemas *orderedmap.Map[string, *base.SchemaProxy]
	// operations are those of the document, and answered has the statuses that were seen, both
	// by method and path.
	operations map[string]*v3.Operation
	answered   map[string]map[int]bool
	mux        *http.ServeMux // finds the operation of a request
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
	v, errs := validator.NewValidator(document, config.WithBodyDecoder("application/x-ndjson", content.DecoderFunc(decodeLines)))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	model, err := document.BuildV3Model()
	if err != nil {
		t.Fatal(err)
	}
	c := &contract{
		Validator: v, schemas: model.Model.Components.Schemas,
		operations: make(map[string]*v3.Operation), answered: make(map[string]map[int]bool), mux: http.NewServeMux(),
	}
	for path, item := range model.Model.Paths.PathItems.FromOldest() {
		for method, op := range item.GetOperations().FromOldest() {
			pattern := strings.ToUpper(method) + " " + path
			c.operations[pattern], c.answered[pattern] = op, make(map[int]bool)
			c.mux.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
		}
	}
	return c
}

// decodeLines validates each line of a body in NDJSON by its schema. The body itself is a text.
func decodeLines(in *content.DecodeInput) (any, error) {
	body, err := io.ReadAll(in.Body)
	if err != nil {
		return nil, err
	}
	v, n := schema_validation.NewSchemaValidator(), 0
	for line := range bytes.Lines(body) {
		n++
		if _, errs := v.ValidateSchemaString(in.Schema.ContentSchema.Schema(), string(line)); len(errs) > 0 {
			return nil, fmt.Errorf("line %d: %v", n, texts("", errs))
		}
	}
	return string(body), nil
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
	return resp, string(content), c.faults(request, resp, content)
}

// faults returns the faults of a request and of its answer.
func (c *contract) faults(request func() *http.Request, resp *http.Response, content []byte) (faults []string) {
	if _, pattern := c.mux.Handler(request()); c.answered[pattern] != nil {
		c.answered[pattern][resp.StatusCode] = true
	}
	if resp.StatusCode < 400 {
		_, errs := c.ValidateHttpRequest(request())
		faults = append(faults, texts("the request", errs)...)
	}
	resp.Body = io.NopCloser(bytes.NewReader(content))
	_, errs := c.ValidateHttpResponse(request(), resp)
	return append(faults, texts("the answer", errs)...)
}

func texts(subject string, errs []*errors.ValidationError) (texts []string) {
	for _, e := range errs {
		text := fmt.Sprint(subject, ": ", e.Message, ": ", e.Reason)
		for _, more := range e.SchemaValidationErrors {
			text += "; " + more.Error()
		}
		texts = append(texts, text)
	}
	return texts
}

func readDocument(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestContractFindsFaults plants an undocumented member and an undocumented route, and a
// member that is missing.
func TestContractFindsFaults(t *testing.T) {
	answers := map[string]string{
		"/v1/upstreams":     `{"at":"2026-11-21T09:00:00.000000Z","upstreams":[{"name":"pay","state":"up","waiting":0,"sending":0,"unknown":0,"max_waiting":1,"bytes":0}]}`,
		"/v1/upstreams/pay": `{"name":"pay","state":"up","waiting":0,"sending":0,"unknown":0,"max_waiting":1,"bytes":0,"secret":"x"}`,
		"/v1/info":          `{"version":"1"}`,
		"/v1/nothing":       `{}`,
		"/v1/calls/batch":   `{"line":1,"replayed":true}` + "\n" + `{"line":2}`,
		"/v1/pauses":        `{"id":"p1","upstream":"pay","until":"2026-11-21T09:00:00.000000Z","by":"person"}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/v1/calls/batch":
			w.Header().Set("Content-Type", "application/x-ndjson")
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusCreated)
		}
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
	for body, want := range map[string]string{`{"upstream":"pay"}`: "", `{"upstream":"pay","because":"x"}`: "because", `{"for":"5m"}`: "upstream"} {
		_, _, faults := c.exchange(t, "POST", s.URL+"/v1/pauses", body)
		if text := strings.Join(faults, "\n"); (want == "") != (text == "") || !strings.Contains(text, want) {
			t.Errorf("the request %s: %q, want %q", body, text, want)
		}
	}
	const line = `{"upstream":"pay","method":"GET","target":"/"}` + "\n"
	for _, tt := range []struct{ body, answer, want string }{
		{line + line, "", ""}, {line + `{"upstream":"pay","method":"GET","because":"x"}`, "", "line 2"}, {line, `{"line":1,"secret":"x"}`, "secret"}, {line, `{"line":1}` + "\n{}", "line 2"},
	} {
		if tt.answer != "" {
			answers["/v1/calls/batch"] = tt.answer
		}
		_, _, faults := c.exchange(t, "POST", s.URL+"/v1/calls/batch", tt.body, "Content-Type: application/x-ndjson")
		if text := strings.Join(faults, "\n"); (tt.want == "") != (text == "") || !strings.Contains(text, tt.want) {
			t.Errorf("the batch %s: %q, want %q", tt.body, text, tt.want)
		}
	}
}
