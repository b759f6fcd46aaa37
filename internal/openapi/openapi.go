// Package openapi writes the document of the admin API, OpenAPI 3.1, from the table of its
// operations in internal/server and from the types of internal/api with their comments.
//
//	comments, err := openapi.Comments("internal/api")
//	document, err := openapi.Document(server.Operations(), comments)
//
// The document is api/openapi.yaml; a test compares it, and go test ./internal/openapi -update
// writes it. [Older] makes one of OpenAPI 3.0 of it, from which api/client is generated.
//
// A type of internal/api becomes a schema of its name. A member is required unless its tag
// leaves it out when it is empty. Bodies that clients send take no other members; those of
// answers may get new ones.
package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/internal/server"
)

const about = `The admin API of Throttler: submit calls, look at them, decide about those of unknown outcome, pause upstreams.

Version 1 may get new members, reasons, parameters and operations. States and outcomes stay, and so does the meaning of each member. An operation that goes is marked by the headers Deprecation and Sunset a year before. Members and parameters that are not known here are refused. Instants are in UTC with six digits of the second; durations are milliseconds in answers, and texts such as 5m in requests.`

// Document returns the document.
func Document(ops []server.Operation, comments map[string]string) ([]byte, error) {
	d := &document{schemas: make(map[string]*yaml.Node), comments: comments}
	paths := object()
	for _, op := range ops {
		operation, err := d.operation(&op)
		if err != nil {
			return nil, fmt.Errorf("operation %s: %w", op.ID, err)
		}
		at := member(paths, op.Path)
		if at == nil {
			at = object()
			set(paths, op.Path, at)
		}
		set(at, strings.ToLower(op.Method), operation)
	}
	schemas := object()
	for _, name := range slices.Sorted(maps.Keys(d.schemas)) {
		set(schemas, name, d.schemas[name])
	}
	root := object(
		"openapi", text("3.1.0"),
		"info", object("title", text("Throttler"), "version", text("1"), "description", text(about), "license", object("name", text("Apache 2.0"), "identifier", text("Apache-2.0"))),
		"servers", list(object("url", text("http://127.0.0.1:9090"))),
		"security", list(object(), object("token", list())),
		"paths", paths,
		"components", object("securitySchemes", object("token", object("type", text("http"), "scheme", text("bearer"))), "schemas", schemas),
	)
	return encode(root)
}

func encode(root *yaml.Node) ([]byte, error) {
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	err := encoder.Encode(root)
	return []byte(out.String()), err
}

var wildcard = regexp.MustCompile(`\{(\w+)\}`)

// operation returns one operation.
func (d *document) operation(op *server.Operation) (*yaml.Node, error) {
	out := object("operationId", text(op.ID), "summary", text(op.Summary))
	if op.Doc != "" {
		set(out, "description", text(op.Doc))
	}
	if op.Scope != "" {
		set(out, "x-scope", text(string(op.Scope)))
	} else {
		set(out, "security", list())
	}
	params := list()
	for _, m := range wildcard.FindAllStringSubmatch(op.Path, -1) {
		params.Content = append(params.Content, object("name", text(m[1]), "in", text("path"), "required", boolean(true), "schema", object("type", text("string"))))
	}
	for _, p := range op.Params {
		if p.Prefix { // OpenAPI has no such parameter; the one before it tells of it
			continue
		}
		params.Content = append(params.Content, parameter(&p))
	}
	for _, h := range headers(op) {
		params.Content = append(params.Content, object("name", text(h[0]), "in", text("header"), "description", text(h[1]), "schema", object("type", text("string"))))
	}
	if len(params.Content) > 0 {
		set(out, "parameters", params)
	}
	if op.In != nil {
		content, err := d.content(op, op.In, true)
		if err != nil {
			return nil, err
		}
		set(out, "requestBody", object("required", boolean(!op.Optional), "content", content))
	}
	responses, err := d.responses(op)
	set(out, "responses", responses)
	return out, err
}

// headers returns the header fields that an operation reads.
func headers(op *server.Operation) (all [][2]string) {
	if op.Prefers {
		all = append(all, [2]string{"Prefer", "wait=10 answers when the call has ended or is unknown, or after 10 s; at most 60."})
	}
	if op.Method == http.MethodGet && strings.Contains(op.Path, "{") && op.Out != nil {
		all = append(all, [2]string{"If-None-Match", "The ETag of an earlier answer: 304 if nothing has changed."})
	}
	switch op.ID {
	case "submitCall":
		all = append(all, [2]string{"Idempotency-Key", "A key by which a repeat is recognised; or idempotency_key."})
	case "followEvents":
		all = append(all, [2]string{"Last-Event-ID", "Resumes after this event."})
	}
	return all
}

func parameter(p *server.Param) *yaml.Node {
	schema := object("type", text(p.Type))
	if p.Type == "instant" {
		schema = object("type", text("string"), "format", text("date-time"))
	}
	if p.Enum != nil {
		values := list()
		for _, v := range p.Enum {
			values.Content = append(values.Content, text(v))
		}
		set(schema, "enum", values)
	}
	if p.Type == "integer" {
		set(schema, "minimum", number(1))
		set(schema, "maximum", number(p.Max))
		set(schema, "default", number(p.Default))
	}
	if p.Repeated {
		schema = object("type", text("array"), "items", schema)
	}
	set(schema, "x-go-type-skip-optional-pointer", boolean(false)) // the client leaves an absent one out
	out := object("name", text(p.Name), "in", text("query"), "description", text(p.Doc))
	if p.Required {
		set(out, "required", boolean(true))
	}
	set(out, "schema", schema)
	return out
}

