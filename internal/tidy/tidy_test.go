// Package tidy holds the rules of the project that a test can hold: imports, the
// first screen of packages, the size of files and functions, and words in comments.
package tidy

import (
	"encoding/json"
	"errors"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
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

// mayImport has the imports that each package may have besides the standard library: of
// the module one way, from the command to the leaves, and of other modules the packages
// that are named. A trailing * stands for anything.
var mayImport = map[string][]string{
	"pkg/internal/heap":             {},
	"pkg/internal/xmltext":          {},
	"pkg/wheel":                     {},
	"pkg/retryafter":                {"github.com/dunglas/httpsfv"},
	"pkg/quota":                     {"golang.org/x/time/rate"},
	"pkg/retry":                     {"github.com/hashicorp/go-retryablehttp"},
	"pkg/planner":                   {"pkg/quota", "pkg/wheel", "pkg/internal/heap"},
	"pkg/limiter":                   {"pkg/quota", "pkg/planner", "pkg/wheel"},
	"pkg/upstream":                  {"internal/quoted", "github.com/expr-lang/expr*", "github.com/andybalholm/brotli", "github.com/klauspost/compress/zstd", "github.com/tidwall/gjson", "github.com/tidwall/match", "internal/hint", "pkg/internal/xmltext", "pkg/retryafter", "pkg/upstream/internal/h1", "golang.org/x/net/http/httpguts"},
	"pkg/upstream/internal/h1":      {"internal/fieldname", "golang.org/x/net/*"},
	"pkg/signer":                    {"internal/hint", "pkg/upstream", "pkg/retryafter", "pkg/internal/xmltext", "golang.org/x/oauth2*", "github.com/standard-webhooks/standard-webhooks/libraries/go"}, // signs the requests that upstream sends
	"pkg/notify":                    {"internal/hint", "pkg/signer", "pkg/upstream"},                                                                                                                    // verifies what the platforms sign
	"pkg/lease":                     {"pkg/quota"},
	"pkg/scheduler":                 {"pkg/planner", "pkg/lease", "pkg/wheel", "pkg/quota", "pkg/retry", "pkg/retryafter", "pkg/upstream", "pkg/scheduler/internal/*", "pkg/internal/heap", "github.com/google/uuid"},
	"pkg/scheduler/internal/alarm":  {"golang.org/x/sys/unix"},
	"pkg/scheduler/internal/paging": {},
	"pkg/scheduler/storetest":       {"pkg/scheduler", "pkg/lease", "pkg/upstream", "github.com/google/uuid"},
	"internal/columns":              {"pkg/scheduler", "pkg/lease", "pkg/quota", "pkg/upstream", "golang.org/x/sys/unix"},
	"pkg/store":                     {"internal/columns", "pkg/scheduler", "pkg/lease", "pkg/upstream", "modernc.org/sqlite*", "github.com/pressly/goose/v3", "github.com/gofrs/flock", "golang.org/x/sys/unix"},
	"pkg/postgres":                  {"internal/columns", "pkg/scheduler", "pkg/lease", "pkg/upstream", "github.com/jackc/pgx/v5*", "github.com/pressly/goose/v3*", "github.com/google/uuid"},
	"pkg/config":                    {"pkg/*", "internal/hint", "github.com/spf13/*", "github.com/go-viper/mapstructure/v2", "go.yaml.in/yaml/v3"},

	"pkg/admin":          {"internal/access", "internal/api", "internal/server", "internal/web", "pkg/config", "pkg/scheduler"}, // the handler of the sidecar, in other programs
	"api/client":         {"github.com/oapi-codegen/runtime"},                                                                   // for programs of others: it knows the document only
	"internal/openapi":   {"internal/api", "internal/server", "go.yaml.in/yaml/v3"},                                             // writes the document, in tests
	"internal/access":    {"internal/api", "pkg/config", "golang.org/x/sys/unix", "golang.org/x/time/rate"},                     // its rules are a section of the configuration
	"internal/cases":     {"pkg/config", "pkg/scheduler", "pkg/upstream"},
	"internal/hint":      {"github.com/expr-lang/expr*"},
	"internal/api":       {}, // JSON of the admin API: a contract of its own
	"internal/fieldname": {},
	"internal/quoted":    {},
	"internal/http1":     {"internal/fieldname", "golang.org/x/net/http/httpguts"},
	"internal/link":      {"golang.org/x/net/netutil"},
	"internal/server":    {"internal/access", "internal/api", "internal/http1", "internal/link", "internal/quoted", "internal/workload", "pkg/notify", "pkg/scheduler", "pkg/upstream", "github.com/tmaxmax/go-sse", "github.com/google/uuid", "github.com/prometheus/client_golang/*"},
	"internal/trial":     {"pkg/scheduler", "pkg/upstream"},
	"internal/workload":  {"pkg/scheduler", "pkg/upstream", "github.com/expr-lang/expr*", "github.com/tidwall/gjson"},
	"internal/preview":   {"internal/hint", "pkg/scheduler", "pkg/planner", "pkg/quota", "pkg/wheel", "internal/workload", "internal/chart", "github.com/expr-lang/expr*"},
	"internal/chart":     {"golang.org/x/image/*"},
	"internal/oracle":    {"pkg/quota"},                                                           // it must share no code with the planner
	"internal/gateway":   {},                                                                      // it stands for the platform: it must know nothing of us
	"internal/ledger":    {"github.com/andybalholm/brotli", "github.com/klauspost/compress/zstd"}, // encodes answers
	"internal/pgtest":    {"github.com/jackc/pgx/v5"},
	"internal/tidy":      {},
	"internal/planted":   {},
	"internal/mutants":   {},
	"internal/web":       {"internal/api", "internal/chart", "internal/preview", "github.com/nicksnyder/go-i18n/v2/i18n", "github.com/tmaxmax/go-sse", "golang.org/x/text/language", "golang.org/x/text/message", "golang.org/x/text/unicode/bidi"},
	"cmd/throttler":      {"api/client", "go.yaml.in/yaml/v3", "pkg/config", "pkg/postgres", "pkg/quota", "pkg/scheduler", "pkg/store", "pkg/upstream", "internal/access", "internal/api", "internal/hint", "internal/http1", "internal/link", "internal/server", "internal/web", "internal/workload", "internal/preview", "internal/chart", "internal/cases", "internal/trial", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/schollz/progressbar/v3", "github.com/tmaxmax/go-sse", "golang.org/x/term"}, // clients of the admin API read internal/api; serve and store export need internal/server
	"cmd/demo":           {"internal/gateway", "internal/pgtest", "github.com/smartwalle/alipay/v3", "golang.org/x/term"},                                                                                                                                                                                                                                                                                                                                                                                                   // it drives the built sidecar from outside
	"examples/alipay":    {"pkg/*", "github.com/smartwalle/alipay/v3", "internal/gateway"},                                                                                                                                                                                                                                                                                                                                                                                                                                  // a merchant's program embeds pkg; -local brings the platform
}

func TestImportsPointOneWay(t *testing.T) {
	for path, p := range packages(t) {
		allowed, known := mayImport[path]
		if !known {
			t.Errorf("%s is new: say in mayImport what it may import", path)
		}
		for _, imported := range p.Imports {
			imported = strings.TrimPrefix(imported, module)
			if !outside(imported) {
				continue
			}
			if !slices.ContainsFunc(allowed, func(a string) bool {
				return imported == a || strings.HasSuffix(a, "*") && strings.HasPrefix(imported, strings.TrimSuffix(a, "*"))
			}) {
				t.Errorf("%s imports %s, and may import %v", path, imported, allowed)
			}
		}
	}
}

// outside reports whether an import, without our module's path, is not one of the
// standard library: those of others have a host name first, ours a folder.
func outside(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return strings.Contains(first, ".") || slices.Contains([]string{"api", "cmd", "examples", "internal", "pkg"}, first)
}

// TestPackagesExplainThemselves holds the first screen of each package: the package
// comment fits on it, and there is an example that runs.
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
		if n := strings.Count(firstScreen(string(out)), "\n"); n > screen {
			t.Errorf("%s: go doc prints %d lines before its list of names, at most %d", path, n, screen)
		}
		if !runs(t, p) {
			t.Errorf("%s has no Example that runs: one with an Output comment", path)
		}
	}
}

// firstScreen returns the text of go doc before the list of the package's names.
func firstScreen(text string) string {
	for _, list := range []string{"\nconst ", "\nvar ", "\nfunc ", "\ntype "} {
		if i := strings.Index(text, list); i >= 0 {
			text = text[:i]
		}
	}
	return text
}

// runs reports whether a package has an example that go test executes.
func runs(t *testing.T, p pkg) bool {
	t.Helper()
	for _, name := range append(p.TestGoFiles, p.XTestGoFiles...) {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range doc.Examples(file) {
			if e.Output != "" || e.EmptyOutput {
				return true
			}
		}
	}
	return false
}
