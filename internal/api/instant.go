package api

import (
	"encoding/json"
	"fmt"
	"time"
)

// layout writes an instant to the microsecond, always with six digits: so much of it the
// store keeps, and texts of one length compare as their instants do.
const layout = "2006-01-02T15:04:05.000000Z"

// An Instant is a time of RFC 3339, written in UTC with six digits of the second.
type Instant struct{ time.Time }

// At returns an instant as it is written: in UTC, to the microsecond.
func At(t time.Time) Instant {
	if t.IsZero() {
		return Instant{}
	}
	return Instant{t.UTC().Truncate(time.Microsecond)}
}

func (i Instant) MarshalJSON() ([]byte, error) {
	return []byte(i.UTC().Format(`"` + layout + `"`)), nil
}

// UnmarshalJSON takes any time of RFC 3339. Its error names the text that is none.
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
