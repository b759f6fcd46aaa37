package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-30fe103d/throttler/pkg/scheduler"
)

// usualAnswer is how long an answer takes for which hints reckon.
const usualAnswer = 40 * time.Millisecond

// hintsOf returns the hints on a configuration, in the order of the file.
func hintsOf(c *Config) Errors {
	faults := newFaultList(c.places)
	for _, name := range slices.Sorted(maps.Keys(c.Scheduler.Upstreams)) {
		u, path := c.Scheduler.Upstreams[name], "upstreams."+name
		for i, l := range u.Limits {
			if l.Window > 0 && l.Window < time.Second {
				hintWindow(faults, index(path+".limits", i)+".window", l)
			}
		}
		preset := c.origins.presets[name]
		if preset.name == defaultPreset && len(u.Limits) > 0 && preset.limited == 0 {
			faults.warn(path, "the preset generic takes 429 for limited, and 403 only with fields that prove it; if the platform limits by another answer, as nginx does by 503 and HAProxy by 403, write limited: [503]; if by 429 alone, limited: [429]")
		}
	}
	return faults.sorted(faults.warnings)
}

// hintWindow tells which share of a short window can be used: a permit comes back a window after the
// answer, so a round takes both.
func hintWindow(faults *faultList, path string, l scheduler.Limit) {
	perSecond := int(math.Round(float64(l.Calls) * float64(time.Second) / float64(l.Window)))
	faults.warn(path, "with answers after %v at most %s of the quota can be used (window / (window + answer)); if the platform takes bursts, write calls: %d, window: 1s, of which it is %s",
		usualAnswer, shareOf(l.Window), perSecond, shareOf(time.Second))
}

func shareOf(window time.Duration) string {
	return fmt.Sprintf("%.0f%%", 100*float64(window)/float64(window+usualAnswer))
}
