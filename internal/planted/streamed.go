package main

// streamedBugs are about answers of durable calls that stream.
var streamedBugs = []bug{
	{"an answer is held back until its copy is whole", "pkg/scheduler/streamed.go",
		"		c.tell(end)\n", "		_ = end\n", streamedTests},
	{"the end of an answer is seen before it is stored", "pkg/scheduler/streamed.go",
		"	case last:\n		<-s.stored\n", "	case last:\n", streamedTests},
	{"the end of a long answer is seen before it is stored", "pkg/scheduler/streamed.go",
		"err != nil {\n			<-s.stored\n", "err != nil {\n", streamedTests},
	{"a copy ends with its caller", "pkg/scheduler/streamed.go",
		"	if s.copying {\n		return nil\n	}\n", "", streamedTests},
	{"a copy has no bound", "pkg/scheduler/streamed.go",
		"err == nil && int64(len(s.copied)) <= s.max", "err == nil", streamedTests},
	{"a part of an answer is stored as the whole", "pkg/scheduler/streamed.go",
		"s.err != io.EOF || ", "", streamedTests},
}

var streamedTests = []string{"-run", "TestStreamedAnswers|TestStopWhileAnAnswer"}
