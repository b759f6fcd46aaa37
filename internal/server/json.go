package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// accepted answers that a call has been taken, and where it is.
func accepted(w http.ResponseWriter, call *scheduler.Call, base string) {
	w.Header().Set("Location", base+"/v1/calls/"+call.ID)
	tell(w.Header(), call)
	writeJSON(w, http.StatusAccepted, call)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.Encode(v)
}

// errEmpty is that of a body with nothing in it.
var errEmpty = bad("the body is empty; send a JSON object")

// readJSON reads a body that holds one JSON object without unknown members.
func readJSON(r *http.Request, v any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows the JSON object")
		}
	}
	switch {
	case err == io.EOF:
		return errEmpty
	case err != nil:
		return bad("the body is not the JSON that is expected here: %s", inWords(err))
	}
	return nil
}

// inWords tells an error of encoding/json without the names of Go types.
func inWords(err error) string {
	var wrong *json.UnmarshalTypeError
	var encoded base64.CorruptInputError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return "it is a JSON " + wrong.Value + ", must be an object"
	case errors.As(err, &wrong):
		name := wrong.Field[strings.LastIndex(wrong.Field, ".")+1:] // what is before it is a Go type's
		return fmt.Sprintf("%s cannot be a JSON %s", name, wrong.Value)
	case errors.As(err, &encoded):
		return "body_base64 is not base64 (RFC 4648, section 4)"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// An instant is a time of RFC 3339.
type instant struct{ time.Time }

func (i *instant) UnmarshalJSON(data []byte) error {
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

// headers takes a text or a list of texts for each name.
type headers http.Header

func (h *headers) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return errors.New("headers must be an object")
	}
	*h = make(headers)
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
