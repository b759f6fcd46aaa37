package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// A Submission is a call to be submitted.
type Submission struct {
	Upstream       string  `json:"upstream"`
	Method         string  `json:"method,omitempty"` // required
	Path           string  `json:"path"`             // and query, as they go on the wire
	Headers        Headers `json:"headers,omitempty"`
	Body           *string `json:"body,omitempty"`        // as text; at most one of Body and BodyBase64
	BodyBase64     []byte  `json:"body_base64,omitempty"` // as bytes
	NotBefore      Instant `json:"not_before,omitzero"`
	Deadline       Instant `json:"deadline,omitzero"`
	Priority       int     `json:"priority,omitempty"` // from -100 to 100; higher goes first
	IdempotencyKey string  `json:"idempotency_key,omitempty"`
	Callback       string  `json:"callback,omitempty"` // target of the webhook about its end
}

// An Instant is a time of RFC 3339. Its error names the text that is none.
type Instant struct{ time.Time }

func (i *Instant) UnmarshalJSON(data []byte) error {
	var text string
	err := json.Unmarshal(data, &text)
	if err == nil {
		i.Time, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return fmt.Errorf("%s is not an instant of RFC 3339 such as \"2026-11-21T09:00:00Z\"", data)
	}
	return nil
}

// Headers are header fields by their canonical name. In JSON a value is a text or a
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
		for _, v := range many {
			http.Header(*h).Add(name, v)
		}
	}
	return nil
}
