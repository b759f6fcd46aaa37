package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A catalogue has the texts of one language by their keys: a text is a string, or one for each
// plural.
type catalogue map[string]any

func readCatalogue(t *testing.T, tag string) catalogue {
	t.Helper()
	content, err := files.ReadFile("text/" + tag + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var c catalogue
	if err := json.Unmarshal(content, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// texts returns all texts of a key.
func (c catalogue) texts(key string) (all []string) {
	switch v := c[key].(type) {
	case string:
		return []string{v}
	case map[string]any:
		for _, text := range v {
			all = append(all, fmt.Sprint(text))
		}
	}
	return all
}

var placeholder = regexp.MustCompile(`\{\{\.(\w+)\}\}`)

// places returns the names of the values that a text takes.
func (c catalogue) places(key string) []string {
	names := make(map[string]bool)
	for _, text := range c.texts(key) {
		for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestCatalogues compares the languages: each has the same keys, in order, and each text takes
// the same values. No text is empty: the library would take that of English, with an error.
func TestCatalogues(t *testing.T) {
	en := readCatalogue(t, "en")
	for _, tag := range tags {
		c := readCatalogue(t, tag.String())
		for key := range c {
			if slices.Contains(c.texts(key), "") {
				t.Errorf("%s: the text %s is empty", tag, key)
			}
		}
	}
	for _, tag := range tags[1:] {
		other := readCatalogue(t, tag.String())
		for key := range en {
			if other[key] == nil {
				t.Errorf("%s has no %s", tag, key)
			} else if a, b := en.places(key), other.places(key); !slices.Equal(a, b) {
				t.Errorf("%s: the text takes %v in English and %v in %s", key, a, b, tag)
			}
		}
		for key := range other {
			if en[key] == nil {
				t.Errorf("English has no %s", key)
			}
		}
	}
	for _, tag := range tags {
		content, err := files.ReadFile("text/" + tag.String() + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want bytes.Buffer
		e := json.NewEncoder(&want)
		e.SetEscapeHTML(false)
		e.SetIndent("", " ")
		if err := e.Encode(readCatalogue(t, tag.String())); err != nil {
			t.Fatal(err)
		}
		if want.String() != string(content) {
			t.Errorf("text/%s.json is not as an encoder writes it: keys in order, one space of indentation", tag)
		}
	}
	t.Logf("%d texts in %d languages", len(en), len(tags))
}

// TestTextsExist looks for each text that the templates and the code name, and for texts that
// neither of them names. A family of texts is named by its prefix, as in "state." + name.
func TestTextsExist(t *testing.T) {
	en := readCatalogue(t, "en")
	used := make(map[string]bool) // texts of the program, in quotes; a family ends with a full stop
	wanted := make(map[string]string)
	for _, word := range []string{"cause", "number"} {
		used[word+"."] = true // kinds of words that the code looks up
	}
	err := fs.WalkDir(files, "templates", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := files.ReadFile(file)
		for _, m := range regexp.MustCompile(`"([^"\s]+)"`).FindAllStringSubmatch(string(content), -1) {
			family, _, _ := strings.Cut(m[1], "%")
			used[family] = true
		}
		for _, m := range regexp.MustCompile(`\bword "([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
			used[m[1]+"."] = true
		}
		for _, m := range regexp.MustCompile(`\bt "([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
			wanted[m[1]] = file
		}
		for _, m := range regexp.MustCompile(`"Name" "([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
			wanted[m[1]] = file
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	code, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range code {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					used[text] = true
				}
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if ok && f.Sel.Name == "mustText" && len(n.Args) > 0 {
					if literal, ok := n.Args[0].(*ast.BasicLit); ok {
						key, _ := strconv.Unquote(literal.Value)
						wanted[key] = file
					}
				}
			}
			return true
		})
	}
	used["duration."] = true // units
	for _, state := range api.States {
		wanted["state."+string(state)], wanted["sentence."+string(state)] = "api.States", "api.States"
	}
	for _, outcome := range api.Outcomes {
		wanted["outcome."+string(outcome)] = "api.Outcomes"
	}
	for _, origin := range api.Origins {
		wanted["origin."+string(origin)] = "api.Origins"
	}
	for _, action := range actionNames {
		wanted["action."+action] = "actionNames"
	}
	for key, file := range wanted {
		if en[key] == nil {
			t.Errorf("%s: there is no text %q", file, key)
		}
	}
	for key := range en {
		ofFamily := func(name string) bool { return strings.HasSuffix(name, ".") && strings.HasPrefix(key, name) }
		if !used[key] && !slices.ContainsFunc(slices.Collect(maps.Keys(used)), ofFamily) {
			t.Errorf("no template and no code uses the text %q", key)
		}
	}
	t.Logf("%d texts, %d of them are named in full", len(en), len(wanted))
}
