package columns

import (
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MachineClock reads CLOCK_BOOTTIME, which goes on while the machine sleeps, and the id
// that Linux gives to each start: random(4).
func MachineClock() Boot {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return Boot{}
	}
	return Boot{bootID(), time.Duration(ts.Nano())}
}

var bootID = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})
