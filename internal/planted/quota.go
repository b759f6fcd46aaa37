package main

// quotaBugs are seen by the tests of the ledger alone.
var quotaBugs = []bug{
	{"a step of the clock forgets late", "pkg/quota/limit.go",
		"lim.Window.back(now.add(int64(lim.Late)))\n", "lim.Window.back(now)\n", nil},
	{"a step of the clock leaves permits where they are", "pkg/quota/limit.go",
		"a.cooling.shift(over, step, floor)", "a.cooling.shift(over, 0, floor)", nil},
	{"the clock before a step is never right", "pkg/quota/limit.go",
		"		if arrived.mono < d.until {\n", "		if false {\n", nil},
	{"only the last step is in doubt", "pkg/quota/limit.go",
		"	lim.doubts = append(lim.doubts, ", "	lim.doubts = append(lim.doubts[:0], ", nil},
	{"a step brings permits out that were back", "pkg/quota/cooling.go",
		"	c.at(now)\n	for i", "	for i", nil},
	{"a hold of all permits ends by the clock before a step", "pkg/quota/limit.go",
		"		lim.heldUntil = max(lim.heldUntil, now.mono+floor-now.wall)\n", "", nil},
	{"readings of two clocks are a step", "pkg/quota/window.go",
		"int64(w.Skew+jitter)", "int64(w.Skew)", nil},
	{"permits that are back are restored", "pkg/quota/save.go",
		" || on <= lim.clock(at) {", " {", nil},
	{"small steps do not add up", "pkg/quota/ledger.go",
		"		l.offset = offset\n", "		for _, lim := range l.limits {\n			if lim.Window.tolerates(offset - l.offset) {\n				lim.offset += offset - l.offset\n			}\n		}\n		l.offset = offset\n", nil},
	{"a skipped day never ends", "pkg/quota/calendar.go",
		"		at = change\n", "		break\n", nil},
	{"spacing is forgotten while the window holds a call", "pkg/quota/limit.go",
		"	if a.extra != nil && a.extra.bucket != nil {\n		until", "	if until == now.mono && a.extra != nil && a.extra.bucket != nil {\n		until", nil},
	{"a guard counts from the begin of the request", "pkg/quota/limit.go",
		"		return t.written.add(g), t.end\n", "		return t.sent.add(g), t.end\n", nil},
	{"two needs of one limit are met", "pkg/quota/ledger.go",
		"			if other.Limit == n.Limit {\n", "			if false {\n", nil},
	{"a place in a full table goes to the next that comes", "pkg/quota/limit.go",
		"	case now.mono < lim.fullUntil:\n", "	case now.mono < lim.fullUntil && len(lim.accounts) == lim.MaxKeys:\n", nil},
	{"a busy key keeps its place in a full table", "pkg/quota/limit.go",
		"		lim.leaving = first\n", "", nil},
	{"permits are restored without the step", "pkg/quota/save.go",
		"lim.Window.tolerates(int64(step))", "true", nil},
}

// clockBugs are of the time that a file has.
var clockBugs = []bug{
	{"the wall clock tells how much time has passed", "pkg/store/clock.go",
		"		passed = b.since - m.boot.since\n", "		passed = max(0, wall)\n", []string{"-run", "TestRestartAfterAStep"}},
	{"time goes back", "pkg/store/clock.go",
		"		passed = max(0, wall)\n", "		passed = wall\n", []string{"-run", "TestRestartAfterAStep"}},
	{"a recovery leaves permits on the clock before", "pkg/store/recover.go",
		"	r.mark.recovered(r.state.Holds, r.now, passed)\n", "	_ = passed\n", []string{"-run", "TestRestartAfterAStep|TestCrashWhileRecovering"}},
	{"the end of a pause follows the clock of the process", "pkg/store/clock.go",
		"h := &holds[i]; !h.Paused && ", "h := &holds[i]; ", []string{"-run", "TestRestartAfterAStep"}},
}
