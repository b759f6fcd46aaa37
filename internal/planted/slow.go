package main

var pacerTests = []string{"-run", "TestPacer|TestSpread"}

// pacerBugs are seen by the tests of package retry alone.
var pacerBugs = []bug{
	{"calls start by the share of a limit that is far too high", "pkg/retry/pace.go",
		"	start := k.Full * paceStart / (k.Full + paceStart)\n", "	start := max(k.Full/20, k.Full*paceStart/(k.Full+paceStart))\n", pacerTests},
	{"a call that passes ends the slow-down", "pkg/retry/pace.go",
		"	if over = k.over(now); over {\n", "	if over = true; over {\n", pacerTests},
	{"the pause of a platform that goes on limiting does not grow", "pkg/retry/pace.go",
		"			k.level++\n", "", pacerTests},
	{"calls in flight together lengthen the pause, each", "pkg/retry/pace.go",
		"	ours := !sentAt.Before(k.cut)\n", "	ours := true\n", pacerTests},
	{"a refusal leaves the rate as it is", "pkg/retry/pace.go",
		"	k.Rate = k.ceiling\n", "", pacerTests},
	{"the rate never rises again", "pkg/retry/pace.go",
		"k.Rate+min(up, most)", "k.Rate+0*min(up, most)", pacerTests},
	{"the rate rises as fast as answers come in", "pkg/retry/pace.go",
		"k.Rate+min(up, most)", "k.Rate+max(up, 0*most)", pacerTests},
	{"a pause that was too short cuts the rate too", "pkg/retry/pace.go",
		"	if k.passed > 0 {", "	if true {", pacerTests},
	{"a key that has sent no call for a minute is slowed down", "pkg/retry/pace.go",
		"	if k == nil || k.over(now) {\n		return next", "	if k == nil {\n		return next", pacerTests},
	{"nobody hears of keys that are forgotten", "pkg/retry/pace.go",
		"		if p.Forgotten != nil {", "		if false {", pacerTests},
	{"a long pause is the end of the slow-down", "pkg/retry/pace.go",
		"	return now.Sub(k.lasts) >= calm &&", "	return now.After(k.until) && now.Sub(k.cut) >= calm &&", pacerTests},
	{"slow-downs are never forgotten", "pkg/retry/pace.go",
		"len(p.byKey) >= maxPaces {", "false {", pacerTests},
	{"keys that are limited alone are the account", "pkg/retry/spread.go",
		" && s.limited >= s.passed }", " }", pacerTests},
	{"keys that are limited one after the other are the account", "pkg/retry/spread.go",
		"	if now.Sub(s.since) > spreadTime {\n", "	if s.since.IsZero() {\n", pacerTests},
}

// slowBugs are seen by the tests of package scheduler.
var slowBugs = []bug{
	{"the pace of a slow-down is not kept", "pkg/scheduler/conclude.go",
		"	u.slow.sent(now, f.needs)\n", "", []string{"-run", "TestSlowedDown"}},
	{"the ledger forgets the pace", "pkg/quota/ledger.go",
		"max(lim.next(at, a, n.Cost, lim.Calls), lim.paces.next(n.Key))", "lim.next(at, a, n.Cost, lim.Calls)", []string{"-run", "TestSlowedDown"}},
	{"estimates forget the pace", "pkg/quota/eta.go",
		"	wait = max(wait, lim.paces.wait(n.Key, from.mono, o.Ahead))\n", "", []string{"-run", "TestSlowedDown"}},
	{"a refusal of one key pauses all", "pkg/scheduler/slow.go",
		"			key = target{n.Limit, n.Key}\n", "", []string{"-run", "TestLimitedKey"}},
	{"a rule that names the upstream pauses a key", "pkg/scheduler/slow.go",
		"		if p.Upstream || i < 0 {", "		if i < 0 {", []string{"-run", "TestLimitedKey"}},
	{"a platform that limits the account goes on key by key", "pkg/scheduler/slow.go",
		"key.limit != 0 && s.spread.Limited(now, key)", "false", []string{"-run", "TestLimitedAccount"}},
	{"a reload ends the slow-down", "pkg/scheduler/slow.go",
		"i >= 0 && next.limits[i].PerKey == was.PerKey", "i < 0", []string{"-run", "TestSlowedDown"}},
	{"a resume leaves calls slowed down", "pkg/scheduler/reload.go",
		"		u.slow.end(now, target{i, key})\n", "", []string{"-run", "TestResumeEndsTheSlowDown"}},
	{"four tenants over their limits shut the upstream for as long as each of them waits", "pkg/scheduler/conclude.go",
		"	if key != at && wait > 0 {", "	if false {", []string{"-run", "TestLimitedTenants"}},
	{"long waits of keys are the end of the slow-down", "pkg/scheduler/slow.go",
		"Others: held, ", "", []string{"-run", "TestLongWaits/200"}},
	{"a call that is accepted does not pass", "pkg/scheduler/conclude.go",
		"	if r.Outcome != upstream.NotExecuted && reachOf(r) == retry.Reached {", "	if r.Outcome == upstream.Done {", []string{"-run", "TestAcceptedIsNotLimited"}},
	{"the ledger holds keys for ever", "pkg/scheduler/slow.go",
		"Forgotten: func(at target) { u.ledger.Pace(at.limit, at.key, time.Time{}, nil) }", "", []string{"-run", "TestForgottenPaces"}},
	{"the earlier deadline of a waiting call is not noted", "pkg/scheduler/upstream.go",
		"	if u.count[waiting] == 0 || at.Before(u.soonest) {\n", "	if u.count[waiting] == 0 {\n", []string{"-run", "TestMayExpire"}},
	{"a slow-down without calls has no end", "pkg/scheduler/slow.go",
		"	if s.watch = !next.IsZero(); s.watch {\n", "	if s.watch = !next.IsZero(); false {\n", []string{"-run", "TestSlowDownEndsIdle"}},
	{"each refusal has its line in the log", "pkg/scheduler/conclude.go",
		"	if change != retry.Unchanged {\n", "	if true {\n", []string{"-run", "TestSlowedDown"}},
}

// limitedBugs are seen by the tests of package config.
var limitedBugs = []bug{
	{"limited is ignored", "pkg/config/decode.go",
		`u.Limited.rules(faults, "upstreams."+name+".limited"), `, `u.Limited.rules(faults, "upstreams."+name+".limited")[:0], `, []string{"-run", "TestCases"}},
	{"limited stands before the rules of the file", "pkg/config/decode.go",
		`slices.Concat(u.Outcomes, u.Limited.rules(faults, "upstreams."+name+".limited"), `, `slices.Concat(u.Limited.rules(faults, "upstreams."+name+".limited"), u.Outcomes, `, []string{"-run", "TestCases"}},
	{"a success may be called limited", "pkg/config/outcomes.go",
		"status < 400 || status > 599", "false", []string{"-run", "TestMistakes"}},
}
