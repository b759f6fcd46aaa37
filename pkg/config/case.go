package config

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// convert checks a case.
func (f fileCase) convert(faults *faultList, path string) Case {
	place, _ := faults.of(path)
	c := Case{
		Place: place, Name: f.Case, Source: f.Source,
		Outcome: upstream.Outcome(f.Outcome), Then: f.Then, QueryTo: f.QueryTo, Decides: f.Decides, Becomes: f.Becomes, State: scheduler.State(f.State),
		Repeatable: f.Repeatable, Identity: f.Identity, Ends: f.Ends, Numbers: f.Numbers,
	}
	if f.Case == "" {
		faults.add(path+".case", "is missing; give the case a name")
	}
	if f.Request == nil {
		faults.add(path+".request", "is missing; write target and body of the call, or the name of one of requests")
	} else {
		c.Request = f.Request.convert(faults, path+".request")
	}
	if f.Second != nil {
		c.Second = f.Second.convert(faults, path+".second")
	}
	if f.Answer != nil {
		a := f.Answer.convert(faults, path+".answer")
		c.Answer = &a
	}
	if f.Query != nil {
		a := f.Query.convert(faults, path+".query")
		c.Query = &a
	}
	atMost(faults, path+".exchanges", len(f.Exchanges), mostExchanges)
	for i, e := range f.Exchanges {
		c.Exchanges = append(c.Exchanges, e.convert(faults, index(path+".exchanges", i)))
	}
	for key, wait := range map[string]struct {
		given *duration
		to    *time.Duration
	}{"after": {f.After, &c.After}, "wait": {f.Wait, &c.Wait}, "before": {f.Before, &c.Before}} {
		positive(faults, join(path, key), wait.given, wait.to)
		atMost(faults, join(path, key), *wait.to, longestAfter)
	}
	c.Now = instant(faults, path+".now", f.Now)
	wordOf(faults, path+".outcome", f.Outcome, "done", "failed", "not_executed", "unknown")
	wordOf(faults, path+".then", f.Then, Steps...)
	wordOf(faults, path+".decides", f.Decides, Decisions...)
	wordOf(faults, path+".becomes", f.Becomes, Repeats...)
	wordOf(faults, path+".state", f.State, "waiting", "done", "failed", "cancelled", "expired", "exhausted", "unknown")
	f.checkMembers(faults, path)
	return c
}

// checkMembers checks that the members of a case fit each other.
func (f fileCase) checkMembers(faults *faultList, path string) {
	needs := func(key string, given bool, of string, has bool) {
		if given && !has && !faults.explained[join(path, of)] {
			faults.add(join(path, key), "is given without %s, and says nothing then; add it", of)
		}
	}
	needs("decides", f.Decides != "", "query", f.Query != nil)
	needs("query", f.Query != nil, "decides or query_to", f.Decides != "" || f.QueryTo != "")
	needs("becomes", f.Becomes != "", "second", f.Second != nil)
	needs("second", f.Second != nil, "becomes or exchanges", f.Becomes != "" || f.Exchanges != nil)
	needs("after", f.After != nil, "then", f.Then != "")
	needs("wait", f.Wait != nil, "then", f.Then != "")
	needs("before", f.Before != nil, "then", f.Then != "")
	needs("exchanges", f.Exchanges != nil, "state, the state of the call in the end", f.State != "")
	needs("state", f.State != "", "exchanges", f.Exchanges != nil)
	if f.Exchanges != nil && (f.Answer != nil || f.Query != nil) {
		faults.add(path+".exchanges", "is given beside answer or query; write all answers into exchanges")
	}
	wanted := cmp.Or(f.Outcome, f.Then, f.QueryTo, f.Decides, f.Becomes, f.State) != ""
	if faulty := func(f *Fault) bool { return within(f.Path, path) }; slices.ContainsFunc(faults.faults, faulty) {
		return
	}
	if !wanted && f.Repeatable == nil && f.Identity == nil && f.Ends == nil && f.Numbers == nil {
		faults.add(path, "wants nothing; add outcome, then, decides, becomes, exchanges, repeatable, identity, ends or numbers")
	}
}

// wordOf checks a value that may be left out.
func wordOf(faults *faultList, path, value string, known ...string) {
	if value != "" {
		oneOf(faults, path, value, known...)
	}
}

func (f fileRequest) convert(faults *faultList, path string) *upstream.Request {
	r := &upstream.Request{Method: cmp.Or(f.Method, http.MethodPost), Target: f.Target, Header: header(f.Headers), Body: []byte(f.Body)}
	switch {
	case f.Target == "":
		faults.add(path+".target", "is missing; write the path of the request, such as /v1/charges")
	case f.Form != nil && f.Body != "":
		faults.add(path+".body", "is given beside form; a request has one body")
	case r.Check() != nil:
		faults.add(path, "%w", r.Check())
	}
	if f.Form != nil {
		form := make(url.Values)
		for name, value := range f.Form {
			form.Set(name, value)
		}
		r.Body = []byte(form.Encode())
	}
	if len(r.Body) > 0 && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", f.contentType())
	}
	return r
}

// header returns header fields by their names.
func header(fields map[string]some) http.Header {
	h := make(http.Header)
	for name, values := range fields {
		for _, value := range values.all {
			h.Add(name, value)
		}
	}
	return h
}

// each returns a case for each of its requests.
func (f fileCase) each() []fileCase {
	all := []fileCase{f}
	for i := range f.Requests {
		one := f
		one.Request = &f.Requests[i]
		all = append(all, one)
	}
	if len(all) > 1 && f.Request == nil {
		return all[1:]
	}
	return all
}

// earliest is the earliest time of a case: before it is no virtual time.
var earliest = time.Date(2000, 1, 2, 0, 0, 0, 0, time.UTC)

// instant returns a time of a case, zero for an empty text.
func instant(faults *faultList, path, text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	switch {
	case err != nil:
		faults.add(path, "%q is not a time; write it as 2026-11-29T10:00:00Z, in quotes", text)
	case at.Before(earliest) || at.Year() > 2199:
		faults.add(path, "is %s, must be from the years 2000 to 2199", text)
	}
	return at
}

func (f fileAnswer) convert(faults *faultList, path string) Answer {
	a := Answer{Status: http.StatusOK, Header: header(f.Headers), Body: []byte(f.Body), Error: f.Error}
	wordOf(faults, path+".error", f.Error, "dial", "timeout", "reset", "closed")
	if f.Status != nil {
		a.Status = *f.Status
	}
	switch {
	case f.Error != "" && (f.Status != nil || f.Body != "" || f.Headers != nil):
		faults.add(path+".error", "is given beside an answer; an attempt has one of them")
	case a.Status < 200 || a.Status > 599:
		faults.add(path+".status", "is %d, must be from 200 to 599", a.Status)
	}
	return a
}

func (f fileExchange) convert(faults *faultList, path string) Exchange {
	e := Exchange{Sent: f.Sent, QueryTo: f.QueryTo}
	oneOf(faults, path+".sent", f.Sent, "request", "query", "second")
	if f.Answer == nil {
		faults.add(path+".answer", "is missing; write it, its status, or lost")
	} else {
		e.Answer = f.Answer.convert(faults, path+".answer")
	}
	positive(faults, path+".after", f.After, &e.After)
	atMost(faults, path+".after", e.After, longestAfter)
	return e
}
