package main

// probeBugs let throttler check change what it looks at.
var probeBugs = []bug{
	{"a look at a store makes a log beside it", "pkg/store/probe.go",
		"		more += \"&immutable=1\"", "		more += \"\"", []string{"-run", "TestProbe"}},
}
