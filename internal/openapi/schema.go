package openapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// A document collects the schemas that its operations name.
type document struct {
	schemas  map[string]*yaml.Node
	comments map[string]string // by Type and Type.Field
}

// Comments returns the comments of the types of a package and of their fields.
func Comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	comments := make(map[string]string)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range parsed.Decls {
			types, ok := decl.(*ast.GenDecl)
			if !ok || types.Tok != token.TYPE {
				continue
			}
			for _, spec := range types.Specs {
				s := spec.(*ast.TypeSpec)
				comments[s.Name.Name] = line(types.Doc)
				if fields, ok := s.Type.(*ast.StructType); ok {
					for _, f := range fields.Fields.List {
						for _, name := range f.Names {
							comments[s.Name.Name+"."+name.Name] = line(f.Doc)
						}
					}
				}
			}
		}
	}
	return comments, nil
}

func line(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

func typeOf(v any) reflect.Type {
	t := reflect.TypeOf(v)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// values are the words of the types that have few.
var values = map[reflect.Type][]string{
	reflect.TypeFor[api.State]():   words(api.States),
	reflect.TypeFor[api.Outcome](): words(api.Outcomes),
	reflect.TypeFor[api.Origin]():  words(api.Origins),
}

func words[T ~string](all []T) (texts []string) {
	for _, w := range all {
		texts = append(texts, string(w))
	}
	return texts
}

// schema returns the schema of a type; a struct is a reference to one of the document's.
func (d *document) schema(t reflect.Type, input bool) *yaml.Node {
	switch t {
	case reflect.TypeFor[api.Instant]():
		return object("type", text("string"), "format", text("date-time"))
	case reflect.TypeFor[[]byte]():
		return object("type", text("string"), "format", text("byte"))
	case reflect.TypeFor[api.Headers]():
		values := object("type", text("array"), "items", object("type", text("string")))
		if input {
			values = object("oneOf", list(object("type", text("string")), values))
		}
		return object("type", text("object"), "additionalProperties", values)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.schema(t.Elem(), input)
	case reflect.String:
		if words := values[t]; words != nil {
			name := t.Name()
			if d.schemas[name] == nil {
				enum := list()
				for _, w := range words {
					enum.Content = append(enum.Content, text(w))
				}
				d.schemas[name] = object("type", text("string"), "description", text(d.comments[name]), "enum", enum)
			}
			return reference(name)
		}
		return object("type", text("string"))
	case reflect.Bool:
		return object("type", text("boolean"))
	case reflect.Int:
		return object("type", text("integer"))
	case reflect.Int64, reflect.Uint64:
		return object("type", text("integer"), "format", text("int64"))
	case reflect.Float64:
		return object("type", text("number"), "format", text("double"))
	case reflect.Slice:
		return object("type", text("array"), "items", d.schema(t.Elem(), input))
	case reflect.Map:
		return object("type", text("object"), "additionalProperties", d.schema(t.Elem(), input))
	case reflect.Struct:
		return d.structure(t, input)
	}
	panic("no schema for " + t.String())
}

const schemaPath = "#/components/schemas/"

func reference(name string) *yaml.Node { return object("$ref", text(schemaPath+name)) }

func (d *document) structure(t reflect.Type, input bool) *yaml.Node {
	if d.schemas[t.Name()] != nil {
		return reference(t.Name())
	}
	properties, required := object(), list()
	schema := object("type", text("object"))
	d.schemas[t.Name()] = schema
	if comment := d.comments[t.Name()]; comment != "" {
		set(schema, "description", text(comment))
	}
	d.fields(t, input, properties, required)
	if len(required.Content) > 0 {
		set(schema, "required", required)
	}
	set(schema, "properties", properties)
	if input {
		set(schema, "additionalProperties", boolean(false))
	}
	return reference(t.Name())
}

// fields adds the members of a struct, and of those that it embeds.
func (d *document) fields(t reflect.Type, input bool, properties, required *yaml.Node) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			d.fields(f.Type, input, properties, required)
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		value := d.schema(f.Type, input)
		if comment := d.comments[t.Name()+"."+f.Name]; comment != "" {
			set(value, "description", text(withoutName(f.Name, comment)))
		}
		if f.Type.Kind() == reflect.Pointer && slices.Contains([]reflect.Kind{reflect.Int, reflect.Float64}, f.Type.Elem().Kind()) { // an absent one is no zero
			set(value, "x-go-type-skip-optional-pointer", boolean(false))
		}
		set(properties, name, value)
		if !strings.Contains(options, "omit") {
			required.Content = append(required.Content, text(name))
		}
	}
}

// withoutName returns the comment of a field without the field's name in Go, which the
// document does not have.
func withoutName(name, comment string) string {
	rest := strings.TrimPrefix(comment, name)
	for _, verb := range []string{" is ", " are ", ": "} {
		if after, ok := strings.CutPrefix(rest, verb); ok && rest != comment {
			return strings.ToUpper(after[:1]) + after[1:]
		}
	}
	return comment
}
