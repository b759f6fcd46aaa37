package upstream

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The readers of this file are written by the rules of the platforms' servers, and share no
// code with the package.

// A pair is a parameter as it is on the wire, decoded.
type pair struct{ name, value string }

// pairs splits a text as Tomcat does: a parameter with a broken escape is dropped.
func pairs(text, separators string, trim bool) (all []pair) {
	for _, p := range strings.FieldsFunc(text, func(c rune) bool { return strings.ContainsRune(separators, c) }) {
		if trim {
			p = strings.TrimLeft(p, " ")
		}
		name, value, _ := strings.Cut(p, "=")
		name, ok := percent(name)
		value, ok2 := percent(value)
		if ok && ok2 && name != "" {
			all = append(all, pair{name, value})
		}
	}
	return all
}

func percent(s string) (string, bool) {
	var out []byte
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '+':
			out = append(out, ' ')
		case s[i] == '%':
			if i+2 >= len(s) {
				return "", false
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			out = append(out, byte(n))
			i += 2
		default:
			out = append(out, s[i])
		}
	}
	return string(out), true
}

// A paramReader reads the parameter m as a kind of server does.
type paramReader struct {
	name       string
	separators string
	trim       bool // spaces behind a separator
	typeless   bool // reads a POST without a Content-Type as a form
	spelled    func([]pair) []pair
	pick       func([]pair) string
}

var paramReaders = []paramReader{
	{"Tomcat", "&", false, false, exactly, first},
	{"PHP", "&", false, false, php, last},
	{"Rack", "&", true, true, exactly, last},
	{"Rack 2", "&;", true, true, exactly, last},
	{"ASP.NET", "&", false, false, lower, first},
}

func (p paramReader) read(r *Request) string {
	_, query, _ := strings.Cut(r.Target, "?")
	return p.pick(p.spelled(append(pairs(query, p.separators, p.trim), p.form(r)...)))
}

// form decodes with the charset of the Content-Type: EBCDIC is one that Java has.
func (p paramReader) form(r *Request) []pair {
	kind, parameters := mediaType(r)
	switch {
	case r.Method != "POST":
		return nil
	case kind == "multipart/form-data":
		return multipartOf(r)
	case kind == "application/x-www-form-urlencoded", p.typeless && len(r.Header.Values("Content-Type")) == 0:
	default:
		return nil
	}
	all := pairs(string(r.Body), p.separators, p.trim)
	if strings.Contains(strings.ToLower(parameters), "charset=ibm037") {
		letters := strings.NewReplacer("\x94", "m", "\xa7", "x", "\xf1", "1")
		for i := range all {
			all[i] = pair{letters.Replace(all[i].name), letters.Replace(all[i].value)}
		}
	}
	return all
}

func exactly(all []pair) []pair { return all }

func first(all []pair) string {
	for _, p := range all {
		if p.name == "m" {
			return p.value
		}
	}
	return ""
}

func last(all []pair) string {
	all = slices.Clone(all)
	slices.Reverse(all)
	return first(all)
}

// php spells names as php_register_variable does.
func php(all []pair) (spelled []pair) {
	for _, p := range all {
		name, _, _ := strings.Cut(strings.TrimLeft(p.name, " "), "\x00")
		spelled = append(spelled, pair{strings.NewReplacer(" ", "_", ".", "_").Replace(name), p.value})
	}
	return spelled
}

// lower takes names without their case, as ASP.NET does.
func lower(all []pair) (spelled []pair) {
	for _, p := range all {
		spelled = append(spelled, pair{strings.ToLower(p.name), p.value})
	}
	return spelled
}

func mediaType(r *Request) (kind, parameters string) {
	kind, parameters, _ = strings.Cut(r.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind)), parameters
}

// A disposition's parameters, whose values are quoted or not.
var (
	formData  = regexp.MustCompile(`(?i)^content-disposition:\s*form-data\s*(;.*)?$`)
	parameter = regexp.MustCompile(`;\s*([^=;\s]+)\s*=\s*("[^"]*"|[^;\s]*)`)
)

// field returns the name of a field as FileUpload has it; false for a file.
func field(line string) (name string, ok bool) {
	kind := formData.FindStringSubmatch(line)
	if kind == nil {
		return "", false
	}
	file := false
	for _, m := range parameter.FindAllStringSubmatch(kind[1], -1) {
		switch value := strings.Trim(m[2], `"`); strings.ToLower(m[1]) {
		case "name":
			name = value
		case "filename", "filename*":
			file = true
		}
	}
	return name, !file
}

