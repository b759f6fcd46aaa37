package columns

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// The types of this file are stored as JSON. Their fields, names and omissions are
// the format of the schema: a change of one needs a migration. They are apart from
// the scheduler's types, which may change freely.

// A storedAttempt is an element of the column attempts. One without a number is the last,
// and no attempt: it has the reason why the call ended, the call that ended it, and the decisions
// about the call.
type storedAttempt struct {
	N        int       `json:"n,omitzero"`
	SentAt   time.Time `json:"sent_at,omitzero"`
	EndedAt  time.Time `json:"ended_at,omitzero"`
	Status   int       `json:"status,omitzero"`
	Outcome  string    `json:"outcome,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Resolved bool      `json:"resolved,omitempty"`
	EndedBy  string    `json:"ended_by,omitempty"`

	Decisions []storedDecision `json:"decisions,omitempty"`
	Sealed    string           `json:"sealed,omitempty"` // the decisions in a sealed file: JSON, encrypted, in base64
}

// A storedDecision is a decision about an unknown call.
type storedDecision struct {
	At        time.Time `json:"at"`
	By        string    `json:"by,omitempty"`
	Attempt   int       `json:"attempt,omitzero"`
	As        string    `json:"as"`
	Reason    string    `json:"reason,omitempty"`
	Duplicate bool      `json:"accept_duplicate,omitempty"`
}

// encodeDecisions puts the decisions about a call into the last element of its attempts.
func encodeDecisions(c *Codec, call *scheduler.Call, last *storedAttempt) error {
	for _, d := range call.Decisions {
		last.Decisions = append(last.Decisions, storedDecision{At: d.At.UTC(), By: d.By, Attempt: d.Attempt, As: string(d.As), Reason: d.Reason, Duplicate: d.AcceptDuplicate})
	}
	if c.macs == nil || len(call.Decisions) == 0 {
		return nil
	}
	text, err := json.Marshal(last.Decisions)
	last.Decisions, last.Sealed = nil, c.EncryptText(string(text), call.ID, decidedKind)
	return err
}

func decodeDecisions(c *Codec, last *storedAttempt, call *scheduler.Call) error {
	stored := last.Decisions
	if last.Sealed != "" {
		text, err := c.DecryptText(last.Sealed, call.ID, decidedKind)
		if err != nil {
			return fmt.Errorf("decisions about call %s: %w", call.ID, err)
		}
		if err := json.Unmarshal([]byte(text), &stored); err != nil {
			return err
		}
	}
	for _, d := range stored {
		call.Decisions = append(call.Decisions, scheduler.Decision{At: d.At, By: d.By, Attempt: d.Attempt, As: upstream.Outcome(d.As), Reason: d.Reason, AcceptDuplicate: d.Duplicate})
	}
	return nil
}

// EncodeAttempts returns the text of the column attempts: of the attempts of a call, of
// the reason why it ended, and of the decisions about it.
func EncodeAttempts(d *Codec, c *scheduler.Call) (string, error) {
	attempts, more := c.Attempts, c.Reason != "" || c.EndedBy != "" || len(c.Decisions) > 0
	if len(attempts) == 0 && !more {
		return "[]", nil
	}
	stored := make([]storedAttempt, len(attempts))
	for i := range attempts {
		a := &attempts[i]
		stored[i] = storedAttempt{
			N: a.N, SentAt: a.SentAt, EndedAt: a.EndedAt,
			Status: a.Status, Outcome: string(a.Outcome), Reason: a.Reason, Resolved: a.Resolved,
		}
	}
	if more {
		last := storedAttempt{Reason: string(c.Reason), EndedBy: c.EndedBy}
		if err := encodeDecisions(d, c, &last); err != nil {
			return "", err
		}
		stored = append(stored, last)
	}
	text, err := json.Marshal(stored)
	return string(text), err
}

// DecodeAttempts sets the fields of a call that the column attempts has.
func DecodeAttempts(d *Codec, text string, c *scheduler.Call) error {
	c.Attempts = []scheduler.Attempt{}
	if text == "[]" {
		return nil
	}
	var stored []storedAttempt
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return err
	}
	if n := len(stored); n > 0 && stored[n-1].N == 0 {
		c.Reason, c.EndedBy = scheduler.Reason(stored[n-1].Reason), stored[n-1].EndedBy
		if err := decodeDecisions(d, &stored[n-1], c); err != nil {
			return err
		}
		stored = stored[:n-1]
	}
	attempts := make([]scheduler.Attempt, len(stored))
	for i := range stored {
		a := &stored[i]
		attempts[i] = scheduler.Attempt{
			N: a.N, SentAt: a.SentAt, EndedAt: a.EndedAt,
			Status: a.Status, Outcome: upstream.Outcome(a.Outcome), Reason: a.Reason, Resolved: a.Resolved,
		}
	}
	c.Attempts = attempts
	return nil
}

// A storedHold is an element of the column spent. Its upstream is the call's.
type storedHold struct {
	Limit   string    `json:"limit"`
	Key     string    `json:"key,omitempty"`
	Every   bool      `json:"every,omitempty"`
	Permits int       `json:"permits"`
	Back    time.Time `json:"back,omitzero"` // in whole microseconds, rounded up
}

// EncodeHolds returns the text of the column spent.
func EncodeHolds(holds []lease.Hold) (string, error) {
	if len(holds) == 0 {
		return "", nil
	}
	stored := make([]storedHold, len(holds))
	for i := range holds {
		h := &holds[i]
		stored[i] = storedHold{Limit: h.Limit, Key: h.Key, Every: h.Every, Permits: h.Permits, Back: Ceil(h.Back)}
	}
	text, err := json.Marshal(stored)
	return string(text), err
}

func DecodeHolds(text, upstream string) ([]lease.Hold, error) {
	if text == "" {
		return nil, nil
	}
	var stored []storedHold
	if err := json.Unmarshal([]byte(text), &stored); err != nil {
		return nil, err
	}
	holds := make([]lease.Hold, len(stored))
	for i := range stored {
		h := &stored[i]
		holds[i] = lease.Hold{Upstream: upstream, Limit: h.Limit, Key: h.Key, Every: h.Every, Permits: h.Permits, Back: h.Back}
	}
	return holds, nil
}

// A StoredContent is encrypted as a whole, into sealed or answer_sealed.
type StoredContent struct {
	Method, Target string // empty in a response
	Headers        string // JSON
	Body           []byte
}
