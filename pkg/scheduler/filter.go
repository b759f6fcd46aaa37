package scheduler

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// A Filter chooses calls, and the page of them. Empty fields choose all.
type Filter struct {
	Upstream string
	States   []State
	Outcome  upstream.Outcome // see [Call.Outcome]
	// NeedsPerson chooses unknown calls that no query decides. To a Store it means all unknown ones.
	NeedsPerson bool

	// Limit and Key choose by a permit that each attempt takes; a Key alone may be of any limit.
	Limit, Key string
	Flow       string
	// Number is a business number, of the name NumberName, or of any name if that is empty.
	Number, NumberName string
	IdempotencyKey     string
	SubmittedBy        string
	Origin             Origin
	PathPrefix         string
	// Q is all of an id, a business number, a key of a limit, or an idempotency key.
	Q string

	// A period has the instant at which it begins, and not the one at which it ends. Only
	// calls that have finished are in one of FinishedAfter and FinishedBefore.
	AcceptedAfter, AcceptedBefore time.Time
	FinishedAfter, FinishedBefore time.Time

	Oldest bool   // the oldest first, else the newest first: by id
	After  string // an id: the page begins after it
	Max    int    // of the page; 0 means as many as one page can have
}

// A ListPage is a page of a list. One page looks at a bounded number of calls, so it may have fewer
// than Max, even none, although Next is set.
type ListPage struct {
	Calls []*Call
	// Next is the After of the next page; empty if there is none.
	Next string
}

// Matches reports whether the filter chooses a call, on whichever page. A call of unknown state
// that says nothing of what happens next needs a person.
func (f *Filter) Matches(c *Call) bool {
	return f.matchesState(c) && f.matchesFacts(c) && (f.Q == "" || knownAs(c, f.Q)) &&
		within(c.AcceptedAt, f.AcceptedAfter, f.AcceptedBefore) &&
		within(c.FinishedAt, f.FinishedAfter, f.FinishedBefore)
}

func (f *Filter) matchesState(c *Call) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, c.State)) &&
		(f.Outcome == "" || c.Outcome() == f.Outcome) &&
		(!f.NeedsPerson || c.State == Unknown && (c.Pending == nil || c.Pending.Person))
}

func (f *Filter) matchesFacts(c *Call) bool {
	return (f.Upstream == "" || c.Upstream == f.Upstream) &&
		(f.Flow == "" || c.Flow == f.Flow) &&
		(f.IdempotencyKey == "" || c.IdempotencyKey == f.IdempotencyKey) &&
		(f.SubmittedBy == "" || c.SubmittedBy == f.SubmittedBy) &&
		(f.Origin == "" || c.Origin == f.Origin) &&
		strings.HasPrefix(c.Path, f.PathPrefix) &&
		(f.Number == "" || f.matchesNumber(c)) &&
		(f.Limit == "" && f.Key == "" || slices.ContainsFunc(c.permits(), f.matchesPermit))
}

func (f *Filter) matchesNumber(c *Call) bool {
	if f.NumberName != "" {
		return c.Numbers[f.NumberName] == f.Number
	}
	return slices.Contains(slices.Collect(maps.Values(c.Numbers)), f.Number)
}

func (f *Filter) matchesPermit(p Permit) bool {
	return (f.Limit == "" || p.Limit == f.Limit) && (f.Key == "" || p.Key == f.Key)
}

// knownAs reports whether people know a call by a text.
func knownAs(c *Call, text string) bool {
	number, key := Filter{Number: text}, Filter{Key: text}
	return c.ID == text || c.IdempotencyKey == text || number.matchesNumber(c) || slices.ContainsFunc(c.permits(), key.matchesPermit)
}

// within reports whether an instant is in a period whose ends may be open; none is only in one
// that has no end.
func within(t, after, before time.Time) bool {
	return (after.IsZero() || !t.Before(after)) && (before.IsZero() || !t.IsZero() && t.Before(before))
}

// Compare returns the order of two ids in a list: negative if the first comes before the second.
func (f *Filter) Compare(a, b string) int {
	if f.Oldest {
		return strings.Compare(a, b)
	}
	return strings.Compare(b, a)
}

// merge returns the page of calls of two stores. A page that has a next one says nothing of the
// calls behind that.
func (f *Filter) merge(a, b *ListPage) *ListPage {
	all := append(slices.Clip(a.Calls), b.Calls...)
	slices.SortFunc(all, func(a, b *Call) int { return f.Compare(a.ID, b.ID) })
	next := a.Next
	if b.Next != "" && (next == "" || f.Compare(b.Next, next) < 0) {
		next = b.Next
	}
	if next != "" {
		all = slices.DeleteFunc(all, func(c *Call) bool { return f.Compare(c.ID, next) > 0 })
	}
	if f.Max > 0 && len(all) > f.Max {
		all = all[:f.Max]
		next = all[f.Max-1].ID
	}
	return &ListPage{all, next}
}
