package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/scheduler/storetest"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// tempDir holds the built sidecar.
var tempDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "throttler-test")
	if err != nil {
		panic(err)
	}
	tempDir = dir
	testscript.Main(cleaner{m}, map[string]func(){"throttler": main, "receiver": receive})
}

// cleaner removes the built sidecar after the tests.
type cleaner struct{ *testing.M }

func (c cleaner) Run() int {
	defer os.RemoveAll(tempDir)
	return c.M.Run()
}

// TestScripts runs command lines as users type them: testdata/*.txtar.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata", Setup: func(e *testscript.Env) error {
		return makeStore(filepath.Join(e.WorkDir, "throttler.db"))
	}})
}

// makeStore makes a store with one call that is done and one that waits.
func makeStore(path string) error {
	d, err := store.Open(path, store.Options{})
	if err != nil {
		return err
	}
	at := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	for n := range int64(2) {
		e := storetest.NewEntry(n + 1)
		e.Call.Upstream, e.Call.AcceptedAt, e.Request.Body = "pay", at.Add(time.Duration(n)*time.Second), []byte("secret")
		_, err = d.Accept(context.Background(), e)
		if sent := storetest.Sent(e.Call); n == 0 {
			err = errors.Join(err, d.Intend(context.Background(), sent, nil), d.Record(context.Background(), storetest.Ended(sent, scheduler.Done)))
		}
	}
	return errors.Join(err, d.Close())
}

// TestOutdated: a binary says if its toolchain is older than that of go.mod.
func TestOutdated(t *testing.T) {
	for toolchain, old := range map[string]bool{
		oldestGo: false, "go1.27": false, "go1.26.10": false, "go1.26.8": true, "go1.26rc1": true, "go1.25.12": true, "devel go1.28-abc": false,
	} {
		if (outdated(toolchain) != "") != old {
			t.Errorf("%s: outdated is %v, want %v", toolchain, !old, old)
		}
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil || !strings.Contains(string(mod), "\ntoolchain "+oldestGo+"\n") {
		t.Errorf("go.mod does not name the toolchain %s: %v", oldestGo, err)
	}
}
