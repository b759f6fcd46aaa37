package main

import (
	"bytes"
	"net/http"
	"os"
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
	if log := p.body("/v1/audit?action=reload"); strings.Count(log, `"action":"reload","after":"no change"`) != 2 {
		t.Errorf("the audit is %s", log)
	}
	text, err := os.ReadFile(p.file)
	if err != nil {
		t.Fatal(err)
	}
	for calls, want := range map[string]string{"calls: 7": `"after":"upstreams.alipay.limits[app].calls: 5 → 7"`, "calls: 0": `"after":"not done: the configuration has faults`} {
		if err := os.WriteFile(p.file, bytes.Replace(text, []byte("calls: 5"), []byte(calls), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		p.until(t, "a record of the change", func() bool {
			return strings.Contains(p.body("/v1/audit?action=reload"), `"via":"--watch","action":"reload",`+want)
		})
	}
}
