package hint

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/expr-lang/expr/builtin"
)

// A Language is a language of expressions (expr-lang/expr), as far as its faults need it.
type Language struct {
	// Env is the struct with the variables: the tag expr of a field is its name.
	Env reflect.Type
	// Example is a comparison, to show how a value becomes true or false.
	Example string
	// Other is the struct of another language, if any: its names are known Where, and not here.
	Other reflect.Type
	Where string
}

// Names returns the names of the variables.
func (l Language) Names() []string { return names(l.Env) }

// A wording replaces an error of the compiler.
type wording struct {
	of  *regexp.Regexp
	say func(l Language, match []string) string
}

var wordings = []wording{
	{regexp.MustCompile(`^unknown name (\S+)$`), func(l Language, m []string) string { return l.unknown(m[1]) }},
	{regexp.MustCompile(`^unexpected token Operator\("="\)$`), func(Language, []string) string {
		return "= does not compare; write =="
	}},
	{regexp.MustCompile(`^unexpected token EOF$`), func(Language, []string) string {
		return "ends too early; close the bracket, or write the other side of the operator"
	}},
	{regexp.MustCompile(`^unexpected token \w+\("(&|(?i:and))"\)$`), func(_ Language, m []string) string {
		return m[1] + " is no operator; write and, or &&"
	}},
	{regexp.MustCompile(`^unexpected token \w+\("(?i:or)"\)$`), func(Language, []string) string {
		return "OR is no operator; write or, in small letters, or ||"
	}},
	{regexp.MustCompile(`^unexpected token \w+\((.+)\)$`), func(_ Language, m []string) string {
		return m[1] + " cannot stand here; write an operator before it, or look for a bracket or quote that is too many"
	}},
	{regexp.MustCompile(`^literal not terminated$`), func(Language, []string) string {
		return "the quote that begins here is not closed"
	}},
	{regexp.MustCompile(`^expected bool, but got (.+)$`), func(l Language, m []string) string {
		return fmt.Sprintf("gives %s, must be true or false; compare it, such as %s", typeName(m[1]), l.Example)
	}},
	{regexp.MustCompile(`^expected (.+), but got (.+)$`), func(_ Language, m []string) string {
		return fmt.Sprintf("gives %s, must be %s", typeName(m[2]), typeName(m[1]))
	}},
	{regexp.MustCompile(`^type func\(.*\).* has no field (\S+)$`), func(_ Language, m []string) string {
		return fmt.Sprintf("a function has no parts; call it, such as param(%q)", m[1])
	}},
	{regexp.MustCompile(`^cannot use (\S+) as argument \(type (\S+)\) to call (\S+) *$`), func(_ Language, m []string) string {
		return fmt.Sprintf("%s takes %s, not %s", m[3], typeName(m[2]), typeName(m[1]))
	}},
	{regexp.MustCompile(`^type (\S+) has no field (\S+)$`), func(l Language, m []string) string { return l.noField(m[1], m[2]) }},
	{regexp.MustCompile(`^invalid operation: (\S+) \(mismatched types? (.+?)(?: and (.+))?\)$`), func(_ Language, m []string) string {
		return mismatch(m[1], m[2], m[3])
	}},
	{regexp.MustCompile(`^(?:not enough|too many) arguments to call (\S+)$`), func(_ Language, m []string) string {
		return fmt.Sprintf("%s takes one name; write %s(\"name\")", m[1], m[1])
	}},
	{regexp.MustCompile(`^(.+) is not callable$`), func(_ Language, m []string) string {
		return typeName(m[1]) + " is no function; leave the brackets out"
	}},
}

// Expression words the message of an error of the compiler: it names no types of Go, and
// the likely intent. A message that it does not know stays as it is.
func (l Language) Expression(message string) string {
	for _, w := range wordings {
		if m := w.of.FindStringSubmatch(message); m != nil {
			return w.say(l, m)
		}
	}
	return message
}

// unknown words a name that is not there.
func (l Language) unknown(name string) string {
	known := names(l.Env)
	if l.Other != nil && slices.Contains(names(l.Other), name) {
		return fmt.Sprintf("%s is known in %s only; the names here are %s", name, l.Where, List(known))
	}
	if meant := Meant(name, slices.Concat(known, builtin.Names)); meant != "" {
		return "unknown name " + name + meant
	}
	for _, of := range known {
		if len(name) > 2 && strings.HasPrefix(of, name) || strings.HasSuffix(name, "_"+of) {
			return fmt.Sprintf("unknown name %s; did you mean %s?", name, of)
		}
	}
	return fmt.Sprintf("unknown name %s; a text needs quotes (\"%s\"), and the names are %s", name, name, List(known))
}

// noField words a field that a section of the environment does not have.
func (l Language) noField(section, field string) string {
	for f := range l.Env.Fields() {
		if f.Type.Kind() == reflect.Struct && f.Type.String() == section {
			return fmt.Sprintf("%s has no %s; it has %s", f.Tag.Get("expr"), field, List(names(f.Type)))
		}
		if f.Type.Kind() == reflect.Map && f.Type.Elem().String() == "*"+section {
			return fmt.Sprintf("an element of %s has no %s; it has %s", f.Tag.Get("expr"), field, List(names(f.Type.Elem())))
		}
	}
	return fmt.Sprintf("%s has no part .%s", typeName(section), field)
}

// names returns the names of a struct's fields, those of embedded ones too.
func names(t reflect.Type) []string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []string
	for f := range t.Fields() {
		if f.Anonymous {
			all = append(all, names(f.Type)...)
			continue
		}
		all = append(all, f.Tag.Get("expr"))
	}
	return all
}

