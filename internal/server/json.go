package server

import (
	"bytes"
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

// readJSON reads a body that holds one JSON object without unknown members, and notes each
// fault with its place. Members with faults stay as they are.
func readJSON(body []byte, v any, f *faults) {
	if len(bytes.TrimSpace(body)) == 0 {
		f.empty = true
		f.add("", "the body is empty; send a JSON object; its members are %s", known(v))
		return
	}
	err := readObject(json.NewDecoder(bytes.NewReader(body)), reflect.ValueOf(v).Elem(), f)
	if err != nil {
		f.add("", "%s%v", notJSON, err)
	}
}

const notJSON = "the body is not the JSON that is expected here: "

// readObject reads the members of an object. Its error is one of the syntax.
func readObject(decoder *json.Decoder, v reflect.Value, f *faults) error {
	decoder.DisallowUnknownFields()
	begin, err := decoder.Token()
	if err != nil {
		return err
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("it is a JSON %s, must be an object", kindOf(begin))
	}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return err
		}
		name := token.(string)
		into := any(new(json.RawMessage))
		if field := member(v, name); field.IsValid() {
			into = field.Addr().Interface()
		} else {
			f.add("/"+pointed(name), "%sunknown field %q; there are %s", notJSON, name, known(v.Addr().Interface()))
		}
		if err := decoder.Decode(into); err != nil {
			var syntax *json.SyntaxError
			if errors.As(err, &syntax) || errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
				return err
			}
			f.add("/"+pointed(name), "%s%s", notJSON, jsonFault(name, err))
		}
	}
	if _, err := decoder.Token(); err != nil {
		return err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return errors.New("something follows the JSON object")
	}
	return nil
}

func kindOf(t json.Token) string {
	switch t.(type) {
	case json.Delim:
		return "array"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	}
	return "null"
}

// member returns the field of a struct that a member of its JSON has, or the zero Value.
func member(v reflect.Value, name string) reflect.Value {
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == name {
			return v.Field(i)
		}
	}
	return reflect.Value{}
}

// pointed returns a name as a JSON Pointer has it (RFC 6901).
func pointed(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// jsonFault returns the text of an error of encoding/json about a member, without names of
// Go types.
func jsonFault(name string, err error) string {
	var wrong *json.UnmarshalTypeError
	var encoded base64.CorruptInputError
	switch {
	case errors.As(err, &wrong):
		if wrong.Field != "" {
			name += "." + wrong.Field
		}
		return fmt.Sprintf("%s cannot be a JSON %s%s", name, wrong.Value, wanted(wrong.Type))
	case errors.As(err, &encoded):
		return name + " is not base64 (RFC 4648, section 4)"
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	if !strings.HasPrefix(text, name) {
		text = name + ": " + text
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
	case reflect.Bool:
		return ", must be true or false"
	case reflect.Struct:
		return ", must be an object"
	case reflect.Slice:
		return ", must be a list"
	}
	return ""
}
