package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"
)

// A mutant is one change of one place. Its texts name it, and stay when lines move.
type mutant struct {
	id       int // from 1
	file     string
	line     int
	function string
	from, to string
	nth      int // of the same change in the same function, from 1

	reached bool
	seenBy  string // a test; empty if it survived
}

// key names the mutant in the list.
func (m *mutant) key() string {
	key := fmt.Sprintf("%s %s: %s → %s", m.file, m.function, m.from, m.to)
	if m.nth > 1 {
		key += fmt.Sprintf(" (%d)", m.nth)
	}
	return key
}

// place is the key with the line.
func (m *mutant) place() string {
	return fmt.Sprintf("%s:%d %s", m.file, m.line, m.key()[len(m.file)+1:])
}

func (m *mutant) has(words []string) bool {
	for _, w := range words {
		if !strings.Contains(m.key(), w) {
			return false
		}
	}
	return true
}

// A mutator writes the mutants of a file into its text: each place becomes an expression
// or a statement that chooses between the original and the mutants.
type mutator struct {
	pkg      *types.Package
	info     *types.Info
	file     *ast.File
	fset     *token.FileSet
	name     string
	text     []byte
	function string

	before, after map[int]string
	instead       map[int]replacement
	add           func(m *mutant) // gives it an id
}

type replacement struct {
	length int
	text   string
}

// mutate returns the text with all its mutants.
func (m *mutator) mutate() []byte {
	m.before, m.after, m.instead = map[int]string{}, map[int]string{}, map[int]replacement{}
	for _, d := range m.file.Decls {
		m.function = "package"
		switch d := d.(type) {
		case *ast.FuncDecl:
			m.function = m.nameOf(d)
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
		}
		ast.PreorderStack(d, nil, m.visit)
	}
	var out []byte
	for i := 0; i <= len(m.text); i++ {
		out = append(append(out, m.after[i]...), m.before[i]...)
		if r, ok := m.instead[i]; ok {
			out = append(out, r.text...)
			i += r.length - 1
		} else if i < len(m.text) {
			out = append(out, m.text[i])
		}
	}
	return out
}

func (m *mutator) nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	return regexp.MustCompile(`\[.*\]|\*`).ReplaceAllString(m.of(f.Recv.List[0].Type), "") + "." + f.Name.Name
}

// visit adds the mutants of a node.
func (m *mutator) visit(n ast.Node, stack []ast.Node) bool {
	switch n := n.(type) {
	case *ast.ArrayType:
		return false // its length is a constant
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.BinaryExpr:
		if m.info.Types[n].Value == nil || !isBool(m.info.TypeOf(n)) {
			m.binary(n)
		}
	case *ast.UnaryExpr:
		switch n.Op {
		case token.SUB:
			m.call(n, "neg", m.new(n, m.of(n.X)), n.OpPos, 1, "")
		case token.NOT:
			m.either(n, m.of(n.X))
		}
	case *ast.IfStmt:
		if _, ok := ast.Unparen(n.Cond).(*ast.BinaryExpr); !ok {
			if u, ok := ast.Unparen(n.Cond).(*ast.UnaryExpr); !ok || u.Op != token.NOT {
				m.either(n.Cond, "!"+m.of(n.Cond))
			}
		}
	case *ast.IncDecStmt, *ast.AssignStmt, *ast.BranchStmt, *ast.ExprStmt:
		m.statement(n.(ast.Stmt), stack)
	}
	return true
}

