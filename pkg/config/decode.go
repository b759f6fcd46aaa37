package config

import (
	"errors"
	"maps"
	"reflect"
	"regexp"
	"slices"

	"github.com/go-viper/mapstructure/v2"
)

// decode fills the types of the file from viper's settings. Each upstream, and access, is
// decoded by itself: mapstructure drops a map's element, or a pointer, with a fault, and
// then the other faults of the element would not be reported.
func decode(faults *faultList, settings map[string]any, presets map[string][]fileRule) *file {
	f := &file{Admin: addresses{[]string{DefaultAdmin}}, Store: DefaultStore, Log: fileLog{"info", "text"}, Upstreams: make(map[string]fileUpstream)}
	upstreams, ok := settings["upstreams"].(map[string]any)
	if !ok && settings["upstreams"] != nil {
		faults.add("upstreams", "is %s, must be a section of keys, one for each upstream; write its name and its keys below it, indented", noun(reflect.ValueOf(settings["upstreams"])))
	}
	if given, ok := settings["access"]; ok {
		f.Access = &fileAccess{}
		decodeInto(faults, "access", given, f.Access)
	}
	delete(settings, "upstreams")
	delete(settings, "access")
	decodeInto(faults, "", settings, f)
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		var u fileUpstream
		decodeInto(faults, "upstreams."+name, upstreams[name], &u)
		u.Outcomes = slices.Concat(u.Outcomes, u.Limited.rules(faults, "upstreams."+name+".limited"), presets[name])
		f.Upstreams[name] = u
	}
	return f
}

// named matches the map keys in a path of mapstructure.
var named = regexp.MustCompile(`^(weights|keys|callbacks|numbers|notifications\.numbers|refusal\.headers|resolve\[\d+\]\.headers|cases\[\d+\]\.outcome_of|requests|answers|sources)\[([^\]]*)\]`)

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
		var m *misfit
		if errors.As(err, &m) {
			err = errors.New(m.at(at))
		}
		faults.add(at, "%w", err)
		faults.unread[at] = m != nil
	}
}
