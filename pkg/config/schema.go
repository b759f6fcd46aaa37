package config

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/cast"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// A key of a section, with the type of its value.
type key struct {
	name string
	typ  reflect.Type
}

// keys returns the keys of a section; none if the type is a single value.
func keys(t reflect.Type) []key {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[mapstructure.Unmarshaler]()) {
		return nil
	}
	var all []key
	for f := range t.Fields() {
		if f.Anonymous { // a squashed section
			all = append(all, keys(f.Type)...)
			continue
		}
		if f.IsExported() {
			all = append(all, key{f.Tag.Get("key"), f.Type})
		}
	}
	return all
}

// checkKeys reports the keys of a document that its type does not have, and
// those that differ only in case, of which viper would take either. It
// returns the document without keys that have no value, and with an empty
// section for each section without one: in viper they would hide the
// preset's. A section access without keys is one: it keeps callers out.
func checkKeys(faults *faultList, path string, doc any, t reflect.Type) any {
	switch doc := doc.(type) {
	case nil:
		if t.Kind() == reflect.Struct && keys(t) != nil || t == reflect.TypeFor[*fileAccess]() {
			return map[string]any{}
		}
	case map[any]any: // the YAML package gives it for a section with a number as a key
		return checkKeys(faults, path, cast.ToStringMap(doc), t)
	case []any:
		for i, item := range doc {
			if t.Kind() == reflect.Slice {
				doc[i] = checkKeys(faults, index(path, i), item, t.Elem())
			}
		}
	case map[string]any:
		known := keys(t)
		if known == nil && t.Kind() != reflect.Map {
			break // decoding reports that a single value is expected
		}
		seen := make(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(doc)) {
			small := strings.ToLower(name)
			at := join(path, small)
			if other, twice := seen[small]; twice {
				faults.add(at, "is given twice, as %s and as %s: keys are told apart without regard to case; give one another name", other, name)
				continue
			}
			seen[small] = name
			beneath := t
			if t.Kind() == reflect.Map {
				if beneath = t.Elem(); misplaced(faults, at, small, doc[name], beneath) {
					delete(doc, name)
					continue
				}
			} else if i := slices.IndexFunc(known, func(k key) bool { return k.name == small }); i >= 0 {
				beneath = known[i].typ
			} else {
				unknown(faults, path, name, doc, known)
				continue
			}
			if doc[name] = checkKeys(faults, at, doc[name], beneath); doc[name] == nil {
				delete(doc, name)
			}
		}
	}
	return doc
}

// misplaced reports, with a fault, that the name of an upstream or of a callback is one of
// its keys: the key is not indented enough, or the name is missing.
func misplaced(faults *faultList, path, name string, v any, section reflect.Type) bool {
	_, below := v.(map[string]any)
	if below || v == nil || !slices.Contains(namesOf(keys(section)), name) {
		return false
	}
	of := "an upstream"
	if section != reflect.TypeFor[fileUpstream]() {
		of = "a callback"
	}
	faults.add(path, "is a key of %s, not the name of one; indent it below the name, as in NAME: {%s: …}", of, name)
	faults.unread[path] = true
	faults.explained[parent(path)] = true // it may be empty without the key
	return true
}

// unknown adds the fault of a key that its section does not have. The key that is meant is
// then no longer missing.
func unknown(faults *faultList, path, name string, doc map[string]any, known []key) {
	small := strings.ToLower(name)
	names, at, said := namesOf(known), join(path, small), "unknown key"
	if name != small {
		said += " " + name
	}
	meant := hint.Nearest(small, names)
	if meant != "" {
		if _, given := doc[meant]; !given {
			faults.explained[join(path, meant)] = true
		}
		faults.add(at, "%s; did you mean %s?", said, meant)
		return
	}
	if owner := owner(faults.root, "", small); owner != "" {
		faults.add(at, "%s here; it is a key of %s: move it there, by its indentation", said, owner)
		return
	}
	faults.add(at, "%s; the keys here are %s", said, hint.List(names))
}

// owner returns the first section that has a key, empty if there is none.
func owner(t reflect.Type, path, name string) (found string) {
	for _, k := range keys(t) {
		if k.name == name {
			found = cmp.Or(path, "the file")
		}
	}
	for _, k := range keys(t) {
		at, below := join(path, k.name), k.typ
		switch below.Kind() {
		case reflect.Map:
			at, below = at+".NAME", below.Elem()
		case reflect.Slice:
			at, below = at+"[]", below.Elem()
		}
		if deeper := owner(below, at, name); deeper != "" && found == "" {
			found = deeper
		}
	}
	return found
}

func namesOf(known []key) []string {
	names := make([]string, len(known))
	for i, k := range known {
		names[i] = k.name
	}
	return names
}
