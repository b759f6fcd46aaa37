package main

var byActualCost = []string{"-run", "TestActualCost"}

// moneyBugs let a payment be made twice, or be called failed while it was executed.
var moneyBugs = []bug{
	{"an answer of a configuration before tells costs", "pkg/scheduler/charge.go",
		"e.by == u.service && ", "", byActualCost},
	{"each impossible cost is logged", "pkg/scheduler/charge.go",
		"		u.misled[n.Limit] = true\n", "", byActualCost},
	{"a cost in a body that is cut off counts", "pkg/upstream/charge.go",
		"c.usesBody && a.partial {", "false {", byActualCost},
	{"a cost below 0 counts", "pkg/upstream/charge.go",
		"	case n < 0:\n", "	case n < -99:\n", byActualCost},
	{"certificates: a call that none fits is accepted", "pkg/scheduler/route.go",
		"err := sv.up.Certified(in); err != nil", "err := sv.up.Certified(in); err != nil && query", []string{"-run", "TestNoCertificate"}},
	{"a query renews the attempts", "pkg/scheduler/nextattempt.go",
		"	case sv.Retry.Spent(c.flight.counted):\n", "	case false:\n", moneyTests},
	{"a query lets a call go after its time", "pkg/scheduler/nextattempt.go",
		"	case !now.Before(until):\n", "	case false:\n", moneyTests},
	{"a query ends the doubt", "pkg/scheduler/conclude.go",
		"			if person {\n				c.flight.renew(d)\n			}\n",
		"			c.flight.maybe = false\n", moneyTests},
	{"a repeat after a query asks for no budget", "pkg/scheduler/conclude.go",
		"c.flight.repeat = 0, \"\", !person\n", "c.flight.repeat = 0, \"\", false\n", moneyTests},
	{"no query finds a call after one that found nothing", "pkg/scheduler/ask.go",
		"		return !again //", "		return true //", moneyTests},
	{"a person's decision keeps the attempts", "pkg/scheduler/conclude.go",
		"		for i := range next.Attempts {\n			next.Attempts[i].Resolved = next.Attempts[i].Resolved || d.As == upstream.NotExecuted\n		}\n", "", moneyTests},
	{"a process forgets the attempts that were refused", "pkg/scheduler/recovery.go",
		"anew && (doubtful || a.Outcome == upstream.Failed && !a.Resolved) {", "anew && doubtful {", moneyTests},
	{"a repeat is a new call", "pkg/scheduler/submit.go",
		"e.Identity = c.identities.identity(); e.Key", "e.Identity = \"\"; e.Key", moneyTests},
	{"identities wait for each other", "pkg/scheduler/identity.go",
		"	one := l.byIdentity[identity]\n", "	identity = \"\"\n	one := l.byIdentity[identity]\n", []string{"-run", "TestLocksAreOfOneIdentity"}},
	{"a store that closes is read", "pkg/scheduler/journal.go",
		"	if j.closed {\n", "	if false {\n", []string{"-run", "TestReadsDoNotWaitForClose"}},
	{"a call that has failed keeps its number", "pkg/scheduler/memory.go",
		"		case c.State == Failed && k.identity: // for good\n", "", moneyTests},
	{"queries displace the identities of payments", "pkg/scheduler/memory.go",
		"		of := m.identified(c.ID)\n", "		of := 0\n", moneyTests},
	{"a repeat gets no answer", "pkg/scheduler/attempt.go",
		"	case a.intent.Durable, a.call.identities.identity() != \"\", r.Outcome", "	case a.intent.Durable, r.Outcome", moneyTests},
	{"a repeat ends with the caller that it has joined", "pkg/scheduler/submit.go",
		"(known.State == Cancelled || known.State == Expired) &&", "false &&", moneyTests},
	{"a cancel leaves the payment that waits", "pkg/scheduler/control.go",
		"			c.up.endBy(now, c, by)\n", "			_ = by\n", moneyTests},
	{"a query sends a payment again after its cancel", "pkg/scheduler/nextattempt.go",
		"	if by := c.history().endedBy; by != \"\" && !(person && by == c.ID) {\n", "	if by := c.history().endedBy; false {\n", moneyTests},
	{"a query sends a call again that a person took back", "pkg/scheduler/control.go",
		"				c.flight.endedBy = c.ID //", "				_ = c.ID //", moneyTests},
	{"a new payment is taken after the cancel", "pkg/scheduler/identity.go",
		"j.checkUnended(ctx, e.Identity) }); err != nil {", "j.checkUnended(ctx, e.Identity) }); false {", moneyTests},
	{"a stop denies a call that may have been executed", "pkg/scheduler/explain.go",
		"	case c.State == Unknown:\n		e.Reason = NoAnswer\n", "	case c.State == Unknown && e.Reason != Stopping:\n		e.Reason = NoAnswer\n", []string{"-run", "TestStopTellsDoubt"}},
	{"a repeat of a failed call is told an old failure", "pkg/scheduler/identity.go",
		" || known != nil && known.State != Failed {", " || known != nil {", []string{"-run", "TestIdentityAfterAFailedKey"}},
	{"a number that cannot be read is none", "pkg/scheduler/identity.go",
		"		return \"\", &Error{Reason: BadKey,", "		return \"\", nil\n	case false:\n		return \"\", &Error{Reason: BadKey,", moneyTests},
}

