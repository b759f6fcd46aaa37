package web

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A callPage is one call: its history, why it waits, and the actions of the person.
type callPage struct {
	Call     api.Call
	Sentence string
	Why      string   // it waits; empty otherwise
	Actions  []string // that the person may do now
}

func loadCall(v *visit) (*view, error) {
	id := v.PathValue("id")
	var call api.Call
	if err := v.get("/v1/calls/"+url.PathEscape(id), nil, &call); err != nil {
		return nil, err
	}
	p := &callPage{Call: call, Actions: actionsOn(v, &call)}
	sent := api.Instant{}
	if last := call.Last(); last != nil {
		sent = last.SentAt
	}
	p.Sentence = v.lang.sentence(&call.CallFacts, sent, v.now)
	if call.State == api.Waiting {
		p.Why = v.lang.why(call.WaitingFor, v.now)
	}
	return &view{title: capital(v.lang.subject(&call.CallFacts)), data: p, api: "/v1/calls/" + url.PathEscape(id), shell: words("throttler calls get", id), place: "calls"}, nil
}

// actionsOn returns the actions that the person may do on a call as it is.
func actionsOn(v *visit, c *api.Call) []string { return actionsBy(scopesOf(v), c) }

// actionsBy returns the actions on a call as it is that need one of some scopes.
func actionsBy(scopes []string, c *api.Call) (all []string) {
	operate, submit := slices.Contains(scopes, "operate"), slices.Contains(scopes, "submit")
	switch {
	case c.State == api.Waiting && operate:
		all = append(all, "cancel")
		if c.Async {
			all = append(all, "edit")
		}
	case c.State == api.Waiting && submit:
		all = append(all, "cancel")
	case c.State == api.Unknown && operate:
		all = append(all, "resolve", "ask", "retry")
	}
	return all
}

// scopesOf returns those of the person; none if the API does not tell.
func scopesOf(v *visit) []string {
	info, err := v.info()
	if err != nil {
		return nil
	}
	return info.Caller.Scopes
}

// An actionPage is the form of one action on one call.
type actionPage struct {
	*callPage
	Action string
	// Attempt is the number of the attempt that the person has seen.
	Attempt int
	// Priority is the one in the form.
	Priority string
	// Typed is the text that the person must type to send a call again whose repeat is not safe.
	Typed string
}

// actionNames are the actions on a call that have a form.
var actionNames = []string{"resolve", "ask", "retry", "cancel", "edit"}

func loadAction(v *visit) (*view, error) {
	action := v.PathValue("action")
	if !slices.Contains(actionNames, action) {
		return nil, &problem{Status: 404, Title: "Not found", Detail: "A call has no action " + clean(action) + "."}
	}
	view, err := loadCall(v)
	if err != nil {
		return nil, err
	}
	p := view.data.(*callPage)
	if err := refusedAction(v, p, action); err != nil {
		return nil, err
	}
	a := &actionPage{callPage: p, Action: action, Priority: cmp.Or(v.PostForm.Get("priority"), strconv.Itoa(p.Call.Priority)), Typed: typed(&p.Call)}
	if last := p.Call.Last(); last != nil {
		a.Attempt = last.N
	}
	view.title = v.lang.mustText("action."+action) + ": " + view.title
	view.data, view.api, view.form, view.still = a, "", true, true
	view.shell = acting(action, &p.Call)
	return view, nil
}

// refusedAction is the answer to the form of an action that the call or the role of the person does not
// allow: a colleague may have decided since the link to it was written. A form that was sent, and that
// the API has refused, stays: it has the words of the person.
func refusedAction(v *visit, p *callPage, action string) error {
	switch {
	case v.Method == http.MethodPost || slices.Contains(p.Actions, action):
		return nil
	case slices.Contains(actionsBy(writing, &p.Call), action):
		return notAllowed(v, p.Call.ID)
	}
	return &problem{Status: http.StatusConflict, Call: p.Call.ID, Title: v.lang.mustText("action.too_late", "Action", v.lang.mustText("action."+action)), Detail: p.Sentence}
}

// notAllowed is the answer to a form that the role of the person does not allow, or the pages do not.
func notAllowed(v *visit, call string) *problem {
	if v.pages.ui().ReadOnly {
		return readOnly(v)
	}
	return &problem{Status: http.StatusForbidden, Reason: "not_permitted", Call: call, Title: v.lang.mustText("action.not_permitted"), Detail: v.lang.mustText("action.not_permitted_says")}
}

// typed returns the text that a person types to send a call again although it may be executed
// twice: its number or, if that is shown in another way than it is typed, the end of its id.
func typed(c *api.Call) string {
	if len(c.Numbers) > 0 {
		number := c.Numbers[slices.Max(slices.Collect(maps.Keys(c.Numbers)))]
		if number != "" && clean(number) == number && strings.TrimSpace(number) == number {
			return number
		}
	}
	return c.ID[max(0, len(c.ID)-6):]
}

func actOnCall(v *visit) (next string, err error) {
	id, f := v.PathValue("id"), v.PostForm
	path := "/v1/calls/" + url.PathEscape(id)
	attempt, _ := strconv.Atoi(f.Get("attempt"))
	reason := strings.TrimSpace(f.Get("reason"))
	switch v.PathValue("action") {
	case "resolve":
		err = v.post(path+"/resolve", api.Resolution{Outcome: api.Outcome(f.Get("outcome")), Attempt: attempt, Reason: reason})
	case "ask":
		err = v.post(path+"/ask", api.Ask{Reason: reason})
	case "retry":
		var call api.Call
		if err := v.get(path, nil, &call); err != nil {
			return "", err
		}
		accept := f.Has("typed")
		if accept && strings.TrimSpace(f.Get("typed")) != typed(&call) {
			return "", &problem{Status: 422, Title: v.lang.mustText("retry.wrong_title"), Detail: v.lang.mustText("retry.wrong", "Typed", clean(typed(&call)))}
		}
		err = v.post(path+"/retry", api.Retry{Attempt: attempt, Reason: reason, AcceptDuplicate: accept})
	case "cancel":
		err = v.post(path+"/cancel", api.Cancellation{Reason: reason})
	case "edit":
		edit := api.Edit{Reason: reason}
		if text := strings.TrimSpace(f.Get("priority")); text != "" {
			priority, convErr := strconv.Atoi(text)
			if convErr != nil {
				return "", &problem{Status: 400, Title: "Bad request", Detail: v.lang.mustText("edit.priority", "Value", clean(text))}
			}
			edit.Priority = &priority
		}
		err = v.do("PATCH", path, nil, edit, nil)
	default:
		return "", &problem{Status: 404, Title: "Not found", Detail: "A call has no action " + clean(v.PathValue("action")) + "."}
	}
	return cmp.Or(ownPath(f.Get("back")), "/ui/calls/"+url.PathEscape(id)), err
}
