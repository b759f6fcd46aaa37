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
		if name := strings.TrimSuffix(e.Name(), ".yaml"); !strings.HasSuffix(name, casesSuffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// casesSuffix ends the name of a preset's cases.
const casesSuffix = "_test"

// PresetCases returns the cases of a preset, as YAML: see [ParseCases].
func PresetCases(name string) ([]byte, error) { return presetFile(name, casesSuffix) }

// Preset returns a preset: defaults of an upstream's keys, as YAML.
func Preset(name string) ([]byte, error) { return presetFile(name, "") }

func presetFile(name, suffix string) ([]byte, error) {
	text, err := presetFiles.ReadFile("presets/" + name + suffix + ".yaml")
	if err != nil || !slices.Contains(Presets(), name) {
		return nil, fmt.Errorf("%q is unknown, must be one of: %s%s", name, strings.Join(Presets(), ", "), hint.Meant(name, Presets()))
	}
	return text, nil
}

// addPreset makes the preset of an upstream viper's defaults, so that each of its
// keys can be overridden. It returns the preset's outcomes: they come after those
// of the file, but in viper the file's list would replace them.
func addPreset(faults *faultList, v *viper.Viper, upstream string) ([]fileRule, presetSource) {
	name := defaultPreset
	if given, ok := v.Get("upstreams" + separator + upstream + separator + "preset").(string); ok {
		name = given
	}
	text, err := Preset(name)
	if err != nil {
		faults.add("upstreams."+upstream+".preset", "%w", err)
		text, _ = Preset(defaultPreset)
	}
	doc, at, err := parse(name, text, alone)
	if err != nil {
		panic("BUG: preset " + name + ": " + err.Error())
	}
	var preset fileUpstream
	decodeInto(faults, "preset "+name, doc, &preset)
	from := presetSource{name: name, places: at}
	from.outcomes, _ = doc["outcomes"].([]any)
	delete(doc, "outcomes")
	if own, ok := v.Get("upstreams" + separator + upstream + separator + "identity").(string); ok {
		dropIdentities(faults, v, upstream, doc, own)
	}
	v.SetDefault("upstreams"+separator+upstream, doc)
	return preset.Outcomes, from
}

// markPresets notes which rules are those of a preset: they follow the file's.
func markPresets(c *Config, presets map[string]presetSource) {
	for name, u := range c.Scheduler.Upstreams {
		preset := presets[name]
		for i := max(0, len(u.Outcomes)-len(preset.outcomes)); i < len(u.Outcomes); i++ {
			u.Outcomes[i].Preset = preset.name
		}
	}
}

// dropIdentities removes the preset's ends and asks from an upstream with an identity of its own:
// they give identities of the preset.
func dropIdentities(faults *faultList, v *viper.Viper, upstream string, doc map[string]any, own string) {
	for _, key := range []string{"ends", "asks"} {
		if doc[key] != nil && own != "" && !v.IsSet("upstreams"+separator+upstream+separator+key) {
			faults.warn("upstreams."+upstream+".identity", "is not the preset's, so the preset's %s does not count: it names identities of the preset; write %s for these, or %s: \"\"", key, key, key)
		}
		delete(doc, key)
	}
}
