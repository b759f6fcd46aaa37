package config

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed-30fe103d/throttler/internal/hint"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// Bounds of a file of cases.
const (
	mostCases     = 10_000
	mostExchanges = 100
	longestAfter  = 24 * time.Hour
)

// A Case is an exchange with a platform, and the outcome and steps that must follow. Of these,
// empty fields are not compared. docs/cases.md has the members of the file.
type Case struct {
	// Place is FILE:LINE, Name and Source are texts for people.
	Place, Name, Source string
	// Of is the name of the preset or upstream.
	Of string
	// Upstream is the upstream of the case, and Signed is true if the sidecar signs its
	// requests.
	Upstream scheduler.Upstream
	Signed   bool

	// Request is sent first. Second, if not nil, is sent after its end.
	Request, Second *upstream.Request
	// Answer is the answer to Request, and Query the answer to each query about it; nil if the
	// case has none.
	Answer, Query *Answer
	// Exchanges, if any, are all exchanges of the case in their order, instead of Answer
	// and Query.
	Exchanges []Exchange

	Outcome upstream.Outcome // of the first attempt
	Then    string           // the next step, one of Steps
	After   time.Duration    // least wait before the next step
	QueryTo string           // target of the first query, or a part of its body
	Decides string           // effect of the answer to the query on the call, one of Decisions
	Becomes string           // treatment of Second, one of Repeats
	State   scheduler.State  // of the call in the end

	Repeatable     *bool
	Identity, Ends *string
	Numbers        map[string]string // nil: not compared
}

// An Answer is the platform's answer to a request, or an error in its place.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Error  string // one of the keys of rules: dial, timeout, reset or closed
}

// An Exchange is a request that the platform gets, and its answer.
type Exchange struct {
	Sent    string // request, query or second
	QueryTo string
	Answer  Answer
	After   time.Duration // least wait since the exchange before
}

// The words of a case.
var (
	// Steps follow an attempt: nothing; again, the same request after a pause of a limit or
	// the upstream; alone, the same after a pause of this call; a repeat that the platform
	// recognises; a query; the decision of a person.
	Steps = []string{"nothing", "again", "alone", "repeat", "query", "person"}
	// Decisions end a call, send it again, or leave it unknown.
	Decisions = []string{"done", "failed", "again", "unknown"}
	// Repeats get the answer to the first call, are sent, or are refused.
	Repeats = []string{"answered", "sent", "refused"}
)

type fileCases struct {
	// Preset names the preset that the cases are of, or Config a configuration file, with
	// the name of its Upstream if it has several.
	Preset   string `key:"preset"`
	Config   string `key:"config"`
	Upstream string `key:"upstream"`
	// With are more keys of the upstream, beside the preset's.
	With fileUpstream `key:"with"`
	// Signed is true if the sidecar signs the requests. Default: whether the upstream has a
	// signer.
	Signed *bool `key:"signed"`
	// Sources are texts for the source of cases, by their name.
	Sources  map[string]string      `key:"sources"`
	Requests map[string]fileRequest `key:"requests"`
	Answers  map[string]fileAnswer  `key:"answers"`
	Cases    []fileCase             `key:"cases"`
}

type fileRequest struct {
	// Method is POST by default.
	Method  string            `key:"method"`
	Target  string            `key:"target"`
	Headers map[string]string `key:"headers"`
	// Form are parameters of a body, Body is another one. A body without a content type is
	// a form, XML if it begins with <, else JSON.
	Form map[string]string `key:"form"`
	Body string            `key:"body"`
}

type fileAnswer struct {
	Status  *int              `key:"status"` // default 200
	Headers map[string]string `key:"headers"`
	Body    string            `key:"body"`
	Error   string            `key:"error"`
}

type fileExchange struct {
	Sent    string      `key:"sent"`
	QueryTo string      `key:"query_to"`
	Answer  *fileAnswer `key:"answer"`
	After   *duration   `key:"after"`
}

