package main

var (
	terms    = []string{"-run", "TestOneOwner|TestFence|TestFenceAlone|TestBeatOfAnother|TestStoppedWriter|TestClosedWithoutRecovery|TestClocksOfMachines|TestWatch|TestRegress|TestRecoveryIsTriedAgain|TestEpochOfALostTerm"}
	inDoubt  = []string{"-run", "TestCut"}
	fleetSim = []string{"-run", "TestSimulation", "-sim.seeds", "2000"}
	arriving = []string{"-run", "TestSubmitTx|TestSubmitSQL"}
	orderly  = []string{"-run", "TestArrivals"}
	passing  = []string{"-run", "TestStandby"}
	takeOver = []string{"-run", "TestTakeOver|TestStopInHold|TestHandOver|TestCutOffOwner|TestAway"}
	burying  = []string{"-run", "TestBury"}
)

// fleetBugs let two replicas send, lose a transaction whose answer was lost or make it twice, or give
// permits back while attempts of the last owner go on.
var fleetBugs = []bug{
	{"there is no fence", "pkg/postgres/migrations/00001_calls.sql",
		"WHERE epoch = e AND number = n;", "WHERE epoch >= e OR number >= n;", terms},
	{"a fence that holds back is passed", "pkg/postgres/migrations/00001_calls.sql",
		"	IF NOT FOUND THEN", "	IF NOT FOUND AND e < 0 THEN", terms},
	{"a claim ignores the beat", "pkg/postgres/term.go",
		"WHERE epoch = $5 AND beat = $6 AND owner = $7 AND", "WHERE epoch >= $5 AND beat >= $6 AND owner IS DISTINCT FROM 'x' || $7 AND", terms},
	{"a claim leaves the fence", "pkg/postgres/term.go",
		`"UPDATE fence SET epoch = $1, number = $2", won.epoch, won.first)`, `"UPDATE fence SET number = number WHERE epoch = $1 AND number < $2", won.epoch, won.first)`, terms},
	{"an owner is silent before its lease is over", "pkg/postgres/term.go",
		"now.Sub(w.since) > s.lease+s.lease/drift", "now.Sub(w.since) > s.lease/2", terms},
	{"the drift of clocks is left out", "pkg/postgres/term.go",
		"now.Sub(w.since) > s.lease+s.lease/drift", "now.Sub(w.since) > s.lease", terms},
	{"time in which nothing was seen counts", "pkg/postgres/term.go",
		"		w.since = time.Time{}\n", "", terms},
	{"a beat of another owner goes on", "pkg/postgres/term.go",
		"beat + 1 WHERE epoch = $1 AND owner = $2", "beat + 1 WHERE epoch >= $1 OR owner = $2", terms},
	{"sessions of the last owner go on", "pkg/postgres/term.go",
		"		endWriters(ending, db, s.epoch)\n", "		_ = ending\n", terms},
	{"a crash is forgotten by a replica that closes early", "pkg/postgres/postgres.go",
		"(d.tenure.restated.Load() || !d.tenure.term.follows)", "true", terms},
	{"an owner sends without a lease", "pkg/postgres/postgres.go",
		"return d.tenure.lasts() && d.failure.get() == nil", "return d.failure.get() == nil", takeOver},
	{"an owner sends after its end", "pkg/postgres/postgres.go",
		"return d.tenure.lasts() && d.failure.get() == nil", "return d.tenure.lasts()", terms},
	{"the last owner counts as ended", "pkg/postgres/changes.go",
		"	state.Alive, d.after = d.after, time.Time{}\n", "", terms},
	{"attempts of the last owner end at once", "pkg/scheduler/recovery.go",
		"		end = later(seen, l.alive.Add(timeout))\n", "", takeOver},
	{"the time-outs of the last owner are not stored", "pkg/scheduler/timeouts.go",
		"	if a.in == nil || maps.Equal(all, a.stored) {", "	if maps.Equal(all, a.stored) || true {", []string{"-run", "TestTimeoutsOf"}},
	{"the time-outs of the last owner are forgotten at once", "pkg/scheduler/timeouts.go",
		"		all[name] = max(all[name], timeout)\n", "		_, _ = name, timeout\n", []string{"-run", "TestTimeoutsOf"}},
	{"the ledger does not outlast the last owner", "pkg/scheduler/recovery.go",
		"	u.ledger.Outlived(until)\n", "	_ = until\n", takeOver},
	{"the ledger does not outlast the owner before the last", "pkg/scheduler/recovery.go",
		"		until = later(end, seen.Add(timeout))\n", "", takeOver},
	{"a transaction in doubt is made again", "pkg/postgres/doubt.go",
		"	case w.doubtful && at == position{w.epoch, w.number + 1}:\n", "	case false:\n", inDoubt},
	{"a transaction takes effect after it was asked about", "pkg/postgres/doubt.go",
		"		last = w.outdate\n", "		last = w.position\n", []string{"-run", "TestLateCommit"}},
	{"a transaction in doubt counts as made", "pkg/postgres/writer.go",
		"			if err == nil && done {", "			if err == nil && (done || true) {", inDoubt},
	{"transactions are not numbered", "pkg/postgres/writer.go",
		"	w.number++\n", "", inDoubt},
	{"a lost answer hides a refusal", "pkg/postgres/doubt.go",
		"		if err := w.refuseAbsent(ctx); err != nil {\n", "		if err := error(nil); err != nil {\n", inDoubt},
	{"a wait for a standby that is cut short is a commit", "pkg/postgres/writer.go",
		"			w.unconfirmed = true\n", "", []string{"-run", "TestWaitCutShort"}},
	{"a lost answer needs no confirmation", "pkg/postgres/doubt.go",
		"		w.number, w.unconfirmed = at.number, true ", "		w.number = at.number ", fleetSim},
	{"a writer goes on after commits were lost", "pkg/postgres/doubt.go",
		"	case at != position{w.epoch, w.number}:\n", "	case at.epoch == w.epoch && at.number < w.number:\n		w.number = at.number\n	case at != position{w.epoch, w.number}:\n", fleetSim},
	{"a call in doubt is told as not executed", "pkg/postgres/writer.go",
		"			if w.doubtful {\n", "			if false {\n", fleetSim},
	{"a commit is told as failed after the end of the store", "pkg/postgres/writer.go",
		"			if batch, err = w.commit(batch); err != nil {\n", "			batch, err = w.commit(batch)\n			if err = errors.Join(err, w.failure.get()); err != nil {\n", fleetSim},
	{"a lease is counted from its answer", "pkg/postgres/term.go",
		"			t.renewed(asked, boot)\n", "			_ = asked\n			t.renewed(time.Now(), boot)\n", fleetSim},
	{"a claim does not wait for silence", "pkg/postgres/term.go",
		"now.Sub(w.since) > s.lease+s.lease/drift", "now.Sub(w.since) >= 0", fleetSim},
	{"an owner does not note that commits are lost", "pkg/postgres/doubt.go",
		"	if err := noteLoss(ctx, w.conn, w.epoch); err != nil {\n", "	if err := error(nil); err != nil {\n", terms},
	{"a replica does not note that commits are lost", "pkg/postgres/member.go",
		"		if err == nil && s.row.committed.before(last) {\n", "		if false {\n", terms},
	{"an owner does not note that its term is lost", "pkg/postgres/member.go",
		"		last = m.atLeast(last) ", "		_ = m.atLeast ", terms},
	{"a loss is forgotten before the limits are stored that are full by it", "pkg/postgres/recover.go",
		"generation = generation + 1 RETURNING generation, folded, mark, lost\"", "generation = generation + 1, lost = false FROM (SELECT lost AS noted FROM fence) before RETURNING generation, folded, mark, noted\"", []string{"-run", "TestRegressOfOwnTerm"}},
	{"a loss that is noted leaves the term in force", "pkg/postgres/doubt.go",
		", number = number + $2\"", ", number = number + ($2 - $2)\"", []string{"-run", "TestLossWithinATerm"}},
	{"a fail-over without a loss is one", "pkg/postgres/term.go",
		"			t.compare()\n			t.failure.set(", "			noteLoss(context.Background(), t.conn, t.term.epoch)\n			t.failure.set(", []string{"-run", "TestFailOverWithoutLoss"}},
	{"terms of one epoch have the same numbers", "pkg/postgres/term.go",
		"first: rand.Int64N(1 << 40)", "first: 0 * rand.Int64N(1 << 40)", terms},
	{"an owner returns to a term after which another one was lost", "pkg/postgres/term.go",
		"		case err == nil && t.term.server != \"\" && server != t.term.server && !t.lasts():\n", "		case err == nil && server == \"\":\n", []string{"-run", "TestReturnToALostTerm"}},
	{"a recovery that is tried again finds its own mark", "pkg/postgres/writer.go",
		"w.generation, w.marks = generation, marks ", "w.generation, _ = generation, marks ", terms},
	{"an epoch is used again after commits were lost", "pkg/postgres/doubt.go",
		"	b.Queue(\"UPDATE lease SET epoch = $1 WHERE epoch < $1\", epoch)\n", "", terms},
	{"outcomes are dropped while the server is away", "pkg/postgres/writer.go",
		"		if c := <-w.changes; c.essential {", "		if c := <-w.changes; false {", takeOver},
	{"a full disk of the server ends the term", "pkg/postgres/failure.go",
		"strings.HasPrefix(c, \"53\"):", "c == tooManyClients:", []string{"-run", "TestFullDisk"}},
	{"time passes on another machine", "pkg/postgres/recover.go",
		"	if r.mark.Boot.ID == \"\" || r.mark.Boot.ID != r.bootedAt.ID {", "	if false {", terms},
	{"an arrival stays after it was taken in", "pkg/postgres/txn.go",
		"DELETE FROM arrivals WHERE id = $1\"", "DELETE FROM arrivals WHERE id = $1 AND n < 0\"", arriving},
	{"calls arrive in any order", "pkg/scheduler/arrivals.go",
		"	for _, a := range some {\n		s.admit(a)\n	}\n", "	for i := range some {\n		s.admit(some[len(some)-1-i])\n	}\n", orderly},
	{"an owner that beats is buried", "pkg/postgres/operator.go",
		"		silence, found = s.still, true\n", "		silence, found = s.Lease, true\n", burying},
	{"an owner that has beaten meanwhile is buried", "pkg/postgres/operator.go",
		"AND epoch = $2 AND beat = $3\"", "AND epoch = $2 AND beat >= $3\"", burying},
	{"the life that began after a crash is buried", "pkg/postgres/operator.go",
		"		if owner := s.Find(s.Owner); owner != nil {", "		if owner := s.named(name); owner != nil {", burying},
	{"the first byte does not ask", "pkg/scheduler/attempt.go",
		"	out.Allowed = a.loop.journal.allowed()\n", "", takeOver},
}

