package signer

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxTokenAnswer is the size of the largest answer of a token endpoint, in bytes; package oauth2 reads no more either.
const maxTokenAnswer = 1 << 20

// wholeSeconds is the transport of a token endpoint. Package oauth2 takes whole numbers in expires_in alone: it refuses
// the token of an answer in JSON with 3600.0, which is the same JSON number (RFC 8259, section 6), and a token in a form
// with it never ends. So fractions are cut off before it reads the answer; all else of it stays as it is.
type wholeSeconds struct{ http.RoundTripper }

func (t wholeSeconds) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxTokenAnswer))
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/x-www-form-urlencoded" || kind == "text/plain" { // as package oauth2 has it
		body = wholeInForm(body)
	} else {
		body = wholeInJSON(body)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

func wholeInForm(body []byte) []byte {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return body
	}
	whole, ok := wholeNumber(form.Get("expires_in"))
	if !ok {
		return body
	}
	form.Set("expires_in", whole)
	return []byte(form.Encode())
}

func wholeInJSON(body []byte) []byte {
	var members map[string]json.RawMessage
	if json.Unmarshal(body, &members) != nil {
		return body
	}
	whole, ok := wholeNumber(strings.Trim(string(members["expires_in"]), `"`)) // a number in quotes, as some write it
	if !ok {
		return body
	}
	members["expires_in"] = json.RawMessage(whole)
	text, err := json.Marshal(members)
	if err != nil {
		return body
	}
	return text
}

// wholeNumber returns the whole number of seconds in a text, at least one of a life above zero, and one that
// package oauth2 can hold; false if the text is no number of JSON, or is whole already.
func wholeNumber(text string) (string, bool) {
	if n, err := strconv.ParseInt(text, 10, 32); err == nil && strconv.FormatInt(n, 10) == text {
		return "", false
	}
	if !json.Valid([]byte(text)) || strings.Trim(text, "+-.0123456789eE") != "" { // ParseFloat takes more
		return "", false
	}
	seconds, _ := strconv.ParseFloat(text, 64) // infinite if it is too large
	if seconds > 0 {
		seconds = max(1, seconds)
	} else if seconds < 0 {
		seconds = min(-1, seconds)
	}
	return strconv.FormatInt(int64(min(max(seconds, math.MinInt32), math.MaxInt32)), 10), true
}
