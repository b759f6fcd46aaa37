package main

var retryAfterBugs = []bug{
	{"a wait beyond all numbers is none", "pkg/retryafter/value.go",
		"		return forever\n	}\n	billionths", "		return 0\n	}\n	billionths", []string{"-run", "TestWait"}},
	{"a Unix time is a delay", "pkg/retryafter/value.go",
		"		if at.Sub(now).Abs() <= Longest {", "		if at.Sub(now).Abs() < 0 {", []string{"-run", "TestWait"}},
	{"the fraction of a wait is dropped", "pkg/retryafter/value.go",
		"(unit*time.Duration(billionths) + time.Second - 1) / time.Second", "unit * time.Duration(billionths/1e9)", []string{"-run", "TestWait"}},
	{"a wait is rounded off", "pkg/retryafter/value.go",
		"(d + time.Millisecond - 1).Truncate", "d.Truncate", []string{"-run", "TestWait"}},
	{"of several waits the last counts", "pkg/retryafter/retryafter.go",
		"				wait = max(wait, w)\n", "				wait = w\n", []string{"-run", "TestWait"}},
	{"a reset counts although the quota is not used up", "pkg/retryafter/retryafter.go",
		"		case n == 0:\n			empty = max(empty, wait)", "		case n >= 0:\n			empty = max(empty, wait)", []string{"-run", "TestWait"}},
	{"a quota that is not used up waits for the longest of many resets", "pkg/retryafter/retryafter.go",
		"len(each) < 2 || len(each) != len(lefts)", "len(each) > 0", []string{"-run", "TestWait"}},
	{"a date to the minute is no date", "pkg/retryafter/value.go",
		"	\"2006-01-02T15:04Z07:00\", // Atlassian's, to the minute\n", "", []string{"-run", "TestWait"}},
	{"a date is read by our clock", "pkg/retryafter/retryafter.go",
		"		now = date\n", "		_ = date\n", []string{"-run", "TestWait"}},
}

var waitBugs = []bug{
	{"a wait goes beyond max_pause", "pkg/upstream/wait.go",
		"min(res.Asked, maxPause)", "res.Asked", []string{"-run", "TestWaitOfAnswers"}},
	{"the fields of an answer stand above a rule's expression", "pkg/upstream/wait.go",
		"	if res.Asked == 0 {\n", "	if true {\n", []string{"-run", "TestWaitOfAnswers"}},
}

var pauseBugs = []bug{
	{"a wait ends a call before its deadline", "pkg/scheduler/conclude.go",
		"	if c.Async && !c.flight.maybe {\n", "	if c == nil {\n", []string{"-run", "TestNoWaitEndsACall"}},
	{"a call that may have been executed waits for a slot behind its deadline", "pkg/scheduler/conclude.go",
		"	if c.Async && !c.flight.maybe {\n", "	if c.Async {\n", []string{"-run", "TestDoubtIsToldAtOnce"}},
	{"the Location of another host is followed", "pkg/upstream/question.go",
		"	if !strings.EqualFold(hostPort(to), hostPort(base)) {\n", "	if to.Host = base.Host; strings.ToUpper(\"a\") == \"a\" {\n", []string{"-run", "TestAcceptedWithLocation"}},
	{"the Retry-After of a 202 delays no query", "pkg/upstream/wait.go",
		"	res.heed(res.Response.Header, maxPause)\n}\n", "	_ = maxPause\n}\n", []string{"-run", "TestAcceptedWithLocation"}},
	{"the Retry-After of a query's answer delays no query", "pkg/scheduler/ask.go",
		"	f.questions.delay(i.question, askedUntil(i.service, asked, asked.Response))\n", "", []string{"-run", "TestAcceptedWithLocation"}},
	{"a restart forgets the wait before a query", "pkg/scheduler/ask.go",
		"		until = askedUntil(sv, c, f.answerTo(ctx, c))\n", "", []string{"-run", "TestLocationOverRestart"}},
	{"an answer in memory is the only one that a query reads", "pkg/scheduler/ask.go",
		"		answer = stored.Response\n", "		_ = stored\n", []string{"-run", "TestLocationOverRestart"}},
	{"webhooks have a max_pause of their own", "pkg/scheduler/webhook.go",
		"		u.MaxPause = cmp.Or(u.MaxPause, maxPause)\n", "		u.MaxPause = cmp.Or(u.MaxPause, 0*maxPause)\n", []string{"-run", "TestWebhookTargetsWait"}},
}
