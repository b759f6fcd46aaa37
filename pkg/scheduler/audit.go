package scheduler

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Records of what people, and programs in their name, have asked for.

// An AuditRecord tells of one action. Its texts are for people; none is a secret.
type AuditRecord struct {
	Seq    int64     // set by the store: a later record has a higher one
	At     time.Time // set by the scheduler if it is zero
	Actor  string    // name of the person or the program
	Role   string
	Via    string // the way in, such as an address
	Action string // such as resolve, retry, pause

	// The subject; empty for what the action does not concern.
	Upstream, Call, Limit, Key string

	Before, After string // of the subject; After begins with "not done: " if the action had no effect
	Reason        string
}

// An AuditFilter chooses records. Empty fields choose all.
type AuditFilter struct {
	Actor, Action, Call string
	From, To            time.Time // from an instant on, and before one
	Before              int64     // the Seq of the last record of the page before
	Max                 int       // of a page; zero, and more, mean 1,000
}

// maxAuditPage is the most records that AuditLog returns at a time.
const maxAuditPage = 1000

// Page is the number of records of a page.
func (f AuditFilter) Page() int {
	if f.Max <= 0 {
		return maxAuditPage
	}
	return min(f.Max, maxAuditPage)
}

// Matches reports whether the filter chooses a record.
func (f AuditFilter) Matches(r AuditRecord) bool {
	return (f.Actor == "" || r.Actor == f.Actor) && (f.Action == "" || r.Action == f.Action) && (f.Call == "" || r.Call == f.Call) &&
		(f.From.IsZero() || !r.At.Before(f.From)) && (f.To.IsZero() || r.At.Before(f.To)) && (f.Before == 0 || r.Seq < f.Before)
}

// auditor returns the store that keeps the audit.
func (j *journal) auditor() Store {
	if j.durable != nil {
		return j.durable
	}
	return j.memory
}

// audit keeps a record.
func (j *journal) audit(ctx context.Context, r AuditRecord) error {
	if r.At.IsZero() {
		r.At = time.Now()
	}
	err := j.reading(func() error { return j.auditor().Audit(ctx, r) })
	j.check(err)
	return err
}

// auditLog returns the records that match a filter, the latest first.
func (j *journal) auditLog(ctx context.Context, f AuditFilter) (records []AuditRecord, err error) {
	err = j.reading(func() (err error) {
		records, err = j.auditor().AuditLog(ctx, f)
		return err
	})
	return records, j.unread(err)
}

// keepAudit is how many records a store in memory keeps.
const keepAudit = 10_000

// An auditTrail keeps the last records in memory.
type auditTrail struct {
	mu      sync.Mutex
	last    int64 // Seq
	records []AuditRecord
}

// Audit is as of a [Store].
func (t *auditTrail) Audit(_ context.Context, r AuditRecord) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	r.Seq = t.last
	if len(t.records) == 2*keepAudit {
		t.records = slices.Clone(t.records[keepAudit:])
	}
	t.records = append(t.records, r)
	return nil
}

// AuditLog is as of a [Store].
func (t *auditTrail) AuditLog(_ context.Context, f AuditFilter) (page []AuditRecord, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.records[max(0, len(t.records)-keepAudit):]
	for _, r := range slices.Backward(kept) {
		if len(page) == f.Page() {
			break
		}
		if f.Matches(r) {
			page = append(page, r)
		}
	}
	return page, nil
}