var moneyTests = []string{"-run", "TestRepeatAfterQuery|TestIdentity|TestEnds|TestCancelIn"}

// askingBugs are seen by the tests of queries for callers, and by callers.
var askingBugs = []bug{
	{"a caller's query settles a payment that is sent after it", "pkg/scheduler/ask.go",
		" || query.Last().SentAt.Before(c.Last().EndedAt) {\n", " {\n", askingTests},
	{"a caller's query that finds nothing sends the payment again", "pkg/scheduler/ask.go",
		"	if as != upstream.Done && as != upstream.Failed {\n", "	if as == \"\" {\n", askingTests},
	{"a part of a query's answer settles a payment", "pkg/scheduler/attempt.go",
		"	case r.Err != nil || r.Truncated:\n", "	case r.Err != nil:\n", askingTests},
	{"without a signer no query of a caller settles", "pkg/scheduler/ask.go",
		"f.resolverFor(ctx, sv, c, request, true)", "f.resolverFor(ctx, sv, c, request, sv.Signer != nil)", askingTests},
	{"a number that cannot be read refuses the query", "pkg/scheduler/identity.go",
		"	if unclear != nil {", "	if unclear != nil {\n		return nil, unclear\n	}\n	if false {", askingTests},
	{"the request of an unknown payment is forgotten", "pkg/scheduler/memory.go",
		"	if c.State.Finished() {\n		delete(m.requests, c.ID)\n", "	if c.State != Sending {\n		delete(m.requests, c.ID)\n", askingTests},
	{"requests of unknown payments are without bound", "pkg/scheduler/memory.go",
		"		n += requestSize(r)\n", "		n += 0 * requestSize(r)\n", askingTests},
	{"a waiting client is told of a refused repeat of what is done", "pkg/scheduler/caller.go",
		"c.passesOn(caller.end.State)", "c.passesOn(last.State)", askingTests},
	{"a repeat is told of a refusal of what is done", "pkg/scheduler/call.go",
		"last != c.Outcome() && last != upstream.Unknown {", "last == \"\" {", []string{"-run", "TestAnswerOfADecidedCall"}},
	{"what a query has found done is called unknown", "pkg/scheduler/call.go",
		"	case c.State == Unknown, c.State == Done:\n", "	case c.State == Unknown:\n", askingTests},
	{"a payment that is being signed is sent after its cancel", "pkg/upstream/attempt.go",
		"if r.Revoked != nil && r.Revoked.Load() { // while", "if false { // while", []string{"-run", "TestEnds"}},
	{"a cancel forgets the payment that is being signed", "pkg/scheduler/waiting.go",
		"		c.identities.revoked.Store(true)\n", "", []string{"-run", "TestEnds"}},
	{"long answers take identities away", "pkg/scheduler/memory.go",
		"i == 0 && m.bytes > m.keepBytes", "m.bytes > m.keepBytes", []string{"-run", "TestIdentitiesOutlive"}},
	{"a waiting client waits for a query that comes too late", "pkg/scheduler/ask.go",
		"if bounded && time.Until(latest) <= wait {", "if bounded && latest.IsZero() {", askingTests},
	{"a waiting client is asked about for ever", "pkg/scheduler/ask.go",
		"context.WithDeadline(ctx, c.caller.until)", "context.WithDeadline(ctx, c.caller.until.Add(time.Hour))", askingTests},
	{"a stop waits for the queries of waiting clients", "pkg/scheduler/ask.go",
		"	defer context.AfterFunc(f.ctx, cancel)() //", "	_ = f.ctx //", askingTests},
	{"a query's packed answer settles nothing", "pkg/upstream/outcome.go",
		"newAnswer(status, header, body, truncated, DefaultMaxInspect)", "newAnswer(status, nil, body, truncated, DefaultMaxInspect)", askingTests},
	{"what is accepted is done", "pkg/scheduler/attempt.go",
		"	if a.intent.Resolves == \"\" { //", "	if false { //", askingTests},
	{"a rule about 202 does not count", "pkg/scheduler/step.go",
		"r.Outcome != upstream.Done || r.Ruled ||", "r.Outcome != upstream.Done ||", askingTests},
	{"what is accepted is sent again", "pkg/upstream/wait.go",
		"	res.Park, res.Open = true, true\n", "	res.Open = true\n", askingTests},
}

