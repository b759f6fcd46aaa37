package config

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Change is that of one key between two configurations. Its text is a line such as
//
//	upstreams.alipay.limits[app].calls: 100 → 200
type Change struct {
	Path          string
	Before, After string // empty if there is none, or it is hidden
	Kind          string // new, removed or changed
	Hidden        bool   // a value that may be a secret
	Restart       bool   // the value in force stays until a restart
}

// Diff returns the changes in another configuration, by path. A limit or a caller is identified by
// its name, not by its place in the list. A key that needs a restart has its default where it is
// absent.
//
// Values of limits, of access, of ui, numbers, durations, truth values and of keys that need a
// restart are shown, but for seal_key, keys and hashes. Other values are hidden, since they
// may hold secrets.
func (c *Config) Diff(next *Config) []Change {
	was, is := c.withDefaults(), next.withDefaults()
	paths := maps.Clone(was)
	maps.Copy(paths, is)
	var all []Change
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if change, changed := changeOf(path, was, is); changed {
			_, change.Restart = fixedKeys[path]
			all = append(all, change)
		}
	}
	return all
}

func (c Change) String() string {
	text := c.Path + ": "
	switch {
	case c.Kind == "changed" && c.Hidden:
		text += "changed (values hidden)"
	case c.Kind == "changed":
		text += c.Before + " → " + c.After
	case c.Hidden:
		text += c.Kind + " (value hidden)"
	case c.Kind == "new":
		text += "new, " + c.After
	default:
		text += "removed, was " + c.Before
	}
	if c.Restart {
		text += "; stays as it is until a restart"
	}
	return text
}

// Reloaded notes that the configuration has replaced a running one without a restart. The
// next Diff compares the values that are in force: those of keys that need a restart are
// the old ones.
func (c *Config) Reloaded(running *Config) {
	for path := range fixedKeys {
		delete(c.settings, path)
		if value, set := running.settings[path]; set {
			c.settings[path] = value
		}
	}
}

// fixedKeys are the keys that are read at the start of the process only, with their
// defaults.
var fixedKeys = map[string]string{
	"admin": DefaultAdmin, "monitor": "", "store": DefaultStore, "keep_calls": "168h", "keep_keys": "24h", "keep_audit": "9600h", "long_window": "1m",
	"store_secret": "", "fleet.listen": "", "fleet.advertise": "", "fleet.name": "", "fleet.lease": "2s", "seal_key": "", "log.level": "info", "log.format": "text",
}

// withDefaults returns the settings with the defaults of fixed keys.
func (c *Config) withDefaults() map[string]string {
	all := maps.Clone(c.settings)
	for path, value := range fixedKeys {
		if _, set := all[path]; !set && value != "" {
			all[path] = value
		}
	}
	return all
}

// changeOf returns the change of a key's value; false if there is none.
func changeOf(path string, was, is map[string]string) (Change, bool) {
	before, had := was[path]
	after, has := is[path]
	if had && has && equal(before, after) {
		return Change{}, false
	}
	c := Change{Path: path, Before: before, After: after, Kind: "changed"}
	if !had {
		c.Kind = "new"
	} else if !has {
		c.Kind = "removed"
	}
	if had && !mayShow(path, before) || has && !mayShow(path, after) {
		c.Before, c.After, c.Hidden = "", "", true
	}
	return c, true
}

// equal reports whether two values are equal, durations also if they are written in other
// units.
func equal(a, b string) bool {
	long, errA := time.ParseDuration(a)
	other, errB := time.ParseDuration(b)
	return a == b || errA == nil && errB == nil && long == other
}

// mayShow reports whether a value is none that may hold a secret.
func mayShow(path, value string) bool {
	_, fixed := fixedKeys[path]
	_, notNumber := strconv.ParseFloat(value, 64)
	_, notDuration := time.ParseDuration(value)
	_, notSwitch := strconv.ParseBool(value)
	return !secret.MatchString(path) && (fixed || strings.Contains(path, ".limits[") || strings.HasPrefix(path, "access.") || strings.HasPrefix(path, "ui.") || notNumber == nil || notDuration == nil || notSwitch == nil)
}

// byName matches the lists whose items have names.
var byName = regexp.MustCompile(`\.limits$|^access\.(tokens|certificates)$`)

// keep keeps viper's settings for Diff.
func (c *Config) keep(settings map[string]any) {
	c.settings = make(map[string]string)
	flatten(c.settings, "", settings)
	maps.DeleteFunc(c.settings, func(path, _ string) bool { return path == "admin" || strings.HasPrefix(path, "admin[") })
	c.settings["admin"] = strings.Join(c.Admin, ", ")
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
			if item, ok := below.(map[string]any); ok && byName.MatchString(path) && item["name"] != nil {
				at = itemAt(path, item)
			}
			flatten(into, at, below)
		}
	case nil:
	default:
		into[path] = fmt.Sprint(v)
	}
}

// itemAt returns the path of an item in a list, with its name.
func itemAt(path string, item map[string]any) string {
	return fmt.Sprintf("%s[%v]", path, item["name"])
}
