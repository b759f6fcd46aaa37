package preview

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Condition is an expression (expr-lang/expr) over a report: calls, sent,
// refused, limited_without, over (calls), length, makespan (durations), wait.p50,
// .p95, .p99, .max, .mean, backlog.peak, flows["name"].calls, .sent and .wait, and
// limits["name"].most, .queued, .share and .limited_without. A duration is written
// as in 1m30s. With several upstreams a flow or limit is "upstream/name"; its name
// alone will do where no other upstream has it.
type Condition struct {
	source  string
	program *vm.Program
	asks    names
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
	if strings.TrimSpace(source) == "" {
		return nil, errors.New("the condition is empty; write one such as wait.p99 > 5s")
	}
	var asks names
	program, err := expr.Compile(plain, expr.Env(conditionEnv{}), expr.AsBool(), expr.Patch(&asks))
	var at *file.Error
	if errors.As(err, &at) { // without its drawing of the place
		err = errors.New(at.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("condition %q: %w", source, err)
	}
	return &Condition{source, program, asks}, nil
}

func (c *Condition) String() string { return c.source }

// Holds evaluates the condition.
func (c *Condition) Holds(r *Report) (bool, error) {
	env := envOf(r)
	err := errors.Join(known(c.asks.flows, "flows", env.Flows), known(c.asks.limits, "limits", env.Limits))
	if err == nil {
		var v any
		if v, err = expr.Run(c.program, env); err == nil {
			return v.(bool), nil
		}
	}
	return false, fmt.Errorf("condition %q cannot be computed: %w", c.source, err)
}

// names are the flows and limits that an expression names.
type names struct{ flows, limits []string }

// Visit collects the names.
func (n *names) Visit(node *ast.Node) {
	member, ok := (*node).(*ast.MemberNode)
	if !ok {
		return
	}
	of, ok := member.Node.(*ast.IdentifierNode)
	name, literal := member.Property.(*ast.StringNode)
	switch {
	case !ok || !literal:
	case of.Value == "flows":
		n.flows = append(n.flows, name.Value)
	case of.Value == "limits":
		n.limits = append(n.limits, name.Value)
	}
}

// known says which of the names a report does not have, and which it has.
func known[T any](asked []string, what string, has map[string]T) error {
	for _, name := range asked {
		if _, ok := has[name]; !ok {
			all := slices.Sorted(maps.Keys(has))
			more := ""
			if len(all) > maxNames {
				more = fmt.Sprintf(" and %d more", len(all)-maxNames)
				all = all[:maxNames]
			}
			return fmt.Errorf("%s[%q] is not there; there are %q%s", what, name, all, more)
		}
	}
	return nil
}

// maxNames is how many names an error lists.
const maxNames = 20

func envOf(r *Report) conditionEnv {
	env := conditionEnv{
		Calls: r.Calls, Sent: r.Sent, Over: r.Over, LimitedWithout: r.LimitedWithout,
		Length: r.Length.Duration(), Makespan: r.Makespan.Duration(), Wait: r.Wait.env(), Backlog: backlogEnv{r.Backlog.Peak},
	}
	for _, n := range r.Refused {
		env.Refused += n
	}
	env.Flows = keyed(r, r.Flows, func(f *Flow) (upstream, name string, told *flowEnv) {
		return f.Upstream, f.Flow, &flowEnv{f.Calls, f.Sent, f.Wait.env()}
	})
	env.Limits = keyed(r, r.allLimits(), func(l *Limit) (upstream, name string, told *limitEnv) {
		return l.Upstream, l.Limit, &limitEnv{l.Most, l.Queued, l.Share, l.LimitedWithout}
	})
	return env
}

// keyed returns what is told of flows or limits, by the names that they have in conditions.
func keyed[S, T any](r *Report, all []S, tell func(*S) (upstream, name string, told *T)) map[string]*T {
	times := make(map[string]int)
	for i := range all {
		_, name, _ := tell(&all[i])
		times[name]++
	}
	by := make(map[string]*T)
	for i := range all {
		upstream, name, told := tell(&all[i])
		if times[name] == 1 {
			by[name] = told
		}
		if len(r.upstreams()) > 1 {
			by[upstream+"/"+name] = told
		}
	}
	return by
}

// allLimits are the limits of a report, with those of concurrency that did nothing.
func (r *Report) allLimits() []Limit {
	all := slices.Clone(r.Limits)
	for _, u := range r.upstreams() {
		if !slices.ContainsFunc(all, func(l Limit) bool { return l.Upstream == u && l.Limit == scheduler.ConcurrencyLimit }) {
			all = append(all, Limit{Upstream: u, Limit: scheduler.ConcurrencyLimit})
		}
	}
	return all
}

func (w Waits) env() waitEnv {
	return waitEnv{w.P50.Duration(), w.P95.Duration(), w.P99.Duration(), w.Max.Duration(), w.Mean.Duration()}
}
