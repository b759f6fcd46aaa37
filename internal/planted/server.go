package main

// serverBugs are seen by the tests of package server alone.
var serverBugs = []bug{
	{"a body takes its room when it is announced", "internal/server/body.go",
		"	body = make([]byte, 0, min(most, smallBody))\n", "	body = make([]byte, 0, min(most, smallBody))\n	if _, err := in.reserve(most); err != nil {\n		return nil, err\n	}\n", []string{"-run", "TestBodies"}},
	{"a body that does not fit keeps its room", "internal/server/body.go",
		"		in.release()\n", "", []string{"-run", "TestBodies"}},
	{"a body may take its time once it has begun", "internal/server/body.go",
		"in.setDeadline(earlier(time.Now().Add(pieceTimeout), in.latest))", "in.setDeadline(in.latest)", []string{"-run", "TestSlowBody"}},
	{"a body may drip for ever", "internal/server/body.go",
		"in.setDeadline(earlier(time.Now().Add(pieceTimeout), in.latest))", "in.setDeadline(time.Now().Add(pieceTimeout))", []string{"-run", "TestSlowBody"}},
}