// multipartOf reads fields as Apache's FileUpload does, line by line.
func multipartOf(r *Request) (all []pair) {
	kind, parameters := mediaType(r)
	_, boundary, found := strings.Cut(parameters, "boundary=")
	if kind != "multipart/form-data" || !found {
		return nil
	}
	_, rest, found := strings.Cut("\r\n"+string(r.Body), "\r\n--"+boundary+"\r\n")
	for found && rest != "" {
		var head, value string
		if head, rest, found = strings.Cut(rest, "\r\n\r\n"); !found {
			return all
		}
		end := strings.Index(rest, "\r\n--"+boundary)
		if end < 0 {
			return all
		}
		value, rest = rest[:end], rest[end+len("\r\n--"+boundary):]
		for line := range strings.SplitSeq(head, "\r\n") {
			if name, ok := field(line); ok {
				all = append(all, pair{name, value})
				break
			}
		}
		if rest, found = strings.CutPrefix(rest, "\r\n"); !found {
			return all
		}
	}
	return all
}

// checkParams compares param with the readers. Of a form without a Content-Type, or without
// POST, some read nothing: they have no such call.
func checkParams(t *testing.T, r *Request) {
	got, err := NewInput(r).Param("m")
	if err != nil {
		return
	}
	all := r.Method == "POST" && len(r.Header.Values("Content-Type")) > 0
	for _, reader := range paramReaders {
		if want := reader.read(r); want != got && (all || want != "") {
			t.Fatalf("%s %q, %v, body %q: param is %q, and %s reads %q", r.Method, r.Target, r.Header, r.Body, got, reader.name, want)
		}
	}
}

// checkJSON compares json with readers of encoding/json's tokens: one takes the first
// member of a name, one the last, and one ignores the case of names.
func checkJSON(t *testing.T, r *Request) {
	path := []string{"a", "m"}
	got, err := NewInput(r).jsonValue(strings.Join(path, "."))
	if err != nil {
		return
	}
	text := bytes.TrimPrefix(r.Body, []byte("\xef\xbb\xbf"))
	for name, reader := range map[string]tokenReader{"the first": {first: true}, "the last": {}, "in any case": {fold: true}} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		want, ok := reader.value(d, path)
		if kind, _ := mediaType(r); !ok || kind == "application/x-www-form-urlencoded" || kind == "multipart/form-data" {
			continue // it is no JSON to the platform
		}
		if comparable(want) != comparable(got) {
			t.Fatalf("%v, body %q: json is %v, and a reader of %s member reads %v", r.Header, r.Body, got, name, want)
		}
	}
}

// comparable returns a value as a text: numbers as one of their spellings, and objects and
// arrays without their members.
func comparable(v any) string {
	switch v.(type) {
	case map[string]any, []any:
		return "nested"
	}
	if f, err := strconv.ParseFloat(fmt.Sprint(v), 64); err == nil {
		return fmt.Sprint(f)
	}
	return fmt.Sprintf("%T %[1]v", v)
}

// A tokenReader finds the value of a path. It stops at the end of the first value, as many
// readers do.
type tokenReader struct{ first, fold bool }

