package upstream

import (
	"fmt"
	"math"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

// mostCost is the greatest number of permits of one call.
const mostCost = 1 << 31

// permits rounds a cost up. Why says what a cost must be that is none.
func permits(v float64) (n int, why string) {
	up := math.Ceil(v)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return 0, "a finite number"
	case up < 1:
		return 0, "at least 1"
	case up > mostCost:
		return 0, fmt.Sprintf("at most %d", int64(mostCost))
	}
	return int(up), ""
}

// constantCost returns the fault of a cost that is the same for all calls: one that is none, or a
// fraction, by which the file says less than is counted.
func constantCost(source string, program *vm.Program) error {
	v := &variables{}
	node := program.Node()
	if ast.Walk(&node, v); v.found {
		return nil
	}
	var machine vm.VM
	value, err := machine.Run(program, nil)
	if err != nil {
		return fmt.Errorf("cannot be computed (in %s)", inQuotes(source))
	}
	n, why := permits(value.(float64))
	switch {
	case why != "":
		return fmt.Errorf("is %v, must be %s (in %s)", value, why, inQuotes(source))
	case float64(n) != value:
		return fmt.Errorf("is %v for each call, must be a whole number; write %d, since a fraction counts as the next one (in %s)", value, n, inQuotes(source))
	}
	return nil
}

// variables finds a part of an expression whose value may differ between runs.
type variables struct{ found bool }

func (v *variables) Visit(node *ast.Node) {
	switch (*node).(type) {
	case *ast.IdentifierNode, *ast.CallNode, *ast.BuiltinNode:
		v.found = true
	}
}
