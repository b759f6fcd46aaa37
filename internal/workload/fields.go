package workload

import (
	"slices"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// readers are the functions of request expressions that read a field.
var readers = []string{"query", "form", "param", "header", "json"}

// A field is one part of a request that an expression reads.
type field struct {
	name string   // the column that has it
	as   []string // all columns that may replace it
}

// fieldsOf returns the fields that a request expression reads by constant
// names.
func fieldsOf(source string) []field {
	tree, err := parser.Parse(source)
	if err != nil {
		return nil // cannot happen: the expression has been compiled
	}
	v := &fieldVisitor{}
	ast.Walk(&tree.Node, v)
	return v.fields
}

type fieldVisitor struct{ fields []field }

func (v *fieldVisitor) Visit(n *ast.Node) {
	switch n := (*n).(type) {
	case *ast.IdentifierNode:
		if n.Value == "method" || n.Value == "path" {
			v.add(field{n.Value, []string{n.Value}})
		}
	case *ast.CallNode:
		f, ok := n.Callee.(*ast.IdentifierNode)
		if !ok || len(n.Arguments) != 1 || !slices.Contains(readers, f.Value) {
			return
		}
		if arg, ok := n.Arguments[0].(*ast.StringNode); ok {
			v.add(newField(f.Value, arg.Value))
		}
	}
}

func (v *fieldVisitor) add(f field) {
	if !slices.ContainsFunc(v.fields, func(o field) bool { return o.name == f.name }) {
		v.fields = append(v.fields, f)
	}
}

func newField(reader, name string) field {
	f := field{name: reader + "." + name}
	switch reader {
	case "param":
		f.as = []string{f.name, "query." + name, "form." + name}
	case "query", "form":
		f.as = []string{f.name, "param." + name}
	case "json": // a column above the path contains it
		for path := name; path != ""; {
			f.as = append(f.as, "json."+path)
			path = path[:max(0, strings.LastIndexByte(path, '.'))]
		}
	default:
		f.as = []string{f.name}
	}
	return f
}

// in reports whether rows with these columns have the field.
func (f field) in(c *columns) bool {
	return slices.ContainsFunc(f.as, func(name string) bool {
		_, ok := c.index[name]
		return ok
	})
}
