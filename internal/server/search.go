package server

import (
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// numberPrefix begins a parameter that names a business number, as in number.order=R-1.
const numberPrefix = "number."

// filterParams are the parameters of a list that choose calls.
var filterParams = []Param{
	{Name: "q", Type: "string", Doc: "Only calls that are known by this: all of an id, a business number, a key of a limit or an idempotency key."},
	{Name: "number", Type: "string", Doc: "Only calls with this business number; number.order=… only those that have it as their order."},
	{Name: numberPrefix, Type: "string", Prefix: true, Doc: "Only calls with this business number of the name that follows the dot."},
	{Name: "idempotency_key", Type: "string", Doc: "Only the call with this idempotency key."},
	upstreamParam,
	{Name: "state", Type: "string", Enum: names(api.States), Repeated: true, Doc: "Only calls in this state; several may be given."},
	{Name: "outcome", Type: "string", Enum: names(api.Outcomes), Doc: "Only calls with this outcome so far."},
	{Name: "needs", Type: "string", Enum: []string{"person"}, Doc: "Only calls of unknown outcome that no query decides."},
	{Name: "limit", Type: "string", Doc: "Only calls that take permits of this limit."},
	{Name: "key", Type: "string", Doc: "Only calls that take permits of this key of a limit."},
	{Name: "flow", Type: "string", Doc: "Only calls of this flow."},
	{Name: "origin", Type: "string", Enum: names(api.Origins), Doc: "Only calls that came on this way."},
	{Name: "submitted_by", Type: "string", Doc: "Only calls that this caller of the admin API has submitted."},
	{Name: "path_prefix", Type: "string", Doc: "Only calls whose path begins so."},
	{Name: "accepted_after", Type: "instant", Doc: "Only calls that were accepted then or later."},
	{Name: "accepted_before", Type: "instant", Doc: "Only calls that were accepted earlier."},
	{Name: "finished_after", Type: "instant", Doc: "Only calls that finished then or later."},
	{Name: "finished_before", Type: "instant", Doc: "Only calls that finished earlier."},
}

// listParams are all parameters of a list.
var listParams = append(slices.Clone(filterParams),
	Param{Name: "order", Type: "string", Enum: []string{"newest", "oldest"}, Doc: "The calls that come first: newest, by default, or oldest."},
	Param{Name: "page_size", Type: "integer", Max: maxPage, Default: defaultPage, Doc: "The most calls of a page. One may have fewer, even none, although next is there."},
	Param{Name: "cursor", Type: "string", Doc: "Next of the page before, of the same filter and order."},
)

func names[S ~string](all []S) (names []string) {
	for _, s := range all {
		names = append(names, string(s))
	}
	return names
}

// listCalls lists calls. A submitter sees its own ones.
func listCalls(a *Admin, r request[none]) (*api.Calls, error) {
	if err := checkFilter(r.query); err != nil {
		return nil, err
	}
	f := filterOf(r.query)
	if caller := r.caller(); caller.Own() {
		if f.SubmittedBy != "" && f.SubmittedBy != caller.Name {
			return &api.Calls{Calls: []api.CallSummary{}}, nil
		}
		f.SubmittedBy = caller.Name
	}
	wanted := f // by which cursors are bound
	var err error
	if f.After, err = after(wanted, r.query.Get("cursor")); err != nil {
		return nil, err
	}
	f.Max = r.op.number(r.query, "page_size")
	list, err := a.Scheduler.List(r.Context(), f)
	if err != nil {
		return nil, err
	}
	if len(list.Calls) == 0 && list.Next == "" { // a removed upstream may have finished calls
		if err := a.known(r.Request, f.Upstream); err != nil {
			return nil, err
		}
	}
	page := &api.Calls{Calls: []api.CallSummary{}}
	if list.Next != "" {
		page.Next = cursor(wanted, list.Next)
	}
	for _, c := range list.Calls {
		page.Calls = append(page.Calls, apiSummary(c))
	}
	return page, nil
}

// checkFilter refuses parameters that would choose other calls than the client means: an
// empty one would choose all, and of two business numbers one would not count.
func checkFilter(q url.Values) error {
	f, numbers := &faults{}, 0
	for name, values := range q {
		if slices.Contains(values, "") && name != "cursor" {
			f.param(name, "%s is empty, which would choose all calls; give a value, or leave it out", name)
		}
		if name == "number" || strings.HasPrefix(name, numberPrefix) {
			if numbers++; numbers > 1 {
				f.param(name, "there are several business numbers; a list finds calls by one at a time")
			}
		}
	}
	return f.err()
}

// filterOf returns the filter of parameters, which have been checked.
func filterOf(q url.Values) scheduler.Filter {
	f := scheduler.Filter{
		Upstream: q.Get("upstream"), Outcome: upstream.Outcome(q.Get("outcome")), NeedsPerson: q.Has("needs"),
		Limit: q.Get("limit"), Key: q.Get("key"), Flow: q.Get("flow"), Number: q.Get("number"), IdempotencyKey: q.Get("idempotency_key"),
		SubmittedBy: q.Get("submitted_by"), Origin: scheduler.Origin(q.Get("origin")), PathPrefix: q.Get("path_prefix"), Q: q.Get("q"),
		AcceptedAfter: instantOf(q, "accepted_after"), AcceptedBefore: instantOf(q, "accepted_before"),
		FinishedAfter: instantOf(q, "finished_after"), FinishedBefore: instantOf(q, "finished_before"),
		Oldest: q.Get("order") == "oldest",
	}
	for _, s := range q["state"] {
		f.States = append(f.States, scheduler.State(s))
	}
	for name := range q {
		if of, ok := strings.CutPrefix(name, numberPrefix); ok {
			f.NumberName, f.Number = of, q.Get(name)
		}
	}
	return f
}

func instantOf(q url.Values, name string) time.Time {
	t, _ := time.Parse(time.RFC3339, q.Get(name))
	return t
}

// cursor returns the text by which a list goes on after a call. It is good for one filter and
// one order.
func cursor(filter any, id string) string {
	parsed, err := uuid.Parse(id)
	if err != nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(fingerprint(filter), parsed[:]...))
}

// after returns the id at which a list goes on.
func after(filter any, text string) (id string, err error) {
	if text == "" {
		return "", nil
	}
	bytes, err := base64.RawURLEncoding.Strict().DecodeString(text)
	want := fingerprint(filter)
	if err != nil || len(bytes) != len(want)+16 {
		return "", badRequest("cursor %q is none of ours; take next of the page before", text)
	}
	if string(bytes[:len(want)]) != string(want) {
		return "", badRequest("cursor %q is of a list with another filter or order; take next of the page before, and its filter", text)
	}
	return uuid.UUID(bytes[len(want):]).String(), nil
}

// fingerprint tells filters apart.
func fingerprint(filter any) []byte {
	h := fnv.New32a()
	fmt.Fprintf(h, "%#v", filter) // with the names of the fields: no value runs into the next one
	return h.Sum(nil)
}
