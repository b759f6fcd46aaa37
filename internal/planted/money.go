package main

// moneyBugs let a payment be made twice, or be called failed while it was executed.
var moneyBugs = []bug{
	{"a query renews the attempts", "pkg/scheduler/nextattempt.go",
		"	case sv.Retry.Spent(c.flight.counted):\n", "	case false:\n", moneyTests},
	{"a query lets a call go after its time", "pkg/scheduler/nextattempt.go",
		"	case !now.Before(until):\n", "	case false:\n", moneyTests},
	{"a query ends the doubt", "pkg/scheduler/conclude.go",
		"			if renew {\n				c.flight.counted, c.flight.backoff, c.flight.maybe = 0, 0, false\n			}\n",
		"			c.flight.maybe = false\n", moneyTests},
	{"a repeat after a query asks for no budget", "pkg/scheduler/conclude.go",
		"c.flight.repeat = 0, \"\", !renew\n", "c.flight.repeat = 0, \"\", false\n", moneyTests},
	{"no query finds a call after one that found nothing", "pkg/scheduler/resolver.go",
		"		return rule.Is != upstream.NotExecuted //", "		return true //", moneyTests},
	{"a person's decision keeps the attempts", "pkg/scheduler/conclude.go",
		"		for i := range next.Attempts {\n			next.Attempts[i].Resolved = true\n		}\n", "", moneyTests},
	{"a process forgets the attempts that were refused", "pkg/scheduler/recovery.go",
		"(f.repeat || a.Outcome == upstream.Failed) && !a.Resolved {", "f.repeat {", moneyTests},
}

var moneyTests = []string{"-run", "TestRepeatAfterQuery"}
