package main

// A bug is a text of a file, what is planted instead, and the tests that must see it.
type bug struct {
	name, file string
	old, new   string
	test       []string
}

var (
	simulation = []string{"-run", "TestSimulation", "-sim.seeds", "1500"}
	powerCut   = []string{"-run", "TestPowerCut$"}
	failedSync = []string{"-run", "TestFailedSync|TestSchedulerEnds"}
	diskFull   = []string{"-run", "TestDiskFull"}
	conforms   = []string{"-run", "TestConformance"}
	returns    = []string{"-run", "TestUpstreamReturns|TestPauseOverRestart"}
)

// suites are the packages whose tests must see bugs.
var suites = []struct {
	pkg  string
	bugs []bug
}{{"./pkg/planner", plannerBugs}, {"./pkg/store", storeBugs}}

var storeBugs = []bug{
	{"drop a sync", "pkg/store/store.go",
		`"_pragma=synchronous(FULL)"`, `"_pragma=synchronous(NORMAL)"`, powerCut},
	{"acknowledge before the commit", "pkg/store/writer.go",
		"	case d.ops <- o:\n", "	case d.ops <- o:\n		if !o.essential {\n			return nil\n		}\n", powerCut},
	{"go on after a failed sync", "pkg/store/writer.go",
		"	if !isFull(err) {\n		return err\n	}\n", "	if !isFull(err) {\n		return nil\n	}\n", failedSync},
	{"go on when the store has failed", "pkg/scheduler/recover.go",
		"	if errors.Is(err, ErrBroken) {\n", "	if false && errors.Is(err, ErrBroken) {\n", failedSync},
	{"an outcome has no room on a full disk", "pkg/store/calls.go",
		"&op{essential: true, run: func(w *writer) (answer, err error) {\n		n, err", "&op{run: func(w *writer) (answer, err error) {\n		n, err", diskFull},
	{"accept on a full disk", "pkg/store/writer.go",
		"			o.answer = scheduler.ErrFull\n		}\n	}\n	if len(rest)", "			o.answer = nil\n		}\n	}\n	if len(rest)", diskFull},
	{"forget the intent", "pkg/scheduler/recover.go",
		"		err = s.durable.Intend(intent, take)\n", "		err = nil\n", simulation},
	{"store the intent after the first byte", "pkg/scheduler/follow.go",
		"	if err := s.intend(c, intent, take); err != nil {", "	go s.intend(c, intent, take)\n	if err := error(nil); err != nil {", simulation},
	{"give back an unknown permit", "pkg/scheduler/planner.go",
		"r.AnsweredAt, Fate: quota.Unanswered}\n", "r.AnsweredAt, Fate: quota.Uncounted}\n", simulation},
	{"forget the ledger at the restart", "pkg/scheduler/recover.go",
		"range past.Holds {", "range past.Holds[:0] {", simulation},
	{"forget late at the restart", "pkg/quota/save.go",
		"		end = end.add(int64(lim.Late))\n", "", simulation},
	{"forget the use by callers who wait", "pkg/scheduler/spend.go",
		"		f.blocks = append(f.blocks, b)\n		if !b.stored {", "		f.blocks = append(f.blocks, b)\n		if !b.stored && !b.Every {", simulation},
	{"forget the blocks", "pkg/scheduler/spend.go",
		"		f.blocks = append(f.blocks, b)\n		if !b.stored {", "		f.blocks = append(f.blocks, b)\n		if !b.stored && b.Every {", simulation},
	{"use a block before it is stored", "pkg/scheduler/spend.go",
		"		if !b.stored { // who else", "		stored := b.stored\n		b.stored = true\n		if !stored { // who else", []string{"-run", "TestBlocksComeFirst"}},
	{"take a block for each call", "pkg/scheduler/spend.go",
		"			b.left -= n.Cost\n", "			b.left = 0\n", []string{"-run", "TestBlocksComeFirst"}},
	{"stop reading the backlog", "pkg/scheduler/backlog.go",
		"		b.cursor, b.done = last, end\n", "		b.cursor, b.done = last, true\n", []string{"-run", "TestBacklogOnDisk"}},
	{"read a held lane no more", "pkg/scheduler/backlog.go",
		"		if b.lanes[lane] <= nearLane/2 && b.near < nearCalls {", "		if false {", []string{"-run", "TestBacklogOnDisk"}},
	{"send an unknown call again after a crash", "pkg/scheduler/recover.go",
		"return d.At, d.Again && ", "return d.At, ", simulation},
	{"lose what is repeated after a crash", "pkg/store/recover.go",
		"c.State, c.Due = scheduler.Waiting, at", "c.Due = at", simulation},
	{"spend after a restatement in the old epoch", "pkg/store/recover.go",
		"		w.epoch++\n", "", simulation},
	{"an intent takes a call that is not waiting", "pkg/store/calls.go",
		"WHERE seq = ? AND id = ? AND state = 'waiting'", "WHERE seq = ? AND id = ?", conforms},
	{"an outcome overwrites another", "pkg/store/calls.go",
		" AND (state = 'waiting' OR state = 'unknown')\"\n", "\"\n", conforms},
	{"what has ended is being sent still", "pkg/store/calls.go",
		"w.changed(\"DELETE FROM flights WHERE seq = ?\", r.seq)", "int64(1), error(nil)", conforms},
	{"forget a big body", "pkg/store/calls.go",
		"err := w.exec(\"INSERT INTO bodies VALUES (?, ?, ?)\", r.seq, request.body, request.sealed)", "err := error(nil)", conforms},
	{"a key is not claimed", "pkg/store/calls.go",
		"		if e.Key != \"\" {", "		if e.Key == \"never\" {", conforms},
	{"an unknown call is swept", "pkg/store/sweep.go",
		"AND state IN ('done',", "AND state IN ('unknown', 'done',", []string{"-run", "TestSweep"}},
	{"forget the permits of an upstream that is left out", "pkg/scheduler/absent.go",
		"		all = append(all, a.holds...)\n", "		_ = a\n", returns},
	{"an upstream that is there again begins with an empty ledger", "pkg/scheduler/reload.go",
		"			l.welcome(now, l.planners[name])\n", "", returns},
	{"begin without the backlog", "pkg/scheduler/absent.go",
		"		p.backlog = newBacklog(b.Waiting)\n", "		p.backlog = newBacklog(0)\n", []string{"-run", "TestBacklogOnDisk"}},
	{"forget a pause", "pkg/scheduler/control.go",
		"		err = s.durable.Intend(nil, begun)\n", "", returns},
	{"forget that a pause was ended", "pkg/scheduler/control.go",
		"		err = s.durable.Settle(over)\n", "", returns},
	{"forget whom to tell", "pkg/store/calls.go",
		"notice != \"\" && n > 0", "false && notice != \"\"", conforms},
	{"send what is damaged", "pkg/store/seal.go",
		"if c.sumOf(id, kind) != c.sum {", "if false {", []string{"-run", "TestDamage"}},
}
