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

// TestResetsAt compares the ends of windows with those of a wall clock, also on the day of 25 hours.
func TestResetsAt(t *testing.T) {
	shanghai := time.FixedZone("CST", 8*3600)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		c         Calendar
		now, want string
	}{
		{Calendar{Unit: Minute}, "2026-11-24T20:58:55Z", "2026-11-24T20:59:00Z"},
		{Calendar{Unit: Hour, Skew: time.Second}, "2026-11-24T20:58:55Z", "2026-11-24T21:00:00Z"},
		{Calendar{Unit: Day}, "2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"},
		{Calendar{Unit: Day, Zone: shanghai}, "2026-11-24T15:59:59Z", "2026-11-24T16:00:00Z"},
		{Calendar{Unit: Day, Zone: berlin}, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{Calendar{Unit: Month, Zone: shanghai}, "2026-12-30T16:00:00Z", "2026-12-31T16:00:00Z"},
	} {
		now, _ := time.Parse(time.RFC3339, tt.now)
		if got := tt.c.ResetsAt(now).UTC().Format(time.RFC3339); got != tt.want {
			t.Errorf("%+v at %s resets at %s, want %s", tt.c, tt.now, got, tt.want)
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
