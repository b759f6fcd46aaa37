package config

import (
	"cmp"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A caseReader makes cases of a file.
type caseReader struct {
	faults *faultList
	file   *fileCases
	doc    map[string]any
	path   string
	preset string                         // one of the file's; empty if it has none
	names  [][]string                     // of the requests of each case
	known  map[string]*scheduler.Upstream // by the YAML of their keys
	errors Errors                         // of a configuration that the file names
}

// read returns the cases of the document, or of its preset.
func (r *caseReader) read(doc map[string]any) (cases []Case) {
	r.doc = copyOf(doc).(map[string]any)
	if r.preset != "" {
		r.doc["preset"] = r.preset
	}
	r.replaceNames()
	r.file = new(fileCases)
	checkKeys(r.faults, "", r.doc, reflect.TypeFor[fileCases]())
	decodeInto(r.faults, "", r.doc, r.file)
	r.checkFile()
	list, _ := r.doc["cases"].([]any)
	for i, c := range r.file.Cases {
		if !r.plays(c.Presets.all) {
			continue
		}
		path := index("cases", i)
		var with map[string]any
		if i < len(list) { // else, and of another type, its fault is known
			item, _ := list[i].(map[string]any)
			with, _ = item["with"].(map[string]any)
		}
		u := r.upstream(path, with)
		if len(r.errors) > 0 {
			return nil
		}
		for name := range c.OutcomeOf {
			r.checkPresets(path+".outcome_of", []string{name})
		}
		c.Outcome = cmp.Or(c.OutcomeOf[r.preset], c.Outcome)
		for n, c := range c.each() {
			of := c.convert(r.faults, path)
			r.complete(&of, c, u)
			of.With = r.more(with)
			name := []string{r.preset}
			if n < len(r.names[i]) {
				name = append(name, r.names[i][n])
			}
			if in := strings.TrimSpace(strings.Join(name, " ")); in != "" {
				of.Name += " (" + in + ")"
			}
			cases = append(cases, of)
		}
	}
	return cases
}

// checkFile checks the members beside the cases.
func (r *caseReader) checkFile() {
	switch f := r.file; {
	case f.Preset != "" && f.Config != "":
		r.faults.add("config", "is given beside preset; cases are of one of them")
	case f.Config != "" && r.doc["with"] != nil:
		r.faults.add("with", "is for the cases of a preset; write the keys into the configuration")
	case f.Preset == "" && f.Config == "" && !r.faults.explained["preset"]:
		r.faults.add("preset", "is missing; write preset: NAME, presets: all, or config: FILE for an upstream of your own")
	}
	if len(r.file.Cases) == 0 {
		r.faults.add("cases", "there are none; write a list with request, answer and outcome")
	}
	atMost(r.faults, "cases", len(r.file.Cases), mostCases)
	for name, request := range r.file.Requests {
		request.convert(r.faults, "requests."+strings.ToLower(name))
	}
	for name, answer := range r.file.Answers {
		answer.convert(r.faults, "answers."+strings.ToLower(name))
	}
	instant(r.faults, "now", r.file.Now)
}

// complete sets the fields of a case that the file has for all of them.
func (r *caseReader) complete(of *Case, c fileCase, u *scheduler.Upstream) {
	of.Upstream, of.Signed = *u, u.Signer != nil
	for _, signed := range []*bool{r.file.Signed, c.Signed} {
		if signed != nil {
			of.Signed = *signed
		}
	}
	if text, named := r.file.Sources[c.Source]; named {
		of.Source = text
	}
	if of.Now.IsZero() {
		of.Now, _ = time.Parse(time.RFC3339, r.file.Now) // its fault is known
	}
	of.Of = r.file.Preset + r.file.Upstream
}

// more returns the keys of an upstream that the file and a case bring.
func (r *caseReader) more(with map[string]any) map[string]any {
	common, _ := r.doc["with"].(map[string]any)
	all := make(map[string]any)
	maps.Copy(all, common)
	maps.Copy(all, with)
	return all
}

// upstream returns the upstream of a case with more keys; an empty one after a fault.
func (r *caseReader) upstream(path string, more map[string]any) *scheduler.Upstream {
	if r.file.Config != "" {
		return r.configured()
	}
	keys := map[string]any{"url": "https://cases.invalid", "preset": r.file.Preset}
	maps.Copy(keys, r.more(more))
	text, err := yaml.Marshal(map[string]any{"upstreams": map[string]any{"case": keys}})
	if err != nil {
		r.faults.add(join(path, "with"), "%w", err)
		return new(scheduler.Upstream)
	}
	if u := r.known[string(text)]; u != nil {
		return u
	}
	c, err := Parse(text)
	for _, fault := range split(err) {
		f := fault.(*Fault)
		key := strings.TrimPrefix(strings.TrimPrefix(f.Path, "upstreams.case"), ".")
		at := join("with", key)
		if _, own := more[strings.Split(key, ".")[0]]; own {
			at = join(path, at)
		}
		if key == "preset" {
			at = key
		}
		r.faults.add(at, "%w", f.Err)
	}
	if err != nil {
		return new(scheduler.Upstream)
	}
	u := c.Scheduler.Upstreams["case"]
	r.known[string(text)] = &u
	return &u
}

// configured returns the upstream in the configuration that the file names.
func (r *caseReader) configured() *scheduler.Upstream {
	if u := r.known[""]; u != nil {
		return u
	}
	path := r.file.Config
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.path), path)
	}
	c, err := Load(path, nil)
	if faults, ok := err.(Errors); ok {
		r.errors = faults
		return new(scheduler.Upstream)
	}
	if err != nil {
		r.faults.add("config", "%w", err)
		return new(scheduler.Upstream)
	}
	names := slices.Sorted(maps.Keys(c.Scheduler.Upstreams))
	if r.file.Upstream == "" && len(names) == 1 {
		r.file.Upstream = names[0]
	}
	u, ok := c.Scheduler.Upstreams[r.file.Upstream]
	if !ok {
		r.faults.add("upstream", "%q is not one of %s, which has %s%s", r.file.Upstream, r.file.Config, hint.List(names), hint.Meant(r.file.Upstream, names))
		return new(scheduler.Upstream)
	}
	r.known[""] = &u
	return &u
}

// contentType returns the type of a body whose request names none.
func (f fileRequest) contentType() string {
	switch {
	case f.Form != nil:
		return "application/x-www-form-urlencoded;charset=utf-8"
	case strings.HasPrefix(f.Body, "<"):
		return "text/xml"
	}
	return "application/json"
}
