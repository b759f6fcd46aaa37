package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// at returns an instant of the golden files.
func at(second int) time.Time { return time.Date(2026, 11, 21, 9, 0, second, 5e8, time.UTC) }

// golden has a filled and a minimal value of each type.
var golden = []struct {
	name          string
	full, minimal any
}{
	{"call", fullCall, Call{ID: "c1", Upstream: "pay", State: Done, AcceptedAt: at(0)}},
	{"decision", fullDecision, Decision{At: at(1), As: "done"}},
	{"attempt", fullAttempt, Attempt{N: 1, SentAt: at(1)}},
	{"waiting_for", WaitingFor{Limit: "app", Key: "a", Until: at(9), Ahead: 3, Next: "c0", Paused: true, Pause: "by an operator: maintenance", Late: 2, KeysFull: true, Removed: true, InFlight: 2, OldestSentAt: at(1), Timeout: "30s", Breaker: "10 of 20 unknown"}, WaitingFor{}},
	{"retry", Retry{Reason: "not in the statement"}, Retry{}},
	{"response", fullResponse, Response{Status: 204}},
	{"page", Page{Calls: []*Call{&fullCall}, Next: "c1"}, Page{Calls: []*Call{}}},
	{"submission", Submission{
		Upstream: "pay", Method: "POST", Path: "/refunds?a=1", Headers: Headers{"X-A": {"1", "2"}}, Body: new("x=1&<y>"), BodyBase64: []byte("x"),
		NotBefore: Instant{at(2)}, Deadline: Instant{at(3)}, Priority: -5, IdempotencyKey: "k", Callback: "shop",
	}, Submission{Upstream: "pay", Path: "/"}},
	{"resolution", Resolution{As: Done, Reason: "the bank says so"}, Resolution{As: Waiting}},
	{"upstream", Upstream{Name: "pay", URL: "https://pay.example", State: "tripped", PausedUntil: at(9), Cause: "failing", Reason: "10 of 20 unknown", Since: at(7), Waiting: 1, Sending: 2, Unknown: 3, MaxWaiting: 4, Bytes: 5, ETA: at(8), Pauses: []LimitPause{fullLimitPause}}, Upstream{Name: "pay", State: "up"}},
	{"pause", Pause{Limit: "app", Key: "a", Until: Instant{at(9)}, For: "5m", Reason: "maintenance"}, Pause{}},
	{"limit_pause", fullLimitPause, LimitPause{}},
	{"resume", Resume{Limit: "app", Key: "a"}, Resume{}},
	{"reload", Reload{Changes: []string{"upstreams.pay.limits[app].calls: 1 → 2"}}, Reload{Changes: []string{}}},
	{"limit", Limit{
		Upstream: "pay", Limit: "app", Calls: 100, Window: "1s", LiveKeys: 1, Out: 2, InFlight: 3, Late: 1, NextBack: at(8), Waiting: 4, Keys: []Key{fullKey}, PausedUntil: at(9),
		Most: 98, Margin: 2, HoldCost: 0.05, GuardWins: map[string]float64{"10ms": 0.04, "50ms": 0.01}, Unanswered: 7,
	}, Limit{}},
	{"key", fullKey, Key{}},
	{"event", Event{
		At: at(5), Event: EventAttempt, Call: "c1", Upstream: "pay", State: Waiting, Priority: 10, ETA: at(6), Attempt: &fullAttempt, Reason: "full",
		Limit: "app", Key: "a", Until: at(7), Deadline: at(8), NotBefore: at(9), Route: &fullRoute,
	}, Event{At: at(5), Event: EventPaused, Upstream: "pay"}},
	{"route", fullRoute, Route{}},
	{"lost", Lost{Lost: 3, Restarted: true}, Lost{}},
	{"problem", Problem{
		Type: "about:blank", Title: "Too many calls wait", Status: 503, Detail: "10 calls wait", Reason: "full", Outcome: "not_executed", Call: "c1",
		RetryAfter: 1, ViolatedPolicies: []string{"app"},
	}, Problem{}},
}

