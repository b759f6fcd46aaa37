package server

import (
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/seed-30fe103d/throttler/internal/access"
	"github.com/seed-30fe103d/throttler/internal/api"
)

// Operations returns the whole admin API.
func Operations() []Operation {
	return slices.Concat(callOperations, decisionOperations, pauseOperations, upstreamOperations, processOperations, fleetOperations, sessionOperations)
}

// Parameters that several operations have.
var (
	upstreamParam = Param{Name: "upstream", Type: "string", Doc: "Only of this upstream."}
	topParam      = Param{Name: "page_size", Type: "integer", Max: maxTop, Default: maxTop, Doc: "The most that come."}
	includeParam  = Param{Name: "include", Type: "string", Enum: []string{"response"}, Doc: "The response to the call comes too, if the caller may read it."}
)

// eventParams choose events.
var eventParams = []Param{
	upstreamParam,
	{Name: "call", Type: "string", Doc: "Only of the call with this id."},
	{Name: "kind", Type: "string", Enum: api.EventKinds, Repeated: true, Doc: "Only events of this kind."},
	{Name: "limit", Type: "string", Doc: "Only pauses of this limit, and accepted and refused calls that take permits of it."},
	{Name: "key", Type: "string", Doc: "Only those of this key of the limit."},
}

var callOperations = []Operation{
	handles(Operation{
		Method: "POST", Path: "/v1/calls", ID: "submitCall", Scope: access.Submit, Status: http.StatusAccepted,
		Summary: "Submit a call",
		Doc:     "The call is kept before the answer. A repeat with the same idempotency key, in the member or in the header Idempotency-Key, is answered with the call that is there; the header Idempotent-Replayed says so.",
	}, exampleSubmission, &exampleWaiting, submitCall),
	lines(Operation{
		Method: "POST", Path: "/v1/calls/batch", ID: "submitCalls", Scope: access.Submit, Status: http.StatusOK,
		Summary: "Submit up to 1,000 calls",
		Doc:     "The body has a Submission on each line, and 16 MiB at most; the answer has a BatchResult for each, in the same order. Each line is accepted or refused by itself, as POST /v1/calls does it, and kept before the answer. The lines are accepted together, and not one after the other: of two with one idempotency key, either may be the first. A body that is too large, or no NDJSON, is refused as a whole. A batch without an answer may have been accepted wholly or in part: with an idempotency key in each line it can be sent again.",
	}, []api.Submission{exampleSubmission}, exampleBatch, submitCalls),
	handles(Operation{
		Method: "GET", Path: "/v1/calls", ID: "listCalls", Scope: access.ReadOwn, Status: http.StatusOK,
		Summary: "List and find calls, the newest first",
		Doc:     "All parameters must hold; with none of them, all calls are listed. A submitter sees its own calls. The response of each call is at its own resource.",
		Params:  listParams,
	}, none{}, &exampleCalls, listCalls),
	handles(Operation{
		Method: "GET", Path: "/v1/calls/{id}", ID: "getCall", Scope: access.ReadOwn, Status: http.StatusOK, Prefers: true,
		Summary: "Show a call",
		Doc:     "Also why it waits and until when. The id of a call that was refused is answered with the reason (404, refused), as long as it is one of the last 10,000; a submitter gets not_found.",
		Params:  []Param{includeParam},
	}, none{}, &exampleWaiting, getCall),
	streams(Operation{
		Method: "GET", Path: "/v1/calls/{id}/response", ID: "getCallResponse", Scope: access.BodiesOwn, Status: http.StatusOK, Media: "application/octet-stream", Prefers: true,
		Summary: "The body of the response to a call, as it came",
		Doc:     "For the caller that has submitted the call, or with scope bodies. Throttler-Status is the status of the response, Throttler-Content-Type its media type.",
	}, getCallResponse),
	streams(Operation{
		Method: "GET", Path: "/v1/calls/{id}/request", ID: "getCallRequest", Scope: access.BodiesOwn, Status: http.StatusOK, Media: "application/octet-stream",
		Summary: "The body of the request of a call that has not finished",
		Doc:     "For the caller that has submitted the call, or with scope bodies. Throttler-Content-Type is its media type. It is erased when the call ends, and one that stays out of the store (no_body) is not shown.",
	}, getCallRequest),
	handles(Operation{
		Method: "GET", Path: "/v1/refusals", ID: "listRefusals", Scope: access.Read, Status: http.StatusOK,
		Summary: "List the calls that were refused, the newest first",
		Doc:     "The last 10,000 since the process began, of data listeners and of the admin API. Nothing of them was sent.",
		Params:  refusalParams,
	}, none{}, &exampleRefusals, listRefusals),
	handles(Operation{
		Method: "POST", Path: "/v1/calls/{id}/cancel", ID: "cancelCall", Scope: access.Submit, Status: http.StatusOK, Optional: true,
		Summary: "Cancel a call that waits",
	}, api.Cancellation{Reason: "ordered twice"}, &exampleCancelled, cancelCall),
	streams(Operation{
		Method: "GET", Path: "/v1/events", ID: "followEvents", Scope: access.Read, Status: http.StatusOK, Media: "text/event-stream",
		Summary: "Follow events",
		Doc:     "Server-Sent Events: the data of each is an Event, of lost a Lost. The header Last-Event-ID resumes a stream.",
		Params:  append(slices.Clone(eventParams), Param{Name: "routes", Type: "boolean", Doc: "Accepted and refused calls come with their route."}),
	}, followEvents),
	handles(Operation{
		Method: "GET", Path: "/v1/events/latest", ID: "listEvents", Scope: access.Read, Status: http.StatusOK,
		Summary: "List the latest events, the newest first",
		Doc:     "Of the last 4,096 that the process keeps in memory; without the ETA of calls that wait.",
		Params:  append(slices.Clone(eventParams), Param{Name: "page_size", Type: "integer", Max: maxPage, Default: defaultPage, Doc: "The most events."}),
	}, none{}, &exampleEvents, latestEvents),
}

