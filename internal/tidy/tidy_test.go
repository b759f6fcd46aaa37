// Package tidy holds the rules of the project that a test can hold: who may
// import whom, and how packages explain themselves.
package tidy

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/seed-30fe103d/throttler/"

type pkg struct {
	ImportPath, Name, Doc, Dir         string
	Imports, TestGoFiles, XTestGoFiles []string
}

// packages returns the module's packages by their path inside it.
func packages(t *testing.T) map[string]pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Doc,Dir,Imports,TestGoFiles,XTestGoFiles", module+"...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	all := make(map[string]pkg)
	for decoder := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := decoder.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(p.ImportPath, module)] = p
	}
}

// Who may import what of the module: one way, from the command to the leaves.
// A trailing * stands for anything.
var mayImport = map[string][]string{
	"pkg/wheel":         {},
	"pkg/quota":         {},
	"pkg/retry":         {},
	"pkg/upstream":      {},
	"pkg/scheduler":     {"pkg/wheel", "pkg/quota", "pkg/retry", "pkg/upstream"},
	"pkg/config":        {"pkg/*"},
	"internal/server":   {"pkg/scheduler"},
	"internal/workload": {"pkg/scheduler", "pkg/upstream"},
	"internal/preview":  {"pkg/scheduler", "pkg/quota", "internal/workload"},
	"internal/gateway":  {}, // it stands for the platform: it must know nothing of us
	"internal/tidy":     {},
	"cmd/throttler":     {"pkg/*", "internal/server", "internal/workload", "internal/preview"},
	"cmd/demo":          {"internal/gateway"}, // it drives the built sidecar from outside
	"examples/alipay":   {"pkg/*"},            // proof that embedding works
}

func TestImportsPointOneWay(t *testing.T) {
	for path, p := range packages(t) {
		allowed, known := mayImport[path]
		if !known {
			t.Errorf("%s is new: say in mayImport what it may import", path)
		}
		for _, imported := range p.Imports {
			inside, ours := strings.CutPrefix(imported, module)
			if ours && !slices.ContainsFunc(allowed, func(a string) bool {
				return inside == a || strings.HasSuffix(a, "*") && strings.HasPrefix(inside, strings.TrimSuffix(a, "*"))
			}) {
				t.Errorf("%s imports %s, and may import %v", path, inside, allowed)
			}
		}
	}
}

// TestPackagesExplainThemselves holds the first screen of each package: what go
// doc prints fits on it, and there is an example that runs.
func TestPackagesExplainThemselves(t *testing.T) {
	const screen = 60 // lines
	for path, p := range packages(t) {
		if path == "internal/tidy" {
			continue
		}
		want := "Package " + p.Name + " "
		if p.Name == "main" {
			want = "Command " + path[strings.LastIndex(path, "/")+1:] + " "
		}
		if !strings.HasPrefix(p.Doc, want) {
			t.Errorf("%s: the package doc begins with %q, must begin with %q", path, p.Doc, want)
		}
		if p.Name == "main" {
			continue
		}
		out, err := exec.Command("go", "doc", p.ImportPath).Output()
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(out), "\n"); n > screen {
			t.Errorf("%s: go doc prints %d lines, at most %d", path, n, screen)
		}
		if !slices.ContainsFunc(append(p.TestGoFiles, p.XTestGoFiles...), func(f string) bool { return f == "example_test.go" }) {
			t.Errorf("%s has no example_test.go", path)
		}
	}
}