// clientBugs send calls for clients that will be gone, or none for clients that are there.
var clientBugs = []bug{
	{"a call is sent for a client that will be gone", "pkg/scheduler/waiting.go",
		"	c.Deadline = earlier(c.Deadline, c.caller.gone)\n", "", clientTests},
	{"the time of the answer does not count", "pkg/scheduler/waiting.go",
		"c.AcceptedAt.Add(u.ClientTimeout - usual)", "c.AcceptedAt.Add(u.ClientTimeout)", clientTests},
	{"a slow upstream gets no call any more", "pkg/scheduler/waiting.go",
		"		usual = min(usual, trip)\n", "		usual = trip\n", clientTests},
	{"the usual answer is not learnt", "pkg/scheduler/waiting.go",
		"	if trip := u.planner.Trip(); trip > 0 {\n", "	if trip := u.planner.Trip(); trip < 0 {\n", clientTests},
	{"a client is asked for until max_wait alone", "pkg/scheduler/waiting.go",
		"	c.caller.until = c.caller.gone\n", "", clientTests},
	{"a refusal does not name the time-out of the client", "pkg/scheduler/explain.go",
		"	case c.caller != nil && c.Deadline.Equal(c.caller.gone):", "	case false:", clientTests},
	{"a client that has waited for a moment is not asked whether it has left", "pkg/scheduler/caller.go",
		"caller.unwatch != nil || time", "time", []string{"-run", "TestLeftAfterAMoment"}},
	{"a client that has waited for the store is not asked whether it has left", "pkg/scheduler/caller.go",
		" || time.Since(caller.came) > atOnce", "", []string{"-run", "TestLeftBeforeItsTurn"}},
}

var clientTests = []string{"-run", "TestClientTimeout"}

// trialBugs make the step that a trial tells another one than the scheduler takes.
var trialBugs = []bug{
	{"a trial takes what is accepted for done", "pkg/scheduler/step.go",
		"	sv := r.sv\n	doubtAccepted(sv, request, res)\n", "	sv := r.sv\n", trialTests},
	{"a trial asks by a query that does not fit", "pkg/scheduler/step.go",
		"	if query == nil || err != nil {\n", "	if len(sv.resolvers) == 0 {\n", trialTests},
}

var trialTests = []string{"-run", "TestTrialFollowsTheScheduler"}

var askingTests = []string{"-run", "TestWaitingCallerIsAskedFor|TestAccepted|TestAskedCallerLeaves|TestCallersQuery|TestAsksOf|TestUnknownRequests"}

// identityBugs are seen by the tests of the store.
var identityBugs = []bug{
	{"a client's repeat of a submission is a new call", "pkg/scheduler/identity.go",
		"later == nil && err == nil && other != nil {", "false {", storedIdentities},
	{"calls of one identity are looked up and stored at once", "pkg/scheduler/submit.go",
		"		defer unlock()\n", "		unlock()\n", storedIdentities},
	{"a payment on disk goes after its cancel", "pkg/scheduler/identity.go",
		"	if err == nil && by != \"\" {\n		err = &endedError{by}\n	}\n", "	_ = by\n", endedOnDisk},
	{"a cancel is noted in memory alone", "pkg/scheduler/identity.go",
		"	if j.durable != nil {\n		return j.durable\n	}\n	return j.memory\n", "	return j.memory\n", endedOnDisk},
	{"a new payment erases the cancel", "pkg/store/changes.go",
		"ended_by = excluded.ended_by\"", "until = excluded.until\"", conforms},
	{"a stored call that has failed keeps its number", "internal/columns/keys.go",
		"	case state == scheduler.Failed && o.identity:\n		return \"\", nil // for good\n", "", conforms},
	{"a key is taken for a call that is none", "pkg/store/calls.go",
		"owner != \"\" || reused != nil || err != nil {\n			return owner, reused, err\n", "false {\n			return owner, reused, err\n", conforms},
	{"a seal leaves identities as they were", "pkg/store/seal.go",
		"\"UPDATE keys SET key = ? WHERE key = ?\", s.codec.Blind(hash), hash)", "\"UPDATE keys SET key = ? WHERE key = ?\", hash, hash)", []string{"-run", "TestSealLater"}},
	{"numbers lie in the clear in a sealed file", "internal/columns/row.go",
		"r.Terms = d.EncryptText(facts, r.ID, FactsKind)", "r.Terms = facts", []string{"-run", "TestNothingInTheClear"}},
	{"a number can be taken out of a sealed file", "internal/columns/row.go",
		"		s.Texts(r.Summed)\n", "", []string{"-run", "TestForgedRows"}},
}

var (
	storedIdentities = []string{"-run", "TestIdentityOf"}
	endedOnDisk      = []string{"-run", "TestEndsOverRestart"}
)
