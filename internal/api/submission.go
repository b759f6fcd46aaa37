package api

import (
	"encoding/json"
	"errors"
	"fmt"
)

// A Submission is a call to be submitted.
type Submission struct {
	Upstream string `json:"upstream"`
	Method   string `json:"method"`
	// Target is the path, and the query if there is one, as they go on the wire.
	Target string `json:"target,omitempty"`
	// Path is another name of target.
	Path    string  `json:"path,omitempty"`
	Headers Headers `json:"headers,omitempty"`
	// Body is the body as text; at most one of body and body_base64 is there.
	Body *string `json:"body,omitempty"`
	// BodyBase64 is the body as bytes.
	BodyBase64 []byte  `json:"body_base64,omitempty"`
	NotBefore  Instant `json:"not_before,omitzero"`
	Deadline   Instant `json:"deadline,omitzero"`
	// Priority is from -100 to 100; the higher one goes first.
	Priority int `json:"priority,omitempty"`
	// IdempotencyKey may come in the header Idempotency-Key instead.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// Callback is the target of the webhook about its end.
	Callback string `json:"callback,omitempty"`
}

// A BatchResult is the result of one line of a batch of submissions: the call, or the problem.
type BatchResult struct {
	// Line is the number of the submission's line, from 1.
	Line int   `json:"line"`
	Call *Call `json:"call,omitempty"`
	// Replayed: the call was there before, under the same idempotency key or identity.
	Replayed bool     `json:"replayed,omitempty"`
	Problem  *Problem `json:"problem,omitempty"`
}

// Headers are header fields by their name, which goes out over HTTP/1.1 as it is spelt. In JSON a value is a text or a
// list of texts; it is written as a list.
type Headers map[string][]string

func (h *Headers) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return errors.New("headers must be an object")
	}
	if raw == nil {
		return nil // null
	}
	*h = make(Headers)
	for name, v := range raw {
		var one string
		var many []string
		if json.Unmarshal(v, &one) == nil {
			many = []string{one}
		} else if json.Unmarshal(v, &many) != nil {
			return fmt.Errorf("headers: the value of %q must be a text or a list of texts", name)
		}
		if len(many) > 0 {
			(*h)[name] = many
		}
	}
	return nil
}
