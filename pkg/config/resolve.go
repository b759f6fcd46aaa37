package config

import (
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

type fileResolve struct {
	// When is an expression, true for the unknown calls that the query resolves. Default: all.
	// It, Target, Headers and Body see the unknown call as request expressions do, and the answer
	// to it: status, body(path), answer_header(name) and location, the target of its Location.
	When string `key:"when"`
	// Signed is true if the query is useless without a signer. Default false.
	Signed bool `key:"signed"`
	// Method is the query's. Default GET.
	Method string `key:"method"`
	// Target, Headers and Body give a text. Headers and Body default to none.
	Target  string            `key:"target"`
	Headers map[string]string `key:"headers"`
	Body    string            `key:"body"`
	// Outcomes are rules over the query's answer, and the unknown call's request.
	Outcomes []fileVerdict `key:"outcomes"`
	// After is the wait before the first query, or more if the answer to the call asks for it
	// (max_pause bounds that). Default 10s.
	After *duration `key:"after"`
	// Every is the wait between queries, or more if the answer to the last one asks for it.
	// Default 30s.
	Every *duration `key:"every"`
	// Queries is the greatest number of queries. Default 10.
	Queries *int `key:"queries"`
}

type fileVerdict struct {
	// When is an expression over status, header(name) and body(path) of the query's
	// answer, and method, path, query, form, param, json and xml of the unknown call.
	When string `key:"when"`
	// Is is done, failed, not_executed (the call is sent again) or unknown.
	Is string `key:"is"`
}

// Bounds of the queries about one call.
const (
	leastEvery  = time.Millisecond
	mostQueries = 100_000
)

func (f fileResolve) convert(faults *faultList, path string) scheduler.Resolve {
	to := scheduler.Resolve{When: f.When, Signed: f.Signed, Method: f.Method, Target: f.Target, Header: f.Headers, Body: f.Body}
	for _, v := range f.Outcomes {
		to.Outcomes = append(to.Outcomes, upstream.Rule{When: v.When, Is: upstream.Outcome(v.Is)})
	}
	positive(faults, path+".after", f.After, &to.After)
	positive(faults, path+".every", f.Every, &to.Every)
	if f.Every != nil && to.Every > 0 && to.Every < leastEvery {
		faults.add(path+".every", "is %v, must be at least %v: each query takes permits of the upstream", to.Every, leastEvery)
	}
	positive(faults, path+".queries", f.Queries, &to.Queries)
	atMost(faults, path+".queries", to.Queries, mostQueries)
	return to
}
