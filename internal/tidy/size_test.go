package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Bounds of hand-written code without tests.
const (
	maxFileLines  = 400
	maxFuncLines  = 60
	maxTypeFiles  = 3   // files over which the methods of a type are spread
	maxFacade     = 6   // the same of scheduler.Scheduler, whose methods are the API
	maxExported   = 108 // package-level names of pkg/scheduler
	facadePackage = "pkg/scheduler"
	facadeType    = "Scheduler"
)

// A source is a parsed file, by its path in the repository.
type source struct {
	path string
	fset *token.FileSet
	file *ast.File
}

// sources returns the Go files of the repository, of all its modules.
func sources(t *testing.T, want func(path string) bool) []source {
	t.Helper()
	const root = "../.."
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		path = filepath.ToSlash(path)
		if d.IsDir() || !strings.HasSuffix(path, ".go") || !want(path) {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err == nil && !ast.IsGenerated(file) {
			all = append(all, source{strings.TrimPrefix(path, root+"/"), fset, file})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 100 {
		t.Fatalf("only %d files were found", len(all))
	}
	return all
}

func isCode(path string) bool { return !strings.HasSuffix(path, "_test.go") }

// TestCodeIsShort holds the bounds of files and functions.
func TestCodeIsShort(t *testing.T) {
	for _, s := range sources(t, isCode) {
		if n := s.fset.Position(s.file.End()).Line; n > maxFileLines {
			t.Errorf("%s has %d lines, at most %d", s.path, n, maxFileLines)
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			if n := s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, at most %d", s.path, f.Name.Name, n, maxFuncLines)
			}
		}
	}
}

// TestMethodsLieTogether holds the number of files over which a type is spread.
func TestMethodsLieTogether(t *testing.T) {
	type typ struct{ pkg, name string }
	files := make(map[typ][]string)
	for _, s := range sources(t, isCode) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			of := typ{filepath.ToSlash(filepath.Dir(s.path)), receiver(f.Recv.List[0].Type)}
			if !slices.Contains(files[of], s.path) {
				files[of] = append(files[of], s.path)
			}
		}
	}
	for of, in := range files {
		most := maxTypeFiles
		if of == (typ{facadePackage, facadeType}) {
			most = maxFacade
		}
		if len(in) > most {
			t.Errorf("the methods of %s.%s lie in %d files, at most %d: %s", of.pkg, of.name, len(in), most, strings.Join(in, ", "))
		}
	}
}

// receiver returns the name of a method's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestSchedulerIsNarrow holds the number of names that package scheduler exports.
func TestSchedulerIsNarrow(t *testing.T) {
	var names []string
	for _, s := range sources(t, isCode) {
		if filepath.ToSlash(filepath.Dir(s.path)) != facadePackage {
			continue
		}
		for name, o := range exported(s.file) {
			if o {
				names = append(names, name)
			}
		}
	}
	if len(names) > maxExported {
		slices.Sort(names)
		t.Errorf("%s exports %d names, at most %d: %s", facadePackage, len(names), maxExported, strings.Join(names, " "))
	}
}

// exported returns the package-level names of a file that are exported.
func exported(f *ast.File) map[string]bool {
	names := make(map[string]bool)
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = d.Name.IsExported()
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = spec.Name.IsExported()
				case *ast.ValueSpec:
					for _, n := range spec.Names {
						names[n.Name] = n.IsExported()
					}
				}
			}
		}
	}
	return names
}
