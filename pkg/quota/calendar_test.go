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
		{Calendar{Unit: Hour, Zone: berlin}, "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z"},
		{Calendar{Unit: Hour, Zone: berlin}, "2026-10-25T01:30:00Z", "2026-10-25T02:00:00Z"},
		{Calendar{Unit: Hour, Zone: berlin}, "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z"},
		{Calendar{Unit: Minute, Zone: berlin}, "2026-10-25T00:30:30Z", "2026-10-25T00:31:00Z"},
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

// changes returns the changes of a zone's offset from 2024 to 2037.
func changes(t *testing.T, zone *time.Location) (all []time.Time) {
	t.Helper()
	end := time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC); ; {
		_, at = at.In(zone).ZoneBounds()
		if at.IsZero() || at.After(end) {
			return all
		}
		all = append(all, at)
	}
}

// TestChangesOfTheOffset compares the ends of windows with a receiver that counts by the text of its wall clock, around each change
// of the offset: those of half an hour (Lord Howe) and of two hours (Troll), at midnight (Azores, Beirut) and in Ramadan (Casablanca).
func TestChangesOfTheOffset(t *testing.T) {
	total := 0
	for _, name := range []string{
		"Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Antarctica/Troll", "Atlantic/Azores", "Asia/Beirut",
		"Africa/Casablanca", "America/Havana", "America/St_Johns", "Pacific/Chatham", "America/Santiago", "Africa/Cairo",
	} {
		zone, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, change := range changes(t, zone) {
			total++
			for unit, layout := range map[Unit]string{Minute: "2006-01-02 15:04", Hour: "2006-01-02 15", Day: "2006-01-02", Month: "2006-01"} {
				checkChange(t, Calendar{Unit: unit, Zone: zone}, layout, change)
			}
		}
	}
	if total < 300 {
		t.Errorf("%d changes were tried", total)
	}
}

// checkChange compares the windows of a calendar from 4 hours before a change to 4 hours after it. Of a minute, a
// receiver forgets the count when it has ended.
func checkChange(t *testing.T, c Calendar, layout string, change time.Time) {
	t.Helper()
	from, to := change.Add(-4*time.Hour), change.Add(4*time.Hour)
	key := func(at time.Time) string {
		text := at.In(c.Zone).Format(layout)
		if c.Unit == Minute {
			text += at.In(c.Zone).Format(" -0700")
		}
		return text
	}
	step, over := time.Minute, to.Add(4*time.Hour)
	if c.Unit >= Day {
		step, over = 15*time.Minute, to.Add(32*24*time.Hour) // offsets are multiples of it
	}
	last := make(map[string]time.Time) // the end of the last step of a key
	for at := from; at.Before(over); at = at.Add(step) {
		last[key(at)] = at.Add(step)
	}
	for at := from; at.Before(to); at = at.Add(13 * time.Minute) {
		for _, at := range []time.Time{at, at.Add(time.Minute - 1), change.Add(-1), change} {
			if got, want := c.ResetsAt(at), last[key(at)]; !got.Equal(want) {
				t.Fatalf("%s at %s: the window ends at %s, and the receiver's at %s", c.Unit, at.In(c.Zone), got.In(c.Zone), want.In(c.Zone))
			}
		}
	}
	counted := make(map[string]bool)
	for at := from; at.Before(to); at = c.ResetsAt(at) { // one permit, taken as soon as it is back
		if counted[key(at)] {
			t.Fatalf("%s %s has two calls", c.Unit, key(at))
		}
		counted[key(at)] = true
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
