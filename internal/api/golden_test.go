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
func at(second int) Instant { return At(time.Date(2026, 11, 21, 9, 0, second, 5e8, time.UTC)) }

var fullReplica = Replica{ID: "r1", Name: "a", Address: "10.0.0.7:9191", Version: "1.0", JoinedAt: at(0), SilentMS: 120, Owner: true, Self: true, Config: "9f86d081884c", Differs: true}

// golden has a filled and a minimal value of each type.
var golden = []struct {
	name          string
	full, minimal any
}{
	{"call", fullCall, Call{CallFacts: CallFacts{ID: "c1", Upstream: "pay", State: Done, AcceptedAt: at(0)}}},
	{"call_facts", fullFacts, CallFacts{}},
	{"call_summary", CallSummary{CallFacts: fullFacts, AttemptCount: 2, LastAttempt: &fullAttempt}, CallSummary{}},
	{"unknown_call", fullUnknown, UnknownCall{Next: NextPerson}},
	{"queries", fullUnknown.Queries, Queries{}},
	{"permit", fullPermit, Permit{}},
	{"decision", fullDecision, Decision{At: at(9), By: "oncall", Attempt: 1, As: "unknown"}},
	{"attempt", fullAttempt, Attempt{N: 1, SentAt: at(1)}},
	{"waiting_for", *fullFacts.WaitingFor, WaitingFor{}},
	{"retry", Retry{Attempt: 2, Reason: "not in the statement", AcceptDuplicate: true}, Retry{Attempt: 1}},
	{"cancellation", Cancellation{Reason: "ordered twice"}, Cancellation{}},
	{"bulk", Bulk{Action: "cancel", Filter: BulkFilter{Upstream: new("pay"), Limit: new("app"), Key: new("a"), Flow: new("shop7"), Number: new("R-1"), Calls: []string{"c1"}}, Reason: "r", DryRun: true}, Bulk{Action: "cancel"}},
	{"bulk_filter", BulkFilter{Upstream: new("pay"), Limit: new("app"), Key: new("a"), Flow: new("shop7"), Number: new("R-1"), Calls: []string{"c1"}}, BulkFilter{}},
	{"bulk_result", BulkResult{DryRun: true, Matched: 2, Succeeded: 1, Refused: 1, More: true, Results: []BulkItem{fullItem}}, BulkResult{Results: []BulkItem{}}},
	{"bulk_item", fullItem, BulkItem{Call: "c1"}},
	{"response", fullResponse, Response{Status: 204}},
	{"calls", Calls{Calls: []CallSummary{{CallFacts: fullFacts, AttemptCount: 2, LastAttempt: &fullAttempt}}, Next: "c1"}, Calls{Calls: []CallSummary{}}},
	{"submission", Submission{
		Upstream: "pay", Method: "POST", Target: "/refunds?a=1", Path: "/refunds?a=1", Headers: Headers{"X-A": {"1", "2"}}, Body: new("x=1&<y>"), BodyBase64: []byte("x"),
		NotBefore: at(2), Deadline: at(3), Priority: -5, IdempotencyKey: "k", Callback: "shop",
	}, Submission{Upstream: "pay", Method: "GET", Target: "/"}},
	{"batch_result", BatchResult{Line: 2, Call: &fullCall, Replayed: true, Problem: &fullProblem}, BatchResult{Line: 1}},
	{"refusals", Refusals{Refusals: []RefusedCall{fullRefusal}, Next: "c1"}, Refusals{Refusals: []RefusedCall{}}},
	{"refused_call", fullRefusal, RefusedCall{ID: "c1", At: at(9)}},
	{"resolution", Resolution{Outcome: "done", Attempt: 2, Reason: "the bank says so"}, Resolution{Outcome: "not_executed", Attempt: 1}},
	{"upstream", fullUpstream, Upstream{Name: "pay", State: "up"}},
	{"upstreams", Upstreams{At: at(9), Upstreams: []Upstream{fullUpstream}}, Upstreams{Upstreams: []Upstream{}}},
	{"pause_request", PauseRequest{Upstream: "pay", Limit: "app", Key: "a", Until: at(9), For: "5m", Reason: "maintenance"}, PauseRequest{Upstream: "pay"}},
	{"limit_pause", fullLimitPause, LimitPause{}},
	{"slowed", fullSlowed, Slowed{}},
	{"pause", fullPause, Pause{ID: "p1", Upstream: "pay", By: "restart"}},
	{"pauses", Pauses{At: at(9), Pauses: []Pause{fullPause}}, Pauses{Pauses: []Pause{}}},
	{"fleet", Fleet{At: at(9), Epoch: 7, Owner: "a", Next: "b", LeaseMS: 2000, Replicas: []Replica{fullReplica}}, Fleet{At: at(9), Replicas: []Replica{}}},
	{"replica", fullReplica, Replica{ID: "r1", Name: "a", Version: "1.0", JoinedAt: at(0)}},
	{"move", Move{To: "b", Reason: "the host is restarted"}, Move{}},
	{"burial", Burial{Replica: "a", ItHasEnded: true, Reason: "its host is gone"}, Burial{Replica: "a"}},
	{"ask", Ask{Reason: "the customer waits"}, Ask{}},
	{"edit", Edit{Priority: new(50), NotBefore: new(at(2)), Deadline: new(at(3)), Reason: "the customer waits"}, Edit{}},
	{"audit_log", AuditLog{Records: []AuditRecord{fullRecord}, Next: "7"}, AuditLog{Records: []AuditRecord{}}},
	{"audit_record", fullRecord, AuditRecord{Seq: 1, At: at(9), Actor: "loopback", Action: "reload"}},
	{"setting", fullSetting, Setting{Path: "admin", Source: "default"}},
	{"config", Config{Settings: []Setting{fullSetting}}, Config{Settings: []Setting{}}},
	{"reload", Reload{DryRun: true, FileSHA256: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", Changes: []Change{fullChange}}, Reload{Changes: []Change{}}},
	{"change", fullChange, Change{Path: "upstreams.pay.url", Kind: "changed"}},
	{"limit", fullLimit, Limit{}},
	{"limits", Limits{At: at(9), Limits: []Limit{fullLimit}}, Limits{Limits: []Limit{}}},
	{"audit", fullLimit.Audit, Audit{}},
	{"guard", fullLimit.Audit.Guards[0], Guard{}},
	{"key", fullKey, Key{}},
	{"keys", Keys{At: at(9), Upstream: "pay", Limit: "app", Keys: []Key{fullKey}}, Keys{Keys: []Key{}}},
	{"flow", fullFlow, Flow{}},
	{"flows", Flows{At: at(9), Upstream: "pay", Since: at(0), Sent: 50, Flows: []Flow{fullFlow}}, Flows{Flows: []Flow{}}},
	{"history", History{At: at(9), Upstream: "pay", Limit: "app", StepMs: 1000, Calls: []HistoryCalls{fullPast}, Permits: []HistoryPermits{fullPermits}}, History{Upstream: "pay", StepMs: 1000, Calls: []HistoryCalls{}}},
	{"history_calls", fullPast, HistoryCalls{}},
	{"history_permits", fullPermits, HistoryPermits{}},
	{"info", Info{Version: "1.4.0", Go: "go1.26.9", StartedAt: at(0), ConfiguredAt: at(1), Store: "file", Caller: fullCaller}, Info{}},
	{"caller_info", fullCaller, CallerInfo{Scopes: []string{}}},
	{"event", fullEvent, Event{At: at(5), Event: EventPaused, Upstream: "pay"}},
	{"event_list", EventList{At: at(5), Events: []Event{fullEvent}}, EventList{Events: []Event{}}},
	{"login", Login{Token: "thr_x"}, Login{}},
	{"session", Session{Caller: fullCaller, EndsAt: at(9)}, Session{Caller: CallerInfo{Scopes: []string{}}}},
	{"route", fullRoute, Route{}},
	{"lost", Lost{Lost: 3, Restarted: true}, Lost{}},
	{"plan_request", PlanRequest{
		Config: "upstreams: {}", Changes: []PlanChange{fullPlanChange}, Variants: []PlanVariant{fullPlanVariant}, Alone: true, Last: "10m", Settings: []string{"rate=10/s"}, Rows: "at\n0\n",
		RTTMs: new(80.5), RTTSpreadMs: 20, Seed: new(7), FailIf: []string{"wait.p99 > 5s"},
	}, PlanRequest{}},
	{"plan_change", fullPlanChange, PlanChange{Upstream: "pay", Limit: "app"}},
	{"plan_variant", fullPlanVariant, PlanVariant{Changes: []PlanChange{}}},
	{"plan", Plan{Variants: []PlanReport{fullPlanReport}, Findings: []PlanFinding{fullPlanFinding}, Conditions: []PlanCondition{fullPlanCondition}}, Plan{Variants: []PlanReport{}, Findings: []PlanFinding{}, Conditions: []PlanCondition{}}},
	{"plan_report", fullPlanReport, PlanReport{Config: "running", Refused: map[string]int{}, Flows: []PlanFlow{}, Limits: []PlanLimit{}}},
	{"plan_waits", fullPlanReport.Wait, PlanWaits{}},
	{"plan_backlog", fullPlanReport.Backlog, PlanBacklog{}},
	{"plan_flow", fullPlanReport.Flows[0], PlanFlow{}},
	{"plan_limit", fullPlanReport.Limits[0], PlanLimit{Binds: []PlanSpan{}}},
	{"plan_span", fullPlanReport.Limits[0].Binds[0], PlanSpan{}},
	{"plan_series", fullPlanReport.Series, PlanSeries{}},
	{"plan_limit_series", fullPlanReport.Series.Limits[0], PlanLimitSeries{}},
	{"plan_finding", fullPlanFinding, PlanFinding{Kind: "no_wait", Config: "running", Text: "running: no call waits"}},
	{"plan_condition", fullPlanCondition, PlanCondition{Condition: "refused > 0", Config: "running"}},
	{"problem", fullProblem, Problem{}},
	{"fault", fullFault, Fault{Detail: "upstream is missing"}},
}

var (
	fullAttempt    = Attempt{N: 2, SentAt: at(1), EndedAt: at(2), Status: 500, Outcome: "unknown", Reason: "status >= 500", Resolved: true}
	fullResponse   = Response{Status: 200, Headers: Headers{"Content-Type": {"text/html"}, "X-A": {"1", "2"}}, Body: []byte("<paid>"), Truncated: true}
	fullSlowed     = Slowed{Limit: "app", Key: "a", Since: at(7), CallsPerSecond: 12.5, FullPerSecond: 100, Limited: 99, Passed: 1, Within: "100 per 1s"}
	fullLimitPause = LimitPause{Limit: "app", Key: "a", Until: at(9), Pause: "by an operator: maintenance"}
	fullPause      = Pause{ID: "p1", Upstream: "pay", Limit: "app", Key: "a", Since: at(7), Until: at(9), By: "answer", Who: "oncall", Reason: "status == 429", Status: 429}
	fullRecord     = AuditRecord{Seq: 7, At: at(9), Actor: "oncall", Role: "operator", Via: "token 10.0.0.7:51234", Action: "resolve", Upstream: "pay", Call: "c1", Limit: "app", Key: "a", Before: "unknown after attempt 1", After: "done, seen attempt 1", Reason: "seen in the statement"}
	fullKey        = Key{Key: "a", Free: 1, Out: 2, InFlight: 3, Late: 1, NextBack: at(8), WaitingPermits: 4, PausedUntil: at(9)}
	fullPermit     = Permit{Limit: "app", Key: "a", Cost: 2, Free: new(7)}
	fullFlow       = Flow{Flow: "gold", Weight: 2, Waiting: 30, OldestAcceptedAt: at(1), Sent: 20, Share: 0.4}
	fullPast       = HistoryCalls{At: at(1), Accepted: 1, Refused: 2, Sent: 3, Done: 4, Failed: 5, NotExecuted: 6, Unknown: 7, Limited: 8, Waiting: 9}
	fullPermits    = HistoryPermits{At: at(1), Out: 1, InFlight: 2, WaitingPermits: 3, Most: 4}
	fullRoute      = Route{Keys: map[string]string{"app": "a", "day": ""}, Costs: map[string]int{"app": 3}, Flow: "gold", Weighted: true}
	fullDecision   = Decision{At: at(9), By: "oncall", Attempt: 1, As: "not_executed", Reason: "not in the statement"}
	fullUnknown    = UnknownCall{Since: at(1), Attempt: 2, Why: "status >= 500", Next: NextQuery, Queries: Queries{Made: 1, Most: 10, NextAt: at(8), LastAt: at(7), LastCall: "01a2008f-f1b1-7f8e-94b5-27d8abf7e8a2", Answer: "status 404"}, RepeatIsSafe: true}
	fullItem       = BulkItem{Call: "c1", State: Cancelled, Reason: "wrong_state", Detail: "it is being sent"}
	fullSetting    = Setting{Path: "upstreams.pay.limits[app].calls", Value: "100", Hidden: true, Source: "throttler.yaml:9"}
	fullChange     = Change{Path: "upstreams.pay.limits[app].calls", Before: "1", After: "2", Kind: "changed", Hidden: true, Restart: true}
	fullCaller     = CallerInfo{Name: "oncall", Role: "operator", Via: "token", Scopes: []string{"read"}}
	fullFault      = Fault{Pointer: "/upstream", Parameter: "upstream", Detail: "upstream is missing"}
	fullEvent      = Event{
		At: at(5), Event: EventAttempt, Numbers: map[string]string{"order": "O-1"}, Call: "c1", Upstream: "pay", State: Waiting, Priority: 10, ETA: at(6), Attempt: &fullAttempt, Reason: "full",
		Limit: "app", Key: "a", Until: at(7), Deadline: at(8), NotBefore: at(9), Route: &fullRoute,
	}
	fullPlanChange  = PlanChange{Upstream: "pay", Limit: "app", Permits: new(40), Window: "1s"}
	fullPlanVariant = PlanVariant{Name: "more", Changes: []PlanChange{fullPlanChange}}
	fullPlanReport  = PlanReport{
		Config: "running", Begin: at(0), Calls: 10, Sent: 9, Refused: map[string]int{"past_deadline": 1}, Over: 1, LimitedWithout: 5, LengthMs: 1000.5, MakespanMs: 2000.5,
		Wait: PlanWaits{P50: 1.5, P95: 2.5, P99: 3.5, Max: 4.5, Mean: 1.25}, Backlog: PlanBacklog{Peak: 4, AtMs: 500}, FlowCount: 1,
		Flows:  []PlanFlow{{Upstream: "pay", Flow: "gold", Calls: 10, Sent: 9, Wait: PlanWaits{P50: 1.5, P95: 2.5, P99: 3.5, Max: 4.5, Mean: 1.25}}},
		Limits: []PlanLimit{{Upstream: "pay", Limit: "app", Permits: 40, Window: "1s", Keys: 2, Most: 40, Queued: 3, Binds: []PlanSpan{{FromMs: 1, ToMs: 2}}, Share: 0.5, LimitedWithout: 5}},
		Series: PlanSeries{StepMs: 10, Arrivals: []int{10}, Sends: []int{9}, Waiting: []int{1}, Limits: []PlanLimitSeries{{Upstream: "pay", Limit: "app", Queued: []int{1}, Most: []int{40}}}},
	}
	fullPlanFinding   = PlanFinding{Kind: "falls", Config: "more", Text: "with more the wait would fall", Upstream: "pay", Limit: "app", Permits: 40, Window: "1s", Share: 0.5, Calls: 3, BeforeMs: 7, WaitMs: 2, LongestMs: 3}
	fullPlanCondition = PlanCondition{Condition: "wait.p99 > 5s", Config: "running", Holds: true, Error: "flows[\"x\"] is not there"}
	fullRefusal       = RefusedCall{ID: "c1", Upstream: "pay", At: at(9), Reason: "full", Detail: "10 calls wait"}
	fullProblem       = Problem{
		Type: "about:blank", Title: "Too many calls wait", Status: 503, Detail: "10 calls wait", Instance: "/v1/calls", Reason: "full", Errors: []Fault{fullFault}, Outcome: "not_executed", Call: "c1",
		RetryAfter: 1, ViolatedPolicies: []string{"app"},
	}
	fullUpstream = Upstream{Name: "pay", URL: "https://pay.example", State: "tripped", PausedUntil: at(9), Cause: "failing", Reason: "10 of 20 unknown", Since: at(7), Waiting: 1, Sending: 2, Unknown: 3, MaxWaiting: 4, Bytes: 5, ETA: at(8), MayExpire: true, Pauses: []LimitPause{fullLimitPause}, Slowed: []Slowed{fullSlowed}}
	fullLimit    = Limit{
		Upstream: "pay", Limit: "app", Kind: Sliding, Builtin: true, Permits: 100, WindowMs: 1000, Window: "day", TimeZone: "Asia/Shanghai", ResetsAt: at(9), LiveKeys: 1, Out: 2, InFlight: 3, Late: 1, NextBack: at(8), WaitingPermits: 4,
		Keys: []Key{fullKey}, PausedUntil: at(9), Audit: Audit{Most: 98, Margin: 2, HoldCost: 0.05, Guards: []Guard{{10, 0.04}, {50, 0.01}}, Unanswered: 7},
	}
	fullFacts = CallFacts{
		ID: "c1", Upstream: "pay", State: Unknown, Priority: 10, Method: "POST", Path: "/refunds", Flow: "gold", Origin: "admin", SubmittedBy: "shop", IdempotencyKey: "k",
		Async: true, Durable: true, Callback: "shop", Resolves: "c0", Numbers: map[string]string{"order": "O1", "refund": "R1"},
		AcceptedAt: at(0), NotBefore: at(1), Deadline: at(2), FinishedAt: at(3), Reason: "gone", EndedBy: "c2", ETA: at(4), Unknown: &fullUnknown,
		WaitingFor: &WaitingFor{Limit: "app", Key: "a", Until: at(9), Ahead: 3, Next: "c0", Paused: true, Pause: "by an operator: maintenance", Slowed: &fullSlowed, Late: 2, KeysFull: true, Removed: true, InFlight: 2, OldestSentAt: at(1), TimeoutMs: 30_000, Breaker: "10 of 20 unknown"},
	}
	fullCall = Call{CallFacts: fullFacts, Permits: []Permit{fullPermit}, SignatureUntil: at(9), Attempts: []Attempt{fullAttempt}, Decisions: []Decision{fullDecision}, Response: &fullResponse}
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
			if f := v.Type().Field(i); f.IsExported() && f.Type != reflect.TypeFor[Instant]() {
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
		`{"headers":{"x-a":"1","X-B":["2","3"],"X-C":[]}}`: {"x-a": {"1"}, "X-B": {"2", "3"}},
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