var (
	negated = map[token.Token]token.Token{token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND}
	atBoundary = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	inverted   = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
		token.AND: token.OR, token.OR: token.AND, token.XOR: token.AND, token.AND_NOT: token.AND, token.SHL: token.SHR, token.SHR: token.SHL,
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
		token.REM_ASSIGN: token.MUL_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN, token.XOR_ASSIGN: token.AND_ASSIGN,
		token.AND_NOT_ASSIGN: token.AND_ASSIGN, token.SHL_ASSIGN: token.SHR_ASSIGN, token.SHR_ASSIGN: token.SHL_ASSIGN}
	// helpers are the functions of switch.go.txt that do arithmetic.
	helpers = map[token.Token]string{token.ADD: "add", token.SUB: "sub", token.MUL: "mul", token.QUO: "quo", token.REM: "rem",
		token.AND: "and", token.OR: "or", token.XOR: "xor", token.AND_NOT: "andNot", token.SHL: "shl", token.SHR: "shr"}
)

func (m *mutator) binary(n *ast.BinaryExpr) {
	for _, ops := range []map[token.Token]token.Token{negated, atBoundary} {
		if to, ok := ops[n.Op]; ok {
			m.either(n, fmt.Sprintf("%s %s %s", m.operand(n.X), to, m.operand(n.Y)))
		}
	}
	to, ok := inverted[n.Op]
	if !ok || !isNumber(m.info.TypeOf(n)) {
		return
	}
	id := m.new(n, fmt.Sprintf("%s %s %s", m.of(n.X), to, m.of(n.Y)))
	m.call(n, helpers[n.Op], id, n.OpPos, len(n.Op.String()), ",")
	if n.Op == token.SHL || n.Op == token.SHR {
		m.wrap(n.Y, "uint(", ")")
	}
}

// call makes an operation a call of a helper that does it or its mutant.
func (m *mutator) call(n ast.Expr, helper string, id int, op token.Pos, length int, instead string) {
	t := types.TypeString(types.Default(m.info.TypeOf(n)), func(p *types.Package) string {
		if p == m.pkg {
			return ""
		}
		return p.Name()
	})
	m.wrap(n, fmt.Sprintf("mutant%s__[%s](%d, ", helper, t, id), ")")
	m.instead[m.offset(op)] = replacement{length, instead}
}

// either makes a condition one that has the mutant's value if the mutant is on. Operands
// are evaluated once, as before.
func (m *mutator) either(n ast.Expr, to string) {
	id := m.new(n, to)
	m.wrap(n, fmt.Sprintf("(mutant__(%d) && (%s) || !mutant__(%[1]d) && (", id, to), "))")
}

// statement adds the mutants of a statement.
func (m *mutator) statement(n ast.Stmt, stack []ast.Node) {
	if !inList(n, stack) {
		m.inFor(n)
		return
	}
	instead := func(to string) {
		id := m.new(n, to)
		if to == "" {
			m.wrap(n, fmt.Sprintf("if !mutant__(%d) { ", id), " }")
			return
		}
		m.wrap(n, fmt.Sprintf("if mutant__(%d) { %s } else { ", id, to), " }")
	}
	switch n := n.(type) {
	case *ast.IncDecStmt:
		instead(m.of(n.X) + opposite(n.Tok))
	case *ast.AssignStmt:
		if n.Tok == token.ASSIGN && m.of(n.Lhs[0]) != "_" {
			instead("")
		}
		to, ok := inverted[n.Tok]
		if !ok {
			return
		}
		x, y := m.of(n.Lhs[0]), m.of(n.Rhs[0])
		if isNumber(m.info.TypeOf(n.Lhs[0])) {
			instead(fmt.Sprintf("%s %s %s", x, to, y))
		}
		instead(x + " = " + y)
	case *ast.BranchStmt:
		if to := otherBranch(n, stack); to != "" {
			if n.Label != nil {
				to += " " + n.Label.Name
			}
			instead(to)
			m.endless(stack)
		}
	case *ast.ExprStmt:
		if c, ok := n.X.(*ast.CallExpr); ok && m.of(c.Fun) != "panic" {
			instead("")
		}
	}
}

