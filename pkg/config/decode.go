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

// parse reads YAML. The path of its faults is a line.
func parse(text []byte) (map[string]any, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc any
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return map[string]any{}, nil // the scheduler reports the keys that an empty file lacks
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
// decoded by itself: mapstructure drops a map's element with a fault, and then the
// other faults of the element would not be reported.
func decode(faults *faultList, settings map[string]any, presets map[string][]fileRule) *file {
	f := &file{Admin: DefaultAdmin, Store: DefaultStore, Log: fileLog{"info", "text"}, Upstreams: make(map[string]fileUpstream)}
	upstreams, ok := settings["upstreams"].(map[string]any)
	if !ok && settings["upstreams"] != nil {
		faults.add("upstreams", "must be a section of keys, one for each upstream")
	}
	delete(settings, "upstreams")
	decodeInto(faults, "", settings, f)
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		var u fileUpstream
		decodeInto(faults, "upstreams."+name, upstreams[name], &u)
		u.Outcomes = append(u.Outcomes, presets[name]...)
		f.Upstreams[name] = u
	}
	return f
}

// named matches the map keys in a path of mapstructure.
var named = regexp.MustCompile(`^(weights|keys|callbacks|refusal\.headers|resolve\[\d+\]\.headers)\[([^\]]*)\]`)

// decodeInto decodes the valid settings, and adds a fault for each of the others.
func decodeInto(faults *faultList, path string, settings, to any) {
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
		faults.add(at, "%w", err)
	}
}
