// Package api holds the types of the JSON that the admin API reads and writes: one
// Go type for each body, for each event of GET /v1/events, and for problems.
//
//	submission := api.Submission{Upstream: "pay", Method: "POST", Target: "/refunds"}
//	body, err := json.Marshal(submission) // of POST /v1/calls
//	…
//	var call api.Call
//	err = json.NewDecoder(response.Body).Decode(&call) // of its 202
//
// The types are a contract of their own: the scheduler's types, the store's records
// and the bodies of webhooks change without them. The server makes them from the
// scheduler's types, and the command line reads them. Golden files in testdata fix
// the names of the members, their order, and the conditions under which they are left
// out.
//
// The operations, each with its types, are a table in internal/server and, made from it,
// api/openapi.yaml.
//
// Instants are in RFC 3339, in UTC and to the microsecond, durations in milliseconds, bodies
// of calls in base64. A reader should ignore members that it does not know: new ones may be
// added. Headers of requests and bodies that a client sends are checked by the server, not by
// these types.
package api
