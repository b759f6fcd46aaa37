package main

// leaseBugs are seen by the tests of package lease alone.
var leaseBugs = []bug{
	{"a durable call stores no permits", "pkg/lease/lease.go",
		"		case durable:\n", "		case durable && false:\n", nil},
	{"permits that are out are forgotten with the next attempt", "pkg/lease/lease.go",
		"		if h.Back.After(now) {\n			out", "		if false {\n			out", nil},
	{"a lease is stored once, whether or not it arrived", "pkg/lease/lease.go",
		"		if !lease.stored { // each call", "		if !lease.stored && lease.flying <= 1 { // each call", nil},
	{"a lease is settled while a call uses it", "pkg/lease/lease.go",
		"			if lease.flying == 0 && b.latest", "			if b.latest", nil},
	{"a lease that is used up is settled by the first return", "pkg/lease/lease.go",
		"			if at.After(lease.Back) {\n", "			if lease.Back.IsZero() {\n", nil},
	{"a lease covers less than the call", "pkg/lease/lease.go",
		"	size = max(n.Cost, min(", "	size = max(1, min(", nil},
	{"the first lease is a hundredth of the limit", "pkg/lease/lease.go",
		"	size := 1\n", "	size := l.Calls / 100\n", nil},
	{"idle leases are kept for ever", "pkg/lease/lease.go",
		"	if len(b.latest) > b.sweepAt {\n", "	if false {\n", nil},
}

// pagingBugs are seen by the tests of package paging alone.
var pagingBugs = []bug{
	{"a call that was skipped is not read again", "pkg/scheduler/internal/paging/paging.go",
		"	if q := w.request; q != nil && (!q", "	if q := w.request; false && (!q", nil},
	{"a call in memory is read again", "pkg/scheduler/internal/paging/paging.go",
		"	if _, known := r.known[p.Seq]; known {\n		return false\n	}\n", "", nil},
	{"a full class is not held", "pkg/scheduler/internal/paging/paging.go",
		"	for class, from := range r.full {\n", "	for class, from := range map[int64]Position{} {\n", nil},
	{"a held class ends with its first page", "pkg/scheduler/internal/paging/paging.go",
		"	case end:\n		delete(w.held, r.class)\n", "	case true:\n		delete(w.held, r.class)\n", nil},
	{"new calls keep the cursor from its end", "pkg/scheduler/internal/paging/paging.go",
		"	if again {\n		w.restart = &last\n	}\n", "", nil},
}

// retryBugs are seen by the tests of package retry alone.
var retryBugs = []bug{
	{"the breaker lets two probes go", "pkg/retry/breaker.go",
		"	case b.probe == 0 && !now", "	case !now", nil},
	{"an attempt from before the breaker closed opens it", "pkg/retry/breaker.go",
		"b.failures == 0 && !began.Before(b.closed))", "b.failures == 0)", nil},
	{"a limited answer counts as a failure", "pkg/retry/retry.go",
		"	case Limited:\n		d.Failures = 0\n", "	case Limited:\n		d.Failures++\n", nil},
	{"calls in flight together count as a streak", "pkg/retry/streak.go",
		"	if k.count == 0 || !sentAt.Before(k.at) {\n", "	if true {\n", nil},
}

