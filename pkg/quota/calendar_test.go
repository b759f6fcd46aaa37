package quota

import (
	"testing"
	"time"
)

func TestParseUnit(t *testing.T) {
	for name, want := range map[string]Unit{"minute": Minute, "hour": Hour, "day": Day, "month": Month} {
		if u, err := ParseUnit(name); u != want || err != nil || u.String() != name {
			t.Errorf("ParseUnit(%q) = %v, %v", name, u, err)
		}
	}
	for _, name := range []string{"", "week", "Day", "days"} {
		if u, err := ParseUnit(name); u != 0 || err == nil {
			t.Errorf("ParseUnit(%q) = %v, want an error", name, u)
		}
	}
}

// TestCalendarsAreEqual compares calendars, no calendar among them.
func TestCalendarsAreEqual(t *testing.T) {
	different := []*Calendar{nil, {Unit: Day}, {Unit: Hour}, {Unit: Day, Skew: 1}, {Unit: Day, Zone: time.FixedZone("CST", 8*3600)}}
	for i, c := range different {
		for j, o := range different {
			if c.Equal(o) != (i == j) {
				t.Errorf("%v and %v: Equal is %v", c, o, c.Equal(o))
			}
		}
	}
	if !(&Calendar{Unit: Day}).Equal(&Calendar{Unit: Day, Zone: time.UTC}) {
		t.Error("no zone is not UTC")
	}
}
