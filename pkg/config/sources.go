package config

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// flagKeys maps flags to the keys that they override.
var flagKeys = map[string]string{"admin": "admin", "log-level": "log.level", "log-format": "log.format"}

// AddFlags defines the flags that override the file.
func AddFlags(flags *pflag.FlagSet) {
	flags.String("admin", DefaultAdmin, "listen `address` of the admin API: host:port or unix:PATH; several with commas")
	flags.String("log-level", "info", "debug, info, warn or error")
	flags.String("log-format", "text", "text or json")
}

// leaves calls f with the path of each key that holds one value: lists and the
// keys of maps have no variable.
func leaves(path []string, t reflect.Type, f func(path []string)) {
	for _, k := range keys(t) {
		at := append(slices.Clip(path), k.name)
		switch {
		case keys(k.typ) != nil:
			leaves(at, k.typ, f)
		case k.typ.Kind() != reflect.Slice && k.typ.Kind() != reflect.Map:
			f(at)
		}
	}
}

const variablePrefix = "THROTTLER_"

// FileVariable is the variable that names the file, and is none of a key.
const FileVariable = "THROTTLER_CONFIG"

// otherVariables are those that are none of a key: of the file, and of commands that ask a
// running sidecar.
var otherVariables = []string{FileVariable, "THROTTLER_ADDR", "THROTTLER_TOKEN"}

// variable returns the name of a path's variable.
func variable(path []string) string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(strings.Join(path, "_"), "-", "_"))
}

// bindEnvironment binds the variables of all keys, for the given upstreams.
// It warns of each other variable that begins with the prefix.
func bindEnvironment(faults *faultList, v *viper.Viper, upstreams map[string]any) {
	bound := make(map[string]string) // paths by variable
	bind := func(path []string) {
		name, at := variable(path), strings.Join(path, ".")
		v.BindEnv(strings.Join(path, separator), name) // fails only without a key
		if bound[name] = at; os.Getenv(name) != "" {
			faults.sources[at] = name
		}
	}
	leaves(nil, reflect.TypeFor[file](), bind)
	for _, name := range slices.Sorted(maps.Keys(upstreams)) {
		at := []string{"upstreams", name}
		if other, taken := bound[variable(append(at, "url"))]; taken {
			faults.add(strings.Join(at, "."), "has the variables of %s, %s_…; take names that differ in more than - and _", strings.TrimSuffix(other, ".url"), variable(at))
			continue
		}
		leaves(at, reflect.TypeFor[fileUpstream](), bind)
	}
	for _, entry := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, variablePrefix) && !slices.Contains(otherVariables, name) && bound[name] == "" {
			known := slices.Collect(maps.Keys(bound))
			faults.sources[name] = "environment"
			faults.warn(name, "is not the variable of any key, nor of an upstream in the file%s", hint.Meant(name, known))
		}
	}
}

// bindFlags binds the flags that the user has given.
func bindFlags(faults *faultList, v *viper.Viper, flags *pflag.FlagSet) {
	if flags == nil {
		return
	}
	for name, path := range flagKeys {
		if f := flags.Lookup(name); f != nil && f.Changed {
			v.BindPFlag(strings.ReplaceAll(path, ".", separator), f) // fails only without a flag
			faults.sources[path] = "--" + name
		}
	}
}
