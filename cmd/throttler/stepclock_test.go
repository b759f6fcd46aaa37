package main

import (
	"bytes"
	bits "encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// clockOfAFile is the package of a wall clock that a test steps: it adds the seconds that a
// file beside the configuration holds. The monotonic reading of an instant stays as it is,
// as on a machine whose clock is put by a person or by NTP.
const clockOfAFile = `package stepclock

import (
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

var ahead = mapped(os.Args[len(os.Args)-1] + ".clock")

func mapped(path string) *uint64 {
	f, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	memory, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*uint64)(unsafe.Pointer(&memory[0]))
}

// Now returns the time. The wall seconds of a time.Time with a monotonic reading begin at
// bit 30 of its first word.
func Now() time.Time {
	t := time.Now()
	*(*uint64)(unsafe.Pointer(&t)) += atomic.LoadUint64(ahead) << 30
	return t
}
`

// setClock puts the clock of the sidecar with a configuration so far ahead of the real one,
// in whole seconds.
func setClock(t *testing.T, config string, ahead time.Duration) {
	t.Helper()
	f, err := os.OpenFile(config+".clock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bits.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0); err != nil {
		t.Fatal(err)
	}
}

// stepping builds the sidecar with such a clock once, and returns its path. Wherever the
// module asks for the time, this build asks the clock: nothing of it is in the real one.
var stepping = sync.OnceValues(func() (string, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	put := func(path, text string) error {
		changed := filepath.Join(tempDir, fmt.Sprintf("step%d.go", len(replace)))
		replace[path] = changed
		return os.WriteFile(changed, []byte(text), 0o600)
	}
	err = put(filepath.Join(root, "internal", "stepclock", "stepclock.go"), clockOfAFile)
	for _, dir := range []string{"cmd/throttler", "internal", "pkg"} {
		err = errors.Join(err, filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil || !bytes.Contains(text, []byte("time.Now()")) {
				return err
			}
			name := packageLine.Find(text)
			changed := strings.ReplaceAll(string(text), "time.Now()", "stepclock.Now()")
			changed = strings.Replace(changed, string(name), string(name)+"\nimport \"github.com/seed-30fe103d/throttler/internal/stepclock\"", 1)
			return put(path, changed+"\nvar _, _ = time.Now, stepclock.Now\n") // where a comment alone names it
		}))
	}
	list, err2 := json.Marshal(map[string]any{"Replace": replace})
	overlay, path := filepath.Join(tempDir, "overlay.json"), filepath.Join(tempDir, "throttler-stepping")
	if err = errors.Join(err, err2, os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-overlay", overlay, "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
})

var packageLine = regexp.MustCompile(`(?m)^package \w+$`)
