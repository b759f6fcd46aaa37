package server

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
)

// writeJSON writes a type of internal/api.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	encodeJSON(w, v)
}

func encodeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// errEmpty is the error of an empty body.
var errEmpty = errors.New("the body is empty")

// readJSON reads a body that holds one JSON object without unknown members.
func readJSON(body io.Reader, v any) error {
	decoder := json.NewDecoder(body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("something follows the JSON object")
		}
	}
	switch {
	case err == io.EOF:
		return errors.Join(errEmpty, badRequest("the body is empty; send a JSON object; its members are %s", known(v)))
	case err != nil:
		return badRequest("the body is not the JSON that is expected here: %s", jsonFault(err, v))
	}
	return nil
}

// jsonFault returns the text of an error of encoding/json about a value, without names of
// Go types.
func jsonFault(err error, v any) string {
	var wrong *json.UnmarshalTypeError
	var encoded base64.CorruptInputError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return "it is a JSON " + wrong.Value + ", must be an object"
	case errors.As(err, &wrong):
		return fmt.Sprintf("%s cannot be a JSON %s%s", wrong.Field, wrong.Value, wanted(wrong.Type))
	case errors.As(err, &encoded):
		return "body_base64 is not base64 (RFC 4648, section 4)"
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if strings.HasPrefix(text, "unknown field") {
		text += "; there are " + known(v)
	}
	return text
}

// known returns the names of the members that the JSON of a struct may have.
func known(v any) string {
	t := reflect.TypeOf(v).Elem()
	var names []string
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// wanted says what the JSON of a type must be.
func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return ", must be a text"
	case reflect.Int:
		return ", must be a whole number"
	}
	return ""
}
