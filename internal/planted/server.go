package main

// serverBugs are seen by the tests of package server alone.
var serverBugs = []bug{
	{"a connection of HTTP/1.0 lives on", "internal/server/data.go",
		" || r.ProtoMinor == 0)", ")", []string{"-run", "TestLengths"}},
	{"a 202 says that the call was not executed", "internal/server/data.go",
		"		h.Set(\"Throttler-Outcome\", \"accepted\")\n", "", []string{"-run", "TestAsync"}},
	{"a misspelt header counts for nothing", "internal/server/request.go",
		"cmp.Or(knownHeaders(r.Header), schedule(&req, r.Header, time.Now()))", "schedule(&req, r.Header, time.Now())", []string{"-run", "TestOwnHeaders"}},
	{"a body takes its room when it is announced", "internal/server/body.go",
		"	body = make([]byte, 0, min(most, smallBody))\n", "	body = make([]byte, 0, min(most, smallBody))\n	if _, err := in.reserve(most); err != nil {\n		return nil, err\n	}\n", []string{"-run", "TestBodies"}},
	{"a body that does not fit keeps its room", "internal/server/body.go",
		"		in.release()\n", "", []string{"-run", "TestBodies"}},
	{"a body may take its time once it has begun", "internal/server/body.go",
		"in.setDeadline(earlier(time.Now().Add(pieceTimeout), in.latest))", "in.setDeadline(in.latest)", []string{"-run", "TestSlowBody"}},
	{"a body may drip for ever", "internal/server/body.go",
		"in.setDeadline(earlier(time.Now().Add(pieceTimeout), in.latest))", "in.setDeadline(time.Now().Add(pieceTimeout))", []string{"-run", "TestSlowBody"}},
	{"connections that rest shut others out", "internal/server/listener.go",
		"oldest := l.resting.Front(); oldest != nil {", "oldest := l.resting.Front(); false && oldest != nil {", []string{"-run", "TestRestingConnections"}},
	{"a connection with a request is replaced", "internal/server/listener.go",
		"	c.wake()\n	return !c.gone\n", "	return !c.gone\n", []string{"-run", "TestConnectionsWithRequests"}},
	{"a request is served whose connection was replaced", "internal/server/server.go",
		"!connOf(r).claim() {", "!connOf(r).claim() && false {", []string{"-run", "TestReplacedRequest"}},
	{"a request is served whose connection was replaced during its body", "internal/server/body.go",
		"	if !c.claim() {", "	if !c.claim() && false {", []string{"-run", "TestReplacedRequest"}},
	{"subscriptions take all connections", "internal/server/subscription.go",
		"release, ok := h.admin.held.take(1)", "release, ok := func() {}, true", []string{"-run", "TestHeld", "-timeout", "20s"}},
	{"a client that has gone before its call is told that it may be executed", "pkg/scheduler/submit.go",
		"		return nil, c.Call, err\n", "		return nil, nil, err\n", []string{"-run", "TestClientIsGone"}},
	{"a submission fails because its client has closed its half", "internal/server/data.go",
		"context.WithoutCancel(r.Context())", "context.WithValue(r.Context(), d, d)", []string{"-run", "TestClientIsGone"}},
}

// http1Bugs are seen by the tests of package http1 alone.
var http1Bugs = []bug{
	{"a request without Host is served", "internal/http1/request.go",
		"req.ProtoMinor > 0 && hosts == 0", "req.ProtoMinor > 0 && hosts == 0 && req.Host == \"\"", []string{"-run", "TestAnswersAsNetHTTP"}},
	{"a Host beside an absolute target is not checked", "internal/http1/request.go",
		"!validHost || ", "!validHost && ", []string{"-run", "TestAnswersAsNetHTTP"}},
	{"the rest of a body is the next request", "internal/http1/response.go",
		"w.req.Close || !w.body.ended ||", "w.req.Close ||", []string{"-run", "TestAnswersAsNetHTTP|TestDeadline"}},
	{"a client that waits keeps a buffer", "internal/http1/request.go",
		"		b.of.detach()\n", "", []string{"-run", "TestClientThatWaits"}},
	{"a client that has sent more bytes has left", "internal/http1/left_unix.go",
		"			left = n == 0\n", "			left = n >= 0\n", []string{"-run", "TestClientsThatLeave"}},
	{"a request is served whose connection is closed by a stop", "internal/http1/conn.go",
		"c.state.CompareAndSwap(quiet, reading) && err == nil", "err == nil && (c.state.Swap(reading) >= 0)", []string{"-run", "TestRequestOrStop"}},
	{"a stop waits for idle connections", "internal/http1/conn.go",
		"	return c.state.CompareAndSwap(idle, retired) ||\n", "	return false && c.state.Load() == idle ||\n", []string{"-run", "TestStop"}},
	{"a deadline of one request holds for the next one", "internal/http1/conn.go",
		"	c.readBy = time.Now().Add(c.server.IdleTimeout)\n", "", []string{"-run", "TestDeadlineOfABody|TestTimeouts"}},
	{"a client may take its time for an answer", "internal/http1/conn.go",
		"now.Sub(s.writes) >= coarse", "s.writes.IsZero()", []string{"-run", "TestTimeToTake"}},
	{"a 100 Continue comes without a need", "internal/http1/response.go",
		"	w.body.ask = false // a 100 Continue would come too late\n", "", []string{"-run", "TestContinue"}},
	{"a connection that was taken over is written to", "internal/http1/conn.go",
		"!c.handle(w, req) || !c.state.CompareAndSwap(serving, reading)", "!c.handle(w, req)", []string{"-run", "TestTakenOver"}},
}

// sidecarBugs are seen by the tests of command throttler alone.
var sidecarBugs = []bug{
	{"connections use up the files of the process", "cmd/throttler/listener.go",
		"	half := files / 2\n", "	half := 2 * files\n", []string{"-run", "TestShares"}},
}
