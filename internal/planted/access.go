package main

// Bugs of the callers of the admin API.
var (
	accessBugs = []bug{
		{"without access other addresses may do everything", "internal/access/guard.go",
			"	if ToLoopback(r) {\n", "	if true {\n", nil},
		{"a stream goes on when its token is gone", "internal/access/guard.go",
			"err != nil || caller != v.caller {\n", "false && (err != nil || caller != v.caller) {\n", []string{"-run", "TestSetEnds"}},
		{"wrong tokens are looked at without a bound", "internal/access/guard.go",
			"	if refusal.Wrong && !g.wrong.allow(", "	if false && !g.wrong.allow(", []string{"-run", "TestWrongTokens"}},
		{"a wrong token is a caller that shows nothing", "internal/access/guard.go",
			"	if values := r.Header[\"Authorization\"]; len(values) > 0 {\n", "	if values := r.Header[\"Authorization\"]; len(values) > 0 && rules.Anyone == \"\" {\n", nil},
		{"the addresses of wrong tokens use up the memory", "internal/access/attempts.go",
			"	if len(a.of) < mostAddresses {\n		return\n	}\n", "	if true {\n		return\n	}\n", []string{"-run", "TestWrongTokensAreBounded"}},
		{"a rebound name pauses off loopback", "internal/access/host.go",
			"	if slices.Contains(hosts, host) ||", "	if !ToLoopback(r) || slices.Contains(hosts, host) ||", nil},
		{"a submitter without a name sees the calls of clients", "internal/access/access.go",
			"!c.Own() || c.Name != \"\" && c.Name == submitter", "!c.Own() || c.Name == submitter", nil},
		{"the socket of a live process is replaced", "internal/access/socket_unix.go",
			"		return errors.New(\"another process listens there\")\n", "		return os.Remove(path)\n", nil},
		{"everybody may connect to the socket for a moment", "internal/access/socket_unix.go",
			"unix.Umask(0o117)", "unix.Umask(0)", nil},
	}
	callerBugs = []bug{
		{"operations do not ask for the caller", "internal/server/admin.go",
			"admit(a, op.Scope, op.serve(a, &op))", "op.serve(a, &op)", []string{"-run", "TestOperationsBy"}},
		{"the monitor serves the admin API", "cmd/throttler/sidecar.go",
			"api.Monitor()", "api", []string{"-run", "TestOperationsByCaller"}},
		{"an authority that is gone vouches on open connections", "internal/access/peer.go",
			"		Roots: rules.TLS.ClientCAs, ", "		Roots: between, ", []string{"-run", "TestOperationsByCertificate"}},
		{"a reload keeps the certificate", "cmd/throttler/admin.go",
			"		a.tls.Store(cfg.Access.TLS)\n", "		a.tls.CompareAndSwap(nil, cfg.Access.TLS)\n", []string{"-run", "TestRenewedServer"}},
		{"a reload keeps the tokens", "cmd/throttler/reload.go",
			"	sc.admin.follow(next)\n", "", []string{"-run", "TestRevokedToken"}},
	}
	adminBugs = []bug{
		{"an empty parameter of a list chooses all calls", "internal/server/search.go",
			"slices.Contains(values, \"\") && name", "len(values) > 9 && name", []string{"-run", "TestFindRefuses"}},
		{"of two business numbers one counts", "internal/server/search.go",
			"numbers > 1 {", "numbers > 9 {", []string{"-run", "TestFindRefuses"}},
		{"a cursor goes on in another order", "internal/server/search.go",
			"	f.After, f.Max = \"\", 0\n", "	f.After, f.Max, f.Oldest = \"\", 0, false\n", []string{"-run", "TestFindRefuses"}},
		{"a submitter lists all calls", "internal/server/search.go",
			"		f.SubmittedBy = caller.Name\n", "", []string{"-run", "TestSubmitter"}},
		{"a submitter is shown the call of another one with its key", "internal/server/calls.go",
			"!caller.Sees(call.SubmittedBy) {", "false && !caller.Sees(call.SubmittedBy) {", []string{"-run", "TestSubmitter"}},
		{"a submitter cancels the call of another one", "internal/server/decisions.go",
			"	if err := visible(a, r.Request, r.PathValue(\"id\")); err != nil {\n		return nil, err\n	}\n	return withCall(cancelOne", "	return withCall(cancelOne", []string{"-run", "TestSubmitter"}},
		{"an operator reads the answers to calls", "internal/server/calls.go",
			"	if caller.May(access.Bodies) ||", "	if caller.May(access.Operate) ||", []string{"-run", "TestSubmitter"}},
		{"money is decided without a word on where it comes from", "internal/server/decisions.go",
			"	if reason == \"\" {\n", "	if false {\n", []string{"-run", "TestResolve|TestRetry"}},
		{"the audit has no actor of callers that show nothing", "internal/access/guard.go",
			", Via: \"anyone\"}", "}", []string{"-run", "TestResolve|TestPausesEnd"}},
		{"a page of the audit has the last record of the one before", "internal/server/audit.go",
			"		f.Before = n\n", "		f.Before = n + 1\n", []string{"-run", "TestAuditPages"}},
	}
	reachBugs = []bug{
		{"other hosts reach an admin API without access", "pkg/config/admin.go",
			"		case c.Access == nil:\n", "		case false:\n", []string{"-run", "TestMistakes"}},
		{"a section of access without keys lets everybody in", "pkg/config/schema.go",
			" || t == reflect.TypeFor[*fileAccess]() {", " {", []string{"-run", "TestAccess"}},
		{"a message shows a token", "pkg/config/config.go",
			"		return nil, hideTokens(faults.sorted(faults.faults))\n", "		return nil, faults.sorted(faults.faults)\n", []string{"-run", "TestFaults"}},
		{"two callers have one token", "pkg/config/access.go",
			"			if first, twice := seen[sum]; twice {\n", "			if first, twice := seen[sum]; twice && false {\n", []string{"-run", "TestFaults"}},
	}
)
