package upstream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
	"github.com/tidwall/gjson"

	"github.com/seed-30fe103d/throttler/internal/hint"
)

// A Kind is the type of a request expression's value.
type Kind uint8

const (
	Condition Kind = iota // true or false
	Key                   // a text or a number
	Cost                  // a number; a fraction is rounded up
	Text                  // a text
	Same                  // any type; has target, payload, params(without...) and elements(without...) too
)

// MaxKey is the greatest length of a key, in bytes.
const MaxKey = 256

// An Expr is a compiled request expression (the language of expr-lang/expr). It has
// method, path, segment(n), query(n), form(n), param(n), header(n), json(path), xml(path),
// urlencode(text or object), fromJSON(text), toXML(object) and refuse(reason). The path of xml has the names of elements
// below the root, such as order.number. A value that is there twice, or in a part that
// servers read in several ways, is an error. A path with //, %2F, a backslash or a semicolon
// is read in each of these ways, and a value of the expression that is not the same in all of
// them is an error. It is safe for concurrent use.
type Expr struct {
	source   string
	program  *vm.Program
	question bool // it has the variables of the answer too; see CompileQuestion
}

// requestEnv has the variables of request expressions.
type requestEnv struct {
	Method  string                       `expr:"method"`
	Path    func() (string, error)       `expr:"path"` // written as a variable
	Segment func(int) (string, error)    `expr:"segment"`
	Query   func(string) (string, error) `expr:"query"`
	Form    func(string) (string, error) `expr:"form"`
	Param   func(string) (string, error) `expr:"param"`
	Header  func(string) (string, error) `expr:"header"`
	JSON    func(string) (any, error)    `expr:"json"`
	XML     func(string) (any, error)    `expr:"xml"`
}

// answerEnv has the variables of outcome rules: those of the answer, and those of the
// request except header, which is the answer's.
type answerEnv struct {
	requestEnv
	Status    int                       `expr:"status"`
	Body      func(string) (any, error) `expr:"body"`
	Remaining func() any                `expr:"remaining"` // written as a variable
	Error     string                    `expr:"error"`
	Sent      bool                      `expr:"sent"`
	Repeat    bool                      `expr:"repeat"`
	Keyed     bool                      `expr:"keyed"`
}

// Compile compiles a request expression and checks its types.
func Compile(source string, kind Kind) (*Expr, error) {
	var env any = requestEnv{}
	if kind == Same {
		env = sameEnv{}
	}
	program, err := compile(source, env, kind)
	if err == nil && kind == Cost {
		err = constantCost(source, program)
	}
	if err == nil && program.Node().Type() != nil && program.Node().Type().Kind() == reflect.Func {
		err = fmt.Errorf("gives a function, must be a text or a number; call it, such as param(\"name\") (in %s)", inQuotes(source))
	}
	return &Expr{source: source, program: program}, err
}

// programs are expressions that were compiled before: each upstream of a preset has the same ones,
// and so has each case of throttler test, and the configuration after a reload. A program has no state.
var programs struct {
	sync.Mutex
	all map[compiled]*vm.Program // at most maxPrograms
}

const maxPrograms = 1000

// compiled is what a program was compiled from.
type compiled struct {
	source string
	env    reflect.Type
	as     Kind
}

// compile returns the program of an expression that has the variables of env.
func compile(source string, env any, as Kind) (*vm.Program, error) {
	from := compiled{source, reflect.TypeOf(env), as}
	programs.Lock()
	program := programs.all[from]
	programs.Unlock()
	if program != nil {
		return program, nil
	}
	program, err := compileAnew(source, env, as)
	if err != nil {
		return nil, err
	}
	programs.Lock()
	defer programs.Unlock()
	if programs.all == nil || len(programs.all) >= maxPrograms {
		programs.all = make(map[compiled]*vm.Program)
	}
	programs.all[from] = program
	return program, nil
}

func compileAnew(source string, env any, as Kind) (*vm.Program, error) {
	of := map[Kind]expr.Option{Condition: expr.AsBool(), Key: expr.AsAny(), Cost: expr.AsFloat64(), Text: expr.AsKind(reflect.String), Same: expr.AsAny()}[as]
	language := hint.Language{Env: reflect.TypeOf(env), Example: `method == "POST"`}
	if _, ok := env.(answerEnv); ok {
		language.Example = "status == 429"
	} else {
		language.Other, language.Where = reflect.TypeFor[answerEnv](), "outcomes"
	}
	names := &identifiers{}
	program, err := expr.Compile(source, of, expr.Env(env), urlencode, fromJSON, toXML, refuse, expr.Patch(computed{}), expr.Patch(names))
	if err == nil {
		err = names.unknown(language.Names())
	}
	var at *file.Error
	if errors.As(err, &at) { // its text has three lines: they draw the place
		return nil, fmt.Errorf("%s (in %s, character %d)", language.Expression(at.Message), inQuotes(source), at.Column+1)
	}
	if err != nil {
		return nil, fmt.Errorf("%s (in %s)", language.Expression(err.Error()), inQuotes(source))
	}
	return program, nil
}

// inQuotes returns an expression in quotes: single ones if those need no escapes.
func inQuotes(source string) string {
	if strings.ContainsAny(source, "'\n") || !strings.Contains(source, `"`) {
		return strconv.Quote(source)
	}
	return "'" + source + "'"
}

