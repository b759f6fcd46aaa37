package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// maxBulk bounds the calls of a bulk action.
const maxBulk = 1000

// maxAskAll bounds the wait for the answers of a platform that is asked about many calls.
const maxAskAll = 30 * time.Second

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
	until := time.Now().Add(maxAskAll)
	out := &api.BulkResult{DryRun: in.DryRun, Matched: len(calls), More: more, Results: make([]api.BulkItem, 0, len(calls))}
	for _, c := range calls {
		item := api.BulkItem{Call: c.ID, State: api.State(c.State)}
		switch {
		case in.DryRun && c.State == "":
			item.Reason = string(scheduler.NotFound)
			out.Refused++
		case in.DryRun && c.State != stateFor(in.Action):
			item.Reason = string(scheduler.WrongState)
			out.Refused++
		case !in.DryRun:
			changed, err := act(a, r, &in, c, until)
			switch {
			case r.Context().Err() != nil: // the client has left; the audit has the changes so far
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
	given := 0
	for _, m := range []struct {
		name string
		text *string
	}{{"upstream", in.Filter.Upstream}, {"limit", in.Filter.Limit}, {"key", in.Filter.Key}, {"flow", in.Filter.Flow}, {"number", in.Filter.Number}} {
		if m.text == nil {
			continue
		}
		given++
		if *m.text == "" {
			f.add("/filter/"+m.name, "%s is empty, and would choose all calls; leave it out, or give it a value", m.name)
		}
	}
	switch n := len(in.Filter.Calls); {
	case n > maxBulk:
		f.add("/filter/calls", "there are %d calls; at most %d are taken at a time", n, maxBulk)
	case n > 0 && given > 0:
		f.add("/filter/calls", "calls are there, and other members too; send either ids or a filter")
	case n == 0 && given == 0:
		f.add("/filter", "filter is empty; name the calls, or their upstream, limit, key, flow or number")
	}
	checkReason(in.Reason, f)
}

// value returns a member of a filter, empty for none.
func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// stateFor returns the state of the calls that an action concerns.
func stateFor(action string) scheduler.State {
	if action == "cancel" {
		return scheduler.Waiting
	}
	return scheduler.Unknown
}

// chosen returns the calls of a filter that an action concerns.
func chosen(a *Admin, ctx context.Context, in *api.Bulk) (calls []*scheduler.Call, more bool, err error) {
	if len(in.Filter.Calls) == 0 {
		if name := value(in.Filter.Upstream); name != "" {
			if _, err := a.Scheduler.Status(ctx, name); err != nil {
				return nil, false, err
			}
		}
		return listed(a, ctx, scheduler.Filter{
			Upstream: value(in.Filter.Upstream), Limit: value(in.Filter.Limit), Key: value(in.Filter.Key), Flow: value(in.Filter.Flow), Number: value(in.Filter.Number),
			States: []scheduler.State{stateFor(in.Action)}, Oldest: true,
		})
	}
	seen := make(map[string]bool)
	for _, id := range in.Filter.Calls {
		if seen[id] {
			continue
		}
		seen[id] = true
		c, err := a.Scheduler.Get(ctx, id)
		if errors.Is(err, scheduler.ErrNotFound) {
			c = &scheduler.Call{ID: id} // the action says so
		} else if err != nil {
			return nil, false, err
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

// act does a bulk action on one call.
func act(a *Admin, r request[api.Bulk], in *api.Bulk, c *scheduler.Call, until time.Time) (*scheduler.Call, error) {
	if in.Action == "ask" {
		return askOne(a, r.Request, c.ID, in.Reason, until)
	}
	return cancelOne(a, r.Request, c.ID, in.Reason)
}

// maxReason bounds the reason of a person, in bytes.
const maxReason = 500

func checkReason(reason string, f *faults) {
	if len(reason) > maxReason || strings.ContainsFunc(reason, unicode.IsControl) {
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
