package main

// unknownBugs are about stored calls of unknown outcome, which wait for a decision on disk.
var unknownBugs = []bug{
	{"an unknown call stays in memory", "pkg/scheduler/conclude.go",
		"	u.loop.after(now, c)\n	u.rest(c)\n", "	u.loop.after(now, c)\n", unknownTests},
	{"an answer stays counted that has left memory", "pkg/scheduler/conclude.go",
		"		u.grow(c, -c.Response.size()) // as", "		// as", unknownTests},
	{"an unknown call leaves memory while it is queried", "pkg/scheduler/conclude.go",
		" && c.flight.queries == 0 {", " {", unknownTests},
	{"an unknown call leaves memory with its only request", "pkg/scheduler/conclude.go",
		"c.pages() && !c.noBody && ", "c.pages() && ", unknownTests},
	{"an unknown call that no query decided stays in memory", "pkg/scheduler/followup.go",
		"			c.up.rest(c)\n", "", unknownTests},
	{"a call is queried twice that became unknown at the start", "pkg/scheduler/followup.go",
		"	if c.flight.resolved != nil {\n		return\n	}\n", "", unknownTests},
	{"an unknown call stays in memory after a decision that was refused", "pkg/scheduler/query.go",
		"				c.up.rest(c)\n", "				_ = c\n", unknownTests},
	{"a request that stays out of the store is shown", "pkg/scheduler/query.go",
		"live, hidden, request = true, c.noBody, c.request", "live, request = true, c.request", []string{"-run", "TestRequest"}},
	{"a removed upstream forgets its unknown calls", "pkg/scheduler/upstream.go",
		"u.count == [phases]int{uncounted: u.count[uncounted]}", "u.count[waiting] == 0", unknownTests},
	{"a call stays counted that was decided without its request", "pkg/scheduler/loop.go",
		"		u.settle(now, &call{Call: c, up: u, bytes: e.Bytes, counted: unresolved})\n", "", unknownTests},
	{"a call stays counted that was decided without its upstream", "pkg/scheduler/loop.go",
		"		d.backlog.Unknown--\n", "", unknownTests},
	{"a decision reads an old row", "pkg/scheduler/query.go",
		"again = r.outdated(id) && s.loop.calls[id] == nil; again {", "false {", unknownTests},
	{"the webhook of a decision has no answer", "pkg/scheduler/followup.go",
		"f.notify(sv, f.withAnswer(snapshot), now)", "f.notify(sv, snapshot, now)", unknownTests},
}

var unknownTests = []string{"-run", "TestUnknownCalls|TestQueriesKeep|TestDecisions"}
