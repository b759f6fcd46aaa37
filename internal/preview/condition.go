package preview

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"
)

// A Condition is an expression (expr-lang/expr) over a report: calls, sent,
// refused, limited_without, over (calls), length, makespan (durations), wait.p50,
// .p95, .p99, .max, .mean, backlog.peak, flows["name"].calls, .sent and .wait, and
// limits["name"].most, .queued, .share and .limited_without. A duration is written
// as in 1m30s.
type Condition struct {
	source  string
	program *vm.Program
}

type conditionEnv struct {
	Calls          int                  `expr:"calls"`
	Sent           int                  `expr:"sent"`
	Refused        int                  `expr:"refused"`
	Over           int                  `expr:"over"`
	LimitedWithout int                  `expr:"limited_without"`
	Length         time.Duration        `expr:"length"`
	Makespan       time.Duration        `expr:"makespan"`
	Wait           waitEnv              `expr:"wait"`
	Backlog        backlogEnv           `expr:"backlog"`
	Flows          map[string]*flowEnv  `expr:"flows"`
	Limits         map[string]*limitEnv `expr:"limits"`
}

type waitEnv struct {
	P50  time.Duration `expr:"p50"`
	P95  time.Duration `expr:"p95"`
	P99  time.Duration `expr:"p99"`
	Max  time.Duration `expr:"max"`
	Mean time.Duration `expr:"mean"`
}

type backlogEnv struct {
	Peak int `expr:"peak"`
}

type flowEnv struct {
	Calls int     `expr:"calls"`
	Sent  int     `expr:"sent"`
	Wait  waitEnv `expr:"wait"`
}

type limitEnv struct {
	Most           int     `expr:"most"`
	Queued         int     `expr:"queued"`
	Share          float64 `expr:"share"`
	LimitedWithout int     `expr:"limited_without"`
}

// tokens are the texts in an expression, which are left alone, and its durations.
var tokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\b(?:\d+(?:\.\d+)?(?:ns|us|µs|ms|s|m|h))+\b`)

// Compile compiles a condition and checks its types.
func Compile(source string) (*Condition, error) {
	plain := tokens.ReplaceAllStringFunc(source, func(token string) string {
		if strings.ContainsAny(token[:1], `"'`) {
			return token
		}
		return fmt.Sprintf("duration(%q)", token)
	})
	program, err := expr.Compile(plain, expr.Env(conditionEnv{}), expr.AsBool())
	var at *file.Error
	if errors.As(err, &at) { // without its drawing of the place
		err = errors.New(at.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("condition %q: %w", source, err)
	}
	return &Condition{source, program}, nil
}

func (c *Condition) String() string { return c.source }

// Holds evaluates the condition.
func (c *Condition) Holds(r *Report) (bool, error) {
	v, err := expr.Run(c.program, envOf(r))
	if err != nil {
		return false, fmt.Errorf("condition %q cannot be computed: %w", c.source, err)
	}
	return v.(bool), nil
}

func envOf(r *Report) conditionEnv {
	env := conditionEnv{
		Calls: r.Calls, Sent: r.Sent, Over: r.Over, LimitedWithout: r.LimitedWithout,
		Length: r.Length.Duration(), Makespan: r.Makespan.Duration(), Wait: r.Wait.env(), Backlog: backlogEnv{r.Backlog.Peak},
		Flows: make(map[string]*flowEnv), Limits: make(map[string]*limitEnv),
	}
	for _, n := range r.Refused {
		env.Refused += n
	}
	for _, f := range r.Flows {
		env.Flows[f.Flow] = &flowEnv{f.Calls, f.Sent, f.Wait.env()}
	}
	for _, l := range r.Limits {
		env.Limits[l.Limit] = &limitEnv{l.Most, l.Queued, l.Share, l.LimitedWithout}
	}
	return env
}

func (w Waits) env() waitEnv {
	return waitEnv{w.P50.Duration(), w.P95.Duration(), w.P99.Duration(), w.Max.Duration(), w.Mean.Duration()}
}
