package openapi

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

// object returns a mapping of names and values, in their order.
func object(members ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i < len(members); i += 2 {
		set(n, members[i].(string), members[i+1].(*yaml.Node))
	}
	return n
}

func list(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Content: items}
}

func text(s string) *yaml.Node {
	var n yaml.Node
	n.SetString(s)
	return &n
}

func number(i int) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.Itoa(i)}
}

func boolean(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(b)}
}

// set sets a member.
func set(n *yaml.Node, name string, value *yaml.Node) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content[i+1] = value
			return
		}
	}
	n.Content = append(n.Content, text(name), value)
}

// member returns a member, nil if there is none.
func member(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

func remove(n *yaml.Node, name string) {
	for i := 0; n != nil && i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content = append(n.Content[:i], n.Content[i+2:]...)
			return
		}
	}
}

// walk calls f for each node, inner ones first.
func walk(n *yaml.Node, f func(*yaml.Node)) {
	for _, c := range n.Content {
		walk(c, f)
	}
	f(n)
}

// plain makes a value that was JSON look like YAML. Instants stay texts.
func plain(n *yaml.Node) {
	walk(n, func(n *yaml.Node) {
		n.Style = 0
		if n.Tag == "!!timestamp" || n.Tag == "!!str" {
			n.SetString(n.Value)
		}
	})
}