// inFor adds the mutants of the statement after each round of a loop, in whose place only a
// simple statement can be.
func (m *mutator) inFor(n ast.Stmt) {
	switch n := n.(type) {
	case *ast.IncDecStmt:
		x := m.of(n.X)
		id := m.new(n, x+opposite(n.Tok))
		m.instead[m.offset(n.TokPos)] = replacement{2, fmt.Sprintf(" %c= mutantsign__(%d, %s, 1)", n.Tok.String()[0], id, x)}
	case *ast.AssignStmt:
		if n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN {
			x := m.of(n.Lhs[0])
			id := m.new(n, fmt.Sprintf("%s %s %s", x, inverted[n.Tok], m.of(n.Rhs[0])))
			m.wrap(n.Rhs[0], fmt.Sprintf("mutantsign__(%d, %s, ", id, x), ")")
		}
	}
}

// endless ends a loop that had no break, and has one now, as the compiler wants it.
func (m *mutator) endless(stack []ast.Node) {
	for i := len(stack) - 1; i > 0; i-- {
		loop, ok := stack[i].(*ast.ForStmt)
		if !ok || loop.Cond != nil {
			continue
		}
		if body, ok := stack[i-1].(*ast.BlockStmt); ok && body.List[len(body.List)-1] == loop {
			m.after[m.offset(loop.End())] = `; panic("mutants: no break before")`
		}
		return
	}
}

func opposite(t token.Token) string {
	if t == token.INC {
		return "--"
	}
	return "++"
}

// otherBranch returns continue for break and break for continue, if the other can be there.
func otherBranch(n *ast.BranchStmt, stack []ast.Node) string {
	if n.Tok != token.BREAK && n.Tok != token.CONTINUE {
		return ""
	}
	for i := len(stack) - 1; i >= 0; i-- {
		switch s := stack[i].(type) {
		case *ast.FuncLit:
			return ""
		case *ast.LabeledStmt:
			if n.Label == nil || s.Label.Name != n.Label.Name {
				continue
			}
			switch s.Stmt.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
			default:
				return ""
			}
		case *ast.ForStmt, *ast.RangeStmt:
			if n.Label != nil {
				continue
			}
		default:
			continue
		}
		if n.Tok == token.BREAK {
			return "continue"
		}
		return "break"
	}
	return ""
}

// inList reports whether a statement is one of a list, where an if can be.
func inList(n ast.Stmt, stack []ast.Node) bool {
	switch p := stack[len(stack)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause, *ast.LabeledStmt:
		return true
	case *ast.CommClause:
		return p.Comm != n
	}
	return false
}

func isBool(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

// isNumber reports whether values of a type, or of all types of its constraint, are numbers.
func isNumber(t types.Type) bool {
	if p, ok := t.(*types.TypeParam); ok {
		t = p.Constraint()
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsFloat) != 0
}

// new records the mutant that has to instead of a node, and returns its id.
func (m *mutator) new(n ast.Node, to string) int {
	c := &mutant{file: m.name, function: m.function, line: m.fset.Position(n.Pos()).Line, from: flat(m.of(n)), to: flat(to)}
	if to == "" {
		c.to = "nothing"
	}
	m.add(c)
	return c.id
}

func (m *mutator) wrap(n ast.Node, before, after string) {
	m.before[m.offset(n.Pos())] += before
	m.after[m.offset(n.End())] = after + m.after[m.offset(n.End())]
}

func (m *mutator) operand(n ast.Expr) string {
	if _, ok := n.(*ast.BinaryExpr); ok {
		return "(" + m.of(n) + ")"
	}
	return m.of(n)
}

func (m *mutator) of(n ast.Node) string { return string(m.text[m.offset(n.Pos()):m.offset(n.End())]) }

func (m *mutator) offset(p token.Pos) int { return m.fset.Position(p).Offset }

var space = regexp.MustCompile(`\s+`)

// flat puts a text in one line.
func flat(text string) string { return space.ReplaceAllString(strings.TrimSpace(text), " ") }
