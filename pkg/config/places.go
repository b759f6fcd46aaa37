package config

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// places tells where the values of a configuration come from. It is the only part that
// knows lines: all others know paths.
type places struct {
	file    string            // its name in messages; empty for a text without a file
	lines   map[string]int    // of the file, by path
	sources map[string]string // by path: the variable or flag that has set the value
}

// newPlaces returns the places of a document's keys. A key of an alias or a merge has no
// line of its own.
func newPlaces(file string, doc *yaml.Node) *places {
	p := &places{file, make(map[string]int), make(map[string]string)}
	p.walk("", doc)
	return p
}

func (p *places) walk(path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.DocumentNode:
		p.walk(path, n.Content[0])
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := join(path, strings.ToLower(n.Content[i].Value))
			p.lines[at] = n.Content[i].Line
			p.walk(at, n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			at := index(path, i)
			p.lines[at] = item.Line
			p.walk(at, item)
		}
	}
}

// of returns the place of a path, and its line. A missing key has the place of the
// section that lacks it. The line is 0 if the value is not of the file.
func (p *places) of(path string) (place string, line int) {
	for at := path; at != "" && line == 0; at = parent(at) {
		if source := p.sources[at]; source != "" {
			return source, 0
		}
		line = p.lines[at]
	}
	return p.at(line), line
}

// parent returns the path of the section or list that a path lies in.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }

// at returns the place of a line, FILE:LINE.
func (p *places) at(line int) string {
	switch {
	case line == 0:
		return p.file
	case p.file == "":
		return fmt.Sprintf("line %d", line)
	}
	return fmt.Sprintf("%s:%d", p.file, line)
}