var decisionOperations = []Operation{
	handles(Operation{
		Method: "POST", Path: "/v1/calls/{id}/resolve", ID: "resolveCall", Scope: access.Operate, Status: http.StatusOK,
		Summary: "Assert what the platform says about an unknown call",
		Doc:     "done and failed end it; not_executed sends it again. If it was sent again since the attempt that the person saw, the decision is refused (412).",
	}, api.Resolution{Outcome: "done", Attempt: 1, Reason: "seen in the statement"}, &exampleDone, resolveCall),
	handles(Operation{
		Method: "POST", Path: "/v1/calls/{id}/retry", ID: "retryCall", Scope: access.Operate, Status: http.StatusOK,
		Summary: "Send an unknown call again, though nothing is known of its outcome",
		Doc:     "Without accept_duplicate it is refused (422, may_execute_twice) where the upstream does not recognise the repeat.",
	}, api.Retry{Attempt: 1, AcceptDuplicate: true, Reason: "the platform does not answer, and a duplicate is harmless"}, &exampleWaiting, retryCall),
	handles(Operation{
		Method: "POST", Path: "/v1/calls/{id}/ask", ID: "askCall", Scope: access.Operate, Status: http.StatusOK, Optional: true,
		Summary: "Ask the platform now about an unknown call",
		Doc:     "By the query of the configuration (resolve), under the upstream's limits. The answer to it decides the call, or leaves it unknown.",
	}, api.Ask{Reason: "the customer waits"}, &exampleDone, askCall),
	handles(Operation{
		Method: "PATCH", Path: "/v1/calls/{id}", ID: "editCall", Scope: access.Operate, Status: http.StatusOK,
		Summary: "Change a submitted call while it waits",
	}, api.Edit{Priority: new(50), Reason: "the customer waits"}, &exampleWaiting, editCall),
	handles(Operation{
		Method: "POST", Path: "/v1/calls/bulk", ID: "changeCalls", Scope: access.Operate, Status: http.StatusOK,
		Summary: "Cancel or ask about many calls",
		Doc:     "At most 1,000 at a time, one after the other. dry_run only tells which.",
	}, api.Bulk{Action: "cancel", Filter: api.BulkFilter{Upstream: new("pay")}, Reason: "the campaign is off"}, &exampleBulk, changeCalls),
}