// responses returns the answers of an operation: its success, and any problem.
func (d *document) responses(op *server.Operation) (*yaml.Node, error) {
	success := object("description", text(http.StatusText(op.Status)))
	if op.Out != nil {
		content, err := d.content(op, op.Out, false)
		if err != nil {
			return nil, err
		}
		set(success, "content", content)
	} else {
		schema := object("type", text("string"))
		if op.Media == "text/event-stream" {
			set(schema, "contentMediaType", text("application/json")) // of the data of each event
			set(schema, "contentSchema", object("oneOf", list(d.schema(typeOf(api.Event{}), false), d.schema(typeOf(api.Lost{}), false))))
		}
		set(success, "content", object(op.Media, object("schema", schema, "example", text(plainExample(op)))))
	}
	all := object(fmt.Sprint(op.Status), success)
	if op.Method == http.MethodGet && strings.Contains(op.Path, "{") && op.Out != nil {
		set(all, "304", object("description", text("Nothing has changed")))
	}
	if op.ID == "getReadiness" {
		set(all, "503", object("description", text("Not ready"), "content", object("text/plain", object("schema", object("type", text("string"))))))
	}
	set(all, "4XX", d.problem("The request is refused"))
	set(all, "5XX", d.problem("The request cannot be served now"))
	return all, nil
}

func (d *document) problem(description string) *yaml.Node {
	return object("description", text(description), "content", object("application/problem+json", object("schema", d.schema(typeOf(api.Problem{}), false))))
}

func plainExample(op *server.Operation) string {
	return cmp.Or(map[string]string{
		"followEvents": "id: 1-7\nevent: ended\ndata: {\"at\":\"2026-11-21T09:00:04.000000Z\",\"event\":\"ended\",\"call\":\"01a204a1-bb16-75c0-893d-36d4a884cae2\",\"upstream\":\"pay\",\"state\":\"done\",\"priority\":0}\n\n",
		"getMetrics":   "throttler_calls_waiting{upstream=\"pay\"} 1\n",
		"getReadiness": "ready\n",
		"getHealth":    "ok\n",
	}[op.ID], "as it is")
}

// content returns the JSON of a body, by an example.
func (d *document) content(op *server.Operation, example any, input bool) (*yaml.Node, error) {
	if op.Lines {
		return d.lines(example, input)
	}
	data, err := json.Marshal(example)
	if err != nil {
		return nil, err
	}
	var node yaml.Node
	if err := yaml.Unmarshal(data, &node); err != nil {
		return nil, err
	}
	value := node.Content[0]
	plain(value)
	return object("application/json", object("schema", d.schema(typeOf(example), input), "example", value)), nil
}

// lines returns NDJSON, by a list of examples. To OpenAPI it is a text.
func (d *document) lines(examples any, input bool) (*yaml.Node, error) {
	var example strings.Builder
	encoder := json.NewEncoder(&example)
	encoder.SetEscapeHTML(false)
	for _, line := range reflect.ValueOf(examples).Seq2() {
		if err := encoder.Encode(line.Interface()); err != nil {
			return nil, err
		}
	}
	schema := object("type", text("string"), "contentMediaType", text("application/json"), // of each line
		"contentSchema", d.schema(typeOf(examples).Elem(), input))
	return object("application/x-ndjson", object("schema", schema, "example", text(example.String()))), nil
}

// Older returns the document in OpenAPI 3.0, for generators that do not know 3.1. A header
// field of a submission is always a list there.
func Older(document []byte) ([]byte, error) {
	var node yaml.Node
	if err := yaml.Unmarshal(document, &node); err != nil {
		return nil, err
	}
	root := node.Content[0]
	set(root, "openapi", text("3.0.3"))
	remove(member(member(root, "info"), "license"), "identifier")
	schemas := member(member(root, "components"), "schemas")
	for i := 1; i < len(schemas.Content); i += 2 {
		nullable(schemas, schemas.Content[i])
	}
	walk(root, func(n *yaml.Node) {
		if either := member(n, "oneOf"); either != nil {
			*n = *either.Content[len(either.Content)-1]
		}
	})
	return encode(root)
}

// nullable marks the members of a schema that are objects and may be absent: in Go they are
// pointers.
func nullable(schemas, schema *yaml.Node) {
	properties := member(schema, "properties")
	for i := 0; properties != nil && i < len(properties.Content); i += 2 {
		name, value := properties.Content[i].Value, properties.Content[i+1]
		ref := member(value, "$ref")
		if ref == nil || has(member(schema, "required"), name) {
			continue
		}
		if kind := member(member(schemas, strings.TrimPrefix(ref.Value, schemaPath)), "type"); kind.Value == "object" {
			set(value, "x-go-type-skip-optional-pointer", boolean(false))
		}
	}
}

func has(names *yaml.Node, name string) bool {
	return names != nil && slices.ContainsFunc(names.Content, func(n *yaml.Node) bool { return n.Value == name })
}
