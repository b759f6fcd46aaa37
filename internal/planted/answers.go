package main

var (
	byProof     = []string{"-run", "TestProof"}
	byValues    = []string{"-run", "TestComputable|TestUncomputable"}
	byBodies    = []string{"-run", "TestUnreadable|TestBodyValues|TestCoded|TestJudgedDone"}
	byCodings   = []string{"-run", "TestCodings|TestCoded|TestBombs|TestWindowOfZstd"}
	byOffer     = []string{"-run", "TestOffer"}
	byCost      = []string{"-run", "TestKindsOfExpressions|TestCharge"}
	byTelling   = []string{"-run", "TestUncomputable|TestPagesOfAGateway"}
	byMerging   = []string{"-run", "TestRulesOfPresets"}
	byMistakes  = []string{"-run", "TestMistakes"}
	unreadAlone = []string{"-run", "TestUnreadableCodings|TestUnreadableBodies"}
)

// answerBugs take an answer for more than it says.
var answerBugs = []bug{
	{"a rule is to be mended where a body cannot be read", "pkg/upstream/compute.go",
		"Unreadable: errors.As(err, &unreadable)", "Unreadable: errors.As(err, &unreadable) && false", []string{"-run", "TestUnreadableIsNoFaultOfARule"}},
	{"each answer limits", "pkg/upstream/outcome.go",
		"	if r.Is == NotExecuted && !names(", "	if false && !names(", []string{"-run", "TestRulesReadTheAnswer"}},
	{"a rule that cannot be computed is false", "pkg/upstream/compute.go",
		"	case absent(err):\n", "	case err != nil:\n", byValues},
	{"an absent member cannot be computed", "pkg/upstream/compute.go",
		"ofNil.MatchString(message(err))", "false", byValues},
	{"later rules decide where one cannot be computed", "pkg/upstream/outcome.go",
		"holds || err != nil {\n", "holds {\n", byValues},
	{"a call that was not sent is in doubt", "pkg/upstream/outcome.go",
		"	if !a.sent {\n		return\n	}\n", "", byValues},
	{"a rule that cannot be computed is repeated in vain", "pkg/upstream/outcome.go",
		"		res.Park, res.Open = !err.Again, ", "		res.Park, res.Open = false, ", byValues},
	{"an unreadable body opens the breaker", "pkg/upstream/outcome.go",
		"		res.Park, res.Open = !err.Again, a.status < http.StatusInternalServerError\n", "		res.Park = !err.Again\n", unreadAlone},
	{"a reason shows values", "internal/hint/expression.go",
		"	return \"a part of it does not fit the values\"\n", "	return message\n", byValues},
	{"no proof is asked for a done of a preset's rule", "pkg/upstream/attempt.go",
		"!(res.Ruled && u.Outcomes[res.Rule].Preset == \"\")", "!res.Ruled", byProof},
	{"a proof is asked for a done of the file's own rule", "pkg/upstream/attempt.go",
		"!(res.Ruled && u.Outcomes[res.Rule].Preset == \"\")", "true", byProof},
	{"half an object proves success", "pkg/upstream/proof.go",
		"	case a.bodyKind() == isCut:\n		return string(errCut)\n	case p.Format == \"json\" && (a.bodyKind() != isJSON || !", "	case p.Format == \"json\" && (!", byProof},
	{"a page under the media type of JSON proves success", "pkg/upstream/proof.go",
		"	case p.Format == \"json\" && (a.bodyKind() != isJSON || !", "	case p.Format == \"json\" && (a.bodyKind() != isXML && !", byProof},
	{"the media type proves nothing", "pkg/upstream/proof.go",
		"	if len(taken) == 0 {\n", "	if len(taken) >= 0 {\n", byProof},
	{"a long body proves success", "pkg/upstream/proof.go",
		"	case a.partial:\n		return string(errUnseen)\n", "", byProof},
	{"a state that proves nothing counts against the upstream", "pkg/upstream/proof.go",
		"		res.Open = a.status < http.StatusInternalServerError //", "		//", byProof},
	{"a page does not count against the upstream", "pkg/upstream/proof.go",
		"res.Park, res.Open = false, nil, false, false\n", "res.Park, res.Open = false, nil, false, true\n", byProof},
	{"a call that is not proven goes again at once", "pkg/upstream/proof.go",
		"	res.RetryAfter = max(res.RetryAfter, after)\n", "", byProof},
	{"a waiting client gets a success before it is proven", "pkg/upstream/attempt.go",
		" && u.proofs.needWhole(in) {", " && false {", byProof},
	{"a page settles a call as done", "pkg/upstream/outcome.go",
		"	if rule.Is == Done && !a.whole() && ", "	if false && ", byBodies},
	{"half of JSON has no members", "pkg/upstream/answer.go",
		"	case isCut:\n		return nil, errCut\n", "", byBodies},
	{"half of XML has no elements", "pkg/upstream/answer.go",
		"; open && !a.partial {\n", "; open && false {\n", byBodies},
	{"a member further on is absent from a failure", "pkg/upstream/answer.go",
		"(a.strict || a.status >= 300)", "a.strict", byBodies},
	{"a text that is cut is a value", "pkg/upstream/answer.go",
		"v.Index+len(v.Raw) >= len(a.body)", "false", byBodies},
	{"x-gzip is no coding", "pkg/upstream/coding.go",
		"	\"x-gzip\":  ungzip,", "	\"x-gzip?\": ungzip,", byCodings},
	{"the case of a coding counts", "pkg/upstream/coding.go",
		"name = strings.ToLower(strings.TrimSpace(name)); name != \"\"", "name = strings.TrimSpace(name); name != \"\"", byCodings},
	{"deflate has the header of zlib always", "pkg/upstream/coding.go",
		"	if len(coded) >= 2 && coded[0]&0x0f == 8 && (int(coded[0])<<8|int(coded[1]))%31 == 0 {\n", "	if len(coded) >= 0 {\n", byCodings},
	{"codings are undone in the order in which they were applied", "pkg/upstream/coding.go",
		"range slices.Backward(names) {", "range slices.All(names) {", byCodings},
	{"a name that is no coding makes a body unreadable", "pkg/upstream/coding.go",
		"	if other != \"\" && !isText(plain) {", "	if other != \"\" {", byCodings},
	{"a bomb unfolds in memory", "pkg/upstream/coding.go",
		"io.ReadAll(io.LimitReader(r, max+1))", "io.ReadAll(r)", byCodings},
	{"a window of zstd may be of any size", "pkg/upstream/coding.go",
		", zstd.WithDecoderMaxWindow(maxZstdWindow))", ")", byCodings},
	{"a body that ends within its coding is whole", "pkg/upstream/coding.go",
		"	case err == nil, cutOff && truncated:\n", "	case err == nil, cutOff:\n", byCodings},
	{"codings that cannot be read are offered", "pkg/upstream/attempt.go",
		"	if u.readsBody {\n", "	if false {\n", byOffer},
	{"the offer is narrowed where no rule reads", "pkg/upstream/attempt.go",
		"	if u.readsBody {\n", "	if true {\n", byOffer},
	{"the offer of the caller's own request is changed", "pkg/upstream/coding.go",
		"			other.Header = maps.Clone(r.Header)\n", "			_ = maps.Clone[http.Header]\n", byOffer},
	{"a cost is cut off", "pkg/upstream/cost.go",
		"	up := math.Ceil(v)\n", "	up := math.Floor(v)\n", byCost},
	{"a cost may be beyond all numbers", "pkg/upstream/cost.go",
		"	case up > mostCost:\n", "	case false:\n", byCost},
	{"a cost that an answer tells is cut off", "pkg/upstream/charge.go",
		"int(math.Ceil(n))", "int(math.Floor(n))", byCost},
}

