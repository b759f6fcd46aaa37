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
	{"a wait beyond all numbers is none", "pkg/upstream/retryafter.go",
		" || errors.Is(err, strconv.ErrRange)", " || errors.Is(err, strconv.ErrSyntax) && false", []string{"-run", "TestRetryAfter"}},
	{"broken JSON without a type is no JSON", "pkg/upstream/json.go",
		" || !opens(text) && !strings.HasSuffix(kind, ", " || !strings.HasSuffix(kind, ", []string{"-run", "TestRequestsThat"}},
}