var upstreamOperations = []Operation{
	handles(Operation{
		Method: "GET", Path: "/v1/upstreams", ID: "listUpstreams", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show all upstreams",
	}, none{}, &exampleUpstreams, listUpstreams),
	handles(Operation{
		Method: "GET", Path: "/v1/upstreams/{name}", ID: "getUpstream", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show an upstream",
	}, none{}, &exampleUpstream, getUpstream),
	handles(Operation{
		Method: "GET", Path: "/v1/limits", ID: "listLimits", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show limits", Params: []Param{upstreamParam},
	}, none{}, &exampleLimits, listLimits),
	handles(Operation{
		Method: "GET", Path: "/v1/upstreams/{name}/limits/{limit}", ID: "getLimit", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show a limit",
	}, none{}, &exampleLimit, getLimit),
	handles(Operation{
		Method: "GET", Path: "/v1/upstreams/{name}/limits/{limit}/keys", ID: "listKeys", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show keys of a limit",
		Doc:     "Those for which most permits wait, or the one that is asked for. A key that is not in use has all permits free.",
		Params: []Param{
			{Name: "key", Type: "string", Doc: "Only this key."},
			{Name: "sort", Type: "string", Enum: []string{"waiting"}, Doc: "The keys that come first: those for which most permits wait, by default."},
			topParam,
		},
	}, none{}, &exampleKeys, listKeys),
	handles(Operation{
		Method: "GET", Path: "/v1/upstreams/{name}/flows", ID: "listFlows", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show the flows of an upstream, those with most calls waiting first",
		Doc:     "Also flows that had attempts in the last 10 minutes. The attempts of the first 1,000 flows are counted; sent of others is 0.",
		Params:  []Param{topParam},
	}, none{}, &exampleFlows, listFlows),
	handles(Operation{
		Method: "GET", Path: "/v1/history", ID: "getHistory", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show the past of an upstream or a limit, since the process began",
		Doc:     "In steps of 1 s for 5 minutes, of 10 s for an hour, and of 1 minute for a day. The last step may not be over.",
		Params: []Param{
			{Name: "upstream", Type: "string", Required: true, Doc: "The name of the upstream."},
			{Name: "limit", Type: "string", Doc: "The permits of this limit, instead of the calls of the upstream."},
			{Name: "from", Type: "instant", Doc: "Only steps that begin then or later."},
			{Name: "to", Type: "instant", Doc: "Only steps that begin earlier."},
			{Name: "step", Type: "string", Enum: []string{"1s", "10s", "1m"}, Doc: "The length of a step: by default the shortest that is kept since from, without from 1s."},
		},
	}, none{}, &exampleHistory, getHistory),
}

var fleetOperations = []Operation{
	handles(Operation{
		Method: "GET", Path: "/v1/fleet", ID: "getFleet", Scope: access.Read, Replica: true, Status: http.StatusOK,
		Summary: "Show the replicas that serve from the store",
		Doc:     "Each replica answers by itself, whether or not it has the calls.",
	}, none{}, &exampleFleet, getFleet),
	handles(Operation{
		Method: "POST", Path: "/v1/fleet/move", ID: "moveCalls", Scope: access.Configure, Replica: true, Status: http.StatusOK, Optional: true,
		Summary: "Hand the calls over to another replica",
		Doc:     "The owner ends its attempts, as in a stop, and waits then like the others. The answer comes when it has been asked.",
	}, api.Move{To: "b", Reason: "the host is going to be restarted"}, &exampleFleet, moveCalls),
	handles(Operation{
		Method: "POST", Path: "/v1/fleet/bury", ID: "buryReplica", Scope: access.Configure, Replica: true, Status: http.StatusOK,
		Summary: "State that the process of a replica has ended",
		Doc:     "Its calls are taken over at once, and limits are not held back for attempts that it might still make. Only for a process that is known to have ended.",
	}, api.Burial{Replica: "a", ItHasEnded: true, Reason: "its host has burnt"}, &exampleFleet, buryReplica),
}

