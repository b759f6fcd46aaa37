package main

// sealBugs let rows pass that the key of a sealed file does not vouch for, or show what it
// hides.
var sealBugs = []bug{
	{"rows of a sealed file have checksums", "internal/columns/checksum.go",
		"	if c.macs == nil {", "	if true || c.macs == nil {", []string{"-run", "TestForgedRows"}},
	{"a sum has the rows before", "internal/columns/checksum.go",
		"		s.crc = 0\n", "", []string{"-run", "TestFormat|TestRead"}},
	{"a file without a seal is sealed as it is", "pkg/store/seal.go",
		"	if rows && !told {", "	if rows && false {", []string{"-run", "TestForgedRows|TestSealLater"}},
	{"values of keys are in the clear", "internal/columns/hold.go",
		"return c.EncryptText(h.Key, fmt.Sprint(h.ID), keyKind)", "return h.Key", []string{"-run", "TestNothingInTheClear"}},
	{"permits of calls are in the clear", "internal/columns/hold.go",
		"	return c.EncryptText(text, id, spentKind), err\n", "	return text, err\n", []string{"-run", "TestNothingInTheClear"}},
	{"free space keeps rows in the clear", "pkg/store/seal.go",
		`	_, err = db.Exec("VACUUM")`, "	return nil", []string{"-run", "TestSealLater"}},
}
