package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// tempDir holds the built sidecar.
var tempDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "throttler-test")
	if err != nil {
		panic(err)
	}
	tempDir = dir
	testscript.Main(cleaner{m}, map[string]func(){"throttler": main})
}

// cleaner removes the built sidecar after the tests.
type cleaner struct{ *testing.M }

func (c cleaner) Run() int {
	defer os.RemoveAll(tempDir)
	return c.M.Run()
}

// TestScripts runs what users type: testdata/*.txtar.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata"})
}
