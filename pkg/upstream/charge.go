package upstream

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
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
	check    // without a program for none
	usesBody bool
}

func compileCharges(sources []string, fault func(field string, err error)) (all charges) {
	for i, source := range sources {
		var c charge
		if source != "" {
			c.name, c.source = fmt.Sprintf("limits[%d].actual_cost", i), source
			var err error
			if c.program, err = compile(source, answerEnv{}, Key); err == nil {
				c.usesBody = names(c.program, "body")
				if noun := noCost(c.program); noun != "" {
					err = fmt.Errorf("gives a %s, must be a number (in %s)", noun, inQuotes(source))
				}
			}
			fault(c.name, err)
		}
		all = append(all, c)
	}
	return all
}

// useBody reports whether an expression reads the body.
func (cs charges) useBody() bool {
	return slices.ContainsFunc(cs, func(c charge) bool { return c.usesBody })
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

// of returns the charges of an answer, nil without expressions. A body that goes on tells nothing: a
// number in it may be cut. One that cannot be read is an error.
func (cs charges) of(in *Input, a *answer) []Charge {
	if len(cs) == 0 {
		return nil
	}
	var env any = in.answer(a)
	all := make([]Charge, len(cs))
	for i := range cs {
		c := &cs[i]
		if c.program == nil || c.usesBody && a.partial {
			continue
		}
		switch v, err := in.run(c.program, env); {
		case err == nil:
			all[i] = chargeOf(v)
		case !absent(err):
			all[i] = Charge{Err: c.uncomputable(err)}
		}
	}
	return all
}

var (
	errInexact  = errors.New("a number that is not finite, or above 2^53")
	errNoNumber = errors.New("no number")
)

// mostExact bounds the whole numbers that a float64 holds exactly.
const mostExact float64 = 1 << 53

// chargeOf reads a value: a number, or its text. A fraction is rounded up, so that no less is counted
// than the platform has counted. Nil and the empty text tell nothing.
func chargeOf(v any) Charge {
	var n float64
	switch v := v.(type) {
	case nil:
		return Charge{}
	case int:
		n = float64(v)
	case int64:
		n = float64(v)
	case float64:
		n = v
	case string:
		text := strings.TrimSpace(v)
		if text == "" {
			return Charge{}
		}
		var err error
		if n, err = strconv.ParseFloat(text, 64); err != nil && !errors.Is(err, strconv.ErrRange) {
			return Charge{Err: errNoNumber}
		}
	default:
		return Charge{Err: errNoNumber}
	}
	switch {
	case n < 0:
		return Charge{Err: fmt.Errorf("%v, below 0", n)}
	case !(n <= mostExact):
		return Charge{Err: errInexact}
	}
	return Charge{Permits: int(math.Ceil(n)), Told: true}
}
