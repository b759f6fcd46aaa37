package preview

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/vm"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// A Condition is an expression (expr-lang/expr) over a report: calls, sent,
// refused, limited_without, over (calls), length, makespan (durations), wait.p50,
// .p95, .p99, .max, .mean, backlog.peak, flows["name"].calls, .sent and .wait, and
// limits["name"].most, .queued, .share and .limited_without. A duration is written
// as in 1m30s. With several upstreams a flow or limit is "upstream/name", or the name
// alone if no other upstream has it.
type Condition struct {
	source  string
	program *vm.Program
	uses    names
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

// tokens matches the durations of an expression, and the texts, which may look like one.
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
	var uses names
	program, err := expr.Compile(plain, expr.Env(conditionEnv{}), expr.AsBool(), expr.Patch(&uses))
	var at *file.Error
	if errors.As(err, &at) { // without the picture of the place
		err = errors.New(at.Message)
	}
	if err != nil {
		language := hint.Language{Env: reflect.TypeFor[conditionEnv](), Example: "wait.p99 > 5s"}
		return nil, fmt.Errorf("condition %q: %s", source, language.Expression(err.Error()))
	}
	return &Condition{source, program, uses}, nil
}

func (c *Condition) String() string { return c.source }

// Holds evaluates the condition.
func (c *Condition) Holds(r *Report) (bool, error) {
	env := envOf(r)
	err := errors.Join(known(c.uses.flows, "flows", env.Flows), known(c.uses.limits, "limits", env.Limits))
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

// known returns an error that names the first name that a report lacks, and those that it
// has.
func known[T any](used []string, list string, has map[string]T) error {
	for _, name := range used {
		if _, ok := has[name]; !ok {
			all := slices.Sorted(maps.Keys(has))
			more := ""
			if len(all) > maxNames {
				more = fmt.Sprintf(" and %d more", len(all)-maxNames)
				all = all[:maxNames]
			}
			return fmt.Errorf("%s[%q] is not there; there are %q%s", list, name, all, more)
		}
	}
	return nil
}

// maxNames is the greatest number of names in an error.
const maxNames = 20

func envOf(r *Report) conditionEnv {
	env := conditionEnv{
		Calls: r.Calls, Sent: r.Sent, Over: r.Over, LimitedWithout: r.LimitedWithout,
		Length: r.Length.Duration(), Makespan: r.Makespan.Duration(), Wait: r.Wait.env(), Backlog: backlogEnv{r.Backlog.Peak},
		Refused: r.AllRefused(),
	}
	env.Flows = keyed(r, r.Flows, func(f *Flow) (upstream, name string, figures *flowEnv) {
		return f.Upstream, f.Flow, &flowEnv{f.Calls, f.Sent, f.Wait.env()}
	})
	env.Limits = keyed(r, r.allLimits(), func(l *Limit) (upstream, name string, figures *limitEnv) {
		return l.Upstream, l.Limit, &limitEnv{l.Most, l.Queued, l.Share, l.LimitedWithout}
	})
	return env
}

// keyed returns the figures of flows or limits by the names that they have in conditions.
func keyed[S, T any](r *Report, all []S, of func(*S) (upstream, name string, figures *T)) map[string]*T {
	times := make(map[string]int)
	for i := range all {
		_, name, _ := of(&all[i])
		times[name]++
	}
	by := make(map[string]*T)
	for i := range all {
		upstream, name, figures := of(&all[i])
		if times[name] == 1 {
			by[name] = figures
		}
		if len(r.upstreams()) > 1 {
			by[upstream+"/"+name] = figures
		}
	}
	return by
}

// allLimits returns the limits of a report, with the concurrency that held no call.
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
