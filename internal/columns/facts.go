package columns

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// storedFacts is the column facts after its checksum: the part of a call that never changes. It is written
// once; the sum of a row, which is made with each change, covers only that there are facts.
type storedFacts struct {
	Method      string            `json:"method"`
	Path        string            `json:"path"`
	Flow        string            `json:"flow"`
	Permits     []storedPermit    `json:"permits"`
	Origin      string            `json:"origin"`
	SubmittedBy string            `json:"submitted_by"`
	Key         string            `json:"key"` // idempotency key
	Numbers     map[string]string `json:"numbers"`
}

type storedPermit struct {
	Limit string `json:"limit"`
	Key   string `json:"key"`
	Cost  int    `json:"cost"`
}

// withFacts stands for facts in the sum of a row.
const withFacts = "+"

// factsLength is that of their checksum, in hexadecimal digits.
const factsLength = 8

// hasFacts reports whether a call has more of them than numbers. A call of an earlier schema has not.
func hasFacts(c *scheduler.Call) bool {
	return c.Method != "" || c.Path != "" || c.Flow != "" || len(c.Permits) > 0 || c.Origin != "" || c.SubmittedBy != "" || c.IdempotencyKey != ""
}

// Summed returns the text that stands for the facts of a call in the sum of its row.
func Summed(c *scheduler.Call) (string, error) {
	if hasFacts(c) {
		return withFacts, nil
	}
	return encodeNumbers(c.Numbers)
}

// EncodeFacts returns the text of the column facts in the clear. Every durable call has one, so it
// is written by hand: encoding/json takes four times as long.
func EncodeFacts(c *scheduler.Call) (string, error) {
	if !hasFacts(c) {
		return encodeNumbers(c.Numbers)
	}
	b := make([]byte, factsLength, 256)
	for _, member := range []struct{ name, value string }{
		{`{"method":`, c.Method}, {`,"path":`, c.Path}, {`,"flow":`, c.Flow}, {`,"origin":`, string(c.Origin)},
		{`,"submitted_by":`, c.SubmittedBy}, {`,"key":`, c.IdempotencyKey},
	} {
		b = appendText(append(b, member.name...), member.value)
	}
	separator := `,"permits":[{"limit":`
	for _, p := range c.Permits {
		b = appendText(append(b, separator...), p.Limit)
		b = appendText(append(b, `,"key":`...), p.Key)
		b = strconv.AppendInt(append(b, `,"cost":`...), int64(p.Cost), 10)
		separator = `},{"limit":`
	}
	if len(c.Permits) > 0 {
		b = append(b, `}]`...)
	}
	separator = `,"numbers":{`
	for _, name := range slices.Sorted(maps.Keys(c.Numbers)) {
		b = appendText(append(b, separator...), name)
		b = appendText(append(b, ':'), c.Numbers[name])
		separator = ","
	}
	if len(c.Numbers) > 0 {
		b = append(b, '}')
	}
	b = append(b, '}')
	copy(b, factsSum(c.ID, b[factsLength:]))
	return string(b), nil
}

// appendText appends a text as JSON.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			text, _ := json.Marshal(s) // a text
			return append(b, text...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func factsSum(id string, text []byte) string {
	crc := crc32.Update(0, castagnoli, []byte(id))
	return fmt.Sprintf("%0*x", factsLength, crc32.Update(crc, castagnoli, text))
}

// DecodeFacts sets the facts of a call, and returns the text that stands for them in the sum of
// its row.
func DecodeFacts(text string, c *scheduler.Call) (summed string, err error) {
	if text == "" || text[0] == '{' {
		if c.Numbers, err = decodeNumbers(text); err != nil {
			err = fmt.Errorf("numbers of call %.100q: %w: %w", c.ID, ErrChecksum, err)
		}
		return text, err
	}
	if len(text) < factsLength || factsSum(c.ID, []byte(text[factsLength:])) != text[:factsLength] {
		return "", fmt.Errorf("facts of call %.100q: %w", c.ID, ErrChecksum)
	}
	var f storedFacts
	if err := json.Unmarshal([]byte(text[factsLength:]), &f); err != nil {
		return "", err
	}
	c.Method, c.Path, c.Flow, c.Origin, c.SubmittedBy, c.IdempotencyKey, c.Numbers = f.Method, f.Path, f.Flow, scheduler.Origin(f.Origin), f.SubmittedBy, f.Key, f.Numbers
	for _, p := range f.Permits {
		c.Permits = append(c.Permits, scheduler.Permit{Limit: p.Limit, Key: p.Key, Cost: p.Cost})
	}
	return withFacts, nil
}

// encodeNumbers returns the text of the column facts of a call that has numbers alone.
func encodeNumbers(numbers map[string]string) (string, error) {
	if len(numbers) == 0 {
		return "", nil
	}
	text, err := json.Marshal(numbers)
	return string(text), err
}

func decodeNumbers(text string) (numbers map[string]string, err error) {
	if text == "" {
		return nil, nil
	}
	return numbers, json.Unmarshal([]byte(text), &numbers)
}
