package config

import (
	"slices"
	"testing"
)

// TestUI: the name and the actions of the dashboard follow a reload, and a change is shown.
func TestUI(t *testing.T) {
	least, err := Parse(withAccess(""))
	if err != nil || least.UI != (UI{Actions: true}) {
		t.Fatalf("defaults %+v, %v", least.UI, err)
	}
	t.Setenv("THROTTLER_UI_NAME", "PROD pay-7f9c")
	named, err := Load(write(t, string(withAccess("ui: {actions: false}"))), nil)
	if err != nil || named.UI != (UI{"PROD pay-7f9c", false}) {
		t.Fatalf("%+v, %v", named.UI, err)
	}
	want := []string{"ui.actions: new, false", "ui.name: new, PROD pay-7f9c"}
	if got := lines(least.Diff(named)); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	shown := make(map[string]Setting)
	for _, s := range append(least.Settings(), named.Settings()...) {
		shown[s.Path] = s
	}
	if s := shown["ui.name"]; s.Value != "PROD pay-7f9c" || s.Hidden {
		t.Errorf("%+v", s)
	}
}
