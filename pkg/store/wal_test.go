package store

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed-30fe103d/throttler/pkg/lease"
)

const frame = frameHeader + 4096 // bytes in the log

// TestDamagedLog damages the log that a crash has left, in each of its frames. A store that
// starts has every commit but the last one, which a crash may tear.
func TestDamagedLog(t *testing.T) {
	path := file(t)
	d := open(t, path, Options{})
	if _, err := d.Recover(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
	commits, frames := 0, 0
	var main, log []byte
	for frames < 12 { // an idle moment moves the log into the file, once
		if err := d.Intend(t.Context(), nil, []lease.Hold{{ID: int64(commits + 1), Upstream: "api", Limit: "app", Permits: 1}}); err != nil {
			t.Fatal(err)
		}
		commits++
		image := copyOf(t, d, filepath.Join(t.TempDir(), "image.db"))
		var err, err2 error
		main, err = os.ReadFile(image)
		if log, err2 = os.ReadFile(image + "-wal"); err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		frames = 0 // of this log, not of the one before it
		for at := walHeader; at < len(log) && string(log[at+8:at+16]) == string(log[16:24]); at += frame {
			frames++
		}
	}
	refused, started := 0, 0
	try := func(name string, log []byte, least int) {
		copied := filepath.Join(t.TempDir(), "damaged.db")
		if err := os.WriteFile(copied, main, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copied+"-wal", log, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(copied, Options{Log: quiet, boot: steadyBoot, fileID: sameFile, reserve: 4096})
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
	end := walHeader + frames*frame
	for n := range 10 {
		try("a torn end", log[:end-n*100], commits-1)
	}
	if refused < frames || started < 10 {
		t.Errorf("%d damages were refused, and %d stores started, of %d frames", refused, started, frames)
	}
}

// logOf returns the log of a file with pages of a size, four commits of one page each.
func logOf(t *testing.T, page int) []byte {
	t.Helper()
	path := file(t)
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	const insert = "INSERT INTO a VALUES (1)" // changes one page
	for _, statement := range []string{fmt.Sprint("PRAGMA page_size = ", page), "PRAGMA journal_mode = WAL", "CREATE TABLE a (b)", "PRAGMA wal_checkpoint(TRUNCATE)", insert, insert, insert, insert} {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	log, err := os.ReadFile(path + "-wal")
	if want := walHeader + 4*(frameHeader+page); err != nil || len(log) != want {
		t.Fatalf("the log has %d bytes, want %d, %v", len(log), want, err)
	}
	return log
}

// TestPagesOfALog: a log is read with pages of each size that SQLite has. One whose header
// has another size is torn: it has no commit.
func TestPagesOfALog(t *testing.T) {
	behind := func(log []byte) int {
		t.Helper()
		n, err := commitsBehindABreak(bytes.NewReader(log))
		if err != nil {
			t.Error(err)
		}
		return n
	}
	for page := 512; page <= 65536; page *= 2 {
		log := logOf(t, page)
		if n := behind(log); n != 0 {
			t.Errorf("pages of %d bytes: %d commits follow a break, and nothing is damaged", page, n)
		}
		log[walHeader+frameHeader+page+frameHeader] ^= 1 // the second commit
		if n := behind(log); n != 3 {
			t.Errorf("pages of %d bytes: %d commits follow a break, want three", page, n)
		}
		for _, torn := range []uint32{0, 256, 511, 65537, 131072} {
			binary.BigEndian.PutUint32(log[8:], torn)
			if n := behind(log); n != 0 {
				t.Errorf("pages of %d bytes, in the torn header of %d: %d commits follow a break", page, torn, n)
			}
		}
	}
}

// TestUnreadableLog: a log that the disk does not give is no log without damage.
func TestUnreadableLog(t *testing.T) {
	log := logOf(t, 4096)
	failed := errors.New("input/output error")
	for _, at := range []int{0, walHeader, walHeader + frame, len(log)} {
		if _, err := commitsBehindABreak(io.MultiReader(bytes.NewReader(log[:at]), iotest.ErrReader(failed))); !errors.Is(err, failed) {
			t.Errorf("a disk that fails behind %d bytes: %v", at, err)
		}
	}
}
