package columns

import (
	"os"
	"strings"
	"testing"
)

// TestMachineClock: the clock of the machine has the id that Linux gives to this start, and
// goes on.
func TestMachineClock(t *testing.T) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	first, second := MachineClock(), MachineClock()
	if err != nil || first.ID != strings.TrimSpace(string(id)) || second.ID != first.ID {
		t.Errorf("the ids are %q and %q, want %q, %v", first.ID, second.ID, id, err)
	}
	if first.Since <= 0 || second.Since < first.Since {
		t.Errorf("the clock shows %v, then %v", first.Since, second.Since)
	}
}