// linkBugs let strangers pass requests on, or take one that may have been taken for one that was not sent.
var linkBugs = []bug{
	{"a pin is not compared", "internal/link/link.go",
		"if len(s.PeerCertificates) == 0 || !right(pinOf(s.PeerCertificates[0])) {", "if len(s.PeerCertificates) == 0 {", []string{"-run", "TestPins"}},
	{"a request that may have been taken counts as not sent", "internal/link/link.go",
		"	return resp, wrote.Load(), err\n", "	return resp, wrote.Load() && err == nil, err\n", []string{"-run", "TestSent"}},
}

// passingBugs execute a request twice that was passed on, or let it wait for too long.
var passingBugs = []bug{
	{"a request that may have been taken is passed on again", "internal/server/standby.go",
		"			case sent && !s.repeatable(r, peer):\n", "			case sent && r == nil:\n", passing},
	{"a request with a key is not passed on again", "internal/server/standby.go",
		"	return keyed && (s.Replay &&", "	return keyed && false && (s.Replay &&", passing},
	{"a caller's key counts where calls are not durable", "internal/server/standby.go",
		"	return keyed && (s.Replay &&", "	return keyed && (true || s.Replay &&", passing},
	{"a caller's key counts where files differ", "internal/server/standby.go",
		"(s.Replay && !peer.Differs ||", "(s.Replay ||", passing},
	{"the wait begins anew at the next replica", "internal/server/standby.go",
		"max(0, s.MaxWait-time.Since(since)).String()", "s.MaxWait.String()", passing},
	{"a request in doubt is told as not executed", "internal/server/stay.go",
		"cmp.Or(stayOf(r).unknown(), err)", "cmp.Or(err, stayOf(r).unknown())", []string{"-run", "TestRefusedInDoubt"}},
	{"a stream that was passed on outlives the process", "internal/server/standby.go",
		"	if endless {", "	if false {", []string{"-run", "TestStreamAtAStop", "-timeout", "20s"}},
}

// passedBugs take a request that another replica has passed on for one of this host.
var passedBugs = []bug{
	{"a stranger at another replica may do everything", "internal/access/guard.go",
		"		if caller == nil {\n", "		if caller == nil && rules == nil {\n			return Caller{Role: Admin}, nil\n		}\n		if caller == nil {\n", []string{"-run", "TestPassedOn"}},
}
