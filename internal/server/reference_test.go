package server

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReferenceIsComplete looks for each reason of a refusal, with its status, and each
// header of Throttler's own in docs/http.md. The examples there are tested in cmd/throttler.
func TestReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/http.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for reason, s := range statuses {
		if row := fmt.Sprintf("\n| %d | `%s` | ", s.status, reason); strings.Count(page, row) != 1 {
			t.Errorf("docs/http.md needs one row %q", strings.TrimSpace(row))
		}
	}
	if rows, want := strings.Count(page, "\n| 4")+strings.Count(page, "\n| 5"), len(statuses); rows != want {
		t.Errorf("docs/http.md has %d rows of refusals, want %d", rows, want)
	}
	for _, header := range append(append([]string{replayed}, ownHeaders...), answerHeaders...) {
		if !strings.Contains(page, "\n| `"+header) {
			t.Errorf("docs/http.md needs a row of %s", header)
		}
	}
}
