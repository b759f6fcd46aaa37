package main

// Bugs of running totals, flows and the history.
var (
	totalBugs = []bug{
		{"an attempt is in flight for ever in the total", "pkg/quota/limit.go",
			"	lim.total.inFlight -= n.Cost\n", "", []string{"-run", "TestTotal"}},
		{"a total leaves permits out that the process before took", "pkg/quota/save.go",
			"	lim.total.add(lim.clock(at), lim.Window, back, int32(h.Permits))\n", "", []string{"-run", "TestTotal"}},
		{"a total brings permits back before their keys do", "pkg/quota/total.go",
			"(back + step - 1) / step * step", "back / step * step", []string{"-run", "TestTotal"}},
		{"a reload to fewer permits makes a kept limit seem exceeded", "pkg/quota/limit.go",
			"	if c.Calls != old.Calls && lim.audit.Most <= old.Calls {", "	if false {", []string{"-run", "TestAuditOfAnotherN"}},
		{"a reload forgets that a limit was exceeded", "pkg/quota/limit.go",
			"c.Calls != old.Calls && lim.audit.Most <= old.Calls {", "c.Calls != old.Calls {", []string{"-run", "TestAuditOfAnotherN"}},
		{"a total does not follow a step of the clock", "pkg/quota/limit.go",
			"	lim.total.cooling.shift(over, step, floor)\n", "", []string{"-run", "TestTotal"}},
	}
	wantedBugs = []bug{
		{"permits of all keys are wanted for ever", "pkg/planner/queue.go",
			"wanted[q.id.limit] += calls * ", "wanted[q.id.limit] += max(0, calls) * ", nil},
	}
	flowBugs = []bug{
		{"a flow tells the youngest of its first calls", "pkg/scheduler/sampler.go",
			"f.First.AcceptedAt.Before(st.OldestAt)", "f.First.AcceptedAt.After(st.OldestAt)", []string{"-run", "TestFlows"}},
		{"a walk keeps all flows", "pkg/scheduler/sampler.go",
			"	if len(w.flows) == 10*maxKeys {\n", "	if false {\n", []string{"-run", "TestManyFlows"}},
		{"permits of one limit only are told as free", "pkg/scheduler/explain.go",
			"			d.Permits[i].Free = &free[i]\n", "			d.Permits[0].Free = &free[0]\n", []string{"-run", "TestFreePermits"}},
	}
	pastBugs = []bug{
		{"a longer step has the last sample", "internal/server/rings.go",
			"kept[j] = max(kept[j], v)", "kept[j] = v", []string{"-run", "TestSeries"}},
		{"a step shows the values of one that is long over", "internal/server/rings.go",
			"!at.Before(from) && s.rings[i].numbers[place] == number {", "!at.Before(from) && s.rings[i].numbers[place] <= number {", []string{"-run", "TestSeries"}},
		{"flows that have had their minutes are kept", "internal/server/rings.go",
			"*c == [latelyMinutes]uint32{} {", "false {", []string{"-run", "TestLately"}},
		{"the past of a removed limit is kept", "internal/server/history.go",
			"!known[name][limit]", "known[name] == nil && limit == \"\"", []string{"-run", "TestHistory"}},
		{"a required parameter may be left out", "internal/server/params.go",
			"p.Required && q.Get", "false && q.Get", []string{"-run", "TestHistory"}},
	}
)