type fileCase struct {
	Case      string         `key:"case"`
	Source    string         `key:"source"`
	With      fileUpstream   `key:"with"`
	Signed    *bool          `key:"signed"`
	Request   *fileRequest   `key:"request"`
	Second    *fileRequest   `key:"second"`
	Answer    *fileAnswer    `key:"answer"`
	Query     *fileAnswer    `key:"query"`
	Exchanges []fileExchange `key:"exchanges"`

	Outcome    string            `key:"outcome"`
	Then       string            `key:"then"`
	After      *duration         `key:"after"`
	QueryTo    string            `key:"query_to"`
	Decides    string            `key:"decides"`
	Becomes    string            `key:"becomes"`
	State      string            `key:"state"`
	Repeatable *bool             `key:"repeatable"`
	Identity   *string           `key:"identity"`
	Ends       *string           `key:"ends"`
	Numbers    map[string]string `key:"numbers"`
}

// builtIn are the answers that every file has.
var builtIn = map[string]any{
	"lost":        map[string]any{"error": "closed"},
	"timeout":     map[string]any{"error": "timeout"},
	"unreachable": map[string]any{"error": "dial"},
}

// LoadCases reads a file of cases. Faults of its content are [Errors]; a file that cannot
// be read is another error. A configuration that it names lies beside it, and is read by
// [Load], with the environment and the keys of signers, which are not used.
func LoadCases(path string) ([]Case, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cases: %w", err)
	}
	return ParseCases(path, text)
}

// ParseCases reads cases from a text that has the name of a file.
func ParseCases(path string, text []byte) ([]Case, error) {
	doc, at, err := parse(path, text, alone)
	if err != nil {
		return nil, err
	}
	faults := newFaultList(at)
	faults.root = reflect.TypeFor[fileCases]()
	replaceNames(faults, doc)
	var f fileCases
	checkKeys(faults, "", doc, reflect.TypeFor[fileCases]())
	decodeInto(faults, "", doc, &f)
	r := &caseReader{faults: faults, file: &f, doc: doc, path: path, known: make(map[string]*scheduler.Upstream)}
	cases := r.read()
	if len(r.errors) > 0 {
		return nil, r.errors
	}
	if len(faults.faults) > 0 {
		return nil, faults.sorted(faults.faults)
	}
	return cases, nil
}

// replaceNames puts the named requests and answers in the place of their names.
func replaceNames(faults *faultList, doc map[string]any) {
	lower(doc)
	requests, _ := doc["requests"].(map[string]any)
	answers, _ := doc["answers"].(map[string]any)
	all := maps.Clone(builtIn)
	maps.Copy(all, answers)
	put := func(path string, of map[string]any, key string, known map[string]any) {
		switch v := of[key].(type) {
		case int:
			of[key] = map[string]any{"status": v}
		case string:
			of[key] = known[v]
			if known[v] == nil {
				names := slices.Collect(maps.Keys(known))
				faults.add(join(path, key), "%q is not the name of one; the file has %s%s", v, hint.List(names), hint.Meant(v, names))
				delete(of, key)
			} else {
				faults.unread[join(path, key)] = true // its faults are those of its own place
			}
		}
	}
	list, _ := doc["cases"].([]any)
	for i, item := range list {
		c, _ := item.(map[string]any)
		lower(c)
		at := index("cases", i)
		put(at, c, "request", requests)
		put(at, c, "second", requests)
		put(at, c, "answer", all)
		put(at, c, "query", all)
		exchanges, _ := c["exchanges"].([]any)
		for n, item := range exchanges {
			if e, _ := item.(map[string]any); e != nil {
				lower(e)
				put(index(at+".exchanges", n), e, "answer", all)
			}
		}
	}
}

// lower makes the keys of a section lower-case, as in all sections. A key that is there twice
// stays as it is, and is a fault.
func lower(section map[string]any) {
	for key, value := range maps.Clone(section) {
		small := strings.ToLower(key)
		if _, twice := section[small]; !twice {
			section[small] = value
			delete(section, key)
		}
	}
}

// A caseReader makes cases of a file.
type caseReader struct {
	faults *faultList
	file   *fileCases
	doc    map[string]any
	path   string
	known  map[string]*scheduler.Upstream // by the YAML of their keys
	errors Errors                         // of a configuration that the file names
}

