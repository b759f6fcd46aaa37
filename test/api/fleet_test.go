package api

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/seed-30fe103d/throttler/internal/pgtest"
)

// testFleet asks replicas over one database: each of them shows the fleet, one is moved from, and one is buried.
func (s *session) testFleet(t *testing.T) {
	s.want(t, 200, "GET", "/v1/fleet", "")
	s.want(t, 409, "POST", "/v1/fleet/move", "") // there is one replica
	server, err := pgtest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	database, err := server.NewDatabase()
	if err != nil {
		t.Fatal(err)
	}
	single := s.admin
	defer func() { s.admin = single }()
	var processes []*os.Process
	var admins []string
	for _, name := range []string{"a", "b"} {
		file := filepath.Join(t.TempDir(), "throttler.yaml")
		config := fmt.Sprintf("admin: 127.0.0.1:0\nstore: %s\nfleet: {listen: 127.0.0.1:0, name: %s, lease: 500ms}\nupstreams: {pay: {url: 'http://127.0.0.1:1'}}\n", database, name)
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		p, admin := serve(t, file)
		processes, admins = append(processes, p), append(admins, admin)
	}
	type fleet struct {
		Owner    string
		Replicas []struct{ Name string }
	}
	until := func(state string, ok func(fleet) bool) {
		t.Helper()
		for begun := time.Now(); !ok(read[fleet](t, s.want(t, 200, "GET", "/v1/fleet", ""))); time.Sleep(50 * time.Millisecond) {
			if time.Since(begun) > time.Minute {
				t.Fatalf("%s: not within a minute", state)
			}
		}
	}
	s.admin = admins[1]
	until("both are there", func(f fleet) bool { return len(f.Replicas) == 2 && f.Owner == "a" })
	s.want(t, 200, "GET", "/v1/calls", "") // passed on
	s.want(t, 409, "POST", "/v1/fleet/move", `{"to":"c"}`)
	s.want(t, 200, "POST", "/v1/fleet/move", `{"to":"b","reason":"a test"}`)
	until("b has the calls", func(f fleet) bool { return f.Owner == "b" })
	s.admin = admins[0]
	s.want(t, 409, "POST", "/v1/fleet/bury", `{"replica":"b","it_has_ended":true}`) // it lives
	s.want(t, 400, "POST", "/v1/fleet/bury", `{"replica":"b","it_has_ended":false}`)
	processes[1].Kill()
	until("a has the calls", func(f fleet) bool { return f.Owner == "a" }) // a burial at the moment of the take-over would be refused
	s.want(t, 200, "POST", "/v1/fleet/bury", `{"replica":"b","it_has_ended":true,"reason":"a test"}`)
	until("b is forgotten", func(f fleet) bool {
		return !slices.ContainsFunc(f.Replicas, func(r struct{ Name string }) bool { return r.Name == "b" })
	})
}