var (
	fullDecision   = Decision{At: at(3), By: "alice", Attempt: 2, As: "unknown", Reason: "nothing is known", AcceptDuplicate: true}
	fullAttempt    = Attempt{N: 2, SentAt: at(1), EndedAt: at(2), Status: 500, Outcome: "unknown", Reason: "status >= 500", Resolved: true}
	fullResponse   = Response{Status: 200, Headers: Headers{"Content-Type": {"text/html"}, "X-A": {"1", "2"}}, Body: []byte("<paid>"), Truncated: true}
	fullLimitPause = LimitPause{Limit: "app", Key: "a", Until: at(9), Pause: "by an operator: maintenance"}
	fullKey        = Key{Key: "a", Free: 1, Out: 2, InFlight: 3, Late: 1, NextBack: at(8), Waiting: 4, PausedUntil: at(9)}
	fullRoute      = Route{Keys: map[string]string{"app": "a", "day": ""}, Costs: map[string]int{"app": 3}, Flow: "gold", Weighted: true}
	fullCall       = Call{
		ID: "c1", Upstream: "pay", State: Unknown, Priority: 10, Async: true, Durable: true, Callback: "shop", Resolves: "c0", Numbers: map[string]string{"order": "O1", "refund": "R1"},
		AcceptedAt: at(0), NotBefore: at(1), Deadline: at(2), FinishedAt: at(3), Reason: "gone", EndedBy: "c2", ETA: at(4),
		Attempts: []Attempt{fullAttempt}, Decisions: []Decision{fullDecision}, WaitingFor: &WaitingFor{Limit: "app", Key: "a", Until: at(9), Ahead: 3, Next: "c0", Paused: true, Pause: "by an operator: maintenance", Late: 2, KeysFull: true, Removed: true, InFlight: 2, OldestSentAt: at(1), Timeout: "30s", Breaker: "10 of 20 unknown"}, Response: &fullResponse,
	}
)

// TestGolden compares the JSON of each type with its golden files, and reads it back.
func TestGolden(t *testing.T) {
	for _, tt := range golden {
		for kind, v := range map[string]any{"full": tt.full, "minimal": tt.minimal} {
			t.Run(tt.name+"/"+kind, func(t *testing.T) {
				if kind == "full" {
					checkFilled(t, tt.name, reflect.ValueOf(v))
				}
				var got bytes.Buffer
				encoder := json.NewEncoder(&got)
				encoder.SetEscapeHTML(false)
				encoder.SetIndent("", "  ")
				if err := encoder.Encode(v); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join("testdata", tt.name+"."+kind+".json")
				if *update {
					if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if got.String() != string(want) {
					t.Errorf("got\n%s\nwant, by %s,\n%s", &got, file, want)
				}
				decoder := json.NewDecoder(bytes.NewReader(want))
				decoder.DisallowUnknownFields()
				back := reflect.New(reflect.TypeOf(v))
				if err := decoder.Decode(back.Interface()); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(back.Elem().Interface(), v) {
					t.Errorf("read back: %+v\nwant %+v", back.Elem(), v)
				}
			})
		}
	}
}

// checkFilled fails for each field that has its zero value: a full value misses it.
func checkFilled(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.IsZero() {
		t.Errorf("%s is not filled", path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		checkFilled(t, path, v.Elem())
	case reflect.Slice:
		for i := range v.Len() {
			checkFilled(t, path, v.Index(i))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Type != reflect.TypeFor[time.Time]() {
				checkFilled(t, path+"."+f.Name, v.Field(i))
			}
		}
	}
}

// TestGoldenIsComplete looks for exported structs without a golden file.
func TestGoldenIsComplete(t *testing.T) {
	var tested []string
	for _, tt := range golden {
		tested = append(tested, reflect.TypeOf(tt.full).Name())
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() && spec.Name.Name != "Instant" { // a text in JSON
				if _, ok := spec.Type.(*ast.StructType); ok && !slices.Contains(tested, spec.Name.Name) {
					t.Errorf("%s has no golden file", spec.Name.Name)
				}
			}
			return true
		})
	}
}

func TestSubmissionReadsHeaders(t *testing.T) {
	for text, want := range map[string]Headers{
		`{"headers":{"x-a":"1","X-B":["2","3"],"X-C":[]}}`: {"X-A": {"1"}, "X-B": {"2", "3"}},
		`{"headers":null}`: nil,
	} {
		var s Submission
		if err := json.Unmarshal([]byte(text), &s); err != nil || !reflect.DeepEqual(s.Headers, want) {
			t.Errorf("%s: %v, %v; want %v", text, s.Headers, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"headers":1}`:             "headers must be an object",
		`{"headers":{"X-A":1}}`:     `headers: the value of "X-A" must be a text or a list of texts`,
		`{"deadline":"tomorrow"}`:   `"tomorrow" is not an instant of RFC 3339`,
		`{"not_before":1637485200}`: "1637485200 is not an instant of RFC 3339",
	} {
		if err := json.Unmarshal([]byte(text), new(Submission)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestStates(t *testing.T) {
	for state, finished := range map[State]bool{
		Waiting: false, Sending: false, Unknown: false,
		Done: true, Failed: true, Expired: true, Exhausted: true, Cancelled: true,
	} {
		if state.Finished() != finished {
			t.Errorf("%s: finished %v, want %v", state, state.Finished(), finished)
		}
	}
}