func (r *caseReader) read() (cases []Case) {
	switch f := r.file; {
	case f.Preset != "" && f.Config != "":
		r.faults.add("config", "is given beside preset; cases are of one of them")
	case f.Config != "" && r.doc["with"] != nil:
		r.faults.add("with", "is for the cases of a preset; write the keys into the configuration")
	case f.Preset == "" && f.Config == "" && !r.faults.explained["preset"]:
		r.faults.add("preset", "is missing; write preset: NAME, or config: FILE for an upstream of your own")
	}
	if len(r.file.Cases) == 0 {
		r.faults.add("cases", "there are none; write a list with request, answer and outcome")
	}
	atMost(r.faults, "cases", len(r.file.Cases), mostCases)
	for name, request := range r.file.Requests {
		request.convert(r.faults, "requests."+strings.ToLower(name))
	}
	for name, answer := range r.file.Answers {
		answer.convert(r.faults, "answers."+strings.ToLower(name))
	}
	list, _ := r.doc["cases"].([]any)
	for i, c := range r.file.Cases {
		path := index("cases", i)
		var with map[string]any
		if i < len(list) { // else, and of another type, its fault is known
			item, _ := list[i].(map[string]any)
			with, _ = item["with"].(map[string]any)
		}
		u := r.upstream(path, with)
		if len(r.errors) > 0 {
			return nil
		}
		of := c.convert(r.faults, path)
		of.Upstream, of.Signed = *u, u.Signer != nil
		for _, signed := range []*bool{r.file.Signed, c.Signed} {
			if signed != nil {
				of.Signed = *signed
			}
		}
		if text, named := r.file.Sources[c.Source]; named {
			of.Source = text
		}
		of.Of = r.file.Preset + r.file.Upstream
		cases = append(cases, of)
	}
	return cases
}

// upstream returns the upstream of a case with more keys; an empty one after a fault.
func (r *caseReader) upstream(path string, more map[string]any) *scheduler.Upstream {
	if r.file.Config != "" {
		return r.configured()
	}
	keys := map[string]any{"url": "https://cases.invalid", "preset": r.file.Preset}
	common, _ := r.doc["with"].(map[string]any)
	maps.Copy(keys, common)
	maps.Copy(keys, more)
	text, err := yaml.Marshal(map[string]any{"upstreams": map[string]any{"case": keys}})
	if err != nil {
		r.faults.add(join(path, "with"), "%w", err)
		return new(scheduler.Upstream)
	}
	if u := r.known[string(text)]; u != nil {
		return u
	}
	c, err := Parse(text)
	for _, fault := range split(err) {
		f := fault.(*Fault)
		key := strings.TrimPrefix(strings.TrimPrefix(f.Path, "upstreams.case"), ".")
		at := join("with", key)
		if _, own := more[strings.Split(key, ".")[0]]; own {
			at = join(path, at)
		}
		if key == "preset" {
			at = key
		}
		r.faults.add(at, "%w", f.Err)
	}
	if err != nil {
		return new(scheduler.Upstream)
	}
	u := c.Scheduler.Upstreams["case"]
	r.known[string(text)] = &u
	return &u
}

// configured returns the upstream in the configuration that the file names.
func (r *caseReader) configured() *scheduler.Upstream {
	if u := r.known[""]; u != nil {
		return u
	}
	path := r.file.Config
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(r.path), path)
	}
	c, err := Load(path, nil)
	if faults, ok := err.(Errors); ok {
		r.errors = faults
		return new(scheduler.Upstream)
	}
	if err != nil {
		r.faults.add("config", "%w", err)
		return new(scheduler.Upstream)
	}
	names := slices.Sorted(maps.Keys(c.Scheduler.Upstreams))
	if r.file.Upstream == "" && len(names) == 1 {
		r.file.Upstream = names[0]
	}
	u, ok := c.Scheduler.Upstreams[r.file.Upstream]
	if !ok {
		r.faults.add("upstream", "%q is not one of %s, which has %s%s", r.file.Upstream, r.file.Config, hint.List(names), hint.Meant(r.file.Upstream, names))
		return new(scheduler.Upstream)
	}
	r.known[""] = &u
	return &u
}

// contentType returns the type of a body whose request names none.
func (f fileRequest) contentType() string {
	switch {
	case f.Form != nil:
		return "application/x-www-form-urlencoded;charset=utf-8"
	case strings.HasPrefix(f.Body, "<"):
		return "text/xml"
	}
	return "application/json"
}
