package main

// tokenBugs misuse access tokens and the client's secret.
var tokenBugs = []bug{
	{"tokens: each call fetches its own", "pkg/signer/oauth2.go",
		"	if f == nil {\n", "	if true {\n", byTokens},
	{"tokens: none is kept", "pkg/signer/oauth2.go",
		"		if f.err == nil {\n", "		if false {\n", byTokens},
	{"tokens: one is used to its last instant", "pkg/signer/oauth2.go",
		"t.Expiry.Add(-min(renewAhead, life/4))", "t.Expiry", byTokens},
	{"tokens: a fresh one is replaced after each 401", "pkg/signer/oauth2.go",
		"	case time.Since(t.fetched) < young:\n", "	case false:\n", byTokens},
	{"tokens: a late 401 drops the next one", "pkg/signer/oauth2.go",
		`signed.Header.Get("Authorization") != "Bearer "+t.text`, "false", byTokens},
	{"tokens: failed fetches have no interval", "pkg/signer/oauth2.go",
		"	wait := s.interval\n", "	wait := time.Duration(0)\n", byTokens},
	{"tokens: an SDK's token request gets one", "pkg/signer/oauth2.go",
		"path != s.path && ", `path != "" && `, byTokens},
	{"tokens: the error shows the endpoint's answer", "pkg/signer/oauth2.go",
		`		return fmt.Errorf("status %d", refused.Response.StatusCode)`, "		return refused", byTokens},
	{"tokens: the secret follows redirects", "pkg/signer/oauth2.go",
		"return http.ErrUseLastResponse", "return nil", byTokens},
	{"tokens: the secret goes in clear", "pkg/signer/oauth2.go",
		`u.Scheme == "http" && u.Hostname()`, `u.Scheme == "" && u.Hostname()`, byTokens},
	{"tokens: an end of the endpoint is the call's end", "pkg/signer/oauth2.go",
		`return later{fmt.Errorf("token endpoint %s: %w", s.host, err)}`, `return fmt.Errorf("token endpoint %s: %w", s.host, err)`, byTokens},
}

// renewalBugs send a call with a new token too often, or not at all.
var renewalBugs = []bug{
	{"tokens: a 401 is sent again for ever", "pkg/scheduler/nextattempt.go",
		"	r.Renewed = renewed(c.Attempts)\n", "", byRenewals},
	{"tokens: attempts without an answer hide a 401", "pkg/scheduler/nextattempt.go",
		"		if a.Status != 0 {\n", "		if a.N >= 0 {\n", byRenewals},
	{"tokens: a 401 for an old one is failed", "pkg/upstream/attempt.go",
		"resp.StatusCode == http.StatusUnauthorized && u.renewed(in.r)", "false && u.renewed(in.r)", byRenewals},
}

var (
	byTokens   = []string{"-run", "TestOAuth2"}
	byRenewals = []string{"-run", "TestCallsAreSentWithTheNewToken|TestTokensEnd|TestRenewed"}
)
