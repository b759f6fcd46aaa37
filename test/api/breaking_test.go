package api

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// landed is the document as it was when the API last landed: make api-landed.
const landed = "landed.yaml"

// breaking returns the breaking changes between two documents, as oasdiff finds them; empty
// if there are none.
func breaking(t *testing.T, before, after string) string {
	t.Helper()
	out, err := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "oasdiff", "breaking", "--fail-on", "WARN", before, after).CombinedOutput()
	if err == nil {
		return ""
	}
	if _, ended := err.(*exec.ExitError); !ended || !bytes.Contains(out, []byte("changes:")) {
		t.Fatalf("oasdiff: %v\n%s", err, out)
	}
	return string(out)
}

// TestNothingBreaks: a client of the API that has landed goes on working.
func TestNothingBreaks(t *testing.T) {
	if changes := breaking(t, landed, document); changes != "" {
		t.Errorf("the API breaks its clients; if that is meant, say so in CHANGELOG.md and run make api-landed:\n%s", changes)
	}
}

// TestBreakingChangesAreFound plants some.
func TestBreakingChangesAreFound(t *testing.T) {
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	for change, edit := range map[string][2]string{
		"an operation that is gone":            {"  /v1/info:\n", "  /v1/about:\n"},
		"a parameter that is gone":             {"        - name: page_size\n", "        - name: size\n"},
		"a member of an answer that is gone":   {"        at:\n", "        instant:\n"},
		"a member of a request that is wanted": {"        - upstream\n        - method\n", "        - upstream\n        - method\n        - target\n"},
	} {
		t.Run(change, func(t *testing.T) {
			changed := bytes.ReplaceAll(text, []byte(edit[0]), []byte(edit[1]))
			if bytes.Equal(changed, text) {
				t.Fatalf("the document has no %q", edit[0])
			}
			file := filepath.Join(t.TempDir(), "openapi.yaml")
			if err := os.WriteFile(file, changed, 0o600); err != nil {
				t.Fatal(err)
			}
			if breaking(t, document, file) == "" {
				t.Error("oasdiff reports nothing")
			}
		})
	}
}
