package main

var (
	terms    = []string{"-run", "TestOneOwner|TestFence|TestFenceAlone|TestBeatOfAnother|TestStoppedWriter|TestClosedWithoutRecovery|TestClocksOfMachines|TestWatch"}
	inDoubt  = []string{"-run", "TestCut"}
	takeOver = []string{"-run", "TestTakeOver|TestHandOver|TestCutOffOwner|TestAway"}
)

// fleetBugs let two replicas send, lose a transaction whose answer was lost or make it twice, or give
// permits back while attempts of the last owner go on.
var fleetBugs = []bug{
	{"there is no fence", "pkg/postgres/writer.go",
		"WHERE epoch = %d AND number = %d\", w.number+1, mark, w.epoch, w.number)", "WHERE epoch >= %d OR number = %d\", w.number+1, mark, 0, w.number)", terms},
	{"a fence that holds back is passed", "pkg/postgres/writer.go",
		"CommandTag.RowsAffected() == 0 {", "CommandTag.RowsAffected() < 0 {", terms},
	{"a claim ignores the beat", "pkg/postgres/term.go",
		"WHERE epoch = $5 AND beat = $6 AND owner = $7\"", "WHERE epoch >= $5 AND beat >= $6 AND owner IS DISTINCT FROM 'x' || $7\"", terms},
	{"a claim leaves the fence", "pkg/postgres/term.go",
		`"UPDATE fence SET epoch = $1, number = 0", won.epoch)`, `"UPDATE fence SET number = number WHERE epoch = $1", won.epoch)`, terms},
	{"an owner is silent before its lease is over", "pkg/postgres/term.go",
		"now.Sub(w.since) > s.lease+s.lease/drift", "now.Sub(w.since) > s.lease/2", terms},
	{"the drift of clocks is left out", "pkg/postgres/term.go",
		"now.Sub(w.since) > s.lease+s.lease/drift", "now.Sub(w.since) > s.lease", terms},
	{"time in which nothing was seen counts", "pkg/postgres/term.go",
		"		w.since = time.Time{}\n", "", terms},
	{"a beat of another owner goes on", "pkg/postgres/term.go",
		"beat + 1 WHERE epoch = $1 AND owner = $2", "beat + 1 WHERE epoch >= $1 OR owner = $2", terms},
	{"sessions of the last owner go on", "pkg/postgres/term.go",
		"		endWriters(ctx, db, s.epoch)\n", "", terms},
	{"a crash is forgotten by a replica that closes early", "pkg/postgres/postgres.go",
		"(d.writer.recovered.Load() || !d.tenure.term.follows)", "true", terms},
	{"an owner sends without a lease", "pkg/postgres/postgres.go",
		"return d.tenure.lasts() && d.failure.get() == nil", "return d.failure.get() == nil", takeOver},
	{"an owner sends after its end", "pkg/postgres/postgres.go",
		"return d.tenure.lasts() && d.failure.get() == nil", "return d.tenure.lasts()", terms},
	{"the last owner counts as ended", "pkg/postgres/changes.go",
		"	state.Alive, d.after = d.after, time.Time{}\n", "", terms},
	{"attempts of the last owner end at once", "pkg/scheduler/recovery.go",
		"	end := later(seen, l.alive.Add(u.up.Timeout))\n", "	end := seen\n", takeOver},
	{"the ledger does not outlast the last owner", "pkg/scheduler/recovery.go",
		"	u.ledger.Outlived(end)\n", "", takeOver},
	{"a transaction in doubt is made again", "pkg/postgres/doubt.go",
		"	case number == w.number+1:\n", "	case number == w.number+1 && false:\n", inDoubt},
	{"a transaction in doubt counts as made", "pkg/postgres/writer.go",
		"			if err == nil && done {", "			if err == nil && (done || true) {", inDoubt},
	{"transactions are not numbered", "pkg/postgres/writer.go",
		"	w.number++\n", "", inDoubt},
	{"outcomes are dropped while the server is away", "pkg/postgres/writer.go",
		"		if c := <-w.changes; c.essential {", "		if c := <-w.changes; false {", takeOver},
	{"time passes on another machine", "pkg/postgres/recover.go",
		"	if r.mark.Boot.ID == \"\" || r.mark.Boot.ID != r.bootedAt.ID {", "	if false {", terms},
	{"the first byte does not ask", "pkg/scheduler/attempt.go",
		"	out.Allowed = a.loop.journal.allowed()\n", "", takeOver},
}
