package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// everyPreset stands for the names of all presets.
const everyPreset = "all"

// some is one text, or a list of texts. Their commas are their own.
type some struct{ all []string }

func (s *some) UnmarshalMapstructure(v any) error {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	for _, item := range list {
		text, ok := item.(string)
		if !ok {
			return &misfit{item, "a text, or a list of texts"}
		}
		s.all = append(s.all, text)
	}
	return nil
}

// presetsOf returns the presets for which the cases of a file are played one after the other;
// without the member presets, an empty one: the file has a preset or a configuration then. After a
// fault of that member there is none.
func presetsOf(faults *faultList, doc map[string]any) []string {
	if doc["presets"] == nil {
		return []string{""}
	}
	var given some
	decodeInto(faults, "presets", doc["presets"], &given)
	for _, other := range []string{"preset", "config"} {
		if doc[other] != nil {
			faults.add("presets", "is given beside %s; cases are of one of them", other)
		}
	}
	if slices.Equal(given.all, []string{everyPreset}) {
		given.all = Presets()
	}
	if len(given.all) == 0 {
		faults.add("presets", "has no names; write all, or a list of %s", strings.Join(Presets(), ", "))
	}
	for _, name := range given.all {
		oneOf(faults, "presets", name, append(Presets(), everyPreset)...)
	}
	if faults.explained["presets"] {
		return nil
	}
	return given.all
}

// plays reports whether a case is one of the reader's preset.
func (r *caseReader) plays(presets []string) bool {
	return r.preset == "" || presets == nil || slices.Contains(presets, r.preset) || slices.Contains(presets, everyPreset)
}

// presetRequests returns the named requests of a preset's own cases.
func presetRequests(preset string) map[string]any {
	text, err := PresetCases(preset)
	if err != nil {
		return nil // a fault of the preset's name
	}
	doc, _, err := parse(preset, text, alone)
	if err != nil {
		panic("BUG: cases of the preset " + preset + ": " + err.Error())
	}
	requests, _ := doc["requests"].(map[string]any)
	return requests
}

// replaceNames puts the named requests and answers in the place of their names. The requests of
// a preset's own cases have names in each file of that preset.
func (r *caseReader) replaceNames() {
	preset, _ := r.doc["preset"].(string)
	requests, answers := presetRequests(preset), maps.Clone(builtIn)
	if requests == nil {
		requests = make(map[string]any)
	}
	own, _ := r.doc["requests"].(map[string]any)
	maps.Copy(requests, own)
	own, _ = r.doc["answers"].(map[string]any)
	maps.Copy(answers, own)
	list, _ := r.doc["cases"].([]any)
	r.names = make([][]string, len(list))
	for i, item := range list {
		c, _ := item.(map[string]any)
		lower(c)
		at := index("cases", i)
		var presets some
		decodeInto(r.faults, at+".presets", c["presets"], &presets)
		if r.checkPresets(at+".presets", presets.all); !r.plays(presets.all) {
			list[i] = map[string]any{"presets": c["presets"]}
			continue
		}
		for _, key := range []string{"request", "second"} {
			r.replace(join(at, key), c, key, requests)
		}
		for _, key := range []string{"answer", "query"} {
			r.replace(join(at, key), c, key, answers)
		}
		several, _ := c["requests"].([]any)
		for n, name := range several {
			r.names[i] = append(r.names[i], fmt.Sprint(name))
			if several[n] = r.named(index(at+".requests", n), name, requests); several[n] == nil {
				several[n] = map[string]any{"target": "/"} // its fault is known
			}
		}
		exchanges, _ := c["exchanges"].([]any)
		for n, item := range exchanges {
			if e, _ := item.(map[string]any); e != nil {
				lower(e)
				r.replace(index(at+".exchanges", n)+".answer", e, "answer", answers)
			}
		}
	}
}

// checkPresets checks the presets that a case names.
func (r *caseReader) checkPresets(at string, presets []string) {
	if presets != nil && r.preset == "" {
		r.faults.add(at, "is given in a file without presets; write presets: all beside cases, instead of preset or config")
	}
	for _, name := range presets {
		oneOf(r.faults, at, name, append(Presets(), everyPreset)...)
	}
}

// replace puts the value in the place of its name in a section, and deletes one that is not known.
func (r *caseReader) replace(path string, section map[string]any, key string, known map[string]any) {
	given, ok := section[key]
	if !ok {
		return
	}
	if section[key] = r.named(path, given, known); section[key] == nil {
		delete(section, key)
	}
}

// named returns the value that a name stands for, and every other value itself. It returns nil for
// a name that is not known, which is a fault.
func (r *caseReader) named(path string, v any, known map[string]any) any {
	switch v := v.(type) {
	case int:
		return map[string]any{"status": v}
	case string:
		if known[v] == nil {
			names := slices.Collect(maps.Keys(known))
			r.faults.add(path, "%q is not the name of one; the file has %s%s", v, hint.List(names), hint.Meant(v, names))
			return nil
		}
		r.faults.unread[path] = true // its own place has its faults
		return copyOf(known[v])
	}
	return v
}

// copyOf copies a value of a document, with all sections and lists below it.
func copyOf(v any) any {
	switch v := v.(type) {
	case map[string]any:
		section := make(map[string]any, len(v))
		for key, value := range v {
			section[key] = copyOf(value)
		}
		return section
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = copyOf(item)
		}
		return list
	}
	return v
}

// lower makes the keys of a section lower-case, as in all sections. A key that is there twice
// stays as it is, and is a fault.
func lower(section map[string]any) {
	for key, value := range maps.Clone(section) {
		small := strings.ToLower(key)
		if _, twice := section[small]; !twice {
			section[small] = value
			delete(section, key)
		}
	}
}
