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
// without the member presets, an empty one: the file has a preset or a configuration then.
func presetsOf(faults *faultList, doc map[string]any) []string {
	var given some
	decodeInto(faults, "presets", doc["presets"], &given)
	if doc["presets"] == nil || faults.explained["presets"] {
		return []string{""}
	}
	for _, other := range []string{"preset", "config"} {
		if doc[other] != nil {
			faults.add("presets", "is given beside %s; cases are of one of them", other)
			return []string{""}
		}
	}
	if slices.Equal(given.all, []string{everyPreset}) {
		return Presets()
	}
	if len(given.all) == 0 {
		faults.add("presets", "has no names; write all, or a list of %s", strings.Join(Presets(), ", "))
	}
	for _, name := range given.all {
		oneOf(faults, "presets", name, append(Presets(), everyPreset)...)
	}
	if faults.explained["presets"] {
		return []string{""}
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
		r.put(at, c, "request", requests)
		r.put(at, c, "second", requests)
		r.put(at, c, "answer", answers)
		r.put(at, c, "query", answers)
		several, _ := c["requests"].([]any)
		for n, name := range several {
			one := map[string]any{"requests": name}
			r.put(at, one, "requests", requests)
			if several[n] = one["requests"]; several[n] == nil {
				several[n] = map[string]any{"target": "/"} // its fault is known
			}
			r.names[i] = append(r.names[i], fmt.Sprint(name))
		}
		exchanges, _ := c["exchanges"].([]any)
		for n, item := range exchanges {
			if e, _ := item.(map[string]any); e != nil {
				lower(e)
				r.put(index(at+".exchanges", n), e, "answer", answers)
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

// put puts a known value in the place of its name.
func (r *caseReader) put(path string, of map[string]any, key string, known map[string]any) {
	switch v := of[key].(type) {
	case int:
		of[key] = map[string]any{"status": v}
	case string:
		of[key] = copyOf(known[v])
		if known[v] == nil {
			names := slices.Collect(maps.Keys(known))
			r.faults.add(join(path, key), "%q is not the name of one; the file has %s%s", v, hint.List(names), hint.Meant(v, names))
			delete(of, key)
		} else {
			r.faults.unread[join(path, key)] = true // its faults are those of its own place
		}
	}
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
