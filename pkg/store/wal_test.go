package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

// TestDamagedLog damages the log that a crash has left, in each of its frames. A store that
// starts has every commit but the last one, which a crash may tear.
func TestDamagedLog(t *testing.T) {
	const commits = 12
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	for n := range commits {
		if err := d.Intend(t.Context(), nil, []lease.Hold{{ID: int64(n + 1), Upstream: "api", Limit: "app", Permits: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	image := copyOf(t, d, filepath.Join(t.TempDir(), "image.db"))
	main, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(image + "-wal")
	if err != nil {
		t.Fatal(err)
	}
	const frame = frameHeader + 4096
	frames := (len(log) - walHeader) / frame
	refused, started := 0, 0
	try := func(name string, log []byte, least int) {
		copied := filepath.Join(t.TempDir(), "damaged.db")
		if err := os.WriteFile(copied, main, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+"-wal", log, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(copied, Options{Log: quiet, boot: steadyBoot, reserve: 4096})
		if err != nil {
			if refused++; !strings.Contains(err.Error(), "has a damaged log") {
				t.Errorf("%s: %v", name, err)
			}
			return
		}
		defer d.Close()
		started++
		past, err := d.Recover(t.Context(), 0, nil)
		if err != nil || len(past.Holds) < least {
			t.Errorf("%s: %d of %d commits are there, %v", name, len(past.Holds), commits, err)
		}
	}
	try("whole", log, commits)
	for n := range frames {
		for _, at := range []int{0, 5, 9, 17, frameHeader + 100, frame - 1} { // page, commit, salt, checksum, content
			damaged := append([]byte(nil), log...)
			damaged[walHeader+n*frame+at] ^= 0x10
			least := commits - 1
			if at == 9 { // a frame of an older log looks like this: the commit before may be its own
				least--
			}
			try("a frame", damaged, least)
		}
	}
	for n := range commits {
		try("a torn end", log[:len(log)-n*100], commits-1)
	}
	if refused < frames || started < commits {
		t.Errorf("%d damages were refused, and %d stores started, of %d frames", refused, started, frames)
	}
}
