package web

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// An actionPage is the form of one action on one call.
type actionPage struct {
	*callPage
	Action string
	// Attempt is the number of the attempt that the person has seen.
	Attempt int
	// Priority, NotBefore and Deadline are those in the form; the instants are in UTC, to the minute.
	Priority, NotBefore, Deadline string
	// Typed is the text that the person must type to send a call again whose repeat is not safe.
	Typed string
}

// actionNames are the actions on a call that have a form.
var actionNames = []string{"resolve", "ask", "retry", "cancel", "edit"}

func loadAction(v *visit) (*view, error) {
	action := v.PathValue("action")
	if !slices.Contains(actionNames, action) {
		return nil, noAction(v, action)
	}
	view, err := loadCall(v)
	if err != nil {
		return nil, err
	}
	p := view.data.(*callPage)
	if err := refusedAction(v, p, action); err != nil {
		return nil, err
	}
	a := &actionPage{
		callPage: p, Action: action, Typed: typed(&p.Call),
		Priority:  cmp.Or(v.PostForm.Get("priority"), strconv.Itoa(p.Call.Priority)),
		NotBefore: cmp.Or(v.PostForm.Get("not_before"), minuteOf(p.Call.NotBefore)),
		Deadline:  cmp.Or(v.PostForm.Get("deadline"), minuteOf(p.Call.Deadline)),
	}
	if last := p.Call.Last(); last != nil {
		a.Attempt = last.N
	}
	view.title = v.lang.mustText("action."+action) + ": " + view.title
	view.data, view.api, view.form, view.still = a, "", true, true
	view.shell = acting(action, &p.Call)
	return view, nil
}

// noAction is the answer to an action that is none of actionNames.
func noAction(v *visit, action string) error {
	return v.missing("A call has no action " + clean(action) + ".")
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
	id, action, f := v.PathValue("id"), v.PathValue("action"), v.PostForm
	path := "/v1/calls/" + url.PathEscape(id)
	attempt, _ := strconv.Atoi(f.Get("attempt"))
	reason := strings.TrimSpace(f.Get("reason"))
	switch action {
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
			return "", &problem{Status: http.StatusUnprocessableEntity, Title: v.lang.mustText("retry.wrong_title"), Detail: v.lang.mustText("retry.wrong", "Typed", clean(typed(&call)))}
		}
		err = v.post(path+"/retry", api.Retry{Attempt: attempt, Reason: reason, AcceptDuplicate: accept})
	case "cancel":
		err = v.post(path+"/cancel", api.Cancellation{Reason: reason})
	case "edit":
		var call api.Call
		if err := v.get(path, nil, &call); err != nil {
			return "", err
		}
		edit, wrong := editOf(v, &call)
		if wrong != nil {
			return "", wrong
		}
		err = v.do("PATCH", path, nil, edit, nil)
	default:
		return "", noAction(v, action)
	}
	return mustLink("/ui/calls/"+url.PathEscape(id), "did", action), err
}

// minute is the layout of a field for a date and a time.
const minute = "2006-01-02T15:04"

// minuteOf returns an instant for a field, empty for none.
func minuteOf(at api.Instant) string {
	if at.IsZero() {
		return ""
	}
	return at.UTC().Format(minute)
}

// editOf returns the changes that a form asks for. A field that stands for the value of the call is none.
func editOf(v *visit, call *api.Call) (*api.Edit, error) {
	edit := &api.Edit{Reason: strings.TrimSpace(v.PostForm.Get("reason"))}
	if text := strings.TrimSpace(v.PostForm.Get("priority")); text != "" && text != strconv.Itoa(call.Priority) {
		priority, err := strconv.Atoi(text)
		if err != nil {
			return nil, v.malformed(v.lang.mustText("edit.priority", "Value", clean(text)))
		}
		edit.Priority = &priority
	}
	for _, field := range []struct {
		name string
		now  api.Instant
		to   **api.Instant
	}{{"not_before", call.NotBefore, &edit.NotBefore}, {"deadline", call.Deadline, &edit.Deadline}} {
		text := strings.TrimSpace(v.PostForm.Get(field.name))
		if text == "" || text == minuteOf(field.now) {
			continue
		}
		at, err := time.Parse(minute, text)
		if err != nil {
			return nil, v.malformed(v.lang.mustText("edit.instant", "Value", clean(text)))
		}
		instant := api.At(at)
		*field.to = &instant
	}
	return edit, nil
}
