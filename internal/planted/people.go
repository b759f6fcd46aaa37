package main

// peopleBugs are about decisions of people, their records, and the changes that they make.
var peopleBugs = []bug{
	{"a decision about an earlier attempt is taken", "pkg/scheduler/decision.go",
		"	if changed := changedSince(c.Call, d); changed != nil {\n		return changed\n	}\n", "", operatorTests},
	{"a decision about an earlier attempt is taken on disk", "pkg/scheduler/decision.go",
		"	if changed := changedSince(c, d); changed != nil {\n		return changed\n	}\n", "", operatorTests},
	{"a decision that has come late is told of another state only", "pkg/scheduler/decision.go",
		"if last.N == d.Attempt && (c.State == Unknown || !wasUnknown) {", "if last.N == d.Attempt && (c.State == Unknown || wasUnknown) {", operatorTests},
	{"a duplicate is sent that no person has accepted", "pkg/scheduler/decision.go",
		"if d.As == upstream.Unknown && !d.AcceptDuplicate && !repeatIsSafe(now, u, c) {", "if false {", operatorTests},
	{"an action is not recorded before its effect", "pkg/scheduler/control.go",
		"	if err := s.journal.audit(ctx, r); err != nil {\n", "	defer s.journal.audit(ctx, r)\n	if err := error(nil); err != nil {\n", operatorTests},
	{"a retry is forgotten by a restart", "pkg/scheduler/recovery.go",
		"a.N > duplicate {", "a.N > 0*duplicate {", []string{"-run", "TestRetryOverRestart"}},
	{"attempts before a retry count after a restart", "pkg/scheduler/recovery.go",
		"a.N > retried\n", "a.N > 0*retried\n", []string{"-run", "TestRetryOverRestart"}},
	{"a change of a call's priority is not stored", "pkg/store/calls.go",
		"\"state = ?, rank = ?,", "\"state = ?, rank = iif(? IS NULL, 0, rank),", conforms},
	{"the person of a pause is forgotten", "pkg/store/quota.go",
		"c.codec.EncodeWho(h))", "\"\")", returns},
	{"decisions lie in the clear", "internal/columns/format.go",
		"	if c.macs == nil || len(call.Decisions) == 0 {", "	if true {", sealedTests},
	{"the audit lies in the clear", "internal/columns/audit.go",
		"		*text = c.EncryptText(*text, ", "		_ = c.EncryptText(*text, ", sealedTests},
	{"the audit is kept for good", "pkg/store/sweep.go",
		"sweepAudit(c, now.Add(-s.keepAudit))", "sweepAudit(c, time.Time{})", []string{"-run", "TestSweep$"}},
	{"the numbers of the audit begin anew", "pkg/store/audit.go",
		" AND seq < (SELECT max(seq) FROM audit)", "", []string{"-run", "TestSweep$"}},
}

// decisionBugs are those of decisions that the scheduler's own tests must see.
var decisionBugs = []bug{
	{"a changed call that is due much later stays in memory", "pkg/scheduler/waiting.go",
		"if c.due > now.Sub(u.loop.origin)+horizon && c.pages()", "if false && c.pages()", decisionTests},
	{"a query decides a later attempt", "pkg/scheduler/ask.go",
		"Attempt: c.Last().N, By: by,", "By: by,", decisionTests},
	{"a repeat is taken for safe after the retention", "pkg/scheduler/nextattempt.go",
		"retention <= 0 || now.Before(f.firstSent.Add(retention))", "retention <= 0 || !now.IsZero()", decisionTests},
	{"a retry says that earlier attempts were not executed", "pkg/scheduler/livecall.go",
		"f.maybe = d.As == upstream.Unknown", "f.maybe = false", decisionTests},
	{"decisions are kept without a bound", "pkg/scheduler/decision.go",
		"	next.Decisions = next.Decisions[max(0, len(next.Decisions)-maxDecisions):]\n", "", decisionTests},
	{"two people ask at once, and two queries are made", "pkg/scheduler/questions.go",
		"i = qs.asked[id]; i == nil {", "true {", decisionTests},
	{"a query by a person waits for good", "pkg/scheduler/ask.go",
		"time.Now().Add(sv.MaxWait)\n", "time.Time{}\n", decisionTests},
	{"a call is changed whose caller waits", "pkg/scheduler/edit.go",
		"	case !c.Async:", "	case false:", decisionTests},
	{"an action in vain leaves no record that says so", "pkg/scheduler/control.go",
		"	r.After = \"not done: \" + err.Error()\n", "", decisionTests},
	{"the ID of a pause names a later one", "pkg/scheduler/pauses.go",
		"p.Key, p.Since.UnixMicro()))", "p.Key, 0))", decisionTests},
}

var (
	operatorTests = []string{"-run", "TestOperators$", "-operators.seeds", "300", "-operators.seed", "1"}
	sealedTests   = []string{"-run", "TestNothingInTheClear"}
	decisionTests = []string{"-run", "TestDecisions|TestRetryAdmits|TestAsk|TestEdit|TestAudited|TestPausesAreListed"}
)
