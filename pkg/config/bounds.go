package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Bounds of a text that is not trusted. The file of a sidecar has none.
const (
	maxItems  = 10_000 // of one section or list
	maxValues = 50_000 // of the whole text, sections and lists included, with those of aliases
)

// bounded returns the first section or list of a document that has too many items, as [Errors]. It
// comes before the document is decoded: the YAML package compares each key with each other one.
func bounded(at *places, root *yaml.Node) error {
	values := 0
	var walk func(path string, n *yaml.Node) error
	walk = func(path string, n *yaml.Node) error {
		if values++; values > maxValues {
			return Errors{{"", "", fmt.Errorf("the configuration has more than %d values; inspect a part of it", maxValues)}}
		}
		step, items := 1, n.Content
		switch n.Kind {
		case yaml.AliasNode:
			return walk(path, n.Alias)
		case yaml.MappingNode:
			step = 2
		}
		if has := len(items) / step; has > maxItems {
			place, _ := at.of(path)
			return Errors{{place, path, fmt.Errorf("has %d items, at most %d can be inspected; leave some out", has, maxItems)}}
		}
		for i := step - 1; i < len(items); i += step {
			beneath := path
			switch n.Kind {
			case yaml.MappingNode:
				beneath = join(path, strings.ToLower(items[i-1].Value))
			case yaml.SequenceNode:
				beneath = index(path, i)
			}
			if err := walk(beneath, items[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return walk("", root)
}