// tellingBugs hide a rule that cannot be computed from log, metrics and pages.
var tellingBugs = []bug{
	{"a query goes by another rule than the one that cannot be chosen", "pkg/scheduler/resolver.go",
		"			if err != nil {\n				return nil, err\n			}\n			if !ok {\n", "			if err != nil || !ok {\n", byTelling},
	{"a rule without a value is not counted", "pkg/scheduler/attempt.go",
		"		a.loop.uncomputed.note(a.intent.Upstream, r.Uncomputable)\n", "", byTelling},
	{"a query does not say why it settles nothing", "pkg/scheduler/ask.go",
		"	f.questions.doubt(q, err.Error())\n", "", byTelling},
	{"the log does not name the rule", "pkg/scheduler/attempt.go",
		"	case r.Uncomputable != nil:\n", "	case false:\n", byTelling},
	{"a cost without a value is not counted", "pkg/scheduler/charge.go",
		"		u.loop.uncomputed.note(u.Name, charge.Err)\n", "", byTelling},
}

// proofConfigBugs ask for another proof than the file does.
var proofConfigBugs = []bug{
	{"rules of a preset are taken for the file's own", "pkg/config/config.go",
		"	markPresets(c, from.presets)\n", "", byMerging},
	{"rules of the file are taken for a preset's", "pkg/config/preset.go",
		"for i := max(0, len(u.Outcomes)-len(preset.outcomes)); ", "for i := 0; ", byMerging},
	{"a constant cost may be a fraction", "pkg/upstream/expr.go",
		"		err = constantCost(source, program)\n", "", byMistakes},
}
