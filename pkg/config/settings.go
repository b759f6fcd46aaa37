package config

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Setting is the value of a key that is in force.
type Setting struct {
	Path string // items by their names, as in upstreams.alipay.limits[app].calls
	// Value is empty if it is hidden. Of a URL it has the scheme and the host.
	Value string
	// Hidden is set if the value may be a secret.
	Hidden bool
	// Source is a line of the file, a variable, a flag, a line of a preset, or default.
	Source string
}

// A presetSource is the preset of an upstream, as it is written.
type presetSource struct {
	name     string
	places   *places
	outcomes []any // which follow those of the file
	limited  int   // rules between both: those of limited
}

// origins tell where the settings of a configuration come from.
type origins struct {
	given   map[string]bool         // paths that the file sets
	indexes map[string]string       // paths with indexes, by paths with names, where they differ
	presets map[string]presetSource // by upstream
}

// newOrigins notes the paths of a file before presets are merged into it.
func newOrigins(doc map[string]any) *origins {
	o := &origins{make(map[string]bool), make(map[string]string), make(map[string]presetSource)}
	flat := make(map[string]string)
	flatten(flat, "", doc)
	for path := range flat {
		o.given[strings.ToLower(path)] = true
	}
	return o
}

// index notes the paths with indexes of all items that are known by their names.
func (o *origins) index(settings map[string]any) { o.indexBelow("", "", settings) }

func (o *origins) indexBelow(named, indexed string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			o.indexBelow(join(named, key), join(indexed, key), below)
		}
	case []any:
		for i, below := range v {
			at := index(named, i)
			if item, ok := below.(map[string]any); ok && byName.MatchString(named) && item["name"] != nil {
				at = itemAt(named, item)
				o.indexes[at] = index(indexed, i)
			}
			o.indexBelow(at, index(indexed, i), below)
		}
	}
}

// indexed returns a path with the index of its item.
func (o *origins) indexed(path string) string {
	for named, at := range o.indexes {
		if within(path, named) {
			return at + strings.TrimPrefix(path, named)
		}
	}
	return path
}

// defaultsOf are the defaults of an upstream's keys, as the reference has them.
var defaultsOf = map[string]string{
	"preset": defaultPreset, "timeout": "30s", "late": "5s", "max_wait": "30s", "max_age": "24h", "max_pause": "24h", "max_waiting": "10000",
	"max_waiting_bytes": "64MiB", "max_body": "1MiB", "concurrency": "1024", "durable": "false", "no_body": "false",
	"http2": "true", "timeouts.connect": "10s", "timeouts.idle": "90s", "inspect.bytes": "1MiB", "inspect.delay": "1s",
}

func settingsOf(c *Config) []Setting {
	values := maps.Clone(c.settings)
	for path, value := range c.withDefaults() {
		values[path] = value
	}
	values["grace"] = cmp.Or(values["grace"], DefaultGrace.String())
	values["ui.actions"] = cmp.Or(values["ui.actions"], "true")
	if c.Access != nil {
		values["access.session"] = cmp.Or(values["access.session"], "12h")
	}
	for name := range c.Scheduler.Upstreams {
		at := "upstreams." + name
		for key, value := range defaultsOf {
			values[at+"."+key] = cmp.Or(values[at+"."+key], value)
		}
		addPresetOutcomes(c, values, name)
	}
	var all []Setting
	for _, path := range slices.SortedFunc(maps.Keys(values), func(a, b string) int { return cmp.Compare(ordered(a), ordered(b)) }) {
		s := Setting{Path: path, Source: sourceOf(c, path)}
		s.Value, s.Hidden = shown(path, values[path])
		if strings.HasPrefix(s.Source, "preset ") { // it is no secret
			s.Value, s.Hidden = values[path], false
		}
		all = append(all, s)
	}
	return all
}

// ownOutcomes returns how many rules the file gives an upstream.
func ownOutcomes(c *Config, upstream string) int {
	preset := c.origins.presets[upstream]
	return len(c.Scheduler.Upstreams[upstream].Outcomes) - preset.limited - len(preset.outcomes)
}

// addPresetOutcomes adds the rules of an upstream's preset, which follow its own.
func addPresetOutcomes(c *Config, values map[string]string, upstream string) {
	own := ownOutcomes(c, upstream)
	for i, rule := range c.origins.presets[upstream].outcomes {
		flatten(values, index("upstreams."+upstream+".outcomes", own+i), rule)
	}
}

// sourceOf returns the place of a path.
func sourceOf(c *Config, path string) string {
	at := c.origins.indexed(path)
	if source := c.places.sources[at]; source != "" {
		return source
	}
	if c.origins.given[path] {
		place, _ := c.places.of(at)
		return place
	}
	rest, isUpstream := strings.CutPrefix(path, "upstreams.")
	if !isUpstream {
		return "default"
	}
	name, key, _ := strings.Cut(rest, ".")
	preset := c.origins.presets[name]
	if preset.places == nil {
		return "default"
	}
	for i := range preset.outcomes { // of the preset, behind those of the file
		if ours := index("outcomes", ownOutcomes(c, name)+i); within(key, ours) {
			key = index("outcomes", i) + strings.TrimPrefix(key, ours)
			break
		}
	}
	line, set := preset.places.lines[key]
	if !set {
		return "default"
	}
	return "preset " + preset.places.at(line)
}

// ruleSource returns the place of a rule or a proof by its name. The rules of a preset are named by their
// place in it; its proofs count only where the file has none.
func ruleSource(c *Config, upstream, rule string) string {
	key, _, ofPreset := strings.Cut(rule, " of preset ")
	at := strings.ToLower("upstreams." + upstream + "." + key)
	preset := c.origins.presets[upstream]
	if list := parent(at); !ofPreset && (c.places.lines[list] > 0 || c.places.sources[list] != "") || preset.places == nil {
		place, _ := c.places.of(at + ".when")
		return place
	}
	place, _ := preset.places.of(key + ".when")
	return "preset " + place
}

// shown returns a value as people may see it. The name of a secret is none.
func shown(path, value string) (text string, hidden bool) {
	if !secret.MatchString(path) || strings.HasPrefix(value, "file:") || strings.HasPrefix(value, "env:") || value == "" {
		return value, false
	}
	text = upstream.ShownURL(value)
	return text, text == ""
}
