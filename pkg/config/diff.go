package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Diff returns the changes in another configuration, one line per path:
//
//	upstreams.alipay.limits[app].calls: 100 → 200
//
// A limit is identified by its name, not by its place in the list. The line says
// if a change needs a restart.
//
// Values of limits, numbers, durations and truth values are shown. Other values
// are hidden, since they may hold secrets.
func (c *Config) Diff(next *Config) []string {
	paths := make(map[string]bool)
	for path := range c.settings {
		paths[path] = true
	}
	for path := range next.settings {
		paths[path] = true
	}
	var lines []string
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		before, was := c.settings[path]
		after, is := next.settings[path]
		switch {
		case was && is && before == after:
		case !was:
			lines = append(lines, fmt.Sprintf("%s: new, %s%s", path, shown(path, after), fixed(path)))
		case !is:
			lines = append(lines, fmt.Sprintf("%s: gone, was %s%s", path, shown(path, before), fixed(path)))
		case shown(path, before) == hidden || shown(path, after) == hidden:
			lines = append(lines, path+": changed"+fixed(path))
		default:
			lines = append(lines, fmt.Sprintf("%s: %s → %s%s", path, before, after, fixed(path)))
		}
	}
	return lines
}

// fixed returns a remark for keys that are read at the start of the process only.
func fixed(path string) string {
	switch path {
	case "admin", "store", "keep_calls", "keep_keys", "long_window", "seal_key", "log.level", "log.format":
		return "; stays as it is until a restart"
	}
	return ""
}

const hidden = "not shown"

func shown(path, value string) string {
	_, notNumber := strconv.ParseFloat(value, 64)
	_, notDuration := time.ParseDuration(value)
	_, notSwitch := strconv.ParseBool(value)
	if secret.MatchString(path) {
		return hidden
	}
	if strings.Contains(path, ".limits[") || notNumber == nil || notDuration == nil || notSwitch == nil {
		return value
	}
	return hidden
}

// flatten writes viper's settings under a path, one entry per scalar.
func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for key, below := range v {
			flatten(into, strings.TrimPrefix(path+"."+key, "."), below)
		}
	case []any:
		for i, below := range v {
			at := index(path, i)
			if limit, ok := below.(map[string]any); ok && strings.HasSuffix(path, ".limits") && limit["name"] != nil {
				at = fmt.Sprintf("%s[%v]", path, limit["name"])
			}
			flatten(into, at, below)
		}
	case nil:
	default:
		into[path] = fmt.Sprint(v)
	}
}
