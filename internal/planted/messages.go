package main

// probeBugs let throttler check change what it looks at.
var probeBugs = []bug{
	{"a look at a store makes a log beside it", "pkg/store/probe.go",
		"		more += \"&immutable=1\"", "		more += \"\"", []string{"-run", "TestProbe"}},
}

// messageBugs put secrets into messages.
var messageBugs = []bug{
	{"a message shows a value that may be secret", "pkg/config/intent.go",
		"	if !secret.MatchString(path) && single", "	if single", []string{"-run", "TestFaults|TestMistakes"}},
	{"a message shows the secret of a client", "pkg/config/intent.go",
		"secret|client_secret|sha256", "secret|sha256", []string{"-run", "TestMistakes"}},
}
