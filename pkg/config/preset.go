package config

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

//go:embed presets/*.yaml
var presetFiles embed.FS

// defaultPreset lies beneath an upstream that names none.
const defaultPreset = "generic"

// Presets returns the names of the presets, sorted.
func Presets() []string {
	entries, _ := presetFiles.ReadDir("presets") // is there: it is embedded
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Preset returns the keys that a preset lays beneath an upstream, as YAML.
func Preset(name string) ([]byte, error) {
	text, err := presetFiles.ReadFile("presets/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%q is unknown, must be one of: %s", name, strings.Join(Presets(), ", "))
	}
	return text, nil
}

// preset lays the preset of an upstream beneath it, as defaults of viper, so that
// each key of it can be overridden. Its outcomes are returned: they go behind those
// of the file, where viper would let the file's list replace them.
func (r *reader) preset(v *viper.Viper, upstream string) []fileRule {
	name := defaultPreset
	if given, ok := v.Get("upstreams" + separator + upstream + separator + "preset").(string); ok {
		name = given
	}
	text, err := Preset(name)
	if err != nil {
		r.fault("upstreams."+upstream+".preset", "%w", err)
		text, _ = Preset(defaultPreset)
	}
	doc, err := parse(text)
	if err != nil {
		panic("BUG: preset " + name + ": " + err.Error())
	}
	var beneath fileUpstream
	r.into("preset "+name, doc, &beneath)
	delete(doc, "outcomes")
	v.SetDefault("upstreams"+separator+upstream, doc)
	return beneath.Outcomes
}
