package server

import (
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/upstream"
)

// TestConfigDiff: the difference is that of a dry run. Nothing is put into force, and nothing is
// recorded.
func TestConfigDiff(t *testing.T) {
	r := newRig(t, scheduler.Upstream{Config: upstream.Config{URL: "http://127.0.0.1:1"}}, Refusal{}, nil)
	changes, fault := []api.Change{{Path: "upstreams.pay.url", Kind: "changed", Hidden: true}, {Path: "admin", Kind: "new", After: "127.0.0.1:1", Restart: true}}, error(nil)
	c := newAdmin(r.s, r.metrics, NewEvents(), slog.New(slog.DiscardHandler), nil).AdminConfig
	c.Reload = func(put func(*api.Reload, func() error) error) (*api.Reload, error) {
		if put != nil {
			t.Error("the file is put into force")
		}
		return &api.Reload{Changes: changes}, fault
	}
	r.admin = serve(t, NewAdmin(c), c.Log)
	diff := r.admin.URL + "/v1/config/diff"
	if got := read[api.Reload](t, diff); !got.DryRun || !reflect.DeepEqual(got.Changes, changes) {
		t.Errorf("the difference: %+v", got)
	}
	_, dry := send(t, "POST", r.admin.URL+"/v1/config/reload?dry_run=true", "")
	if _, got := send(t, "GET", diff, ""); got != dry {
		t.Errorf("the difference is %s, a dry run has %s", got, dry)
	}
	changes = nil
	if _, got := send(t, "GET", diff, ""); got != `{"dry_run":true,"changes":[]}`+"\n" {
		t.Errorf("no difference: %s", got)
	}
	fault = BadConfig("two faults", []api.Fault{{Pointer: "admin", Detail: "throttler.yaml:1: admin: is wrong"}, {Pointer: "upstreams.pay.url", Detail: "is missing"}})
	resp, got := send(t, "GET", diff, "")
	if resp.StatusCode != 422 || !strings.Contains(got, `"reason":"bad_config"`) || !strings.Contains(got, `"errors":[{"pointer":"admin","detail":"throttler.yaml:1: admin: is wrong"},{"pointer":"upstreams.pay.url"`) {
		t.Errorf("a faulty file: %d %s", resp.StatusCode, got)
	}
	fault = errors.New("there is no throttler.yaml")
	if resp, got := send(t, "GET", diff, ""); resp.StatusCode != 422 || !strings.Contains(got, "there is no throttler.yaml") {
		t.Errorf("no file: %d %s", resp.StatusCode, got)
	}
	if records := r.audit(t, ""); len(records) > 0 {
		t.Errorf("records of reading: %+v", records)
	}
}

// TestReloadOfTheFileThatWasSeen: a file that was edited after the comparison is not put into force,
// and the audit says so.
func TestReloadOfTheFileThatWasSeen(t *testing.T) {
	r := newRig(t, scheduler.Upstream{Config: upstream.Config{URL: "http://127.0.0.1:1"}}, Refusal{}, nil)
	c := newAdmin(r.s, r.metrics, NewEvents(), slog.New(slog.DiscardHandler), nil).AdminConfig
	file, applied := "aa", 0
	c.Reload = func(put func(*api.Reload, func() error) error) (*api.Reload, error) {
		found := &api.Reload{FileSHA256: file}
		if put == nil {
			return found, nil
		}
		return found, put(found, func() error { applied++; return nil })
	}
	r.admin = serve(t, NewAdmin(c), c.Log)
	seen := read[api.Reload](t, r.admin.URL+"/v1/config/diff").FileSHA256
	file = "bb"
	for _, path := range []string{"?file=" + seen, "?file=", "?file=" + seen + "&dry_run=true"} {
		if resp, got := send(t, "POST", r.admin.URL+"/v1/config/reload"+path, ""); resp.StatusCode != 412 || !strings.Contains(got, `"reason":"changed_since"`) || !strings.Contains(got, "compare it again") {
			t.Errorf("%s: %d %s", path, resp.StatusCode, got)
		}
	}
	if records := r.audit(t, ""); applied != 0 || len(records) != 4 || !strings.Contains(records[0].After, "not done") {
		t.Errorf("applied %d times, records: %+v", applied, records)
	}
	for _, path := range []string{"?file=bb", "", "?file=bb&dry_run=true"} {
		if resp, got := send(t, "POST", r.admin.URL+"/v1/config/reload"+path, ""); resp.StatusCode != 200 || !strings.Contains(got, `"file_sha256":"bb"`) {
			t.Errorf("%s: %d %s", path, resp.StatusCode, got)
		}
	}
	if applied != 2 {
		t.Errorf("applied %d times", applied)
	}
}