var processOperations = []Operation{
	handles(Operation{
		Method: "GET", Path: "/v1/config", ID: "getConfig", Scope: access.Read, Status: http.StatusOK,
		Summary: "Show the configuration in force",
		Doc:     "Each value with its source. Values that may be secrets are not shown.",
	}, none{}, &exampleConfig, getConfig),
	handles(Operation{
		Method: "GET", Path: "/v1/config/diff", ID: "diffConfig", Scope: access.Read, Status: http.StatusOK,
		Summary: "Compare the configuration file with the configuration in force",
		Doc:     "As a reload with dry_run, for callers that may not reload: the changes that it would make, and the hash of the file, or all faults of the file (422, bad_config). Values that may be secrets are not shown.",
	}, none{}, &exampleDiff, diffConfig),
	handles(Operation{
		Method: "POST", Path: "/v1/config/reload", ID: "reloadConfig", Scope: access.Configure, Status: http.StatusOK,
		Summary: "Read the configuration file again, and put it into force",
		Doc:     "As a whole or, with a fault in it, not at all. The API never takes a configuration over the network.",
		Params: []Param{
			{Name: "dry_run", Type: "boolean", Doc: "Check and compare the file only."},
			{Name: "file", Type: "string", Doc: "The file_sha256 of a comparison: another file than that one is refused (412, changed_since)."},
		},
	}, none{}, &exampleReload, reloadConfig),
	handles(Operation{
		Method: "POST", Path: "/v1/plan", ID: "planLoad", Scope: access.Configure, Status: http.StatusOK, most: maxPlanBytes,
		Summary: "Preview a load under a configuration",
		Doc:     "The planner plays the load in virtual time, in a process of low priority: nothing is sent, and the calls of the sidecar keep their slots. One preview runs at a time (503 otherwise), for 30 s and 256 MiB at most. A configuration in the request has all its faults in errors (422, bad_config). Keys and flows of the traffic that came in are hashes.",
	}, examplePlanRequest, &examplePlan, planLoad),
	handles(Operation{
		Method: "GET", Path: "/v1/audit", ID: "listAudit", Scope: access.Configure, Status: http.StatusOK,
		Summary: "List the changes that callers have asked for, the newest first",
		Doc:     "A change is recorded before it takes effect; one that was refused or has failed has a second record, whose after begins with not done, or not known whether done.",
		Params:  auditParams,
	}, none{}, &exampleAudit, listAudit),
	handles(Operation{
		Method: "GET", Path: "/v1/info", ID: "getInfo", Scope: access.ReadOwn, Status: http.StatusOK,
		Summary: "About the process, and about the caller",
	}, none{}, &exampleInfo, getInfo),
	plain(Operation{
		Method: "GET", Path: "/metrics", ID: "getMetrics", Replica: true, Scope: access.Read, Probe: true, Status: http.StatusOK, Media: "text/plain",
		Summary: "Metrics of Prometheus",
	}, func(a *Admin) http.Handler { return promhttp.HandlerFor(a.Metrics, promhttp.HandlerOpts{}) }),
	streams(Operation{
		Method: "GET", Path: "/healthz", ID: "getHealth", Replica: true, Scope: access.Open, Probe: true, Status: http.StatusOK, Media: "text/plain",
		Summary: "Answers while the process is alive",
	}, getHealth),
	streams(Operation{
		Method: "GET", Path: "/readyz", ID: "getReadiness", Replica: true, Scope: access.Open, Probe: true, Status: http.StatusOK, Media: "text/plain",
		Summary: "Answers 200 while the process should get traffic, else 503; a replica whose limits are not those of the owner says so",
		Params:  []Param{{Name: "verbose", Type: "boolean", Doc: "List each check."}},
	}, getReadiness),
	streams(Operation{
		Method: "GET", Path: "/problems/{reason}", ID: "getProblem", Replica: true, Scope: access.Open, Status: http.StatusOK, Media: "text/plain",
		Summary: "Explain the reason of a problem",
	}, getProblem),
}
