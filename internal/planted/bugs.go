package main

// A bug is a text of a file, the text that is planted instead, and arguments that pick the
// tests that must fail.
type bug struct {
	name, file string
	old, new   string
	args       []string
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
}{
	{"./pkg/planner", plannerBugs},
	{"./pkg/quota", quotaBugs},
	{"./pkg/store", clockBugs},
	{"./pkg/store", storeBugs},
	{"./pkg/store", storedCallBugs},
	{"./pkg/lease", leaseBugs},
	{"./pkg/scheduler/internal/paging", pagingBugs},
	{"./pkg/retry", retryBugs},
	{"./pkg/scheduler", schedulerBugs},
	{"./internal/server", serverBugs},
	{"./cmd/throttler", sidecarBugs},
	{"./pkg/store", copyBugs},
	{"./pkg/store", sealBugs},
	{"./pkg/upstream", upstreamBugs},
	{"./pkg/store", schemaBugs},
	{"./pkg/store", listBugs},
	{"./cmd/throttler", configBugs},
}

var storeBugs = []bug{
	{"a restart forgets that a breaker is open", "pkg/scheduler/circuit.go",
		"		ci.Restore(now, health, ci.up.loop.random())\n", "", []string{"-run", "TestBreakerOverRestart"}},
	{"a restart forgets that a breaker has closed", "pkg/scheduler/circuit.go",
		"	ci.keep(now, time.Time{})\n", "", []string{"-run", "TestBreakerOverRestart"}},
	{"drop a sync", "pkg/store/open.go",
		`"_pragma=synchronous(FULL)"`, `"_pragma=synchronous(NORMAL)"`, powerCut},
	{"acknowledge before the commit", "pkg/store/writer.go",
		"	case w.changes <- c:\n", "	case w.changes <- c:\n		if !c.essential {\n			return nil\n		}\n", powerCut},
	{"go on after a failed sync", "pkg/store/writer.go",
		"	if !isFull(err) {\n		return err\n	}\n", "	if !isFull(err) {\n		return nil\n	}\n", failedSync},
	{"go on when the store has failed", "pkg/scheduler/journal.go",
		"	if errors.Is(err, ErrBroken) {\n", "	if false && errors.Is(err, ErrBroken) {\n", failedSync},
	{"an outcome has no room on a full disk", "pkg/store/changes.go",
		"&change{essential: true, apply: func(c *conn) (refused, err error) {\n		known, err", "&change{apply: func(c *conn) (refused, err error) {\n		known, err", diskFull},
	{"accept on a full disk", "pkg/store/writer.go",
		"			c.refused = scheduler.ErrFull\n		}\n	}\n	if len(rest)", "			c.refused = nil\n		}\n	}\n	if len(rest)", diskFull},
	{"forget the intent", "pkg/scheduler/journal.go",
		"	err := j.storeOf(intent).Intend(context.Background(), intent, take)\n", "	err := error(nil)\n", simulation},
	{"store the intent after the first byte", "pkg/scheduler/attempt.go",
		"	if err := a.intend(); err != nil {", "	go a.intend()\n	if err := error(nil); err != nil {", simulation},
	{"give back an unknown permit", "pkg/scheduler/conclude.go",
		"r.AnsweredAt, Fate: quota.Unanswered}\n", "r.AnsweredAt, Fate: quota.Uncounted}\n", simulation},
	{"forget the ledger at the restart", "pkg/scheduler/recovery.go",
		"range past.Holds {", "range past.Holds[:0] {", simulation},
	{"forget late", "pkg/quota/limit.go",
		"		latest = t.end.add(int64(lim.Late))\n", "		latest = t.end\n", simulation},
	{"forget the use by callers who wait", "pkg/lease/lease.go",
		"		if !lease.stored {", "		if !lease.stored && !lease.Every {", simulation},
	{"forget the leases", "pkg/lease/lease.go",
		"		if !lease.stored {", "		if !lease.stored && lease.Every {", simulation},
	{"use a lease before it is stored", "pkg/lease/lease.go",
		"		if !lease.stored {", "		stored := lease.stored\n		lease.stored = true\n		if !stored {", []string{"-run", "TestLeasesComeFirst"}},
	{"take a lease for each call", "pkg/lease/lease.go",
		"			lease.left -= n.Cost\n", "			lease.left = 0\n", []string{"-run", "TestLeasesComeFirst"}},
	{"a damaged log is cut short", "pkg/store/wal.go",
		"behind >= 2 {", "false {", []string{"-run", "TestDamagedLog"}},
	{"a held lock ends the store", "pkg/store/writer.go",
		"sqlite3.SQLITE_BUSY || time.Now().After(until) {\n", "sqlite3.SQLITE_BUSY || until.IsZero() || true {\n", []string{"-run", "TestHeldLock"}},
	{"a file that was deleted goes on", "pkg/store/writer.go",
		"	if err := w.identity.check(); err != nil {\n		return err\n	}\n", "", []string{"-run", "TestFileIsGone"}},
	{"a file that was deleted is not noticed while idle", "pkg/store/writer.go",
		"			err = w.identity.check()\n", "", []string{"-run", "TestFileIsGone", "-timeout", "30s"}},
	{"an idle scheduler does not hear of a failure", "pkg/scheduler/journal.go",
		"		j.check(j.durable.Settle(ctx, nil))\n", "", []string{"-run", "TestIdleSidecar"}},
	{"a file may have two names", "pkg/store/identity.go",
		"	case links(info) > 1:", "	case false:", []string{"-run", "TestSecondWay|TestFilesBeside"}},
	{"only the name of a file is locked", "pkg/store/identity.go",
		"	if err := lockFile(f); err != nil {", "	if err := error(nil); err != nil {", []string{"-run", "TestSecondWay"}},
	{"a row that was read before the call ended brings it back", "pkg/scheduler/loop.go",
		"		_, left := r.left[c.ID]\n", "		left := false\n", []string{"-run", "TestRowsGrowOld"}},
	{"a decision overtakes the outcome", "pkg/scheduler/control.go",
		"		case c.State == Unknown && c.Async && c.flight.storing:\n", "		case false:\n", []string{"-run", "TestDecisionBefore"}},
	{"a decision loads a call that waits", "pkg/scheduler/query.go",
		"e.Call.State == in && (", "(", []string{"-run", "TestAskedAtTheStart"}},
	{"a call is taken into memory before its cancel", "pkg/scheduler/query.go",
		"	return s.loop.ask(inLoop, func(now time.Time) {\n		s.loop.load(now, r, stored...)\n", "	s.loop.ask(inLoop, func(now time.Time) { s.loop.load(now, r, stored...) })\n	return s.loop.ask(inLoop, func(now time.Time) {\n", []string{"-run", "TestAskedAtTheStart"}},
	{"stop reading the backlog", "pkg/scheduler/internal/paging/paging.go",
		"		w.cursor, w.complete = last, end\n", "		w.cursor, w.complete = last, true\n", []string{"-run", "TestBacklogOnDisk"}},
	{"read a held class no more", "pkg/scheduler/internal/paging/paging.go",
		"		if w.classes[class] <= MaxClass/2 && w.resident < MaxCalls {", "		if false {", []string{"-run", "TestBacklogOnDisk"}},
	{"send an unknown call again after a crash", "pkg/scheduler/recovery.go",
		"	return n.at, n.again && ", "	return n.at, ", simulation},
	{"lose what is repeated after a crash", "pkg/store/recover.go",
		"c.State, c.Due = scheduler.Waiting, at", "c.Due = at", simulation},
	{"spend after a restatement in the old epoch", "pkg/store/quota.go",
		"	c.epoch++\n", "", simulation},
	{"an intent takes a call that is not waiting", "pkg/store/calls.go",
		"WHERE seq = ? AND id = ? AND state = 'waiting'", "WHERE seq = ? AND id = ?", conforms},
	{"an outcome overwrites another", "pkg/store/calls.go",
		" AND (state = 'waiting' OR state = 'unknown')\"\n", "\"\n", conforms},
	{"what has ended is being sent still", "pkg/store/calls.go",
		"c.changed(\"DELETE FROM flights WHERE seq = ?\", r.seq)", "int64(1), error(nil)", conforms},
	{"forget a big body", "pkg/store/calls.go",
		"err := c.exec(\"INSERT INTO bodies VALUES (?, ?, ?)\", r.seq, request.body, request.encrypted)", "err := error(nil)", conforms},
	{"a key is not claimed", "pkg/store/changes.go",
		"		if e.Key != \"\" {", "		if e.Key == \"never\" {", conforms},
	{"an unknown call is swept", "pkg/store/sweep.go",
		"AND state IN ('done',", "AND state IN ('unknown', 'done',", []string{"-run", "TestSweep"}},
	{"forget the permits of an upstream that is left out", "pkg/scheduler/reload.go",
		"		all = append(all, d.holds...)\n", "		_ = d\n", returns},
	{"an upstream that is there again begins with an empty ledger", "pkg/scheduler/reload.go",
		"		l.attach(now, u)\n", "", returns},
	{"begin without the backlog", "pkg/scheduler/upstream.go",
		"	u.window = paging.NewWindow(b.Waiting)\n", "	u.window = paging.NewWindow(0)\n", []string{"-run", "TestBacklogOnDisk"}},
	{"forget a pause", "pkg/scheduler/journal.go",
		"		err = j.durable.Intend(ctx, nil, begun)\n", "", returns},
	{"forget that a pause was ended", "pkg/scheduler/journal.go",
		"		err = j.durable.Settle(ctx, over)\n", "", returns},
	{"forget the webhook that is due", "pkg/store/calls.go",
		"notice != \"\" && n > 0", "false && notice != \"\"", conforms},
	{"send what is damaged", "pkg/store/codec.go",
		"	if p.checksum(c, id, k) != p.sum {", "	if false {", []string{"-run", "TestDamage"}},
	{"a read that its context cut short ends the store", "pkg/store/reader.go",
		"	case ctx.Err() != nil:\n", "	case false:\n", []string{"-run", "TestCancelledRead"}},
	{"rename a field on disk", "pkg/store/format.go",
		"`json:\"permits\"`", "`json:\"count\"`", []string{"-run", "TestFormat"}},
}
