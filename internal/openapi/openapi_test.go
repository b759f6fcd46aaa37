package openapi

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/server"
)

var update = flag.Bool("update", false, "write api/openapi.yaml anew")

// One operation has its types, and an example of each.
func Example() {
	comments, err := Comments("../api")
	if err != nil {
		fmt.Println(err)
		return
	}
	ops := server.Operations()
	document, err := Document(ops[:1], comments)
	fmt.Println(strings.Contains(string(document), "operationId: submitCall"), strings.Contains(string(document), "A Submission is a call to be submitted."), err)
	// Output: true true <nil>
}

// TestDocument compares api/openapi.yaml with the table of operations.
func TestDocument(t *testing.T) {
	const file = "../../api/openapi.yaml"
	comments, err := Comments("../api")
	if err != nil {
		t.Fatal(err)
	}
	got, err := Document(server.Operations(), comments)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		older, err := Older(got)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string][]byte{file: got, "../../api/client/openapi30.yaml": older} {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is not what the operations are; run make api", file)
	}
}

// TestOperationsHaveExamples: each operation has an example of its answer, each body one of
// itself, and no two operations share an id.
func TestOperationsHaveExamples(t *testing.T) {
	seen := make(map[string]bool)
	for _, op := range server.Operations() {
		if op.ID == "" || op.Summary == "" || seen[op.ID] || op.Status == 0 || (op.Out == nil) == (op.Media == "") {
			t.Errorf("%s %s: %+v", op.Method, op.Path, op)
		}
		seen[op.ID] = true
		for _, p := range op.Params {
			if p.Doc == "" || p.Type == "" {
				t.Errorf("%s: parameter %+v", op.ID, p)
			}
		}
	}
}

// TestSchemasAreExplained: each schema has a text.
func TestSchemasAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		OpenAPI    string
		Components struct {
			Schemas map[string]struct{ Description string }
		}
	}
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(document.OpenAPI, "3.1.") || len(document.Components.Schemas) < 20 {
		t.Errorf("OpenAPI %s, with %d schemas", document.OpenAPI, len(document.Components.Schemas))
	}
	for name, s := range document.Components.Schemas {
		if s.Description == "" {
			t.Errorf("%s has no description", name)
		}
	}
}
