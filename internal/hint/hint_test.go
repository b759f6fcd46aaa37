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
