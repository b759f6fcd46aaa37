package store

import (
	"os"
	"strings"
	"testing"
)

// TestMachineClock: the clock of the machine has the id that Linux gives to this start, and
// goes on.
func TestMachineClock(t *testing.T) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	first, second := machineClock(), machineClock()
	if err != nil || first.id != strings.TrimSpace(string(id)) || second.id != first.id {
		t.Errorf("the ids are %q and %q, want %q, %v", first.id, second.id, id, err)
	}
	if first.since <= 0 || second.since < first.since {
		t.Errorf("the clock shows %v, then %v", first.since, second.since)
	}
}
