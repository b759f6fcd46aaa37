package server

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A stillFleet is a fleet in a state.
type stillFleet struct {
	Fleet        // of which nothing else is asked
	ready, alike error
}

func (s *stillFleet) Ready() error { return s.ready }
func (s *stillFleet) Alike() error { return s.alike }

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