func (o tokenReader) value(d *json.Decoder, path []string) (found any, ok bool) {
	at, err := d.Token()
	if err != nil {
		return nil, false
	}
	delim, nested := at.(json.Delim)
	if !nested {
		if len(path) > 0 {
			return nil, true
		}
		return at, true
	}
	there := false
	for d.More() {
		next := []string{"-"} // a member of no path
		if delim == '{' {
			name, err := d.Token()
			if err != nil {
				return nil, false
			}
			if text := name.(string); len(path) > 0 && (text == path[0] || o.fold && strings.EqualFold(text, path[0])) {
				next = path[1:]
			}
		}
		v, ok := o.value(d, next)
		if !ok {
			return nil, false
		}
		if (len(next) == 0 || next[0] != "-") && !(o.first && there) {
			found, there = v, true
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, false
	}
	if len(path) == 0 {
		return map[string]any{}, true
	}
	return found, true
}

// wholePath is path in an expression; servers read a path whose value it is.
var wholePath = func() *Expr {
	e, err := Compile("path", Text)
	if err != nil {
		panic(err)
	}
	return e
}()

// servers read a path, unescaped: they merge slashes, cut path parameters, or take a backslash for a slash.
var servers = map[string]func(string) string{
	"plain": decodePath,
	"nginx": func(p string) string { return manySlashes.ReplaceAllString(decodePath(p), "/") },
	"Tomcat": func(p string) string {
		return manySlashes.ReplaceAllString(decodePath(parameters.ReplaceAllString(p, "")), "/")
	},
	"decode, then cut": func(p string) string { return parameters.ReplaceAllString(decodePath(p), "") },
	"IIS":              func(p string) string { return strings.ReplaceAll(decodePath(p), `\`, "/") },
}

var (
	manySlashes = regexp.MustCompile(`/+`)
	parameters  = regexp.MustCompile(`;[^/]*`)
)

// checkPath compares path with servers.
func checkPath(t *testing.T, r *Request) {
	got, err := wholePath.Text(NewInput(r))
	if err != nil {
		return
	}
	raw, _, _ := strings.Cut(r.Target, "?")
	plain := decodePath(got)
	for name, server := range servers {
		if want := server(raw); want != plain {
			t.Fatalf("target %q: path is %q, and %s reads %q", r.Target, got, name, want)
		}
	}
	// A condition compares texts: what is plain in a path must be plain here.
	if again, _ := wholePath.Text(NewInput(&Request{Target: plain})); !strings.ContainsAny(plain, "%?") && again != got {
		t.Fatalf("target %q: path is %q, and %q unescaped", r.Target, got, again)
	}
}

// pathConditions hold for some paths of segments.
var pathConditions = func() (all []*Expr) {
	for _, source := range pathSources {
		e, err := Compile(source, Condition)
		if err != nil {
			panic(err)
		}
		all = append(all, e)
	}
	return all
}()

var pathSources = []string{`path startsWith "/v/m"`, `path startsWith "/v"`, `path endsWith "/m"`, `path == "/v"`, `path contains "m"`, `path matches "^/[^/]+/m(/|$)"`, `len(split(path, "/")) > 2`}

// checkConditions compares conditions over a path with those over each server's path: if one has a value, it has that at all servers.
func checkConditions(t *testing.T, r *Request) (held int) {
	raw, _, _ := strings.Cut(r.Target, "?")
	for i, e := range pathConditions {
		got, err := e.Bool(NewInput(r))
		if err != nil {
			continue
		}
		for name, server := range servers {
			plain := (&url.URL{Path: server(raw)}).EscapedPath()
			in := NewInput(r)
			in.paths = &paths{all: []readPath{readings[0].of(plain)}}
			if want, err := e.Bool(in); err != nil || want != got {
				t.Fatalf("target %q: %s is %v, and %s reads %q: %v, %v", r.Target, pathSources[i], got, name, plain, want, err)
			}
		}
		held++
	}
	return held
}

func decodePath(p string) string {
	p = strings.ReplaceAll(p, "+", "%2B") // no space in a path
	plain, _ := percent(p)
	return plain
}

// Spellings of the parts of requests.
var (
	queryNames = strings.Split("x y z x m m m M %6d %4D m. m_ +m %20m m%00 m[] ä %u006d %94 mm", " ")
	values     = strings.Split("1 1 2 %31 %F1 + % a=b é", " ")
	breaks     = []string{"&", ";", " ", "%", "=", "+", "?", "#", "\x00", "\r\n", "\n", "\"", "\\", "/", "//", "{", "}", "[", ",", ":", "*", "//x", "--B", "\xef\xbb\xbf", "\xff", "m", "M", "null"}
	jsonNames  = []string{`"x"`, `"a"`, `"a"`, `"m"`, `"m"`, `"m"`, `"A"`, `"M"`, `"\u006d"`, `"m\u0000"`, `"a.m"`, `"\ud800"`, `"\"m\""`, `"\\"`, `""`}
	jsonTexts  = []string{`1`, `2`, `"1"`, `"m"`, `1.0`, `1e2`, `-0`, `12345678901234567890`, `null`, `true`, `""`, `"{\"m\":1"`}
	segments   = strings.Split("v m V %76 a%2fb a%2Fb ;x=1 v;x %3b ... %2e.. \\ %5c %25 %2576 %20 @ %40 : %3A * %2a ä %c3%a4 %C3 + %2b ~ %7e | ! ' ( , $ =", " ")
	fields     = []string{
		`Content-Disposition: form-data; name="m"`, `Content-Disposition: form-data; name="m"`, `content-disposition:form-data;name=m`,
		`Content-Disposition: form-data; name="x"`, `Content-Disposition: form-data; name="x"`, `Content-Disposition: form-data; name="M"`,
		`Content-Disposition: form-data; name="x"; filename="m"`, `Content-Disposition: form-data; name="m"; filename=""`,
		`Content-Disposition: form-data; name="x"; name="m"`, `Content-Disposition: form-data; name*=utf-8''m`, `Content-Disposition: attachment; name="m"`,
	}
	more = []string{
		"", "", "", "\r\nContent-Type: text/plain", "\r\nContent-Transfer-Encoding: binary", "\r\nContent-Transfer-Encoding: quoted-printable",
		"\r\nContent-Disposition: form-data; name=\"m\"", "\nX: 1",
	}
	kinds = []string{
		urlencodedForm, urlencodedForm, urlencodedForm, "multipart/form-data; boundary=B", "multipart/form-data; boundary=B", "multipart/form-data; boundary=B",
		"application/json", "application/json", "application/json", "none", "none", "", "text/plain", "application/problem+json; charset=utf-8",
		"Application/X-WWW-Form-Urlencoded ; charset=GBK", urlencodedForm + "; charset=ibm037", urlencodedForm + "; charset=ibm037; x", urlencodedForm + ", text/plain",
		"application/json; charset=utf-16", "multipart/form-data", "multipart/mixed; boundary=B", "text/json",
	}
)

// A draw decides by bytes; after the last one it picks the first of each list.
type draw struct{ data []byte }

func (d *draw) n(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	c := d.data[0]
	d.data = d.data[1:]
	return int(c) % n
}

func (d *draw) of(list []string) string { return list[d.n(len(list))] }

// broken puts some bytes that break texts into a text, or none.
func (d *draw) broken(text string) string {
	for range max(0, d.n(6)-3) {
		at := d.n(len(text) + 1)
		text = text[:at] + d.of(breaks) + text[at:]
	}
	return text
}

func (d *draw) params() string {
	var all []string
	for range d.n(4) {
		all = append(all, d.of(queryNames)+"="+d.of(values))
	}
	return d.broken(strings.Join(all, "&"))
}

func (d *draw) json(depth int) string {
	var members []string
	switch kind := d.n(4); {
	case kind < 2 && depth < 4:
		for range 1 + d.n(3) {
			name := d.of(jsonNames)
			if d.n(2) == 0 {
				name = []string{`"a"`, `"m"`}[min(depth, 1)]
			}
			members = append(members, name+":"+d.json(depth+1))
		}
		return "{" + strings.Join(members, ",") + "}"
	case kind == 2 && depth > 0:
		for range d.n(3) {
			members = append(members, d.json(depth+1))
		}
		return "[" + strings.Join(members, " ,") + "]"
	}
	return d.of(jsonTexts)
}

func (d *draw) multipart() string {
	var b strings.Builder
	for range d.n(4) {
		b.WriteString("--B\r\n" + d.of(fields) + d.of(more) + "\r\n\r\n" + d.of(values) + "\r\n")
	}
	return d.broken(b.String() + "--B--\r\n")
}

func (d *draw) path() string {
	path := ""
	for range 1 + d.n(3) {
		path += "/" + d.of(segments)
	}
	return d.broken(path)
}

// request draws a request. Its path is a plain one if others are drawn from.
func (d *draw) request() *Request {
	r := &Request{Method: "POST", Header: http.Header{}, Target: "/v/m"}
	kind := d.n(10)
	if kind == 9 {
		r.Method = "PUT"
	}
	if kind%3 == 2 {
		r.Target = d.path()
	}
	if d.n(2) == 1 {
		r.Target += "?" + d.params()
	}
	media := d.of(kinds)
	if media != "none" {
		r.Header.Set("Content-Type", media)
	}
	switch {
	case strings.HasPrefix(media, "multipart"):
		r.Body = []byte(d.multipart())
	case strings.Contains(media, "json") || kind%3 == 1:
		r.Body = []byte(d.broken(d.json(0)))
	default:
		r.Body = []byte(d.params())
	}
	return r
}

// FuzzReaders: an expression reads the value that the servers of platforms read, whichever
// of them it is, or it is an error.
func FuzzReaders(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 7))
	for range 1000 {
		data := make([]byte, 4+r.IntN(40))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := (&draw{data}).request()
		if r.Check() != nil {
			return // it is not sent
		}
		checkParams(t, r)
		checkJSON(t, r)
		checkPath(t, r)
		checkConditions(t, r)
	})
}

// TestReadersAgree: most drawn requests are not refused, so that the fuzzer compares values.
func TestReadersAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 7))
	params, values, paths, held := 0, 0, 0, 0
	const requests = 20_000
	for range requests {
		data := make([]byte, 100)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		req := (&draw{data}).request()
		if req.Check() != nil {
			continue
		}
		in := NewInput(req)
		if v, err := in.Param("m"); err == nil && v != "" {
			params++
		}
		if v, err := in.jsonValue("a.m"); err == nil && v != nil {
			values++
		}
		if _, err := wholePath.Text(in); err == nil {
			paths++
		} else {
			held += checkConditions(t, req)
		}
		checkParams(t, req)
		checkJSON(t, req)
		checkPath(t, req)
	}
	if params < requests/40 || values < requests/500 || paths < requests/2 || held < requests/50 {
		t.Errorf("of %d requests %d have a parameter, %d a member, and %d a path; %d conditions hold or not for all readings of others", requests, params, values, paths, held)
	}
}
