package main

var connectionBugs = []bug{
	{"the rest of a refused body has no time-out", "internal/server/server.go",
		"		out.controller.SetReadDeadline(time.Now().Add(bodyTimeout))\n", "", []string{"-run", "TestRefusedBody", "-timeout", "30s"}},
	{"a refusal waits for the rest of the body", "internal/server/server.go",
		"	if w.body != nil && !w.body.ended {", "	if false {", []string{"-run", "TestRefusedBody", "-timeout", "30s"}},
	{"a connection of HTTP/1.0 lives on", "internal/server/data.go",
		" || r.ProtoMinor == 0)", ")", []string{"-run", "TestLengths"}},
}

var readingBugs = []bug{
	{"a reason quotes an answer", "pkg/upstream/attempt.go",
		`	return strings.TrimRight(text, " :;")`, `	return plain(err).Error() + text[:0]`, []string{"-run", "TestFaults"}},
	{"a wait beyond all numbers is none", "pkg/upstream/retryafter.go",
		" || errors.Is(err, strconv.ErrRange)", " || errors.Is(err, strconv.ErrSyntax) && false", []string{"-run", "TestRetryAfter"}},
	{"broken JSON without a type is no JSON", "pkg/upstream/json.go",
		"	if opens(text) && kind", "	if false && kind", []string{"-run", "TestRequestsThat"}},
	{"a parameter in another case is another one", "pkg/upstream/request.go",
		"strings.EqualFold(other, name)", "other == name", []string{"-run", "TestRequestsThat"}},
}
