package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/seed-30fe103d/throttler/internal/api"
	"github.com/seed-30fe103d/throttler/pkg/lease"
	"github.com/seed-30fe103d/throttler/pkg/scheduler"
	"github.com/seed-30fe103d/throttler/pkg/store"
)

// A stillFleet is a fleet in a state, of one replica that has the calls.
type stillFleet struct {
	Fleet        // of which nothing else is asked
	ready, alike error
}

func (s *stillFleet) Ready() error { return s.ready }
func (s *stillFleet) Alike() error { return s.alike }

func (*stillFleet) Lease() time.Duration { return 1500 * time.Millisecond }

func (*stillFleet) View() api.Fleet {
	return api.Fleet{Epoch: 7, LeaseMS: 2000, Replicas: []api.Replica{{Self: true, Owner: true}}}
}

// TestReadinessOfReplica: a replica whose limits are not those of the owner is ready, and says so.
func TestReadinessOfReplica(t *testing.T) {
	none, differ := errors.New("no_owner: no replica has the calls"), errors.New("differ from those of the owner, replica r1, which are in force")
	for name, tt := range map[string]struct {
		fleet         Fleet
		status        int
		body, verbose string
	}{
		"no fleet":     {nil, 200, "ready\n", "process: ok\nscheduler: ok\nready\n"},
		"alike":        {&stillFleet{}, 200, "ready\n", "process: ok\nscheduler: ok\nfleet: ok\nlimits: ok\nready\n"},
		"differs":      {&stillFleet{alike: differ}, 200, "ready\nlimits: " + differ.Error() + "\n", "process: ok\nscheduler: ok\nfleet: ok\nlimits: " + differ.Error() + "\nready\n"},
		"no owner":     {&stillFleet{ready: none}, 503, none.Error() + "\n", "process: ok\nscheduler: ok\nfleet: " + none.Error() + "\nlimits: ok\n" + none.Error() + "\n"},
		"neither well": {&stillFleet{ready: none, alike: differ}, 503, none.Error() + "\nlimits: " + differ.Error() + "\n", "process: ok\nscheduler: ok\nfleet: " + none.Error() + "\nlimits: " + differ.Error() + "\n" + none.Error() + "\n"},
	} {
		a := NewAdmin(AdminConfig{Fleet: tt.fleet, Ready: func() error { return nil }, Log: slog.New(slog.DiscardHandler)})
		for path, want := range map[string]string{"/readyz": tt.body, "/readyz?verbose=true": tt.verbose} {
			w := httptest.NewRecorder()
			a.Monitor().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != tt.status || w.Body.String() != want {
				t.Errorf("%s: %s: %d %q, want %d %q", name, path, w.Code, w.Body, tt.status, want)
			}
		}
	}
}

// takeOver returns a scheduler that follows one that may live.
func takeOver(t *testing.T) *scheduler.Scheduler {
	db, err := store.Open(filepath.Join(t.TempDir(), "calls.db"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u := scheduler.Upstream{Limits: []scheduler.Limit{{Name: "app", Calls: 1, Window: time.Second}}, Late: time.Minute}
	u.URL, u.Timeout = "http://127.0.0.1:1", time.Minute
	s, err := scheduler.New(scheduler.Config{Upstreams: map[string]scheduler.Upstream{"pay": u}, Store: lived{db}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lived is a store whose last owner may live, and has left no record of its attempts.
type lived struct{ *store.DB }

func (l lived) Recover(ctx context.Context, recent time.Duration, repeat func(*scheduler.Entry) (time.Time, bool)) (*scheduler.Recovered, error) {
	past, err := l.DB.Recover(ctx, recent, repeat)
	if err == nil {
		past.Alive, past.Holds = time.Now(), []lease.Hold{{Upstream: "pay", Limit: "app", Every: true}}
	}
	return past, err
}

// TestFleetMetrics: each loss is counted, with the calls that it makes unknown, and the end of the lease and of a hold can be
// seen. The metrics that the pages of operators name exist.
func TestFleetMetrics(t *testing.T) {
	m := NewMetrics("1.0")
	m.WatchFleet(&stillFleet{})
	if held := m.held(); held != 0 {
		t.Errorf("limits are held back for %v s before the first term", held)
	}
	s := takeOver(t)
	defer s.Close()
	m.Watch(s)
	m.Took("crash")
	m.Lost(3)
	m.Lost(0)
	if held := m.held(); held < 60 || held > 121 {
		t.Errorf("limits are held back for %v s, want time-out, late and a window", held)
	}
	all, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names, values := make(map[string]bool), make(map[string]float64)
	for _, family := range all {
		names[family.GetName()] = true
		if one := family.GetMetric()[0]; len(family.GetMetric()) == 1 {
			values[family.GetName()] = one.GetGauge().GetValue() + one.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{"losses_total": 2, "losses_unknown_calls_total": 3, "lease_seconds": 1.5, "owner": 1, "replicas": 1, "epoch": 7, "config_differs": 0} {
		if got := values["throttler_fleet_"+name]; got != want || !names["throttler_fleet_"+name] {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if problems, err := testutil.GatherAndLint(m); err != nil || len(problems) > 0 {
		t.Errorf("metrics: %v %v", problems, err)
	}
	s.Close()
	if held := m.held(); held != 0 {
		t.Errorf("limits are held back for %v s after the term", held)
	}
	for _, name := range []string{"throttler_notifications_total", "throttler_fleet_passed_on_total", "throttler_uncomputable_total"} { // they have labels
		names[name] = true
	}
	told := make(map[string]bool)
	for _, page := range []string{"fleet.md", "on-call.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range documented(string(text)) {
			if told[name] = true; !names[name] {
				t.Errorf("%s names a metric %s, which does not exist", page, name)
			}
		}
	}
	for name := range names {
		if strings.HasPrefix(name, "throttler_fleet_") && !told[name] {
			t.Errorf("no page names the metric %s", name)
		}
	}
}

// documented returns the metrics that a page names: in full, or in a list that begins with one in full and goes on with the
// ends of others.
func documented(page string) (names []string) {
	for _, m := range regexp.MustCompile("`(throttler_[a-z_]+|_[a-z_]+)[`{]|sum\\((throttler_[a-z_]+)").FindAllStringSubmatch(page, -1) {
		name := m[1] + m[2]
		if strings.HasPrefix(name, "_") {
			name = "throttler_fleet" + name
		}
		names = append(names, name)
	}
	return names
}
