package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// maxBulk bounds the calls of a bulk action.
const maxBulk = 1000

// changeCalls does an action on many calls, one after the other: each is done or refused by itself.
func changeCalls(a *Admin, r request[api.Bulk]) (*api.BulkResult, error) {
	in, f := r.body()
	checkBulk(&in, f)
	if err := f.err(); err != nil {
		return nil, err
	}
	calls, more, err := chosen(a, r.Context(), &in)
	if err != nil {
		return nil, err
	}
	out := &api.BulkResult{DryRun: in.DryRun, Matched: len(calls), More: more, Results: make([]api.BulkItem, 0, len(calls))}
	for _, c := range calls {
		item := api.BulkItem{Call: c.ID, State: api.State(c.State)}
		if !in.DryRun {
			changed, err := act(a, r, &in, c)
			switch {
			case r.Context().Err() != nil:
				return nil, r.Context().Err()
			case err != nil:
				e := asError(err)
				item.Reason, item.Detail = string(e.Reason), e.Detail
				out.Refused++
			default:
				item.State = api.State(changed.State)
				out.Succeeded++
			}
		}
		out.Results = append(out.Results, item)
	}
	return out, nil
}

func checkBulk(in *api.Bulk, f *faults) {
	if !slices.Contains(api.Actions, in.Action) {
		f.add("/action", "action %q is unknown; there are %s", in.Action, strings.Join(api.Actions, ", "))
	}
	if in.Action == "resolve" {
		checkOutcome(in.Outcome, f)
	} else if in.Outcome != "" {
		f.add("/outcome", "outcome is of the action resolve only")
	}
	if n := len(in.Filter.Calls); n > maxBulk {
		f.add("/filter/calls", "there are %d calls; at most %d are taken at a time", n, maxBulk)
	} else if emptyFilter(&in.Filter) {
		f.add("/filter", "filter is empty; name the calls, or their upstream, limit, key, flow or number")
	}
	checkReason(in.Reason, f)
}

// emptyFilter reports whether a filter chooses nothing.
func emptyFilter(f *api.BulkFilter) bool {
	return len(f.Calls) == 0 && f.Upstream == "" && f.Limit == "" && f.Key == "" && f.Flow == "" && f.Number == ""
}

// chosen returns the calls of a filter that an action concerns.
func chosen(a *Admin, ctx context.Context, in *api.Bulk) (calls []*scheduler.Call, more bool, err error) {
	state := scheduler.Waiting
	if in.Action != "cancel" {
		state = scheduler.Unknown
	}
	if len(in.Filter.Calls) == 0 {
		if in.Filter.Upstream != "" {
			if _, err := a.Scheduler.Status(ctx, in.Filter.Upstream); err != nil {
				return nil, false, err
			}
		}
		return listed(a, ctx, scheduler.Filter{
			Upstream: in.Filter.Upstream, Limit: in.Filter.Limit, Key: in.Filter.Key, Flow: in.Filter.Flow, Number: in.Filter.Number,
			States: []scheduler.State{state}, Oldest: true,
		})
	}
	for _, id := range in.Filter.Calls {
		c, err := a.Scheduler.Get(ctx, id)
		if errors.Is(err, scheduler.ErrNotFound) {
			c = &scheduler.Call{ID: id} // the action says so
		} else if err != nil {
			return nil, false, err
		} else if in.Filter.Upstream != "" && c.Upstream != in.Filter.Upstream {
			continue
		}
		calls = append(calls, c)
	}
	return calls, false, nil
}

// listed returns the first calls of a filter, maxBulk at most, and whether there are more.
func listed(a *Admin, ctx context.Context, f scheduler.Filter) (calls []*scheduler.Call, more bool, err error) {
	for len(calls) < maxBulk {
		f.Max = maxBulk - len(calls)
		page, err := a.Scheduler.List(ctx, f)
		if err != nil {
			return nil, false, err
		}
		calls = append(calls, page.Calls...)
		if f.After = page.Next; f.After == "" {
			return calls, false, nil
		}
	}
	return calls, true, nil
}

// act does a bulk action on one call, as it stood when it was chosen.
func act(a *Admin, r request[api.Bulk], in *api.Bulk, c *scheduler.Call) (*scheduler.Call, error) {
	if in.Action == "cancel" {
		return cancelOne(a, r.Request, c.ID, in.Reason)
	}
	if in.Action == "ask" {
		return askOne(a, r.Request, c.ID)
	}
	attempt := 0
	if last := c.Last(); last != nil {
		attempt = last.N
	}
	return resolveOne(a, r.Request, c.ID, api.Resolution{Outcome: in.Outcome, Attempt: attempt, Reason: in.Reason})
}

// maxReason bounds the reason of a person, in bytes.
const maxReason = 500

func checkReason(reason string, f *faults) {
	if len(reason) > maxReason || strings.ContainsFunc(reason, isControl) {
		f.add("/reason", "reason has %d bytes; at most %d are kept, without control characters", len(reason), maxReason)
	}
}

func checkOutcome(o api.Outcome, f *faults) {
	if decided := api.Outcomes[:3]; !slices.Contains(decided, o) {
		f.add("/outcome", "outcome %s must be done, failed or not_executed: what the platform says of the call", named(string(o)))
	}
}

// named returns a text in quotes, or that there is none.
func named(text string) string {
	if text == "" {
		return "is missing, and"
	}
	return fmt.Sprintf("%q", text)
}
