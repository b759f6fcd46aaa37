package store

import (
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"

	sqlite3 "modernc.org/sqlite/lib"
)

// A position is how far the commits of a store have come: its epoch, and within that the
// clock of the process, microseconds. It never goes back.
type position struct{ epoch, steady int64 }

func (p position) before(q position) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.steady < q.steady
}

func (p position) String() string { return fmt.Sprint(p.epoch, " ", p.steady) }

// An origin is what meta knows of the store and of the file that it lies in.
type origin struct {
	id    string   // of the store
	file  string   // the file to which it belongs; empty in a new store, and in one of an older program
	at    position // of the last commit
	base  position // the file itself had all commits up to this one when the last one was made
	named bool     // the file itself says to which file it belongs, without its log
}

// isBackup is meta 'file' in the result of [File.Backup].
const isBackup = "backup"

// readOrigin reads the origin of a file, zero if that is no store yet. More is a part of
// the DSN.
func readOrigin(path string, o Options, more string) (g origin, err error) {
	db, err := sql.Open("sqlite", dsn(path, o.vfs, "mode=ro"+more))
	if err != nil {
		return g, err
	}
	defer db.Close()
	rows, err := db.Query("SELECT name, value FROM meta WHERE name IN ('id', 'file', 'epoch', 'mark', 'base')")
	if sqliteCode(err) == sqlite3.SQLITE_ERROR { // no such table
		return g, nil
	} else if err != nil {
		return g, err
	}
	defer rows.Close()
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return g, err
		}
		switch name {
		case "id":
			g.id = value
		case "file":
			g.file = value
		case "epoch":
			_, err = fmt.Sscan(value, &g.at.epoch)
		case "mark":
			_, err = fmt.Sscan(value, &g.at.steady)
		case "base":
			_, err = fmt.Sscan(value, &g.base.epoch, &g.base.steady)
		}
		if err != nil {
			return g, fmt.Errorf("meta %s is %.40q: %w", name, value, err)
		}
	}
	return g, rows.Err()
}

// originOf reads the origin of a file with its log. It fails if the log is that of another
// copy: SQLite would mix their pages. The file alone must have the commits before the log.
func originOf(path string, o Options) (origin, error) {
	whole, err := readOrigin(path, o, "")
	if err != nil {
		return whole, err
	}
	alone, halfWritten := readOrigin(path, o, "&immutable=1")
	whole.named = halfWritten == nil && alone.file != ""
	switch {
	case halfWritten != nil: // by a checkpoint that a crash has ended: the log has it all
	case alone.at == whole.at:
		whole.base = alone.at
	case alone.at.before(whole.base):
		err = errors.New("has a log (-wal) that does not belong to it: the file was replaced by an older copy, and its log was not; put back both, or remove the log")
	}
	return whole, err
}

// A note is the position of a store's last commit in a file beside it, the one of its lock.
// It tells an older copy that was put in the store's place.
type note struct{ file *os.File }

const noteFormat = "throttler store %s at %020d %020d\n"

// read returns the store of the note, empty if there is none, and its position.
func (n note) read() (id string, at position) {
	text := make([]byte, 200)
	size, _ := n.file.ReadAt(text, 0)
	if _, err := fmt.Sscanf(string(text[:size]), noteFormat, &id, &at.epoch, &at.steady); err != nil {
		return "", position{} // the power failed while it was first written
	}
	return id, at
}

// write notes a commit. The note is in the system's memory at once, and so survives the
// process; a loss of power may cost its last seconds.
func (n note) write(id string, at position) error {
	_, err := n.file.WriteAt(fmt.Appendf(nil, noteFormat, id, at.epoch, at.steady), 0)
	return err
}

// begin notes a store that takes the place of another.
func (n note) begin(id string) error {
	return errors.Join(n.file.Truncate(0), n.write(id, position{}), n.file.Sync())
}

// refuse fails if a file is a copy, or is older than a note says.
func (g origin) refuse(fileID, id string, at position) error {
	const harm = "calls that ended since would be sent again; start it with serve --restored (Options.Restored), which makes its waiting calls unknown"
	switch {
	case g.file == isBackup:
		return fmt.Errorf("is a backup: %s", harm)
	case g.file != "" && !sameFileID(g.file, fileID):
		return fmt.Errorf("is a copy: the store lies in another file (inode and time of birth are %q, not %q); %s", fileID, g.file, harm)
	case id != "" && id != g.id:
		return errors.New("is not the store that was here before, and that one is gone: put it back; to begin without it, with its limits full for a window, start once with serve --restored (Options.Restored)")
	case g.at.before(at):
		return fmt.Errorf("is an older copy: the last commit here was %v, that of the file is %v; %s", at, g.at, harm)
	}
	return nil
}

// sameFileID compares two results of [fileID]. The time of birth is 0 where the file
// system does not know it.
func sameFileID(a, b string) bool {
	var inode, born [2]int64
	for i, id := range []string{a, b} {
		if _, err := fmt.Sscan(id, &inode[i], &born[i]); err != nil {
			return false
		}
	}
	return inode[0] == inode[1] && (born[0] == born[1] || born[0] == 0 || born[1] == 0)
}

// admit reads the origin of the file, and refuses a copy unless that is restored. A store
// that is restored gets another id, which the note has first: as long as the file does not
// have it too, with its calls unknown, the file is refused.
func admit(path string, o Options, fileID string, n note) (g origin, restored string, err error) {
	id, at := n.read()
	if g, err = originOf(path, o); err != nil {
		return g, "", err
	}
	if !o.Restored {
		return g, "", g.refuse(fileID, id, at)
	}
	restored = rand.Text()
	return g, restored, n.begin(restored)
}
