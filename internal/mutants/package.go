package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed switch.go.txt
var switchText string

// A pkg is a package with all its mutants.
type pkg struct {
	target
	dir     string
	changed map[string][]byte // by absolute path: the files with their mutants
	mutants []*mutant
	chosen  []*mutant
}

// load finds the mutants of a package. The working directory must be one of the module.
func load(t target) (*pkg, error) {
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles,Module", modulePath+"/"+t.pkg).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", t.pkg, err)
	}
	var listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	exports := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); d.More(); { // the package is the last
		listed.GoFiles = nil
		if err := d.Decode(&listed); err != nil {
			return nil, err
		}
		exports[listed.ImportPath] = listed.Export
	}
	p := &pkg{target: t, dir: listed.Dir, changed: map[string][]byte{}}
	fset := token.NewFileSet()
	texts := map[string][]byte{}
	var files []*ast.File
	for _, name := range listed.GoFiles {
		path := filepath.Join(p.dir, name)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files, texts[name] = append(files, f), text
	}
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	checked, err := (&types.Config{Importer: imports}).Check(listed.ImportPath, fset, files, info)
	if err != nil {
		return nil, err
	}
	same := map[string]int{}
	for i, f := range files {
		name := listed.GoFiles[i]
		if len(t.files) > 0 && !slices.Contains(t.files, name) {
			continue
		}
		m := mutator{pkg: checked, info: info, file: f, fset: fset, name: t.pkg + "/" + name, text: texts[name], add: func(m *mutant) {
			p.mutants = append(p.mutants, m)
			m.id = len(p.mutants)
			key := m.key()
			same[key]++
			m.nth = same[key]
		}}
		p.changed[filepath.Join(p.dir, name)] = m.mutate()
	}
	p.changed[filepath.Join(p.dir, "zz_mutants.go")] = []byte("package " + checked.Name() + "\n" + switchText)
	return p, nil
}

const modulePath = "github.com/seed-30fe103d/throttler"

// build compiles the package's tests with all mutants.
func (p *pkg) build(dir string) (binary string, err error) {
	replace := map[string]string{}
	for path, text := range p.changed {
		changed := filepath.Join(dir, filepath.Base(path))
		if err := os.WriteFile(changed, text, 0o600); err != nil {
			return "", err
		}
		replace[path] = changed
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "package.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, modulePath+"/"+p.pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("the mutants do not compile: %w\n%s", err, out)
	}
	return binary, nil
}
