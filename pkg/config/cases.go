package config

import (
	"fmt"
	"net/http"
	"os"
	"reflect"
	"time"

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
	// Place is FILE:LINE, Name and Source are texts for people. A case of several presets or
	// requests has them in its name.
	Place, Name, Source string
	// Of is the name of the preset or upstream.
	Of string
	// Now is the time of the request; the zero time for any.
	Now time.Time
	// Upstream is the upstream of the case, and Signed is true if the sidecar signs its
	// requests.
	Upstream scheduler.Upstream
	Signed   bool
	// With are the keys of the upstream beside the preset's, as in YAML.
	With map[string]any

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
	Wait    time.Duration    // exact wait before it; less than Slack more is the same
	Before  time.Duration    // the wait before it is shorter than this
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

// Slack is the time by which a wait may be longer than the exact one of a case.
const Slack = 10 * time.Millisecond

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
	// Presets are names, or all: the cases are played for each of them.
	Presets some `key:"presets"`
	// Now is the time of the requests, RFC 3339. Default: any.
	Now string `key:"now"`
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
	Method  string          `key:"method"`
	Target  string          `key:"target"`
	Headers map[string]some `key:"headers"`
	// Form are parameters of a body, Body is another one. A body without a content type is
	// a form, XML if it begins with <, else JSON.
	Form map[string]string `key:"form"`
	Body string            `key:"body"`
}

type fileAnswer struct {
	Status  *int            `key:"status"` // default 200
	Headers map[string]some `key:"headers"`
	Body    string          `key:"body"`
	Error   string          `key:"error"`
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
	Presets   some           `key:"presets"` // some of the file's
	Now       string         `key:"now"`
	Request   *fileRequest   `key:"request"`
	Requests  []fileRequest  `key:"requests"`
	Second    *fileRequest   `key:"second"`
	Answer    *fileAnswer    `key:"answer"`
	Query     *fileAnswer    `key:"query"`
	Exchanges []fileExchange `key:"exchanges"`

	Outcome    string            `key:"outcome"`
	OutcomeOf  map[string]string `key:"outcome_of"` // by preset, instead of Outcome
	Then       string            `key:"then"`
	After      *duration         `key:"after"`
	Wait       *duration         `key:"wait"`
	Before     *duration         `key:"before"`
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
	lower(doc)
	var cases []Case
	for _, preset := range presetsOf(faults, doc) {
		r := &caseReader{faults: faults, path: path, preset: preset, known: make(map[string]*scheduler.Upstream)}
		cases = append(cases, r.read(doc)...)
		if len(r.errors) > 0 {
			return nil, r.errors
		}
	}
	if len(faults.faults) > 0 {
		return nil, faults.sorted(faults.faults)
	}
	return cases, nil
}
