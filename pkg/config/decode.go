package config

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// parse reads YAML. Its faults have the line for a path.
func parse(text []byte) (map[string]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc any
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return map[string]any{}, nil // the scheduler says what an empty file lacks
	} else if err != nil {
		return nil, syntax(err)
	}
	if err := decoder.Decode(new(any)); !errors.Is(err, io.EOF) {
		return nil, syntax(errors.New("the file must hold one document, there is a --- with another"))
	}
	switch doc := doc.(type) {
	case nil:
		return map[string]any{}, nil
	case map[string]any:
		return doc, nil
	}
	return nil, syntax(errors.New("the file must be a section of keys, such as admin and upstreams"))
}

// syntax turns the errors of the YAML package, "yaml: line 3: …", into faults.
func syntax(err error) Errors {
	messages := []string{err.Error()}
	var several *yaml.TypeError
	if errors.As(err, &several) {
		messages = several.Errors
	}
	var faults Errors
	for _, m := range messages {
		m = strings.TrimPrefix(m, "yaml: ")
		line, rest, ok := strings.Cut(m, ": ")
		if !ok || !strings.HasPrefix(line, "line ") {
			line, rest = "yaml", m
		}
		faults = append(faults, &scheduler.ConfigError{Path: line, Err: errors.New(rest)})
	}
	return faults
}

// decode fills the types of the file from viper's settings. Each upstream is
// decoded by itself: mapstructure leaves out a map's element that has a fault, and
// with it all that is to be said of the rest of it.
func (r *reader) decode(settings map[string]any, presets map[string][]fileRule) *file {
	f := &file{Admin: DefaultAdmin, Store: DefaultStore, Log: fileLog{"info", "text"}, Upstreams: make(map[string]fileUpstream)}
	upstreams, ok := settings["upstreams"].(map[string]any)
	if !ok && settings["upstreams"] != nil {
		r.fault("upstreams", "must be a section of keys, one for each upstream")
	}
	delete(settings, "upstreams")
	r.into("", settings, f)
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		var u fileUpstream
		r.into("upstreams."+name, upstreams[name], &u)
		u.Outcomes = append(u.Outcomes, presets[name]...)
		f.Upstreams[name] = u
	}
	return f
}

// named finds, in a path of mapstructure, the names that are keys of a map.
var named = regexp.MustCompile(`^(weights|keys|callbacks|refusal\.headers|resolve\[\d+\]\.headers)\[([^\]]*)\]`)

// into decodes settings, all that can be, and adds what cannot to the faults.
func (r *reader) into(path string, settings, to any) {
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{Result: to, TagName: "key", DecodeHook: strict})
	if err == nil {
		err = decoder.Decode(settings)
	}
	for _, err := range split(err) {
		at := path
		var e *mapstructure.DecodeError
		if errors.As(err, &e) {
			err = e.Unwrap()
			if e.Name() != "" {
				at = join(path, named.ReplaceAllString(e.Name(), "$1.$2"))
			}
		}
		r.fault(at, "%w", err)
	}
}
