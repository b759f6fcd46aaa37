package upstream

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/vm"
)

// A Charge is the cost of a call as its answer tells it.
type Charge struct {
	Permits int
	Told    bool  // false: the answer tells nothing
	Err     error // of a value that is no cost; it holds no part of the answer but a number
}

// charges are compiled expressions of Config.Charges.
type charges []charge

type charge struct {
	program  *vm.Program // nil for none
	usesBody bool
}

func compileCharges(sources []string, fault func(field string, err error)) (all charges) {
	for i, source := range sources {
		var c charge
		if source != "" {
			var err error
			if c.program, err = compile(source, answerEnv{}, Key); err == nil {
				c.usesBody = names(c.program, "body")
				if noun := noCost(c.program); noun != "" {
					err = fmt.Errorf("gives a %s, must be a whole number (in %s)", noun, inQuotes(source))
				}
			}
			fault(fmt.Sprintf("limits[%d].actual_cost", i), err)
		}
		all = append(all, c)
	}
	return all
}

// noCost names the type of an expression that can never give a cost; empty for another one.
func noCost(program *vm.Program) string {
	switch t := program.Node().Type(); {
	case t == nil:
	case t.Kind() == reflect.Bool:
		return "truth value"
	case t.Kind() == reflect.Func:
		return "function"
	}
	return ""
}

// of returns the charges of an answer, nil without expressions. A body that is cut off or
// cannot be read tells nothing: a number in it may be cut too.
func (cs charges) of(in *Input, a *answer) []Charge {
	if len(cs) == 0 {
		return nil
	}
	var env any = in.answer(a)
	all := make([]Charge, len(cs))
	for i, c := range cs {
		if c.program == nil || c.usesBody && (a.partial || a.unreadable() != "") {
			continue
		}
		if v, err := in.machine.Run(c.program, env); err == nil { // an error is of an answer without the cost
			all[i] = chargeOf(v)
		}
	}
	return all
}

var (
	errFraction = errors.New("a number that is not whole")
	errNoNumber = errors.New("no number")
)

// mostExact bounds the whole numbers that a float64 holds exactly.
const mostExact float64 = 1 << 53

// chargeOf reads a value: a whole number, or its text. Nil and the empty text tell nothing.
func chargeOf(v any) Charge {
	n := 0
	switch v := v.(type) {
	case nil:
		return Charge{}
	case int:
		n = v
	case int64:
		n = int(v)
	case float64:
		if v != math.Trunc(v) || math.Abs(v) > mostExact {
			return Charge{Err: errFraction}
		}
		n = int(v)
	case string:
		text := strings.TrimSpace(v)
		if text == "" {
			return Charge{}
		}
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			if _, err := strconv.ParseFloat(text, 64); err == nil {
				return Charge{Err: errFraction}
			}
			return Charge{Err: errNoNumber}
		}
	default:
		return Charge{Err: errNoNumber}
	}
	if n < 0 {
		return Charge{Err: fmt.Errorf("%d, below 0", n)}
	}
	return Charge{Permits: n, Told: true}
}
