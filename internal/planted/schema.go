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
	{"an attempt that there is not is looked at", "pkg/store/row.go",
		"	return c, possible(c)\n", "	return c, nil\n", []string{"-run", "TestImpossibleRows|FuzzStoreFile"}},
	{"permits below zero are given back", "pkg/store/quota.go",
		"		if err := possibleHold(h); err != nil {", "		if err := error(nil); err != nil {", []string{"-run", "TestImpossibleRows"}},
}

var listBugs = []bug{
	{"a list of cancelled calls reads all calls", "pkg/store/reader.go",
		"	case scheduler.Failed, scheduler.Expired, scheduler.Exhausted, scheduler.Cancelled: ", "	case \"never\": ", []string{"-run", "TestListReadsFewStates"}},
	{"a page of a list is cut before it is filtered", "pkg/store/reader.go",
		"AND %s ORDER BY id LIMIT ?4)\", state, matches)", "AND %s ORDER BY id LIMIT ?4)\", state, \"(?1 = '' OR 1) AND (?2 = '' OR 1)\")", []string{"-run", "TestListByState"}},
}
