package main

// schemaBugs let a hostile file run its own code, or without an end.
var schemaBugs = []bug{
	{"a view of another program runs", "pkg/store/schema.go",
		"		case o != ours:", "		case false && o != ours:", []string{"-run", "TestForeignSchema"}},
	{"a trigger of another program runs", "pkg/store/schema.go",
		"	for _, name := range slices.Sorted(maps.Keys(have)) {", "	for _, name := range slices.Sorted(maps.Keys(want)) {", []string{"-run", "TestForeignSchema"}},
	{"a file may lack an index", "pkg/store/schema.go",
		`		if have[name].kind == "" {`, "		if false {", []string{"-run", "TestForeignSchema"}},
	{"the schema of a file is trusted", "pkg/store/open.go",
		"trusted_schema(0)", "trusted_schema(1)", []string{"-run", "TestCarefulConnections"}},
	{"a reader has no end", "pkg/store/file.go",
		"Stats(ctx context.Context) ([]Stat, error) {\n", "Stats(context.Context) ([]Stat, error) {\n	ctx := context.Background()\n", []string{"-run", "TestReadersEnd"}},
	{"an attempt that there is not is looked at", "internal/columns/row.go",
		"	return c, possible(c)\n", "	return c, nil\n", []string{"-run", "TestImpossibleRows|FuzzStoreFile"}},
	{"permits below zero are given back", "pkg/store/quota.go",
		"		if err := columns.PossibleHold(h); err != nil {", "		if err := error(nil); err != nil {", []string{"-run", "TestImpossibleRows"}},
}

var listBugs = []bug{
	{"a list of what ended since then begins at the first end", "pkg/store/list.go",
		"WHERE ended_at >= ? AND ended_at < ? AND ended_at > 0", "WHERE ended_at > 0 AND ended_at >= ? AND ended_at < ?", []string{"-run", "TestShortPeriod"}},
	{"a call is listed twice that is in two indexes", "pkg/store/list.go",
		"c == nil || c.id == last {", "c == nil {", []string{"-run", "TestConformance"}},
	{"a stray is forgotten by a crash", "pkg/store/calls.go",
		"	if r.Seq <= c.index.indexed {", "	if false {", []string{"-run", "TestStrays"}},
	{"a block has its calls in any order", "pkg/store/index.go",
		"	sorted(calls, postings)\n", "", []string{"-run", "TestListsOfBlocks"}},
	{"a call gets a seq that a block has", "pkg/store/recover.go",
		"[]any{r.index.indexed}", "[]any{0}", []string{"-run", "TestBlocksSwept"}},
	{"a block outlives its calls", "pkg/store/sweep.go",
		"calls > 0 && calls < sweepStep", "false", []string{"-run", "TestBlocksSwept"}},
}
