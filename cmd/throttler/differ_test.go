package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/postgres"
)

// TestDifferencesAreTold: the owner tells of each replica that lives and has other limits, and such a replica tells of
// itself: once for each file.
func TestDifferencesAreTold(t *testing.T) {
	const lease = time.Second
	alike := func(owner string) postgres.View {
		return postgres.View{Owner: owner, Lease: lease, Replicas: []postgres.Replica{
			{ID: "a", Name: "first", Config: "1"}, {ID: "b", Name: "second", Config: "1"}, {ID: "c", Name: "third", Config: "1"}, {ID: "d", Name: "dead", Config: "9", Silence: 2 * lease},
		}}
	}
	differs := func(owner, config string) postgres.View {
		v := alike(owner)
		v.Replicas[1].Config = config
		return v
	}
	const other, own = "another replica's configuration", "this replica's configuration"
	for name, tt := range map[string]struct {
		self  string
		views []postgres.View
		want  []string // of each line
	}{
		"alike":              {"a", []postgres.View{alike("a")}, nil},
		"the owner tells":    {"a", []postgres.View{differs("a", "2"), differs("a", "2")}, []string{other}},
		"a second file":      {"a", []postgres.View{differs("a", "2"), differs("a", "3")}, []string{other, other}},
		"no owner meanwhile": {"a", []postgres.View{differs("a", "2"), differs("", "2"), differs("a", "2")}, []string{other}},
		"it differs":         {"b", []postgres.View{differs("a", "2"), differs("a", "2")}, []string{own}},
		"another owner":      {"b", []postgres.View{differs("a", "2"), differs("c", "2")}, []string{own, own}},
		"a third one":        {"c", []postgres.View{differs("a", "2")}, nil},
		"again":              {"a", []postgres.View{differs("a", "2"), alike("a"), differs("a", "2")}, []string{other, other}},
	} {
		var log bytes.Buffer
		r := &replica{member: &postgres.Member{ID: tt.self}, log: slog.New(slog.NewTextHandler(&log, nil))}
		var told map[string]string
		for _, v := range tt.views {
			told = r.compare(v, told)
		}
		lines := strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
		if log.Len() == 0 {
			lines = nil
		}
		if len(lines) != len(tt.want) {
			t.Errorf("%s: %d lines, want %d:\n%s", name, len(lines), len(tt.want), &log)
			continue
		}
		for i, line := range lines {
			if !strings.Contains(line, "level=WARN") || !strings.Contains(line, tt.want[i]) || !strings.Contains(line, "whose limits count") {
				t.Errorf("%s: %s\nwant %q", name, line, tt.want[i])
			}
		}
	}
}
