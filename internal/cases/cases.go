// Package cases plays the cases of a configuration or a preset: a request, the answers of
// the platform, and the outcome and steps that must follow. Nothing is sent. [Play] runs each
// case on the scheduler of the sidecar, in virtual time; [JUnit] writes the results for a CI.
//
//	all, err := config.LoadCases("shop_test.yaml")
//	for _, c := range all {
//		for _, failure := range cases.Play(c).Failures {
//			fmt.Println(c.Place, c.Name, failure)
//		}
//	}
//
// # The file
//
// A file names a preset, or a configuration and its upstream, and has a list of cases:
//
//	preset: stripe
//	requests:
//	  pay: {target: /v1/charges, form: {amount: "100"}, headers: {Idempotency-Key: k1}}
//	answers:
//	  broken: {status: 500, body: '{"error": {"type": "api_error"}}'}
//	cases:
//	- {case: with a key, source: docs.stripe.com/error-low-level, request: pay, answer: broken, outcome: unknown, then: repeat}
//
// docs/cases.md has all members. The client of a case does not wait for the answer. In a case with
// becomes, the clients of both requests wait.
package cases

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/pkg/config"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Result is the result of a case.
type Result struct {
	config.Case
	comparison // its Failures have the wanted and the other value; none if the case passes
	// Reasons are the rules that decided the attempts.
	Reasons []string
}

// Play plays a case, without a network and in virtual time. It may be called anywhere but in
// a bubble of testing/synctest.
func Play(c config.Case) Result {
	r := &Result{Case: c}
	r.checkNames()
	switch {
	case c.Becomes != "":
		inBubble(func() { r.playRepeat() })
	case c.Outcome != "" || c.Then != "" || c.QueryTo != "" || c.Decides != "" || len(c.Exchanges) > 0:
		inBubble(func() { r.playCall() })
	}
	return *r
}

// checkNames compares the values of the upstream's expressions for the request.
func (r *Result) checkNames() {
	c := r.Case
	in := upstream.NewInput(c.Request)
	if c.Repeatable != nil {
		up, err := upstream.New(c.Upstream.Config)
		if err != nil {
			r.fail("%v", err)
			return
		}
		defer up.Close()
		r.differs("repeatable", *c.Repeatable, up.Repeatable(in), "")
	}
	if c.Identity != nil {
		got, err := value(c.Upstream.Identity, in)
		r.differs("identity", quoted(*c.Identity, nil), quoted(got, err), "")
	}
	if c.Ends != nil {
		got, err := value(c.Upstream.Ends, in)
		r.differs("ends", quoted(*c.Ends, nil), quoted(got, err), "")
	}
	if c.Numbers == nil {
		return
	}
	numbers := make(map[string]string)
	for name, source := range c.Upstream.Numbers {
		if v, err := value(source, in); err == nil && v != "" {
			numbers[name] = v
		}
	}
	r.differs("numbers", listed(c.Numbers), listed(numbers), "")
}

func quoted(text string, err error) string {
	if err != nil {
		return "the error: " + err.Error()
	}
	return fmt.Sprintf("%q", text)
}

// value evaluates an expression of an upstream that may have none.
func value(source string, in *upstream.Input) (string, error) {
	if source == "" {
		return "", nil
	}
	e, err := upstream.Compile(source, upstream.Key)
	if err != nil {
		return "", err
	}
	return e.OptionalKey(in)
}

// listed writes numbers by their names.
func listed(numbers map[string]string) string {
	parts := []string{}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		parts = append(parts, fmt.Sprintf("%s %q", name, numbers[name]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// request returns a request as a scheduler wants it.
func request(r *upstream.Request) scheduler.Request {
	return scheduler.Request{Upstream: name, Method: r.Method, Target: r.Target, Header: r.Header.Clone(), Body: r.Body}
}