// mismatch words an operator between values of different types.
func mismatch(operator, left, right string) string {
	types := []string{typeName(left), typeName(right)}
	said := fmt.Sprintf("%s does not work with %s and %s", operator, types[0], types[1])
	if right == "" {
		said = fmt.Sprintf("%s does not work with %s", operator, types[0])
	}
	switch {
	case slices.Contains(types, "a function"):
		return said + `; call the function, such as param("method")`
	case slices.Contains(types, "a duration"):
		return said + "; write a duration with its unit, such as 5s"
	case types[0] == "a text" && types[1] == "a whole number":
		return said + "; put the number in quotes, or int(…) around the text"
	case types[0] == "a whole number" && types[1] == "a text":
		return said + "; write the number without quotes, or int(…) around the text"
	}
	return said
}

// typeName returns a type of Go in words.
func typeName(of string) string {
	switch {
	case of == "string":
		return "a text"
	case of == "bool":
		return "true or false"
	case of == "int":
		return "a whole number"
	case of == "float64":
		return "a number"
	case of == "nil":
		return "nothing"
	case of == "time.Duration":
		return "a duration"
	case strings.HasPrefix(of, "func("):
		return "a function"
	case strings.HasPrefix(of, "["):
		return "a list"
	case strings.HasPrefix(of, "map["):
		return "an object"
	case of == "interface {}" || of == "any" || of == "unknown":
		return "any value"
	}
	return "a section"
}

// failures word the errors of a run; each has the types of Go in it, and no value.
var failures = []struct {
	of  *regexp.Regexp
	say func(match []string) string
}{
	{regexp.MustCompile(`^invalid operation: (int|float)\(`), func(m []string) string { return m[1] + " is given a value that is no number" }},
	{regexp.MustCompile(`^invalid operation: (.+) (?:<|>|<=|>=) (.+)$`), func(m []string) string {
		return fmt.Sprintf("%s is compared with %s", valueName(m[1]), valueName(m[2]))
	}},
	{regexp.MustCompile(`^invalid operation: (.+) ([-+*/%]) (.+)$`), func(m []string) string {
		return fmt.Sprintf("%s does not work with %s and %s", m[2], valueName(m[1]), valueName(m[3]))
	}},
	{regexp.MustCompile(`^invalid operation: - (.+)$`), func(m []string) string { return "- does not work with " + valueName(m[1]) }},
	{regexp.MustCompile(`^invalid operation: bool\((.+)\)$`), func(m []string) string {
		return "it gives " + valueName(m[1]) + ", and not true or false"
	}},
	{regexp.MustCompile(`^invalid argument for (\w+) \(type (.+)\)$`), func(m []string) string {
		return m[1] + " does not take " + valueName(m[2])
	}},
	{regexp.MustCompile(`^interface conversion: interface \{\} is (.+), not (.+)$`), func(m []string) string {
		return fmt.Sprintf("%s stands where %s belongs", valueName(m[1]), valueName(m[2]))
	}},
	{regexp.MustCompile(`^reflect\.Value\.MapIndex: value of type (.+) is not assignable to type (.+)$`), func(m []string) string {
		return fmt.Sprintf("%s is looked for in a list of texts or numbers of another type", valueName(m[1]))
	}},
	{regexp.MustCompile(`^operator "in" not defined on (.+)$`), func(m []string) string {
		return "in does not work with " + valueName(m[1])
	}},
	{regexp.MustCompile(`^reflect: call of reflect\.Value\.\w+ on (\S+) Value$`), func(m []string) string {
		return valueName(m[1]) + " stands where a list belongs"
	}},
	{regexp.MustCompile(`^reflect: Call using (.+) as type (.+)$`), func(m []string) string {
		return fmt.Sprintf("%s stands where %s belongs", valueName(m[1]), valueName(m[2]))
	}},
	{regexp.MustCompile(`^cannot use (.+) as argument \(type (\S+)\) to call (\w+)`), func(m []string) string {
		return fmt.Sprintf("%s takes %s, not %s", m[3], valueName(m[2]), valueName(m[1]))
	}},
	{regexp.MustCompile(`^index out of range: `), func([]string) string { return "a list or text is shorter than an index" }},
	{regexp.MustCompile(`^(?s)cannot fetch .* from ([^ ]+)$`), func(m []string) string { return valueName(m[1]) + " has no parts" }},
	{regexp.MustCompile(`^memory budget exceeded$`), func([]string) string { return "it takes too much memory" }},
}

// Failure words the message of an expression that has failed on a value. It holds no value: a
// message that it does not know is replaced.
func Failure(message string) string {
	for _, f := range failures {
		if m := f.of.FindStringSubmatch(message); m != nil {
			return f.say(m)
		}
	}
	return "a part of it does not fit the values"
}

// valueName returns the type of a value in words. It knows the types that values have, so that no
// value is taken for one.
func valueName(of string) string {
	switch {
	case of == "string" || of == "[]uint8":
		return "a text"
	case of == "int" || of == "int64" || of == "float64":
		return "a number"
	case of == "bool":
		return "true or false"
	case of == "map[string]interface {}" || of == "map":
		return "an object"
	case of == "[]interface {}" || of == "slice":
		return "a list"
	case of == "<nil>" || of == "nil" || of == "zero" || of == "invalid":
		return "nothing"
	}
	return "a value of another type"
}
