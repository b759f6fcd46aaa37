package main

var readers = []string{"-run", "TestRequestsThatPlatforms|TestMultipart|TestReadersAgree"}

var upstreamBugs = []bug{
	{"a wait beyond all numbers is none", "pkg/upstream/retryafter.go",
		" || errors.Is(err, strconv.ErrRange)", " || errors.Is(err, strconv.ErrSyntax) && false", []string{"-run", "TestRetryAfter"}},
	{"a reason quotes the answer", "pkg/upstream/attempt.go",
		`quoted.ReplaceAllString(err.Error(), "")`, "err.Error()", []string{"-run", "TestReasonsQuoteNothing"}},
	{"a name in another case is another name", "pkg/upstream/form.go",
		"	case n > len(values):\n", "	case n > len(values)+9:\n", readers},
	{"a name in two cases is two names", "pkg/upstream/form.go",
		"p.names[loose(name)] +=", "p.names[name] +=", readers},
	{"a form in EBCDIC is read as ASCII", "pkg/upstream/form.go",
		"	case !slices.Contains(charsets, strings.ToLower(options[\"charset\"])):\n", "	case false:\n", readers},
	{"a compressed form is read", "pkg/upstream/form.go",
		"		if !strings.EqualFold(coding, \"identity\") {\n", "		if coding == \"never\" {\n", readers},
	{"a form without a type is none", "pkg/upstream/form.go",
		"kind == \"\" && r.Method == http.MethodPost", "kind == \"\" && r.Method == http.MethodConnect", readers},
	{"the last disposition of a field names it", "pkg/upstream/form.go",
		"			disposed = true\n", "", readers},
	{"a line within a field may be a boundary", "pkg/upstream/form.go",
		"!ok || strings.Contains(content, \"\\n--\"+boundary)", "!ok", readers},
	{"a member in another case is another one", "pkg/upstream/input.go",
		"	if respelled(in.json.text, path) {\n", "	if false {\n", readers},
	{"a path may have two slashes", "pkg/upstream/input.go",
		"strings.Contains(plain, \"//\"), ", "", readers},
	{"an escaped character of a path is another one", "pkg/upstream/input.go",
		"\"/-._~!$&'()*+,;=:@\"", "\"/-._~\"", readers},
	{"JSON that ends in a fault is no JSON", "pkg/upstream/json.go",
		"|| !opens(text) && ", "|| ", readers},
	{"arguments of functions are not checked", "pkg/upstream/expr.go",
		"		err = names.unknown(language.Names())\n", "", []string{"-run", "TestCompileRefuses"}},
}

var configBugs = []bug{
	{"max_waiting has no bound", "pkg/scheduler/compile.go",
		"	atMost(\"max_waiting\", int64(u.MaxWaiting), quota.MaxCalls, fault)\n", "	_ = quota.MaxCalls\n", []string{"-run", "TestConfigsBeyondBounds"}},
	{"max_body has no bound", "pkg/scheduler/compile.go",
		"	atMost(\"max_body\", u.MaxBody, mostBytes, fault)\n", "", []string{"-run", "TestConfigsBeyondBounds"}},
	{"inspect.bytes has no bound", "pkg/upstream/upstream.go",
		"c.MaxInspect > mostInspected {", "false {", []string{"-run", "TestConfigsBeyondBounds"}},
}