// identifiers collects the names that an expression uses. The compiler checks no arguments
// of functions that have a type from an earlier pass, which a patch makes.
type identifiers struct {
	used     []*ast.IdentifierNode
	declared []string
}

func (i *identifiers) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		i.used = append(i.used, n)
	case *ast.VariableDeclaratorNode:
		i.declared = append(i.declared, n.Name)
	}
}

// unknown returns the error of the first name that is not there.
func (i *identifiers) unknown(known []string) error {
	known = slices.Concat(known, i.declared, []string{"urlencode", "fromJSON", "toXML", "refuse", "$env"})
	for _, n := range i.used {
		if !slices.Contains(known, n.Value) {
			return &file.Error{Location: n.Location(), Column: n.Location().From, Message: "unknown name " + n.Value}
		}
	}
	return nil
}

// computed makes calls of the variables that are computed: path can fail, which a variable of an
// expression cannot, likewise location, and remaining is seldom asked for.
type computed struct{}

func (computed) Visit(node *ast.Node) {
	if id, ok := (*node).(*ast.IdentifierNode); ok && slices.Contains([]string{"path", "remaining", "location"}, id.Value) {
		ast.Patch(node, &ast.CallNode{Callee: &ast.IdentifierNode{Value: id.Value}})
	}
}

// urlencode escapes a text for a query, and turns an object into a query or
// form: its members sorted by name, without empty ones.
var urlencode = expr.Function("urlencode", func(params ...any) (any, error) {
	object, ok := params[0].(map[string]any)
	if !ok {
		return url.QueryEscape(fmt.Sprint(params[0])), nil
	}
	values := make(url.Values)
	for name, v := range object {
		if v != nil && v != "" {
			values.Set(name, fmt.Sprint(v))
		}
	}
	return values.Encode(), nil
}, new(func(string) string), new(func(map[string]any) string))

// fromJSON reads a JSON text that a parameter holds, by the rules for a body.
var fromJSON = expr.Function("fromJSON", func(params ...any) (any, error) {
	text := withoutMark([]byte(params[0].(string)))
	switch {
	case tooDeep(text):
		return nil, errDeep
	case ambiguous(text):
		return nil, errTwice
	}
	if !json.Valid(text) {
		return nil, unclear("fromJSON has a text that is no JSON, such as an encrypted one")
	}
	return exact(gjson.ParseBytes(text)), nil
}, new(func(string) any))

// Bool evaluates a Condition.
func (e *Expr) Bool(in *Input) (bool, error) {
	v, err := e.run(in)
	if err != nil {
		return false, err
	}
	return v.(bool), nil
}

// Key evaluates a Key. An empty, absent or overlong value is an error: calls of
// different keys must not be counted as one.
func (e *Expr) Key(in *Input) (string, error) {
	key, err := e.OptionalKey(in)
	if err == nil && key == "" {
		err = fmt.Errorf("%s is empty", e.source)
	}
	return key, err
}

// OptionalKey evaluates a Key that may be empty or absent; it is empty then.
func (e *Expr) OptionalKey(in *Input) (string, error) {
	v, err := e.run(in)
	if err != nil {
		return "", err
	}
	var key string
	switch v := v.(type) {
	case nil:
	case string:
		key = v
	case int, int64, float64, bool:
		key = fmt.Sprint(v)
	default:
		return "", fmt.Errorf("%s gives a %T, must be a text or a number", e.source, v)
	}
	if len(key) > MaxKey {
		return "", fmt.Errorf("%s is %d bytes long, at most %d are taken", e.source, len(key), MaxKey)
	}
	return key, nil
}

// Cost evaluates a Cost. A fraction is rounded up: a call never takes less than the expression gives. The
// error has the value if that is no number from 1 to 2^31.
func (e *Expr) Cost(in *Input) (int, error) {
	v, err := e.run(in)
	if err != nil {
		return 0, err
	}
	n, why := permits(v.(float64))
	if why != "" {
		return 0, fmt.Errorf("%s is %v, must be %s", e.source, v, why)
	}
	return n, nil
}

// Text evaluates a Text, which may be empty.
func (e *Expr) Text(in *Input) (string, error) {
	v, err := e.run(in)
	if err != nil {
		return "", err
	}
	text, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("%s gives a %T, must be a text", e.source, v)
	}
	return text, nil
}

func (e *Expr) run(in *Input) (any, error) { return e.eval(in, e.env(in)) }

// env returns the variables of the expression.
func (e *Expr) env(in *Input) any {
	if e.question {
		return question(in)
	}
	return in.variables()
}

// ReadsAnswer reports whether an expression of CompileQuestion reads the answer.
func (e *Expr) ReadsAnswer() bool {
	return e != nil && e.question && names(e.program, "status", "body", "answer_header", "location")
}

func (e *Expr) eval(in *Input, env any) (any, error) {
	v, err := in.run(e.program, env)
	if err != nil {
		var why unclear
		if errors.As(err, &why) {
			return nil, fmt.Errorf("%s cannot be computed for this request: %w", e.source, why)
		}
		// Another error may quote values of the request, so it is replaced.
		return nil, fmt.Errorf("%s cannot be computed for this request", e.source)
	}
	return v, nil
}
