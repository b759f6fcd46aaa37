package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/cast"
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
		all = append(all, key{f.Tag.Get("key"), f.Type})
	}
	return all
}

// checkKeys reports the keys of a document that its type does not have, and
// those that differ only in case, of which viper would take either. It
// returns the document without keys that have no value, and with an empty
// section for each section without one: in viper they would hide the
// preset's.
func checkKeys(faults *faultList, path string, doc any, t reflect.Type) any {
	switch doc := doc.(type) {
	case nil:
		if t.Kind() == reflect.Struct && keys(t) != nil {
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
				faults.add(at, "is given twice, as %s and as %s: keys are told apart without regard to case", other, name)
				continue
			}
			seen[small] = name
			var beneath reflect.Type
			if t.Kind() == reflect.Map {
				beneath = t.Elem()
			} else if i := slices.IndexFunc(known, func(k key) bool { return k.name == small }); i >= 0 {
				beneath = known[i].typ
			} else {
				faults.add(at, "unknown key%s", meant(small, known))
				continue
			}
			if doc[name] = checkKeys(faults, at, doc[name], beneath); doc[name] == nil {
				delete(doc, name)
			}
		}
	}
	return doc
}

// meant returns a question with the known key that is closest to a name. Close is
// a distance of at most two letters, and of less than half of them.
func meant(name string, known []key) string {
	best, least := "", 3
	for _, k := range known {
		if d := distance(name, k.name); d < least && 2*d < len(name) {
			best, least = k.name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			swap := diagonal
			if a[i] != b[j] {
				swap++
			}
			diagonal = row[j+1]
			row[j+1] = min(swap, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
