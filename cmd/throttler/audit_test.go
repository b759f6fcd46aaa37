package main

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// TestReloadIsRecorded: a reload by a signal, and one by the API, leave a record.
func TestReloadIsRecorded(t *testing.T) {
	p := start(t, serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), "limits:", `  - {name: app, calls: 5, window: 1s}`)
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.until(t, "a record of the signal", func() bool {
		return strings.Contains(p.body("/v1/audit?action=reload"), `"actor":"system","via":"SIGHUP","action":"reload"`)
	})
	if out, err := p.throttler(t, "reload").CombinedOutput(); err != nil {
		t.Fatal(string(out))
	}
	if log := p.body("/v1/audit?action=reload"); !strings.Contains(log, `"action":"reload","after":"no change"`) {
		t.Errorf("the audit is %s", log)
	}
}
