package server

import (
	"net/http"
	"time"

	"github.com/seed-30fe103d/throttler/internal/api"
)

// Examples of the documentation.

func exampleAt(second int) api.Instant {
	return api.At(time.Date(2026, 11, 21, 9, 0, second, 0, time.UTC))
}

const exampleID = "01a204a1-bb16-75c0-893d-36d4a884cae2"

var (
	exampleBody       = `{"refund":"R-88123","amount":1200}`
	exampleSubmission = api.Submission{
		Upstream: "pay", Method: "POST", Target: "/refunds?notify=1", Headers: api.Headers{"Content-Type": {"application/json"}}, Body: &exampleBody,
		Deadline: exampleAt(59), IdempotencyKey: "R-88123",
	}
	exampleFacts = api.CallFacts{
		ID: exampleID, Upstream: "pay", State: api.Waiting, Method: "POST", Path: "/refunds", Numbers: map[string]string{"refund": "R-88123"},
		Flow: "shop7", Origin: "admin", SubmittedBy: "refunds", IdempotencyKey: "R-88123", Async: true, Durable: true, AcceptedAt: exampleAt(0), Deadline: exampleAt(59),
	}
	exampleAttempt = api.Attempt{N: 1, SentAt: exampleAt(3), EndedAt: exampleAt(4), Status: 200, Outcome: "done"}

	exampleWaiting = func() api.Call {
		c := api.Call{CallFacts: exampleFacts, Permits: []api.Permit{{Limit: "app", Key: "2021", Cost: 1, Free: new(0)}, {Limit: "day", Cost: 1, Free: new(316_598)}}, Attempts: []api.Attempt{}}
		c.ETA, c.WaitingFor = exampleAt(3), &api.WaitingFor{Limit: "app", Key: "2021", Until: exampleAt(1), Ahead: 40}
		return c
	}()
	exampleBatch = []api.BatchResult{
		{Line: 1, Call: &exampleWaiting, Replayed: true},
		{Line: 2, Problem: &api.Problem{
			Type: problemTypes + "bad_request", Title: "The request is malformed", Status: http.StatusBadRequest, Instance: "/v1/calls/batch", Reason: "bad_request",
			Detail: "method is missing; give GET, POST or another one", Errors: []api.Fault{{Pointer: "/method", Detail: "method is missing; give GET, POST or another one"}},
		}},
	}
	exampleDone = func() api.Call {
		c := api.Call{CallFacts: exampleFacts, Attempts: []api.Attempt{exampleAttempt}}
		c.State, c.FinishedAt = api.Done, exampleAt(4)
		c.Decisions = []api.Decision{{At: exampleAt(4), By: "oncall", Attempt: 1, As: "done", Reason: "seen in the statement"}}
		return c
	}()
	exampleCancelled = func() api.Call {
		c := api.Call{CallFacts: exampleFacts, Attempts: []api.Attempt{}}
		c.State, c.FinishedAt = api.Cancelled, exampleAt(2)
		return c
	}()
	exampleCalls    = api.Calls{Calls: []api.CallSummary{{CallFacts: exampleFacts, AttemptCount: 1, LastAttempt: &exampleAttempt}}, Next: "AZAgShu7FnXAiT021KiEyuKrLw"}
	exampleRefusals = api.Refusals{Refusals: []api.RefusedCall{{ID: exampleID, Upstream: "pay", At: exampleAt(0), Reason: "full", Detail: "10,000 calls wait for upstream pay, as many as max_waiting; send it again later"}}}
	exampleBulk     = api.BulkResult{Matched: 2, Succeeded: 1, Refused: 1, Results: []api.BulkItem{
		{Call: exampleID, State: api.Cancelled},
		{Call: "01a204a1-bb17-7e91-8d3d-6f1f5c1a9a10", Reason: "wrong_state", Detail: "call 01a204a1-bb17-7e91-8d3d-6f1f5c1a9a10 is sending: only a waiting call can be cancelled"},
	}}

	exampleUpstream = api.Upstream{
		Name: "pay", URL: "https://pay.example", State: "paused", PausedUntil: exampleAt(59), Cause: "operator", Reason: "maintenance at the bank", Since: exampleAt(0),
		Waiting: 120, Sending: 3, Unknown: 1, MaxWaiting: 10_000, Bytes: 81_920, ETA: exampleAt(59),
		Pauses: []api.LimitPause{{Limit: "refund", Key: "2021", Until: exampleAt(9), Pause: "by an answer of the upstream: status == 429"}},
		Slowed: []api.Slowed{{Limit: "refund", Key: "2021", Since: exampleAt(-30), CallsPerSecond: 12.5, FullPerSecond: 100, Limited: 99, Passed: 1, Within: "100 per 1s"}},
	}
	exampleUpstreams = api.Upstreams{At: exampleAt(0), Upstreams: []api.Upstream{exampleUpstream}}
	exampleLimit     = api.Limit{
		Upstream: "pay", Limit: "app", Kind: api.Sliding, Permits: 100, WindowMs: 1000, LiveKeys: 1, Out: 88, InFlight: 12, NextBack: exampleAt(1), WaitingPermits: 480,
		Keys:  []api.Key{{Key: "2021", Free: 12, Out: 88, InFlight: 12, NextBack: exampleAt(1), WaitingPermits: 480}},
		Audit: api.Audit{Most: 100, HoldCost: 0.031, Guards: []api.Guard{{GuardMs: 100, Wins: 0.024}}},
	}
	exampleEvents = api.EventList{At: exampleAt(5), Events: []api.Event{{At: exampleAt(4), Event: api.EventEnded, Call: exampleID, Upstream: "pay", State: api.Done}}}
	exampleKeys   = api.Keys{At: exampleAt(0), Upstream: "pay", Limit: "app", Keys: exampleLimit.Keys}
	exampleFlows  = api.Flows{At: exampleAt(0), Upstream: "pay", Since: exampleAt(-600), Sent: 1200, Flows: []api.Flow{
		{Flow: "shop7", Weight: 2, Waiting: 480, OldestAcceptedAt: exampleAt(-8), Sent: 792, Share: 0.66},
		{Flow: "shop1", Weight: 1, Sent: 408, Share: 0.34},
	}}
	exampleHistory = api.History{At: exampleAt(59), Upstream: "pay", StepMs: 1000, Calls: []api.HistoryCalls{
		{At: exampleAt(57), Accepted: 120, Sent: 100, Done: 97, NotExecuted: 1, Limited: 1, Refused: 2, Waiting: 460},
		{At: exampleAt(58), Accepted: 121, Sent: 100, Done: 99, Failed: 1, Waiting: 480},
	}}
	exampleLimits = api.Limits{At: exampleAt(0), Limits: []api.Limit{exampleLimit}}

	exampleConfig = api.Config{Settings: []api.Setting{
		{Path: "upstreams.pay.limits[app].calls", Value: "100", Source: "throttler.yaml:9"},
		{Path: "seal_key", Hidden: true, Source: "$THROTTLER_SEAL_KEY"},
	}}
	exampleReload      = api.Reload{FileSHA256: exampleFile, Changes: []api.Change{{Path: "upstreams.pay.limits[app].calls", Kind: "changed", Before: "100", After: "200"}}}
	exampleDiff        = api.Reload{DryRun: true, FileSHA256: exampleFile, Changes: append(exampleReload.Changes, api.Change{Path: "seal_key", Kind: "changed", Hidden: true, Restart: true})}
	examplePlanRequest = api.PlanRequest{Changes: []api.PlanChange{{Upstream: "pay", Limit: "refund", Permits: new(40)}}, Last: "10m", RTTMs: new(80.0), FailIf: []string{"wait.p99 > 5s"}}
	examplePlan        = api.Plan{
		Variants: []api.PlanReport{{
			Config: "running", Begin: exampleAt(0), Calls: 3, Sent: 3, Refused: map[string]int{}, LimitedWithout: 1, LengthMs: 100, MakespanMs: 1180,
			Wait: api.PlanWaits{P99: 1000, P95: 1000, Max: 1000, Mean: 333.3}, Backlog: api.PlanBacklog{Peak: 1, AtMs: 100},
			Flows: []api.PlanFlow{{Upstream: "pay", Flow: "h0c5d41a5f1a9d0b7", Calls: 3, Sent: 3, Wait: api.PlanWaits{P99: 1000, P95: 1000, Max: 1000, Mean: 333.3}}}, FlowCount: 1,
			Limits: []api.PlanLimit{{Upstream: "pay", Limit: "refund", Permits: 2, Window: "1s", Keys: 1, Most: 2, Queued: 1, Binds: []api.PlanSpan{{FromMs: 100, ToMs: 1100}}, Share: 0.84, LimitedWithout: 1}},
			Series: api.PlanSeries{StepMs: 500, Arrivals: []int{3, 0, 0}, Sends: []int{2, 0, 1}, Waiting: []int{1, 1, 1}, Limits: []api.PlanLimitSeries{{Upstream: "pay", Limit: "refund", Queued: []int{1, 1, 0}, Most: []int{2, 2, 1}}}},
		}},
		Findings:   []api.PlanFinding{{Kind: "waits", Config: "running", Text: "running: 99% of the calls wait 1s at most, the longest wait is 1s", WaitMs: 1000, LongestMs: 1000}},
		Conditions: []api.PlanCondition{{Condition: "wait.p99 > 5s", Config: "running"}},
	}
	exampleInfo = api.Info{
		Version: "1.4.0", Go: "go1.26.9", StartedAt: exampleAt(0), ConfiguredAt: exampleAt(0), Store: "file",
		Caller: api.CallerInfo{Name: "oncall", Role: "operator", Via: "token", Scopes: []string{"read", "submit", "operate"}},
	}
)

var exampleFleet = api.Fleet{
	At: exampleAt(0), Epoch: 7, Owner: "a", LeaseMS: 2000,
	Replicas: []api.Replica{
		{ID: "6a1f5bd0-7a0c-4b7e-9a51-0c1d5b1d7c55", Name: "a", Address: "10.0.0.7:9191", Version: "1.4.0", JoinedAt: exampleAt(0), SilentMS: 210, Owner: true, Self: true, Config: "9f86d081884c"},
		{ID: "0b8c4a0e-64d4-4b0f-8a46-5d1c2a9b2f11", Name: "b", Address: "10.0.0.8:9191", Version: "1.4.0", JoinedAt: exampleAt(0), SilentMS: 120, Config: "9f86d081884c"},
	},
}

// exampleFile is the hash of a configuration file.
const exampleFile = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
