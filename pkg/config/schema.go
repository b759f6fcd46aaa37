package config

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/cast"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// A key of a section, with the type of its value.
type key struct {
	name string
	typ  reflect.Type
}

// keys returns the keys of a section, none if the type is a value to itself.
func keys(t reflect.Type) []key {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || reflect.PointerTo(t).Implements(reflect.TypeFor[mapstructure.Unmarshaler]()) {
		return nil
	}
	var all []key
	for f := range t.Fields() {
		if f.Anonymous { // its keys are the section's
			all = append(all, keys(f.Type)...)
			continue
		}
		all = append(all, key{f.Tag.Get("key"), f.Type})
	}
	return all
}

// check faults the keys of a document that its type does not have, and those
// that differ only in case, of which viper would take either. It returns the
// document without the keys that have no value, and with an empty section for
// each that has none: viper would let them hide what lies beneath.
func (r *reader) check(path string, doc any, t reflect.Type) any {
	switch doc := doc.(type) {
	case nil:
		if t.Kind() == reflect.Struct && keys(t) != nil {
			return map[string]any{}
		}
	case map[any]any: // what the YAML package makes of a section with a number for a key
		return r.check(path, cast.ToStringMap(doc), t)
	case []any:
		for i, item := range doc {
			if t.Kind() == reflect.Slice {
				doc[i] = r.check(index(path, i), item, t.Elem())
			}
		}
	case map[string]any:
		known := keys(t)
		if known == nil && t.Kind() != reflect.Map {
			break // a value is wanted; decoding says so
		}
		seen := make(map[string]string)
		for _, name := range slices.Sorted(maps.Keys(doc)) {
			small := strings.ToLower(name)
			at := join(path, small)
			if other, twice := seen[small]; twice {
				r.fault(at, "is given twice, as %s and as %s: keys are told apart without regard to case", other, name)
				continue
			}
			seen[small] = name
			var beneath reflect.Type
			if t.Kind() == reflect.Map {
				beneath = t.Elem()
			} else if i := slices.IndexFunc(known, func(k key) bool { return k.name == small }); i >= 0 {
				beneath = known[i].typ
			} else {
				r.fault(at, "unknown key%s", meant(small, known))
				continue
			}
			if doc[name] = r.check(at, doc[name], beneath); doc[name] == nil {
				delete(doc, name)
			}
		}
	}
	return doc
}

// join puts a key behind a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// meant asks for the known key that is closest to a name, if one is close: at most
// two letters off, and less than half of them.
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

// distance is Levenshtein's.
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

// leaves calls f with the path of each key that holds one value: lists and the
// names in maps have no variable of their own.
func leaves(path []string, t reflect.Type, f func(path []string)) {
	for _, k := range keys(t) {
		at := append(slices.Clip(path), k.name)
		switch {
		case keys(k.typ) != nil:
			leaves(at, k.typ, f)
		case k.typ.Kind() != reflect.Slice && k.typ.Kind() != reflect.Map:
			f(at)
		}
	}
}

const variablePrefix = "THROTTLER_"

// variable returns the name of the variable of a path.
func variable(path []string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(strings.Join(path, "_"), "-", "_"))
}

// environment binds the variables of all keys, for the upstreams given, and
// returns a warning for each variable that looks like one and is none.
func (r *reader) environment(v *viper.Viper, upstreams map[string]any) (warnings []string) {
	bound := make(map[string]string) // to which path
	bind := func(path []string) {
		name, at := variable(path), strings.Join(path, ".")
		v.BindEnv(strings.Join(path, separator), name) // fails only without a key
		if bound[name] = at; os.Getenv(name) != "" {
			r.sources[at] = name
		}
	}
	leaves(nil, reflect.TypeFor[file](), bind)
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		at := []string{"upstreams", name}
		if other, taken := bound[variable(append(at, "url"))]; taken {
			r.fault(strings.Join(at, "."), "has the variables of %s, %s_…; take names that differ in more than - and _", strings.TrimSuffix(other, ".url"), variable(at))
			continue
		}
		leaves(at, reflect.TypeFor[fileUpstream](), bind)
	}
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && bound[name] == "" {
			warnings = append(warnings, fmt.Sprintf("environment: %s is not the variable of any key, nor of an upstream in the file", name))
		}
	}
	return warnings
}

// flags binds those of our flags that the user has given.
func (r *reader) flags(v *viper.Viper, flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	for name, path := range flagKeys {
		if f := flags.Lookup(name); f != nil && f.Changed {
			v.BindPFlag(strings.ReplaceAll(path, ".", separator), f) // fails only without a flag
			r.sources[path] = "--" + name
		}
	}
}
