package config

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/viper"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

//go:embed presets/*.yaml
var presetFiles embed.FS

// defaultPreset is the preset of an upstream that names none.
const defaultPreset = "generic"

// Presets returns the names of the presets, sorted.
func Presets() []string {
	entries, _ := presetFiles.ReadDir("presets") // cannot fail: it is embedded
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Preset returns a preset: defaults of an upstream's keys, as YAML.
func Preset(name string) ([]byte, error) {
	text, err := presetFiles.ReadFile("presets/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("%q is unknown, must be one of: %s%s", name, strings.Join(Presets(), ", "), hint.Meant(name, Presets()))
	}
	return text, nil
}

// addPreset makes the preset of an upstream viper's defaults, so that each of its
// keys can be overridden. It returns the preset's outcomes: they come after those
// of the file, but in viper the file's list would replace them.
func addPreset(faults *faultList, v *viper.Viper, upstream string) []fileRule {
	name := defaultPreset
	if given, ok := v.Get("upstreams" + separator + upstream + separator + "preset").(string); ok {
		name = given
	}
	text, err := Preset(name)
	if err != nil {
		faults.add("upstreams."+upstream+".preset", "%w", err)
		text, _ = Preset(defaultPreset)
	}
	doc, _, err := parse(name, text)
	if err != nil {
		panic("BUG: preset " + name + ": " + err.Error())
	}
	var preset fileUpstream
	decodeInto(faults, "preset "+name, doc, &preset)
	delete(doc, "outcomes")
	v.SetDefault("upstreams"+separator+upstream, doc)
	return preset.Outcomes
}