// schedulerBugs are seen by the tests of package scheduler.
var schedulerBugs = []bug{
	{"attempts without an answer are not in the audit", "pkg/quota/limit.go",
		"		lim.audit.Unanswered += int64(n.Cost)\n", "", []string{"-run", "TestReceiverCountsLater"}},
	{"a repeat that the upstream does not recognise", "pkg/scheduler/nextattempt.go",
		"	if r.Outcome != upstream.Unknown || r.Park || !sv.up", "	if r.Outcome != upstream.Unknown || r.Park || false && !sv.up", nextTests},
	{"a signature is used twice", "pkg/scheduler/nextattempt.go",
		"	case f.used && sv.Signer == nil && sv.Signature.Once:\n		return false\n", "", nextTests},
	{"doubt is forgotten", "pkg/scheduler/nextattempt.go",
		"	f.maybe = f.maybe || r.Outcome == upstream.Unknown\n", "", nextTests},
	{"a caller waits for an upstream that stays down", "pkg/scheduler/nextattempt.go",
		"	return f.failures < 2\n", "	return true\n", nextTests},
	{"an unanswered permit is back at once", "pkg/scheduler/conclude.go",
		"	case !r.Sent, r.Answered &&", "	case !r.Answered, r.Answered &&", []string{"-run", "Late|Oracle", "-seeds", "50"}},
	{"a permit that comes back wakes no call", "pkg/scheduler/conclude.go",
		"	u.planner.Check(now, f.needs)\n	f.needs = nil\n", "	f.needs = nil\n", []string{"-run", "Oracle", "-seeds", "50"}},
	{"a limited answer pauses nothing", "pkg/scheduler/conclude.go",
		"		u.limited(now, c, needs, r)\n", "", []string{"-run", "Oracle|Limited|RetryAfter", "-seeds", "50"}},
	{"a reload forgets the permits in flight", "pkg/scheduler/upstream.go",
		"		u.carry(now, c, kept)\n", "", []string{"-run", "Oracle|Reload", "-seeds", "200"}},
	{"a reload ends the pauses", "pkg/scheduler/upstream.go",
		"	u.restorePauses(now, pauses)\n", "	u.restorePauses(now, pauses[:0])\n", []string{"-run", "Oracle|Reload", "-seeds", "200"}},
	{"the loop ends before its work", "pkg/scheduler/loop.go",
		"	for !l.stopping || l.busy > 0 {\n", "	for !l.stopping {\n", nil},
	{"a call that waits is counted as sending", "pkg/scheduler/conclude.go",
		"	u.setPhase(c, sending)\n", "", nil},
	{"bytes of a finished call stay counted", "pkg/scheduler/upstream.go",
		"		u.usage.bytes.Add(-c.bytes)\n", "", nil},
	{"a reload forgets the bytes that are held", "pkg/scheduler/upstream.go",
		"	sv.usage = old.usage\n", "", []string{"-run", "TestReserve"}},
	{"bodies that come in leave no room to small calls", "pkg/scheduler/submit.go",
		"sv.MaxWaitingBytes-sv.MaxWaitingBytes/16, ", "sv.MaxWaitingBytes, ", []string{"-run", "TestReserve"}},
	{"a kept answer is cut without a word", "pkg/scheduler/attempt.go",
		"kept.Body[:max], true\n", "kept.Body[:max], kept.Truncated\n", []string{"-run", "TestAnswerAbove"}},
	{"a call shares the memory of its caller", "pkg/scheduler/submit.go",
		"	if !r.NoCopy { // the", "	if false { // the", []string{"-run", "TestCallerMay"}},
	{"a context that ends during Do is a wrong state", "pkg/scheduler/submit.go",
		"	if c.abandoned { // while", "	if false { // while", []string{"-run", "TestContextThatEnds"}},
	{"a decision comes between another and its record", "pkg/scheduler/conclude.go",
		"	c.change().State = Sending // until", "	c.change() // until", []string{"-run", "TestOneDecision"}},
	{"a burst with deadlines is let in that cannot go", "pkg/scheduler/upstream.go",
		"	if !u.loop.stopping && u.planner.Fresh() {\n", "	if false {\n", []string{"-run", "ETA|Burst|Deadline"}},
}

// A bug of package scheduler that needs a store is seen by the tests of package store.
var storedCallBugs = []bug{
	{"a call that a reload overtook keeps its old demand", "pkg/scheduler/waiting.go",
		"	u.reroute(c) // a reload may have come since it was admitted\n", "", []string{"-run", "TestReloadWhile"}},
	{"the ETA of a new call forgets the calls on disk", "pkg/scheduler/waiting.go",
		"		r.Seq = math.MaxInt64\n", "		r.Seq = min(0, math.MaxInt64)\n", []string{"-run", "TestDeadlineCounts"}},
	{"a caller who waits for a decision is forgotten", "pkg/scheduler/conclude.go",
		"		if c.ended != nil { // callers", "		if false { // callers", []string{"-run", "TestWaitDuring"}},
	{"a part of an answer is passed on for the whole", "pkg/scheduler/submit.go",
		"c.State.Finished() && !c.Response.Truncated:\n", "c.State.Finished():\n", []string{"-run", "TestKeyOfALong"}},
	{"a caller who leaves is a failure of the store", "pkg/scheduler/submit.go",
		"errors.Is(err, context.Canceled), ", "", []string{"-run", "TestEndedContext"}},
}

var nextTests = []string{"-run", "NextAttempt|Retention"}
