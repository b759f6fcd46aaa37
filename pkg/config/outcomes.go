package config

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileRule struct {
	// When is an expression over status, header(name), body(path) and remaining of the answer;
	// error and sent, for an attempt without a whole answer; repeat, true if an earlier
	// sending may have been executed; keyed, true if the request has the key that
	// idempotency names; and method, path, query, form, param, json and xml of the request.
	When string `key:"when"`
	// Is is done, failed, not_executed or unknown.
	Is string `key:"is"`
	// Pause is the pause of a not_executed outcome. Default: the key of the call's only limit
	// with per_key, else the upstream, pauses for the wait of the answer or the backoff.
	Pause *filePause `key:"pause"`
	// After is the least wait before this call is sent again, or an expression for the wait
	// that the answer asks for. Default: that of the answer's fields, the pause or the backoff.
	After wait `key:"after"`
	// Park keeps an unknown call from being repeated; below status 500 the breaker does
	// not count its answer. Default false.
	Park bool `key:"park"`

	counted bool // see upstream.Rule
}

type filePause struct {
	// Limit names the limit of the paused key. Default: the call's only limit with per_key.
	Limit string `key:"limit"`
	// Scope is upstream: all of it pauses, also where one limit has keys. Default: the key.
	Scope string `key:"scope"`
	// For is the length if the answer asks for none, or an expression for the length that it
	// asks for: seconds, a date or a duration. Default: the answer's fields, then the backoff.
	For wait `key:"for"`
}

func convertRules(faults *faultList, path string, from []fileRule) []upstream.Rule {
	var rules []upstream.Rule
	for i, f := range from {
		rules = append(rules, f.convert(faults, index(path, i)))
	}
	return rules
}

func (f fileRule) convert(faults *faultList, path string) upstream.Rule {
	rule := upstream.Rule{When: f.When, Is: upstream.Outcome(f.Is), Park: f.Park, Counted: f.counted, AfterExpr: f.After.expression}
	if f.Pause != nil {
		rule.Pause = &upstream.Pause{Limit: f.Pause.Limit, Upstream: f.Pause.Scope != "", ForExpr: f.Pause.For.expression}
		switch {
		case f.Pause.Scope != "" && f.Pause.Scope != "upstream":
			faults.add(path+".pause.scope", "is %q, must be upstream; leave it out to pause the key of the call's limit", f.Pause.Scope)
		case f.Pause.Scope != "" && f.Pause.Limit != "":
			faults.add(path+".pause.scope", "is given beside limit, which pauses a key of that limit; give one of them")
		}
		positive(faults, path+".pause.for", f.Pause.For.fixed, &rule.Pause.For)
	}
	positive(faults, path+".after", f.After.fixed, &rule.After)
	return rule
}

type fileProof struct {
	// When is a request expression, true for the calls of which the proof is asked. Default:
	// all but GET, HEAD and OPTIONS.
	When string `key:"when"`
	// Format is that of a whole body: json (an object), xml, empty (no body) or any (not looked
	// at). Default json.
	Format string `key:"format"`
	// Media are the media types that are taken, or suffixes such as +json; an answer without one
	// is taken. Default by the format: application/json and +json; text/xml, application/xml
	// and +xml; any.
	Media []string `key:"media"`
	// Holds is a condition over the answer, in the language of outcomes. Default: true.
	Holds string `key:"holds"`
	// After is the least wait before a call that is not proven is sent again. Default: that of
	// the answer or the backoff.
	After *duration `key:"after"`
}

func (f fileProof) convert(faults *faultList, path string) upstream.Proof {
	proof := upstream.Proof{When: f.When, Format: f.Format, Media: f.Media, Holds: f.Holds}
	positive(faults, path+".after", f.After, &proof.After)
	return proof
}

// rules returns the rules of answers by which a platform limits, and adds a fault for each of the others.
func (l limited) rules(faults *faultList, path string) []fileRule {
	var all []fileRule
	for i, one := range l.all {
		at := path
		if l.list {
			at = index(path, i)
		}
		when, fault := limitedWhen(at, one)
		if fault == nil {
			fault = faultOf(when)
		}
		if fault != nil {
			faults.add(at, "%w", fault)
			continue
		}
		all = append(all, fileRule{When: when, Is: string(upstream.NotExecuted), counted: true})
	}
	return all
}

// limitedWhen returns the condition of an answer that limits.
func limitedWhen(path string, one any) (string, error) {
	text, isText := one.(string)
	status, isStatus := one.(int)
	if n, err := strconv.Atoi(text); isText && err == nil { // of an environment variable
		status, isStatus = n, true
	}
	when := fmt.Sprintf("status == %d", status)
	switch {
	case !isStatus && !isText:
		m := &misfit{one, "a status such as 503, an expression such as 'body(\"error\") == \"ratelimited\"', or a list of them"}
		return "", errors.New(m.at(path))
	case !isStatus:
		return text, nil
	case status < 400 || status > 599:
		return "", fmt.Errorf("is status %d, must be from 400 to 599: other answers tell that the call was executed; write an expression for such an answer that limits", status)
	case mayExecute(status):
		return "", fmt.Errorf("is status %d, which also comes after a call that was executed, and a limited call is sent again; write an expression for the answer that limits, such as '%s and body(\"error\") == \"ratelimited\"', or '%[2]s' if each of them does", status, when)
	}
	return when, nil
}

// mayExecute reports whether a status is that of an error during a call, as 500 and those of gateways are.
// Servers limit by 503, and by 509 and 529, which are in no standard.
func mayExecute(status int) bool {
	switch status {
	case 408, 499:
		return true
	case 503, 509, 529:
		return false
	}
	return status >= 500
}

// faultOf returns the fault of an answer's expression, nil if there is none.
func faultOf(when string) error {
	_, err := upstream.CompileRules("outcomes", []upstream.Rule{{When: when, Is: upstream.NotExecuted}})
	var f *upstream.FieldError
	if errors.As(err, &f) {
		return f.Err
	}
	return err
}
