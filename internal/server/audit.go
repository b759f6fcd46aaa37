package server

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// callerName returns the name of the caller of a request, as decisions and the audit have it.
func callerName(r *http.Request) string {
	caller := access.From(r.Context())
	return cmp.Or(caller.Name, caller.Via)
}

// audited records a change that a caller asks for, and makes it.
func audited(a *Admin, r *http.Request, record scheduler.AuditRecord, do func() error) error {
	record = recordOf(r, record)
	err := a.Scheduler.Audited(r.Context(), record, do)
	logRecord(a, r, record, err)
	return err
}

// recordOf returns a record with the caller of a request, and the way in.
func recordOf(r *http.Request, record scheduler.AuditRecord) scheduler.AuditRecord {
	caller := access.From(r.Context())
	record.Actor, record.Role, record.Via = callerName(r), string(caller.Role), caller.Via
	if r.RemoteAddr != "" && r.RemoteAddr != "@" {
		record.Via += " " + r.RemoteAddr
	}
	return record
}

// logRecord logs a change, and why it failed.
func logRecord(a *Admin, r *http.Request, record scheduler.AuditRecord, err error) {
	args := []any{"by", record.Actor, "from", r.RemoteAddr}
	for _, member := range []struct{ name, value string }{
		{"upstream", record.Upstream}, {"call", record.Call}, {"limit", record.Limit}, {"key", record.Key}, {"before", record.Before}, {"after", record.After}, {"reason", record.Reason},
	} {
		if member.value != "" {
			args = append(args, member.name, member.value)
		}
	}
	if err != nil {
		args = append(args, "err", err)
	}
	a.Log.Info("admin: "+record.Action, args...)
}

// listAudit lists records, the newest first.
func listAudit(a *Admin, r request[none]) (*api.AuditLog, error) {
	q := r.query
	f := scheduler.AuditFilter{Actor: q.Get("actor"), Action: q.Get("action"), Call: q.Get("call"), From: instantOf(q, "from"), To: instantOf(q, "to"), Max: r.op.number(q, "page_size")}
	if text := q.Get("cursor"); text != "" {
		n, err := strconv.ParseInt(text, 36, 64)
		if err != nil || n < 1 {
			return nil, badRequest("cursor %q is none of ours; take next of the page before", text)
		}
		f.Before = n
	}
	records, err := a.Scheduler.AuditLog(r.Context(), f)
	if err != nil {
		return nil, err
	}
	out := &api.AuditLog{Records: []api.AuditRecord{}}
	for _, record := range records {
		out.Records = append(out.Records, api.AuditRecord{
			Seq: record.Seq, At: api.At(record.At), Actor: record.Actor, Role: record.Role, Via: record.Via, Action: record.Action,
			Upstream: record.Upstream, Call: record.Call, Limit: record.Limit, Key: record.Key, Before: record.Before, After: record.After, Reason: record.Reason,
		})
	}
	if len(records) == f.Page() {
		out.Next = strconv.FormatInt(records[len(records)-1].Seq, 36)
	}
	return out, nil
}

var auditParams = []Param{
	{Name: "actor", Type: "string", Doc: "Only changes by this name."},
	{Name: "action", Type: "string", Doc: "Only this action, such as resolve."},
	{Name: "call", Type: "string", Doc: "Only changes of the call with this id."},
	{Name: "from", Type: "instant", Doc: "Only changes then or later."},
	{Name: "to", Type: "instant", Doc: "Only earlier changes."},
	{Name: "page_size", Type: "integer", Max: maxPage, Default: defaultPage, Doc: "The most records of a page."},
	{Name: "cursor", Type: "string", Doc: "Next of the page before."},
}

// exampleAudit is one of the documentation.
var exampleAudit = api.AuditLog{Records: []api.AuditRecord{{
	Seq: 7, At: exampleAt(4), Actor: "oncall", Role: "operator", Via: "token 10.0.0.7:51234", Action: "resolve", Upstream: "pay", Call: exampleID,
	Before: "unknown after attempt 1", After: "done, seen attempt 1", Reason: "seen in the statement",
}}, Next: "7"}

// parsedInstant reports whether a text is an instant of RFC 3339.
func parsedInstant(text string) bool {
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
