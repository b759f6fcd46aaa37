package hint

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/expr-lang/expr"
)

func ExampleMeant() {
	fmt.Println("unknown key widow" + Meant("widow", []string{"calls", "window", "guard"}))
	fmt.Println("unknown key rate" + Meant("rate", []string{"calls", "window", "guard"}))
	// Output:
	// unknown key widow; did you mean window?
	// unknown key rate
}

func TestNearest(t *testing.T) {
	known := []string{"calls", "window", "per_key", "time_zone", "name"}
	for name, want := range map[string]string{
		"widow": "window", "perkey": "per_key", "timezone": "time_zone", "call": "calls", "rate": "", "x": "", "": "",
		"nam": "name", "na": "", "nxyz": "",
	} {
		if got := Nearest(name, known); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

type flow struct {
	Sent int `expr:"sent"`
}

type load struct {
	Sent int `expr:"sent"`
}

type more struct {
	Path string `expr:"path"`
}

type env struct {
	more
	Method string                       `expr:"method"`
	Status int                          `expr:"status"`
	Wait   time.Duration                `expr:"wait"`
	Load   load                         `expr:"load"`
	Flows  map[string]*flow             `expr:"flows"`
	Param  func(string) (string, error) `expr:"param"`
}

type other struct {
	Sent bool `expr:"sent"`
}

// TestExpression: the errors of the compiler that we know are worded, and name no type of Go.
func TestExpression(t *testing.T) {
	l := Language{Env: reflect.TypeFor[env](), Example: `status == 429`, Other: reflect.TypeFor[other](), Where: "outcomes"}
	for source, want := range map[string]string{
		`parm("x") == "y"`:     "unknown name parm; did you mean param?",
		`stat == 429`:          "unknown name stat; did you mean status?",
		`x_param("a") == "b"`:  "unknown name x_param; did you mean param?",
		`lenn(method) > 1`:     "unknown name lenn; did you mean len?",
		`method == GET`:        `unknown name GET; a text needs quotes ("GET"), and the names are flows, load, method, param, path, status, wait`,
		`method = "GET"`:       "= does not compare; write ==",
		`param(`:               "ends too early",
		`method "x"`:           `"x" cannot stand here`,
		`method == "x`:         "the quote that begins here is not closed",
		`method`:               "gives a text, must be true or false; compare it, such as status == 429",
		`param`:                "gives a function, must be true or false",
		`status == "429"`:      "== does not work with a whole number and a text; write the number without quotes",
		`param == "x"`:         "== does not work with a function and a text; call the function",
		`wait > 5`:             "> does not work with a duration and a whole number; write a duration with its unit",
		`load.snt > 5`:         "load has no snt; it has sent",
		`flows["a"].snt > 5`:   "an element of flows has no snt; it has sent",
		`method.x == "1"`:      "a text has no part .x",
		`sent`:                 "sent is known in outcomes only; the names here are flows,",
		`param.app_id`:         `a function has no parts; call it, such as param("app_id")`,
		`param(1) == "x"`:      "param takes a text, not a whole number",
		`method == 3`:          "== does not work with a text and a whole number; put the number in quotes",
		`status == 1 & true`:   "& is no operator; write and, or &&",
		`status == 1 AND true`: "AND is no operator; write and, or &&",
		`status == 1 OR true`:  "OR is no operator; write or, in small letters",
		`param() == "x"`:       `param takes one name; write param("name")`,
		`param("a", "b") > 1`:  `param takes one name`,
		`method("x") == "1"`:   "a text is no function",
		`not method`:           "not does not work with a text",
	} {
		_, err := expr.Compile(source, expr.Env(env{}), expr.AsBool())
		if err == nil {
			t.Errorf("%s compiles", source)
			continue
		}
		message, _, _ := strings.Cut(err.Error(), "\n")
		if i := strings.LastIndex(message, " ("); strings.Contains(message[max(i, 0):], ":") && i > 0 { // its place
			message = message[:i]
		}
		if got := l.Expression(message); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s\n%s\nwant %s", source, message, got, want)
		}
	}
}

// TestFailure: messages of a run are worded without the types of Go, and without values.
func TestFailure(t *testing.T) {
	for message, want := range map[string]string{
		"invalid operation: string > int":                                            "a text is compared with a number",
		"invalid operation: map[string]interface {} <= []interface {}":               "an object is compared with a list",
		"invalid operation: float64 % bool":                                          "% does not work with a number and true or false",
		"invalid operation: - string":                                                "- does not work with a text",
		"invalid operation: bool(int)":                                               "it gives a number, and not true or false",
		"invalid operation: int(s3cret > int)":                                       "int is given a value that is no number",
		"invalid argument for len (type int)":                                        "len does not take a number",
		"interface conversion: interface {} is int, not string":                      "a number stands where a text belongs",
		"interface conversion: interface {} is nil, not string":                      "nothing stands where a text belongs",
		"reflect.Value.MapIndex: value of type int is not assignable to type string": "a number is looked for in a list of texts or numbers of another type",
		`operator "in" not defined on bool`:                                          "in does not work with true or false",
		"reflect: call of reflect.Value.Index on map Value":                          "an object stands where a list belongs",
		"reflect: Call using int as type string":                                     "a number stands where a text belongs",
		"cannot use string as argument (type int) to call bitand":                    "bitand takes a number, not a text",
		"index out of range: 7 (array length is 2)":                                  "a list or text is shorter than an index",
		"cannot fetch s3cret from int":                                               "a number has no parts",
		"memory budget exceeded":                                                     "it takes too much memory",
		"invalid date s3cret":                                                        "a part of it does not fit the values",
		"no JSON":                                                                    "a part of it does not fit the values",
		"cannot fetch a from s3cret":                                                 "a value of another type has no parts",
	} {
		if got := Failure(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
}
